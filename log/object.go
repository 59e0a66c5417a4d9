package log

// Kind is what an object is.
type Kind uint8

const (
	KindStart Kind = 1 // an epoch begins; no transactions
	KindBatch Kind = 2
)

// Header is what stands before an object's payload.
type Header struct {
	Lineage ID
	Claim   ID
	Epoch   uint64
	Kind    Kind
	FirstT  uint64 // of a start: its head's last t + 1
	Count   uint32 // transactions; 0 in a start
	Prev    Pos    // zero for the first object of all
	Fenced  uint64 // the last t that the writer had acknowledged
}

// Key is where the object is stored.
func (h *Header) Key() Key {
	if h.Kind == KindStart {
		return StartKey(h.Epoch)
	}
	return Key{h.Epoch, h.FirstT}
}

// Object is one immutable object of a log: its header and its bytes. Make one with Encode or Decode.
type Object struct {
	Header
	bytes []byte
	hash  Hash
}

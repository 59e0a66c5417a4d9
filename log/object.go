package log

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/steledb/stele/datom"
)

// Kind is what an object is.
type Kind uint8

const (
	KindStart Kind = 1 // an epoch begins; no transactions
	KindBatch Kind = 2
)

func (k Kind) String() string {
	switch k {
	case KindStart:
		return "start"
	case KindBatch:
		return "batch"
	default:
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
}

// FormatVersion is the newest object format that this library writes. It reads every version from 1 on.
const FormatVersion uint32 = 1

const (
	// HeaderSize is how many bytes stand before an object's payload, in every version so far; see [ObjectSize].
	HeaderSize = 124
	// MaxPayload bounds an object's payload, compressed or not, in bytes.
	MaxPayload = 64 << 20
	// MaxCount bounds the transactions of one object.
	MaxCount = 1 << 20
	// MaxObject bounds an object's size in bytes.
	MaxObject = HeaderSize + MaxPayload + checksumSize

	checksumSize = 4
	objectMagic  = "STLO"
	flagZstd     = 1 << 0
)

// Header is what stands before an object's payload.
type Header struct {
	Format  uint32 // the object's format version; Encode takes 0 as FormatVersion
	Lineage ID
	Claim   ID
	Epoch   uint64 // from 1
	Kind    Kind
	FirstT  uint64 // of a start: its head's last t + 1
	Count   uint32 // transactions; 0 in a start; Encode takes 0 as what it is given
	Prev    Pos    // zero for the first object of all
	Fenced  uint64 // the last t that the writer had acknowledged; below FirstT
}

// Key is where the object is stored.
func (h *Header) Key() Key {
	if h.Kind == KindStart {
		return StartKey(h.Epoch)
	}
	return Key{h.Epoch, h.FirstT}
}

// LastT is the last t that the log holds once this object is its head: a batch's last transaction, or what a start found.
func (h *Header) LastT() uint64 { return h.FirstT + uint64(h.Count) - 1 }

// check says what is wrong with a header on its own.
func (h *Header) check() error {
	switch {
	case h.Format < 1 || h.Format > FormatVersion:
		return fmt.Errorf("object format %d is not known; this library reads 1 to %d", h.Format, FormatVersion)
	case h.Lineage.IsZero() || h.Claim.IsZero():
		return errors.New("no lineage or no claim")
	case h.Epoch == 0 || h.Epoch == math.MaxUint64:
		return fmt.Errorf("epoch %d", h.Epoch)
	case h.FirstT == 0 || h.FirstT > datom.MaxSeq-MaxCount:
		return fmt.Errorf("first t is %d", h.FirstT)
	case h.Fenced >= h.FirstT:
		return fmt.Errorf("fenced is %d at first t %d", h.Fenced, h.FirstT)
	case h.Prev.Key.Epoch == 0 && h.Prev != Pos{}, h.Prev.Key.Epoch != 0 && h.Prev.Hash == Hash{}:
		return errors.New("previous is half set")
	}
	switch h.Kind {
	case KindStart:
		switch {
		case h.Count != 0:
			return fmt.Errorf("a start of %d transactions", h.Count)
		case h.Prev == Pos{} && h.FirstT != 1:
			return fmt.Errorf("nothing before it, and first t is %d", h.FirstT)
		case h.Prev.Key.Epoch >= h.Epoch:
			return fmt.Errorf("a start of epoch %d behind %s", h.Epoch, h.Prev)
		}
	case KindBatch:
		switch {
		case h.Count == 0 || h.Count > MaxCount:
			return fmt.Errorf("a batch of %d transactions", h.Count)
		case h.Prev.Key.Epoch != h.Epoch || h.Prev.Key.FirstT >= h.FirstT:
			return fmt.Errorf("batch %s behind %s", h.Key(), h.Prev)
		}
	default:
		return fmt.Errorf("unknown kind %d", h.Kind)
	}
	return nil
}

// Object is one immutable object of a log: its header and its bytes. Make one with Encode or Decode. It may be used by
// any number of goroutines.
type Object struct {
	Header
	bytes []byte
	flags byte
	raw   uint32 // the payload's length before compression

	once sync.Once
	hash Hash
}

// Bytes is the object as stores keep it. They must not be changed.
func (o *Object) Bytes() []byte { return o.bytes }

// Size is how many bytes the object takes in a store.
func (o *Object) Size() int { return len(o.bytes) }

// PayloadSize is the payload's length before compression, in bytes.
func (o *Object) PayloadSize() int { return int(o.raw) }

// Hash is the chain hash: the SHA-256 of the object's bytes. It is computed once.
func (o *Object) Hash() Hash {
	o.once.Do(func() { o.hash = sha256.Sum256(o.bytes) })
	return o.hash
}

// Pos is the object's key and chain hash, as the next object's Prev holds it.
func (o *Object) Pos() Pos { return Pos{o.Key(), o.Hash()} }

// Encode makes an object. txs are its transactions: their t is dense from h.FirstT, their datoms' t is theirs; a start has
// none. Nothing of txs is kept. With compress the payload is compressed, if that makes it smaller. An error says what the
// caller did wrong, or that the transactions are larger than MaxPayload.
func Encode(h Header, txs []*datom.Tx, compress bool) (*Object, error) {
	if h.Format == 0 {
		h.Format = FormatVersion
	}
	if h.Count == 0 && len(txs) <= MaxCount {
		h.Count = uint32(len(txs))
	}
	if err := h.check(); err != nil {
		return nil, fmt.Errorf("cannot encode object: %w", err)
	}
	if uint64(h.Count) != uint64(len(txs)) {
		return nil, fmt.Errorf("cannot encode object %s: count is %d, %d transactions given", h.Key(), h.Count, len(txs))
	}
	size := HeaderSize + checksumSize
	for _, tx := range txs {
		size += 18
		for i := range tx.Datoms {
			size += tx.Datoms[i].V.Size() // 16 and the text: a little more than head, id, attribute and value take
		}
	}
	b := make([]byte, HeaderSize, size)
	for i, tx := range txs {
		if tx.T != h.FirstT+uint64(i) {
			return nil, fmt.Errorf("cannot encode object %s: transaction %d has t %d", h.Key(), i, tx.T)
		}
		var err error
		if b, err = appendRecord(b, tx); err != nil {
			return nil, fmt.Errorf("cannot encode object %s: t %d: %w", h.Key(), tx.T, err)
		}
		if len(b)-HeaderSize > MaxPayload {
			return nil, fmt.Errorf("cannot encode object %s: more than %d bytes", h.Key(), MaxPayload)
		}
	}
	o := &Object{Header: h, raw: uint32(len(b) - HeaderSize)}
	if compress && o.raw > 0 {
		c, err := compression()
		if err != nil {
			return nil, err
		}
		z := c.enc.EncodeAll(b[HeaderSize:], make([]byte, HeaderSize, HeaderSize+checksumSize+len(b)/2))
		if len(z) < len(b) {
			b, o.flags = z, flagZstd
		}
	}
	be := binary.BigEndian
	copy(b, objectMagic)
	be.PutUint16(b[4:], uint16(h.Format))
	b[6], b[7] = byte(h.Kind), o.flags
	copy(b[8:], h.Lineage[:])
	copy(b[24:], h.Claim[:])
	be.PutUint64(b[40:], h.Epoch)
	be.PutUint64(b[48:], h.FirstT)
	be.PutUint64(b[56:], h.Fenced)
	be.PutUint64(b[64:], h.Prev.Key.Epoch)
	be.PutUint64(b[72:], h.Prev.Key.FirstT)
	copy(b[80:], h.Prev.Hash[:])
	be.PutUint32(b[112:], h.Count)
	be.PutUint32(b[116:], o.raw)
	be.PutUint32(b[120:], uint32(len(b)-HeaderSize))
	o.bytes = be.AppendUint32(b, crc32.Checksum(b, castagnoli))
	return o, nil
}

// ObjectSize says from the first HeaderSize bytes of an object how long it is, in bytes, checksum included. It checks no
// more than it needs, and what it answers is at most MaxObject: a store that keeps objects one behind the other finds
// their ends with it. An error wraps ErrCorrupt.
func ObjectSize(header []byte) (int, error) {
	switch {
	case len(header) < HeaderSize:
		return 0, &CorruptError{Reason: fmt.Sprintf("%d bytes are shorter than an object's header", len(header))}
	case string(header[:4]) != objectMagic:
		return 0, &CorruptError{Reason: fmt.Sprintf("no object starts with %x", header[:4])}
	}
	n := binary.BigEndian.Uint32(header[120:])
	if n > MaxPayload {
		return 0, &CorruptError{Reason: fmt.Sprintf("a payload of %d bytes", n)}
	}
	return HeaderSize + int(n) + checksumSize, nil
}

// Decode reads an object from b, which holds it and nothing else, and which the object keeps. It verifies the checksum
// and everything in the header; the records are decoded by Txs. An error is a *CorruptError.
func Decode(b []byte) (*Object, error) {
	size, err := ObjectSize(b)
	if err != nil {
		return nil, err
	}
	if size != len(b) {
		return nil, &CorruptError{Reason: fmt.Sprintf("the object is %d bytes long, its header says %d", len(b), size)}
	}
	be := binary.BigEndian
	body, sum := b[:size-checksumSize], be.Uint32(b[size-checksumSize:])
	if crc32.Checksum(body, castagnoli) != sum {
		return nil, &CorruptError{Reason: "the checksum does not match"}
	}
	o := &Object{
		Header: Header{
			Format:  uint32(be.Uint16(b[4:])),
			Kind:    Kind(b[6]),
			Lineage: ID(b[8:24]),
			Claim:   ID(b[24:40]),
			Epoch:   be.Uint64(b[40:]),
			FirstT:  be.Uint64(b[48:]),
			Fenced:  be.Uint64(b[56:]),
			Prev:    Pos{Key{be.Uint64(b[64:]), be.Uint64(b[72:])}, Hash(b[80:112])},
			Count:   be.Uint32(b[112:]),
		},
		flags: b[7],
		raw:   be.Uint32(b[116:]),
		bytes: b[:size:size],
	}
	if err := o.Header.check(); err != nil {
		return nil, &CorruptError{Key: o.Key(), Reason: err.Error()}
	}
	payload := uint32(size - HeaderSize - checksumSize)
	switch {
	case o.flags&^flagZstd != 0:
		err = fmt.Errorf("unknown flags %#x", o.flags)
	case o.raw > MaxPayload:
		err = fmt.Errorf("an uncompressed payload of %d bytes", o.raw)
	case o.flags&flagZstd == 0 && o.raw != payload, o.flags&flagZstd != 0 && o.raw <= payload:
		err = fmt.Errorf("a payload of %d bytes that is %d uncompressed", payload, o.raw)
	case o.raw < o.Count*minRecord, o.Kind == KindStart && o.raw != 0:
		err = fmt.Errorf("a payload of %d bytes for %d transactions", o.raw, o.Count)
	}
	if err != nil {
		return nil, &CorruptError{Key: o.Key(), Reason: err.Error()}
	}
	return o, nil
}

// records is the payload, uncompressed.
func (o *Object) records() ([]byte, error) {
	p := o.bytes[HeaderSize : len(o.bytes)-checksumSize]
	if o.flags&flagZstd == 0 {
		return p, nil
	}
	c, err := compression()
	if err != nil {
		return nil, err
	}
	out, err := c.dec.DecodeAll(p, make([]byte, 0, o.raw))
	if err != nil {
		return nil, &CorruptError{Key: o.Key(), Reason: "the payload does not decompress", Err: err}
	}
	if len(out) != int(o.raw) {
		return nil, &CorruptError{Key: o.Key(), Reason: fmt.Sprintf("the payload is %d bytes uncompressed, its header says %d", len(out), o.raw)}
	}
	return out, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// codecs are stateless between calls and safe for concurrent use; making them costs megabytes, so there is one of each.
type codecs struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

var compression = sync.OnceValues(func() (c codecs, err error) {
	if c.enc, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false)); err != nil {
		return c, err
	}
	c.dec, err = zstd.NewReader(nil, zstd.WithDecoderMaxMemory(MaxPayload), zstd.WithDecoderConcurrency(0))
	return c, err
})

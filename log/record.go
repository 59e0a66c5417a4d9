package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math/bits"

	"github.com/steledb/stele/datom"
)

// The tags of a record's fields, in the order in which they stand. Numbers are never reused.
const (
	tagT       = 1
	tagInstant = 2
	tagNext    = 3
	tagDatoms  = 4
)

// How a datom's head byte says what its entity is.
const (
	headAdded  = 1 << 0
	entitySame = 0 << 1 // the entity of the datom before it in this record
	entityTx   = 1 << 1 // this transaction's entity
	entityUser = 2 << 1 // a sequence in PartUser follows
	entityAny  = 3 << 1 // the id follows
	entityMask = 3 << 1
	headMask   = headAdded | entityMask
)

const (
	minRecord = 10 // length, t, instant, next, datoms: a tag and at least one byte each, two in next
	minDatom  = 4  // head, attribute, and a value's tag and one byte
)

// appendRecord appends one framed record.
func appendRecord(b []byte, tx *datom.Tx) ([]byte, error) {
	const room = 2 // most records are longer than 127 bytes and shorter than 16 KiB
	start := len(b)
	b = append(b, 0, 0)
	b = append(b, tagT)
	b = binary.AppendUvarint(b, tx.T)
	b = append(b, tagInstant)
	b = binary.AppendVarint(b, tx.Instant)
	b = append(b, tagNext)
	b = binary.AppendUvarint(b, tx.Next.Part)
	b = binary.AppendUvarint(b, tx.Next.Seq)
	b = append(b, tagDatoms)
	b = binary.AppendUvarint(b, uint64(len(tx.Datoms)))
	self, last := datom.TxID(tx.T), datom.MaxID
	for i := range tx.Datoms {
		d := &tx.Datoms[i]
		if d.T != tx.T {
			return nil, fmt.Errorf("datom %s is of another transaction", d)
		}
		if d.E >= datom.MaxID || d.A >= datom.MaxID || d.V.IsNil() {
			return nil, fmt.Errorf("datom %s has no encoding", d)
		}
		var head byte
		if d.Added {
			head = headAdded
		}
		switch {
		case d.E == last:
			b = append(b, head|entitySame)
		case d.E == self:
			b = append(b, head|entityTx)
		case d.E.Part() == datom.PartUser:
			b = append(b, head|entityUser)
			b = binary.AppendUvarint(b, d.E.Seq())
		default:
			b = append(b, head|entityAny)
			b = binary.AppendUvarint(b, uint64(d.E))
		}
		last = d.E
		b = binary.AppendUvarint(b, uint64(d.A))
		b = d.V.AppendKey(b)
	}
	n := len(b) - start - room
	if n > MaxPayload {
		return nil, fmt.Errorf("the transaction takes %d bytes, more than %d", n, MaxPayload)
	}
	// The length goes in front; where it does not take the room left for it, the body moves.
	width := uvarintLen(uint64(n))
	if width > room {
		b = append(b, make([]byte, width-room)...)
	}
	if width != room {
		copy(b[start+width:], b[start+room:start+room+n])
		b = b[:start+width+n]
	}
	binary.PutUvarint(b[start:], uint64(n))
	return b, nil
}

func uvarintLen(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

var errRecord = errors.New("malformed record")

// uvarint reads a number in its shortest form from the front of b.
func uvarint(b []byte) (v uint64, rest []byte, err error) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), b[1:], nil
	}
	v, n := binary.Uvarint(b)
	if n <= 0 || b[n-1] == 0 {
		return 0, nil, fmt.Errorf("%w: number is truncated, too large or not in its shortest form", errRecord)
	}
	return v, b[n:], nil
}

func expectTag(b []byte, tag byte) ([]byte, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("%w: field %d is missing", errRecord, tag)
	}
	if b[0] != tag {
		return nil, fmt.Errorf("%w: field %d where %d belongs", errRecord, b[0], tag)
	}
	return b[1:], nil
}

// decodeRecord reads one framed record from the front of b.
func decodeRecord(b []byte) (tx *datom.Tx, rest []byte, err error) {
	n, b, err := uvarint(b)
	if err != nil {
		return nil, nil, err
	}
	if n > uint64(len(b)) {
		return nil, nil, fmt.Errorf("%w: %d bytes long, %d are left", errRecord, n, len(b))
	}
	body, rest := b[:n], b[n:]
	tx = new(datom.Tx)
	if body, err = expectTag(body, tagT); err != nil {
		return nil, nil, err
	}
	if tx.T, body, err = uvarint(body); err != nil {
		return nil, nil, err
	}
	if body, err = expectTag(body, tagInstant); err != nil {
		return nil, nil, err
	}
	var zigzag uint64
	if zigzag, body, err = uvarint(body); err != nil {
		return nil, nil, err
	}
	tx.Instant = int64(zigzag>>1) ^ -int64(zigzag&1)
	if body, err = expectTag(body, tagNext); err != nil {
		return nil, nil, err
	}
	if tx.Next.Part, body, err = uvarint(body); err != nil {
		return nil, nil, err
	}
	if tx.Next.Seq, body, err = uvarint(body); err != nil {
		return nil, nil, err
	}
	if body, err = expectTag(body, tagDatoms); err != nil {
		return nil, nil, err
	}
	count, body, err := uvarint(body)
	if err != nil {
		return nil, nil, err
	}
	if count > uint64(len(body)/minDatom) {
		return nil, nil, fmt.Errorf("%w: %d datoms in %d bytes", errRecord, count, len(body))
	}
	tx.Datoms = make([]datom.Datom, count)
	last := datom.MaxID
	for i := range tx.Datoms {
		d := &tx.Datoms[i]
		if body, err = decodeDatom(d, body, tx.T, last); err != nil {
			return nil, nil, fmt.Errorf("datom %d: %w", i, err)
		}
		last = d.E
	}
	if len(body) > 0 {
		return nil, nil, fmt.Errorf("%w: unknown field %d", errRecord, body[0])
	}
	return tx, rest, nil
}

func decodeDatom(d *datom.Datom, b []byte, t uint64, last datom.ID) (rest []byte, err error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("%w: truncated", errRecord)
	}
	head, b := b[0], b[1:]
	if head&^headMask != 0 {
		return nil, fmt.Errorf("%w: unknown head %#x", errRecord, head)
	}
	d.T, d.Added = t, head&headAdded != 0
	var n uint64
	switch head & entityMask {
	case entitySame:
		d.E = last
	case entityTx:
		d.E = datom.TxID(t)
	case entityUser:
		if n, b, err = uvarint(b); err != nil {
			return nil, err
		}
		if n > datom.MaxSeq {
			return nil, fmt.Errorf("%w: sequence %d", errRecord, n)
		}
		d.E = datom.MakeID(datom.PartUser, n)
	default:
		if n, b, err = uvarint(b); err != nil {
			return nil, err
		}
		d.E = datom.ID(n)
	}
	if n, b, err = uvarint(b); err != nil {
		return nil, err
	}
	d.A = datom.ID(n)
	if d.E >= datom.MaxID || d.A >= datom.MaxID {
		return nil, fmt.Errorf("%w: %d and %d are not both entity ids", errRecord, uint64(d.E), uint64(d.A))
	}
	v, used, err := datom.DecodeKey(b)
	if err != nil {
		return nil, err
	}
	d.V = v
	return b[used:], nil
}

// Txs decodes the object's transactions, in order. Each is the caller's, and shares no memory with the object. It ends
// with an error, a *CorruptError, if the records are not what the header says.
func (o *Object) Txs() iter.Seq2[*datom.Tx, error] {
	return func(yield func(*datom.Tx, error) bool) {
		if o.Count == 0 {
			return
		}
		b, err := o.records()
		if err != nil {
			yield(nil, err)
			return
		}
		for t := o.FirstT; t <= o.LastT(); t++ {
			tx, rest, err := decodeRecord(b)
			if err == nil && tx.T != t {
				err = fmt.Errorf("%w: its t is %d", errRecord, tx.T)
			}
			if err != nil {
				yield(nil, &CorruptError{Key: o.Key(), Reason: fmt.Sprintf("transaction %d", t), Err: err})
				return
			}
			if b = rest; t == o.LastT() && len(b) > 0 {
				yield(nil, &CorruptError{Key: o.Key(), Reason: fmt.Sprintf("%d bytes behind the last transaction", len(b))})
				return
			}
			if !yield(tx, nil) {
				return
			}
		}
	}
}

// AppendTxs decodes all of the object's transactions and appends them to txs.
func (o *Object) AppendTxs(txs []*datom.Tx) ([]*datom.Tx, error) {
	for tx, err := range o.Txs() {
		if err != nil {
			return nil, err
		}
		txs = append(txs, tx)
	}
	return txs, nil
}

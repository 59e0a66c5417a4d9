package db

import (
	"encoding/binary"
	"fmt"

	"github.com/steledb/stele/datom"
)

// Index names one of the four sorted orders that every database value is kept in.
type Index uint8

const (
	EAVT Index = iota // all datoms, by entity
	AEVT              // all datoms, by attribute
	AVET              // datoms of indexed and unique attributes, by value
	VAET              // datoms whose value is a ref, by that ref

	numIndexes = 4
)

// String is the index's name in lower case, without a colon.
func (ix Index) String() string {
	if ix >= numIndexes {
		return fmt.Sprintf("index(%d)", uint8(ix))
	}
	return [...]string{"eavt", "aevt", "avet", "vaet"}[ix]
}

// A key is one datom in an index's order: the components' encodings, which are order-preserving and prefix-free, then
// tLen bytes, the complement of t<<1|added, so that of one (e, a, v) the newest comes first. A key without its last tLen
// bytes is its group: all that was ever said of one fact.
const tLen = 6

const tMask = 1<<(8*tLen) - 1

func appendT(b []byte, t uint64, added bool) []byte {
	x := t << 1
	if added {
		x |= 1
	}
	x = ^x & tMask
	return append(b, byte(x>>40), byte(x>>32), byte(x>>24), byte(x>>16), byte(x>>8), byte(x))
}

// keyT is the transaction of a key, and whether it asserts.
func keyT(k []byte) (t uint64, added bool) {
	p := k[len(k)-tLen:]
	x := uint64(binary.BigEndian.Uint32(p[2:])) | uint64(binary.BigEndian.Uint16(p))<<32
	x = ^x & tMask
	return x >> 1, x&1 != 0
}

// keyAdded reports whether a key asserts.
func keyAdded(k []byte) bool { return k[len(k)-1]&1 == 0 }

// group is what a key says, without when.
func group(k []byte) []byte { return k[:len(k)-tLen] }

// appendKey appends the datom's key in the given index.
func appendKey(b []byte, ix Index, d *datom.Datom) []byte {
	switch ix {
	case EAVT:
		b = d.V.AppendKey(datom.AppendID(datom.AppendID(b, d.E), d.A))
	case AEVT:
		b = d.V.AppendKey(datom.AppendID(datom.AppendID(b, d.A), d.E))
	case AVET:
		b = datom.AppendID(d.V.AppendKey(datom.AppendID(b, d.A)), d.E)
	case VAET:
		b = datom.AppendID(datom.AppendID(datom.AppendID(b, d.V.Ref()), d.A), d.E)
	}
	return appendT(b, d.T, d.Added)
}

// decodeKey is the inverse of appendKey. Keys are made by this package only, so they are always well formed.
func decodeKey(ix Index, k []byte) (d datom.Datom) {
	var n int
	switch ix {
	case EAVT:
		d.E, n = decodeID(k)
		d.A, k = nextID(k[n:])
		d.V, _, _ = datom.DecodeKey(k)
	case AEVT:
		d.A, n = decodeID(k)
		d.E, k = nextID(k[n:])
		d.V, _, _ = datom.DecodeKey(k)
	case AVET:
		d.A, k = nextID(k)
		d.V, n, _ = datom.DecodeKey(k)
		k = k[n:]
		d.E, _ = decodeID(k)
	case VAET:
		var v datom.ID
		v, k = nextID(k)
		d.V = datom.Ref(v)
		d.A, k = nextID(k)
		d.E, _ = decodeID(k)
	}
	d.T, d.Added = keyT(k)
	return d
}

func nextID(k []byte) (datom.ID, []byte) {
	id, n := decodeID(k)
	return id, k[n:]
}

// decodeID is datom.DecodeID for bytes known to be right.
func decodeID(k []byte) (datom.ID, int) {
	n := int(k[0])
	var id datom.ID
	for _, c := range k[1 : 1+n] {
		id = id<<8 | datom.ID(c)
	}
	return id, 1 + n
}

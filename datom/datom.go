// Package datom holds the smallest parts of a database: values, entity ids and datoms, the one total order of values
// and their order-preserving byte encoding. It knows nothing of schema, time or storage.
//
// # Values
//
// A [Value] is a small comparable struct: == is equality of values, so a Value (and a Datom) can be a map key. That holds
// because every value has one canonical form: NaN has one bit pattern, -0.0 is 0.0, decimals have no trailing zeros,
// big integers no leading ones.
//
// # Encoding
//
// [Value.AppendKey] writes a value so that bytes.Compare of two encodings equals [Compare] of the values, and so that no
// encoding is a prefix of another: encodings may be followed by anything. The first byte is the value's [Kind]; kinds
// are ordered by that byte. See key.go for each payload. The log stores values in the same encoding, so it never changes;
// new kinds take unused tags.
package datom

import "fmt"

// Datom is one fact: entity, attribute, value, the transaction's t, and whether it was asserted (true) or retracted.
// It is a plain value, immutable and comparable.
type Datom struct {
	E     ID
	A     ID
	V     Value
	T     uint64
	Added bool
}

// Tx is the entity of the datom's transaction.
func (d Datom) Tx() ID { return TxID(d.T) }

// String shows the datom as [e a v t added].
func (d Datom) String() string {
	return fmt.Sprintf("[%d %d %s %d %t]", d.E, d.A, d.V, d.T, d.Added)
}

// Tx is one transaction's exact outcome: what the log stores as a record, what a database value is advanced by, and all
// that recovery needs.
type Tx struct {
	T       uint64 // dense, from 1
	Instant int64  // :db/txInstant in milliseconds since 1970; never decreases from t to t
	// Datoms is the delta, the :db/txInstant datom included: every T is this T. Order carries no meaning.
	Datoms []Datom
	Next   NextIDs // the allocator after this transaction
}

// NextIDs is the id allocator: the next free sequence of each of the two counters (design.md §3). An id can be allocated
// without a datom, and is never given out twice, so the log records it with every transaction.
type NextIDs struct {
	Part uint64 // of partition entities: below FirstSeq, in PartDB
	Seq  uint64 // shared by all other entities but transactions: from FirstSeq
}

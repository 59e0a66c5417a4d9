package datom

import (
	"fmt"
	"strconv"
)

// ID is an entity id: partition<<42 | sequence. Ids stay below 2^53, so that JSON numbers hold them exactly
// (design.md §3). Zero is the id of the partition entity :db.part/db.
type ID uint64

// The built-in partitions. A partition's number is the sequence of its entity, which lives in PartDB.
const (
	PartDB   uint64 = 0 // schema
	PartTx   uint64 = 3 // transactions
	PartUser uint64 = 4 // everything else, unless said otherwise
)

const (
	seqBits = 42
	// MaxSeq is the largest sequence of an id.
	MaxSeq uint64 = 1<<seqBits - 1
	// FirstSeq is where the sequence shared by all entities but partitions and transactions starts.
	// Partition entities take sequences below it, from a counter of their own.
	FirstSeq uint64 = 2048
	// MaxID bounds every valid id from above, exclusively: 2^53.
	MaxID ID = 1 << 53
)

// MakeID puts an id together. It does not check its arguments: part < FirstSeq and seq <= MaxSeq.
func MakeID(part, seq uint64) ID { return ID(part<<seqBits | seq) }

// TxID is the entity of transaction t.
func TxID(t uint64) ID { return MakeID(PartTx, t) }

// Part is the partition's number.
func (id ID) Part() uint64 { return uint64(id) >> seqBits }

// Seq is the sequence within the partition; of a transaction entity, its t.
func (id ID) Seq() uint64 { return uint64(id) & MaxSeq }

// IsTx reports whether id lies in the transaction partition.
func (id ID) IsTx() bool { return id.Part() == PartTx }

// String is the id as a decimal number.
func (id ID) String() string { return strconv.FormatUint(uint64(id), 10) }

// GoString shows partition and sequence.
func (id ID) GoString() string { return fmt.Sprintf("datom.MakeID(%d, %d)", id.Part(), id.Seq()) }

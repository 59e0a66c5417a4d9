// Package log is a database's log above its store: the contract that every backend implements ([Log]), the object and
// root formats, the chain and the rules by which it is recovered and read (protocol.md). It knows no backend.
//
// # Objects
//
// One object holds one batch of transactions, or marks an epoch's start. All integers of the header are unsigned and
// big-endian. Its bytes are:
//
//	offset  size
//	0       4     magic "STLO"
//	4       2     format version: 1
//	6       1     kind: 1 start, 2 batch
//	7       1     flags: bit 0, the payload is compressed with zstd (one frame); the others are zero
//	8       16    lineage
//	24      16    claim
//	40      8     epoch, from 1
//	48      8     first t; of a start, the last t before it + 1
//	56      8     fenced: the last t that the writer had acknowledged; below first t
//	64      16    previous: epoch, first t of its key (zero: there is none)
//	80      32    previous: chain hash
//	112     4     count: transactions, 0 in a start, at most 2^20
//	116     4     uncompressed length of the payload, at most 2^26
//	120     4     length n of the payload
//	124     n     payload
//	124+n   4     CRC-32C (Castagnoli) of everything before
//
// The chain hash of an object is the SHA-256 of all these bytes. Its key is (epoch, first t), or (epoch, 0) of a start. A
// start's previous lies in an earlier epoch, a batch's in its own. A compressed payload is shorter than the uncompressed one.
//
// # Records
//
// The payload, uncompressed, holds count records, one for each transaction, t ascending without a gap. A number in it is a
// uvarint (base 128, least significant group first, high bit: more follows) in its shortest form; a signed one is
// zigzag-coded. A record is the length of its body, then the body: fields, each a tag byte and its content, every one
// exactly once, in this order. An unknown tag is refused.
//
//	tag 1   t
//	tag 2   instant, signed: milliseconds since 1970-01-01T00:00:00Z
//	tag 3   next ids: next partition sequence, next entity sequence
//	tag 4   datoms: how many, then each
//
// A datom is a head byte, its entity as the head says, its attribute's id (a number), and its value in the order-preserving
// encoding of package datom (one byte for the type, then the payload that datom/key.go describes). Bit 0 of the head: asserted (1) or retracted
// (0). Bits 1 and 2: the entity is 0 that of the datom before in this record; 1 the transaction's own (3<<42 | t); 2 a
// sequence in the user partition, which follows (4<<42 | sequence); 3 the id that follows. The other bits are zero.
//
// # The root
//
// A root is the magic "STLR", the format version 1 (one byte), fields, and the CRC-32C of all that, big-endian. A field is its tag
// byte, the length of its content (a number as in records), and the content. Fields stand in ascending order; one whose value is zero or empty is
// left out; an unknown one is refused. Numbers are uvarints in their shortest form.
//
//	1  version (number)          6  claim (16 bytes)        11  lease in nanoseconds (number)
//	2  object format (number)    7  deleted (1)             12  sealed: epoch, first t of the key, last t (numbers), hash (32 bytes)
//	3  lineage (16 bytes)        8  owner (text)            13  chunks (text)
//	4  instance (16 bytes)       9  endpoint (text)         14  snapshot (text)
//	5  epoch (number)            10 lease counter (number)  15  collect generation (number)
//
// # The chain
//
// Objects link back by key and hash. [Recover] reads the chain for an owner, [Reader] for everybody else, and [Witness] remembers what a
// process has seen, so that it never goes back; chain.go says how, and why. [Create], [Delete] and [Copy] are how a database begins, ends and
// comes to be elsewhere.
package log

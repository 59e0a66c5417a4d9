package log

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"time"
)

// Root is the one small mutable record of a database (protocol.md §2). It is changed by CompareAndSwap only; every change
// raises Version by one. A Root is a plain value: two are the same root if they are ==.
type Root struct {
	Version  uint64 // 1 for the first
	Format   uint32 // the object format that writers write
	Lineage  ID     // fixed at creation, kept by copies
	Instance ID     // of this copy; a prefix of every object's name
	Epoch    uint64 // 0 until somebody has owned it
	Claim    ID     // fresh at every acquisition
	Deleted  bool   // a tombstone

	Owner        string        // who, for people
	Endpoint     string        // where the owner can be reached, if anywhere
	LeaseCounter uint64        // raised at every renewal
	Lease        time.Duration // as the owner set it; 0: released

	Sealed   Sealed
	Chunks   string // the blob that lists the sealed chunks, or ""
	Snapshot string // the blob of the newest snapshot, or ""
	Collect  uint64 // collect generation
}

// Sealed is the position up to which the log lies in chunks. Zero: nothing is sealed.
type Sealed struct {
	Epoch  uint64
	FirstT uint64 // of the object's key: 0 if it is a start
	LastT  uint64 // the last t up to there; 0 with an epoch: nothing but starts
	Hash   Hash
}

// Pos is the sealed object's key and chain hash.
func (s Sealed) Pos() Pos { return Pos{Key{s.Epoch, s.FirstT}, s.Hash} }

// NewID is 16 bytes from the system's random source: a lineage, an instance, a claim.
func NewID() ID {
	var id ID
	rand.Read(id[:]) // never fails: the runtime ends the process instead
	return id
}

// NewRoot is the root that creates a database: random ids, epoch 0, no owner.
func NewRoot() *Root {
	return &Root{Version: 1, Format: FormatVersion, Lineage: NewID(), Instance: NewID()}
}

// Clone is a copy of r.
func (r *Root) Clone() *Root { c := *r; return &c }

// Next is a copy of r with the next version, to be changed further and swapped in for r.
func (r *Root) Next() *Root {
	n := r.Clone()
	n.Version++
	return n
}

// Acquire is the root that takes the next epoch under claim, which must be fresh (NewID), for the owner named. The caller sets lease
// and endpoint.
func (r *Root) Acquire(claim ID, owner string) *Root {
	n := r.Next()
	n.Epoch++
	n.Claim, n.Owner, n.Endpoint = claim, owner, ""
	n.LeaseCounter, n.Lease = 0, 0
	return n
}

// Tombstone is the root that marks the database as deleted. It keeps the ids, so that what is left of the objects can
// still be found.
func (r *Root) Tombstone() *Root {
	n := r.Next()
	n.Deleted = true
	n.Owner, n.Endpoint, n.LeaseCounter, n.Lease = "", "", 0, 0
	return n
}

// Recreate is the root that makes a new database in place of r, a tombstone: new ids, epoch 0, version r.Version+1.
func (r *Root) Recreate() *Root {
	n := NewRoot()
	n.Version = r.Version + 1
	return n
}

// Owned reports whether r is a living root that names this instance, epoch and claim.
func (r *Root) Owned(instance ID, epoch uint64, claim ID) bool {
	return !r.Deleted && r.Instance == instance && r.Epoch == epoch && r.Claim == claim
}

const (
	// MaxRootText bounds each text in a root, in bytes.
	MaxRootText = 1024
	// MaxRoot bounds an encoded root, in bytes.
	MaxRoot = 8 << 10

	rootMagic   = "STLR"
	rootVersion = 1
)

// The tags of a root's fields. Numbers are never reused.
const (
	rootTagVersion = iota + 1
	rootTagFormat
	rootTagLineage
	rootTagInstance
	rootTagEpoch
	rootTagClaim
	rootTagDeleted
	rootTagOwner
	rootTagEndpoint
	rootTagLeaseCounter
	rootTagLease
	rootTagSealed
	rootTagChunks
	rootTagSnapshot
	rootTagCollect
)

// check says what is wrong with a root on its own.
func (r *Root) check() error {
	switch {
	case r.Version == 0:
		return fmt.Errorf("version is 0")
	case r.Format == 0:
		return fmt.Errorf("format is 0")
	case r.Lineage.IsZero() || r.Instance.IsZero():
		return fmt.Errorf("no lineage or no instance")
	case r.Epoch > 0 && r.Claim.IsZero():
		return fmt.Errorf("epoch %d without a claim", r.Epoch)
	case r.Epoch == math.MaxUint64:
		return fmt.Errorf("epoch %d", r.Epoch)
	case r.Lease < 0:
		return fmt.Errorf("lease is %s", r.Lease)
	case r.Sealed.Epoch > r.Epoch, r.Sealed.FirstT > r.Sealed.LastT, r.Sealed.Epoch == 0 && r.Sealed != Sealed{},
		r.Sealed.Epoch != 0 && r.Sealed.Hash == Hash{}:
		return fmt.Errorf("sealed position %s, last t %d, at epoch %d", r.Sealed.Pos(), r.Sealed.LastT, r.Epoch)
	}
	for _, s := range []string{r.Owner, r.Endpoint, r.Chunks, r.Snapshot} {
		if len(s) > MaxRootText {
			return fmt.Errorf("a text of %d bytes, more than %d", len(s), MaxRootText)
		}
	}
	return nil
}

// EncodeRoot is the root as every backend stores it. It has one encoding only, so equal roots have equal bytes. An error
// says which field cannot be stored.
func EncodeRoot(r *Root) ([]byte, error) {
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("cannot encode root: %w", err)
	}
	b := make([]byte, 0, 256)
	b = append(append(b, rootMagic...), rootVersion)
	field := func(tag byte, p []byte) {
		b = append(b, tag)
		b = binary.AppendUvarint(b, uint64(len(p)))
		b = append(b, p...)
	}
	var scratch [3*binary.MaxVarintLen64 + len(Hash{})]byte
	number := func(tag byte, v uint64) {
		if v != 0 {
			field(tag, binary.AppendUvarint(scratch[:0], v))
		}
	}
	id := func(tag byte, v ID) {
		if !v.IsZero() {
			field(tag, v[:])
		}
	}
	text := func(tag byte, s string) {
		if s != "" {
			field(tag, []byte(s))
		}
	}
	number(rootTagVersion, r.Version)
	number(rootTagFormat, uint64(r.Format))
	id(rootTagLineage, r.Lineage)
	id(rootTagInstance, r.Instance)
	number(rootTagEpoch, r.Epoch)
	id(rootTagClaim, r.Claim)
	if r.Deleted {
		number(rootTagDeleted, 1)
	}
	text(rootTagOwner, r.Owner)
	text(rootTagEndpoint, r.Endpoint)
	number(rootTagLeaseCounter, r.LeaseCounter)
	number(rootTagLease, uint64(r.Lease))
	if s := r.Sealed; s != (Sealed{}) {
		p := binary.AppendUvarint(scratch[:0], s.Epoch)
		p = binary.AppendUvarint(p, s.FirstT)
		p = binary.AppendUvarint(p, s.LastT)
		field(rootTagSealed, append(p, s.Hash[:]...))
	}
	text(rootTagChunks, r.Chunks)
	text(rootTagSnapshot, r.Snapshot)
	number(rootTagCollect, r.Collect)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)), nil
}

// DecodeRoot is the inverse of EncodeRoot. It accepts nothing that EncodeRoot would not write. An error is a *CorruptError; a
// root of a newer library, with fields that this one does not know, is refused too.
func DecodeRoot(b []byte) (*Root, error) {
	r, err := decodeRoot(b)
	if err != nil {
		return nil, &CorruptError{Reason: "the root record", Err: err}
	}
	return r, nil
}

func decodeRoot(b []byte) (*Root, error) {
	const least = len(rootMagic) + 1 + checksumSize
	switch {
	case len(b) < least || len(b) > MaxRoot:
		return nil, fmt.Errorf("%d bytes long", len(b))
	case string(b[:len(rootMagic)]) != rootMagic:
		return nil, fmt.Errorf("no root starts with %x", b[:len(rootMagic)])
	}
	body, sum := b[:len(b)-checksumSize], binary.BigEndian.Uint32(b[len(b)-checksumSize:])
	if crc32.Checksum(body, castagnoli) != sum {
		return nil, fmt.Errorf("the checksum does not match")
	}
	if v := body[len(rootMagic)]; v != rootVersion {
		return nil, fmt.Errorf("root format %d is not known; this library reads %d", v, rootVersion)
	}
	r := new(Root)
	seen := byte(0)
	for body = body[len(rootMagic)+1:]; len(body) > 0; {
		tag := body[0]
		if tag <= seen {
			return nil, fmt.Errorf("field %d behind field %d", tag, seen)
		}
		n, rest, err := uvarint(body[1:])
		if err != nil || n > uint64(len(rest)) {
			return nil, fmt.Errorf("field %d is truncated", tag)
		}
		if n == 0 {
			return nil, fmt.Errorf("field %d is empty", tag)
		}
		if err := r.setField(tag, rest[:n]); err != nil {
			return nil, fmt.Errorf("field %d: %w", tag, err)
		}
		seen, body = tag, rest[n:]
	}
	return r, r.check()
}

func (r *Root) setField(tag byte, p []byte) error {
	number := func(most uint64, set func(uint64)) error {
		v, rest, err := uvarint(p)
		switch {
		case err != nil:
			return err
		case len(rest) > 0 || v == 0 || v > most:
			return fmt.Errorf("%x is not a number from 1 to %d", p, most)
		}
		set(v)
		return nil
	}
	id := func(to *ID) error {
		if len(p) != len(to) || ID(p).IsZero() {
			return fmt.Errorf("%x is not an id", p)
		}
		*to = ID(p)
		return nil
	}
	text := func(to *string) error { *to = string(p); return nil }
	switch tag {
	case rootTagVersion:
		return number(math.MaxUint64, func(v uint64) { r.Version = v })
	case rootTagFormat:
		return number(math.MaxUint32, func(v uint64) { r.Format = uint32(v) })
	case rootTagLineage:
		return id(&r.Lineage)
	case rootTagInstance:
		return id(&r.Instance)
	case rootTagEpoch:
		return number(math.MaxUint64, func(v uint64) { r.Epoch = v })
	case rootTagClaim:
		return id(&r.Claim)
	case rootTagDeleted:
		return number(1, func(uint64) { r.Deleted = true })
	case rootTagOwner:
		return text(&r.Owner)
	case rootTagEndpoint:
		return text(&r.Endpoint)
	case rootTagLeaseCounter:
		return number(math.MaxUint64, func(v uint64) { r.LeaseCounter = v })
	case rootTagLease:
		return number(math.MaxInt64, func(v uint64) { r.Lease = time.Duration(v) })
	case rootTagSealed:
		for _, to := range []*uint64{&r.Sealed.Epoch, &r.Sealed.FirstT, &r.Sealed.LastT} {
			var err error
			if *to, p, err = uvarint(p); err != nil {
				return err
			}
		}
		if len(p) != len(r.Sealed.Hash) {
			return fmt.Errorf("a hash of %d bytes", len(p))
		}
		if r.Sealed.Hash = Hash(p); r.Sealed.Epoch == 0 {
			return fmt.Errorf("it says that nothing is sealed")
		}
		return nil
	case rootTagChunks:
		return text(&r.Chunks)
	case rootTagSnapshot:
		return text(&r.Snapshot)
	case rootTagCollect:
		return number(math.MaxUint64, func(v uint64) { r.Collect = v })
	default:
		return fmt.Errorf("it is unknown; the root was written by a newer version")
	}
}

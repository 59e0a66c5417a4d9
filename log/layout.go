package log

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
)

// This file makes and parses every name in a store. Backends add only a prefix.

// ID is 16 random bytes: a lineage, an instance, a claim.
type ID [16]byte

// String is the id in hexadecimal, 32 digits, as names of directories and prefixes have it.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// IsZero reports whether no id is set.
func (id ID) IsZero() bool { return id == ID{} }

// ParseID is the inverse of ID.String.
func ParseID(s string) (id ID, err error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(id) || hex.EncodeToString(b) != s {
		return ID{}, fmt.Errorf("%q is not an id of 32 hexadecimal digits", s)
	}
	return ID(b), nil
}

// Key names an object: a batch is (epoch, its first t), a start (epoch, 0). Keys are ordered by epoch, then by t, so that
// an epoch's start stands before its batches. The zero Key stands before every object.
type Key struct {
	Epoch  uint64 // from 1
	FirstT uint64 // 0: the start
}

// MaxKey stands behind every object.
var MaxKey = Key{math.MaxUint64, math.MaxUint64}

// StartKey is the key of an epoch's start.
func StartKey(epoch uint64) Key { return Key{epoch, 0} }

// IsStart reports whether k names a start.
func (k Key) IsStart() bool { return k.FirstT == 0 }

// Compare orders keys.
func (k Key) Compare(o Key) int {
	if c := cmp.Compare(k.Epoch, o.Epoch); c != 0 {
		return c
	}
	return cmp.Compare(k.FirstT, o.FirstT)
}

// String is the key in fixed width, so that names sort as keys do: 16 hexadecimal digits of each number.
func (k Key) String() string { return fmt.Sprintf("%016x-%016x", k.Epoch, k.FirstT) }

// ParseKey is the inverse of Key.String.
func ParseKey(s string) (Key, error) {
	if len(s) == 33 && s[16] == '-' {
		e, err1 := strconv.ParseUint(s[:16], 16, 64)
		t, err2 := strconv.ParseUint(s[17:], 16, 64)
		if k := (Key{e, t}); err1 == nil && err2 == nil && k.String() == s {
			return k, nil
		}
	}
	return Key{}, fmt.Errorf("%q is not an object's key", s)
}

// Hash is a chain hash: the SHA-256 of an object's bytes. The zero Hash stands before the first object.
type Hash [32]byte

func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// Pos is a position on a chain: an object's key and its chain hash. The zero Pos stands before the first object.
type Pos struct {
	Key  Key
	Hash Hash
}

func (p Pos) String() string { return fmt.Sprintf("%s#%x", p.Key, p.Hash[:6]) }

// MaxBlobName bounds the name of a blob, in bytes, where names become files or keys.
const MaxBlobName = 200

// CheckName says what is wrong with a database's name: it must match [a-z0-9][a-z0-9._-]{0,62}.
func CheckName(name string) error {
	ok := len(name) >= 1 && len(name) <= 63
	for i := 0; i < len(name) && ok; i++ {
		c := name[i]
		ok = c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || i > 0 && (c == '.' || c == '_' || c == '-')
	}
	if !ok {
		return fmt.Errorf("%q is not a database's name: it must match [a-z0-9][a-z0-9._-]{0,62}", name)
	}
	return nil
}

// CheckBlobName says what is wrong with a blob's name, where names become files or keys: it must match [A-Za-z0-9_-][A-Za-z0-9._-]{0,199}.
func CheckBlobName(name string) error {
	ok := len(name) >= 1 && len(name) <= MaxBlobName
	for i := 0; i < len(name) && ok; i++ {
		c := name[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || i > 0 && c == '.'
	}
	if !ok {
		return fmt.Errorf("%q is not a blob's name: it must match [A-Za-z0-9_-][A-Za-z0-9._-]{0,%d}", name, MaxBlobName-1)
	}
	return nil
}

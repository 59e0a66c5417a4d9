package pg

import (
	"encoding/binary"
	"fmt"

	"github.com/steledb/stele/log"
)

// This file holds PostgreSQL's binary formats, as far as they are needed.

// bigint is an int8.
func bigint(v int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(v)) }

func bigintOf(b []byte) (int64, error) {
	if len(b) != 8 {
		return 0, fmt.Errorf("a bigint of %d bytes", len(b))
	}
	return int64(binary.BigEndian.Uint64(b)), nil
}

// putKey puts a key's two numbers into 16 bytes.
func putKey(b []byte, k log.Key) {
	binary.BigEndian.PutUint64(b, k.Epoch)
	binary.BigEndian.PutUint64(b[8:], k.FirstT)
}

func keyOf(epoch, firstT []byte) (log.Key, error) {
	e, err1 := bigintOf(epoch)
	t, err2 := bigintOf(firstT)
	if err1 != nil || err2 != nil || e < 0 || t < 0 {
		return log.Key{}, &log.CorruptError{Reason: fmt.Sprintf("epoch %x, first t %x: no object has such a key", epoch, firstT)}
	}
	return log.Key{Epoch: uint64(e), FirstT: uint64(t)}, nil
}

// array is an int8[] of one dimension.
type array []byte

const (
	arrayHeader = 20
	oidInt8     = 20
)

func newArray(capacity int) array {
	b := make(array, arrayHeader, arrayHeader+12*capacity)
	binary.BigEndian.PutUint32(b[0:], 1) // dimensions
	binary.BigEndian.PutUint32(b[8:], oidInt8)
	binary.BigEndian.PutUint32(b[16:], 1) // the first index
	return b
}

func (a array) add(v uint64) array {
	binary.BigEndian.PutUint32(a[12:], binary.BigEndian.Uint32(a[12:])+1)
	a = binary.BigEndian.AppendUint32(a, 8)
	return binary.BigEndian.AppendUint64(a, v)
}

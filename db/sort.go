package db

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
)

// keyRef is a key in an arena, with 8 bytes of it at hand, so that most comparisons touch nothing else.
type keyRef struct {
	head       uint64
	start, end int
}

// sortKeys is the arena's keys in order. Input that is sorted already costs one pass.
func sortKeys(arena []byte, ends []int) []keyRef {
	refs := make([]keyRef, len(ends))
	start := 0
	first := arena[:ends[0]]
	p := len(first)
	for i, end := range ends {
		refs[i].start, refs[i].end = start, end
		p = min(p, commonPrefix(first[:p], arena[start:end]))
		start = end
	}
	sorted := true
	for i := range refs {
		refs[i].head = head8(arena[refs[i].start+p : refs[i].end])
		if sorted && i > 0 && compareRefs(arena, refs[i-1], refs[i]) > 0 {
			sorted = false
		}
	}
	if !sorted {
		slices.SortFunc(refs, func(a, b keyRef) int { return compareRefs(arena, a, b) })
	}
	return refs
}

func compareRefs(arena []byte, a, b keyRef) int {
	if a.head != b.head {
		return cmp.Compare(a.head, b.head)
	}
	return bytes.Compare(arena[a.start:a.end], arena[b.start:b.end])
}

func head8(k []byte) uint64 {
	if len(k) >= 8 {
		return binary.BigEndian.Uint64(k)
	}
	var b [8]byte
	copy(b[:], k)
	return binary.BigEndian.Uint64(b[:])
}

package db

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
)

// keyAt is the i-th of the keys that lie one after the other in arena; ends holds where each ends.
func keyAt(arena []byte, ends []int, i int) []byte {
	if i == 0 {
		return arena[:ends[0]:ends[0]]
	}
	return arena[ends[i-1]:ends[i]:ends[i]]
}

// sorter sorts the keys of a batch. It keeps its memory for the next one.
//
// Keys are compared by 8 bytes behind what all have in common, and in full only if those are equal. A batch is seldom in
// random order: in most indexes it is a few ascending sequences, shuffled together (one for each attribute, say). The
// sorter first deals the keys to piles, each ascending; only if a few piles do not do does it sort in the common way.
type sorter struct {
	refs  []keyRef
	piles [maxPiles][]keyRef
	order []int32
}

type keyRef struct {
	head uint64
	i    int32
}

const maxPiles = 8

// sort is the numbers of the keys in the keys' order, valid until the next call.
func (s *sorter) sort(arena []byte, ends []int) []int32 {
	first := keyAt(arena, ends, 0)
	p := len(first)
	for i := range ends {
		p = commonPrefix(first[:p], keyAt(arena, ends, i))
	}
	less := func(a, b keyRef) bool {
		if a.head != b.head {
			return a.head < b.head
		}
		return bytes.Compare(keyAt(arena, ends, int(a.i)), keyAt(arena, ends, int(b.i))) < 0
	}
	used, dealt := 0, true
	refs := s.refs[:0]
	for i := range ends {
		ref := keyRef{head8(keyAt(arena, ends, i)[p:]), int32(i)}
		refs = append(refs, ref)
		if dealt {
			used, dealt = s.deal(ref, used, less)
		}
	}
	s.refs = refs
	s.order = slices.Grow(s.order[:0], len(refs))[:0]
	if !dealt {
		slices.SortFunc(refs, func(a, b keyRef) int {
			if a.head != b.head {
				return cmp.Compare(a.head, b.head)
			}
			return bytes.Compare(keyAt(arena, ends, int(a.i)), keyAt(arena, ends, int(b.i)))
		})
		for _, ref := range refs {
			s.order = append(s.order, ref.i)
		}
		return s.order
	}
	s.gather(used, less)
	return s.order
}

// deal puts a key on the first pile whose last key is below it. It gives up when there is no pile left.
func (s *sorter) deal(ref keyRef, used int, less func(a, b keyRef) bool) (int, bool) {
	for k := range used {
		if pile := s.piles[k]; less(pile[len(pile)-1], ref) {
			s.piles[k] = append(pile, ref)
			return used, true
		}
	}
	if used == maxPiles {
		return used, false
	}
	s.piles[used] = append(s.piles[used][:0], ref)
	return used + 1, true
}

// gather merges the piles: whole stretches at a time, since they seldom overlap.
func (s *sorter) gather(used int, less func(a, b keyRef) bool) {
	var rest [maxPiles][]keyRef
	copy(rest[:], s.piles[:used])
	for used > 0 {
		// The pile with the lowest key, and the lowest key of the others.
		lo, next := 0, -1
		for k := 1; k < used; k++ {
			switch {
			case less(rest[k][0], rest[lo][0]):
				lo, next = k, lo
			case next < 0 || less(rest[k][0], rest[next][0]):
				next = k
			}
		}
		pile := rest[lo]
		n := len(pile)
		if next >= 0 && less(rest[next][0], pile[n-1]) {
			n = 1
			for less(pile[n], rest[next][0]) {
				n++
			}
		}
		for _, ref := range pile[:n] {
			s.order = append(s.order, ref.i)
		}
		if rest[lo] = pile[n:]; len(rest[lo]) == 0 {
			used--
			rest[lo] = rest[used]
		}
	}
}

func head8(k []byte) uint64 {
	if len(k) >= 8 {
		return binary.BigEndian.Uint64(k)
	}
	var b [8]byte
	copy(b[:], k)
	return binary.BigEndian.Uint64(b[:])
}

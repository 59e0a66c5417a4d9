package db

import "unsafe"

// filter tells of a small EAVT run that it has nothing about an entity, at the cost of one cache line instead of a search. Most
// reads of a stage are of one entity, which most of the small runs know nothing of.
//
// It is a Bloom filter in blocks of 64 bits: the entity's hash chooses a block and two bits in it.
type filter []uint64

// filterMax is the largest run, in keys, that gets a filter: a filter is made anew with its run, even where a merge takes the
// chunks over.
const filterMax = 1 << 16

func entityBits(h uint64) uint64 { return 1<<(h>>58) | 1<<(h>>52&63) }

// makeFilter is the filter of an EAVT run, about 10 bits for each key.
func makeFilter(r *run) filter {
	if r.n > filterMax {
		return nil
	}
	size := 1
	for size*6 < r.n {
		size *= 2
	}
	f := make(filter, size)
	last := uint64(1) // no hash: that of an entity is not remembered yet
	for _, c := range r.chunks {
		n := c.len()
		for i := range n {
			e, _ := decodeID(c.key(i, n))
			if h := mix(uint64(e)); h != last {
				f[h&uint64(size-1)] |= entityBits(h)
				last = h
			}
		}
	}
	return f
}

// addFilter gives a run that was just made with b its filter.
func (r *run) addFilter(b *builder) {
	if r.filter != nil { // it is an old one, which others read
		return
	}
	r.filter = makeFilter(r)
	n := int64(cap(r.filter)) * int64(unsafe.Sizeof(r.filter[0]))
	r.bytes += n
	b.made += n
}

// mayHave reports whether the run may have keys of an entity, by the entity's hash.
func (r *run) mayHave(h uint64) bool {
	if r.filter == nil {
		return true
	}
	b := entityBits(h)
	return r.filter[h&uint64(len(r.filter)-1)]&b == b
}

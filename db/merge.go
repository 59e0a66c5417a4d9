package db

import (
	"bytes"
	"math"
	"slices"
)

// mergeRuns merges runs into one. With annihilate (the current part of an index), a retraction that meets the assertion that
// it ended is taken out with it, and both come back in hist; the runs must then be neighbours in time. Within each of
// them that has been done already, so pairs arise only where the merge goes from one run to another. Either result is nil if
// it would be empty.
//
// Chunks that lie between two keys of the other runs are taken over by pointer, so the cost follows what overlaps.
func mergeRuns(in []*run, annihilate bool, with *builders) (cur, hist *run) {
	minT, maxT := uint64(math.MaxUint64), uint64(0)
	cs := slices.Grow(with.cursors[:0], len(in))
	order := with.order[:0]
	for _, r := range in {
		if r.upTo != 0 {
			if r = r.bounded(&with.hist); r == nil {
				continue
			}
		}
		minT, maxT = min(minT, r.minT), max(maxT, r.maxT)
		cs = append(cs, cursor{r: r})
		c := &cs[len(cs)-1]
		c.load(0)
		c.key = c.ch.key(0, c.n)
		order = append(order, c)
	}
	with.order = order
	for i := len(order) - 2; i >= 0; i-- {
		sinkFrom(order, i)
	}
	b, h := &with.cur, &with.hist
	for len(order) > 1 {
		m, s := order[0], order[1]
		// The keys of m below s's: from m.i to j, within m's chunk.
		j := m.i + 1
		if j < m.n && bytes.Compare(m.ch.key(j, m.n), s.key) < 0 {
			if bytes.Compare(m.ch.key(m.n-1, m.n), s.key) < 0 {
				j = m.n
			} else {
				j = m.ch.search(s.key, j+1, m.n, m.n)
			}
		}
		last := m.ch.key(j-1, m.n)
		pair := annihilate && !keyAdded(last) && keyAdded(s.key) && bytes.Equal(group(last), group(s.key))
		switch {
		case pair:
			b.addRange(m.ch, m.i, j-1, m.n)
			h.add(last)
			h.add(s.key)
		case m.i == 0 && j == m.n:
			b.addChunk(m.ch)
		default:
			b.addRange(m.ch, m.i, j, m.n)
		}
		if pair {
			s.step()
			order = settle(order, 1)
		}
		m.i = j - 1
		m.step()
		order = settle(order, 0)
	}
	for _, m := range order { // the one that is left
		if m.i > 0 {
			b.addRange(m.ch, m.i, m.n, m.n)
			m.c++
		}
		for ; m.c < len(m.r.chunks); m.c++ {
			b.addChunk(m.r.chunks[m.c])
		}
	}
	clear(cs) // keep the memory, not the runs
	with.cursors = cs
	return b.run(minT, maxT), h.run(minT, maxT)
}

// settle puts the cursor at i, which has moved, where it belongs, or takes it out if it is at its end.
func settle(order []*cursor, i int) []*cursor {
	if order[i].key == nil {
		copy(order[i:], order[i+1:])
		return order[:len(order)-1]
	}
	sinkFrom(order, i)
	return order
}

func sinkFrom(o []*cursor, i int) {
	for ; i+1 < len(o) && bytes.Compare(o[i].key, o[i+1].key) > 0; i++ {
		o[i], o[i+1] = o[i+1], o[i]
	}
}

// bounded is the run without what its upTo hides, as a run of its own.
func (r *run) bounded(b *builder) *run {
	if r.maxT <= r.upTo {
		c := *r
		c.upTo = 0
		return &c
	}
	for _, c := range r.chunks {
		n := c.len()
		for i := range n {
			if k := c.key(i, n); keyVisible(k, r.upTo) {
				b.add(k)
			}
		}
	}
	return b.run(r.minT, r.upTo)
}

func keyVisible(k []byte, upTo uint64) bool {
	t, _ := keyT(k)
	return t <= upTo
}

// without is the run without the keys that begin with prefix; nil if there are no others.
func (r *run) without(prefix []byte, b *builder) *run {
	if bytes.Compare(r.last, prefix) < 0 || bytes.Compare(r.first, prefix) > 0 && !bytes.HasPrefix(r.first, prefix) {
		return r
	}
	for _, c := range r.chunks {
		n := c.len()
		i := c.seek(prefix, n)
		j := i
		for j < n && bytes.HasPrefix(c.key(j, n), prefix) {
			j++
		}
		if i == j {
			b.addChunk(c)
			continue
		}
		b.addRange(c, 0, i, n)
		b.addRange(c, j, n, n)
	}
	out := b.run(r.minT, r.maxT)
	if out != nil {
		out.upTo = r.upTo
	}
	return out
}

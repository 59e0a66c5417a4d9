package db

import (
	"math/bits"
	"unsafe"

	"github.com/steledb/stele/datom"
)

// Memory is an account of what a [Stage] keeps alive, in bytes. It is kept as runs are made, so that asking costs next to
// nothing; docs/memory.md says how near it is to what is measured.
type Memory struct {
	// Value is the newest snapshot: the runs of all indexes, schema and idents.
	Value int64
	// Unique is the fingerprints of unique values.
	Unique int64
	// Scratch is what was applied since the last snapshot, without the datoms themselves, and what one batch leaves to the next.
	Scratch int64
	// Merge is the most that a merge in the background, which makes new runs beside those that it reads, takes while it works.
	Merge int64
	// Replaced is what was allocated for snapshots and is no part of the newest any more, since Memory was last called: it lives for as long as
	// somebody holds the older ones.
	Replaced int64
}

// Memory is the account as of the last Snapshot.
func (s *Stage) Memory() Memory {
	m := Memory{Value: s.base.bytes(), Scratch: s.scratchBytes()}
	if s.seen != nil {
		m.Unique = s.seen.bytes()
	}
	for _, p := range s.base.ix {
		m.Merge = max(m.Merge, p[0].bytes, p[1].bytes)
	}
	if s.stray != nil && !s.stray.over() {
		m.Merge += s.stray.bytes()
	}
	m.Replaced = max(0, s.told+s.installed+s.spare.build.made()-m.Value)
	s.told, s.installed = m.Value, 0
	return m
}

// Memory is how many bytes the value keeps alive, which it shares for the most part with the values around it.
func (d DB) Memory() int64 { return d.snap().bytes() }

// bytes is what the snapshot keeps alive, within a few kilobytes.
func (s *snapshot) bytes() int64 {
	n := s.schema.bytes()
	for _, p := range s.ix {
		n += p[0].bytes + p[1].bytes
	}
	return n
}

// directory is the bytes of a run beside its chunks and its filter.
func (r *run) directory() int64 {
	n := size[run]()
	if len(r.chunks) > 1 {
		n += held(r.chunks)
	}
	return n + held(r.heads)
}

// bytes is at most what the job makes, and what it alone keeps alive of what it reads.
func (j *job) bytes() (n int64) {
	for _, r := range j.in {
		n += r.bytes
	}
	return 2 * n
}

// made is the bytes that were allocated for runs since it was last called.
func (b *builders) made() int64 {
	n := b.cur.made + b.hist.made
	b.cur.made, b.hist.made = 0, 0
	return n
}

func (s *seen) bytes() int64 { return size[seen]() + 4*int64(s.slots) }

// scratchBytes is the memory of the overlay, of the scratch and of what is known of recent transactions.
func (s *Stage) scratchBytes() int64 {
	o, w := &s.over, &s.spare
	n := size[Stage]() + held(s.recent) + held(o.log) + held(o.arena) + held(o.ends)
	for _, h := range o.heads {
		n += held(h)
	}
	n += held(w.arena) + held(w.ends) + held(w.key) + held(w.sorter.refs) + held(w.sorter.order)
	for _, p := range w.sorter.piles {
		n += held(p)
	}
	n += held(w.build.in) + held(w.build.cursors) + held(w.build.order)
	for _, b := range []*builder{&w.build.cur, &w.build.hist} {
		n += held(b.chunks) + held(b.buf) + held(b.ends)
	}
	return n
}

// bytes is about what the schema takes: maps by their size, and the text of the idents once, as their strings are shared.
func (s *Schema) bytes() int64 {
	n := s.text + mapBytes[datom.ID, *Attribute](len(s.attrs)) + int64(len(s.attrs))*size[Attribute]()
	for _, m := range s.idents.layers {
		n += mapBytes[datom.Keyword, identOf](len(m))
	}
	for _, m := range s.names.layers {
		n += mapBytes[datom.ID, datom.Keyword](len(m))
	}
	return n
}

// mapBytes is about what a map of n entries takes: slots for a power of two, at most seven eighths of them used, and a byte to control each.
func mapBytes[K, V any](n int) int64 {
	if n == 0 {
		return 0
	}
	slots := int64(max(8, 1<<bits.Len(uint(n*8/7))))
	return slots * (1 + size[struct {
		k K
		v V
	}]())
}

func size[T any]() int64 {
	var x T
	return int64(unsafe.Sizeof(x))
}

// held is the bytes of a slice's memory, used or not.
func held[T any](s []T) int64 { return int64(cap(s)) * size[T]() }

// Extent is about how many bytes the datoms of an attribute, of all times, take in one index: those that enter AVET when the attribute comes to
// be indexed or unique.
func (s *Stage) Extent(a datom.ID) (n int64) {
	from := datom.AppendID(nil, a)
	to := append(datom.AppendID(nil, a), 0xff)
	for _, p := range s.base.ix[AEVT] {
		for _, r := range p.runs {
			for i := r.find(from); i <= r.find(to); i++ {
				n += int64(cap(r.chunks[i]))
			}
		}
	}
	return n
}

// Package db is the immutable database value: its indexes, its schema, its views in time, and the Stage that makes the
// next value.
//
// # Structure
//
// Each of the four indexes has a current and a history part. A part is a leveled merge structure of sorted runs without
// pointers in their bulk: small runs, one for each batch, that the writer merges as it goes, and larger levels below, merged
// in the background. What is published never changes, so readers take no lock, an old value costs what it does not share
// with the newest, and a stage is dropped by forgetting it. docs/decisions/0001-index-structure.md has the reasons and
// the numbers.
//
// A fact's assertion and the retraction that ended it move to the history part when they meet in a merge; until then
// both lie in the current part, where the newest key of a fact decides. So reading what holds now never pays for what once
// did.
//
// # Views
//
// [DB.AsOf], [DB.Since] and [DB.History] filter while they merge: their cost follows the range read and its history. They use the
// schema and idents of the value that they are views of.
package db

import (
	"math"
	"sort"
	"time"

	"github.com/steledb/stele/datom"
)

// DB is an immutable database value: small, cheap to copy, and safe for any number of goroutines. The zero DB is Empty.
type DB struct {
	s       *snapshot
	basis   uint64
	asOf    uint64 // meant if hasAsOf
	since   uint64
	hasAsOf bool
	history bool
}

// snapshot is what a batch publishes. It is immutable.
type snapshot struct {
	ix      [numIndexes][2]*part // current, history
	schema  *Schema
	t       uint64
	instant int64
	next    datom.NextIDs
	recent  []txMeta // of the last transactions, in order
	lineage *lineage
}

// txMeta is what a transaction left behind beside its datoms.
type txMeta struct {
	t       uint64
	instant int64
	next    datom.NextIDs
}

// lineage marks the snapshots of one stage, which knows every unique value in them.
type lineage struct{ _ byte }

// Empty is the value before the first transaction, t = 0. It holds no datoms, but knows the built-ins, so that Bootstrap can
// be applied to it.
func Empty() DB { return DB{s: emptySnapshot()} }

func emptySnapshot() *snapshot {
	s := &snapshot{schema: builtinSchema(), next: firstNext()}
	none := &part{}
	for ix := range s.ix {
		s.ix[ix] = [2]*part{none, none}
	}
	return s
}

func (d DB) snap() *snapshot {
	if d.s == nil {
		return emptySnapshot()
	}
	return d.s
}

// BasisT is the t of the newest transaction that the value, or the value that this is a view of, holds.
func (d DB) BasisT() uint64 { return d.basis }

// NextIDs is the id allocator after the basis transaction. Of a value made by WithBasis far behind the value it was made from,
// it may be a later state of the allocator: never one that would give an id out twice.
func (d DB) NextIDs() datom.NextIDs {
	s := d.snap()
	if m, ok := s.meta(d.basis); ok {
		return m.next
	}
	if d.basis == 0 {
		return firstNext()
	}
	return s.next
}

// Instant is the :db/txInstant of the basis transaction in milliseconds since 1970; 0 before the first.
func (d DB) Instant() int64 { return d.snap().instantOf(d.basis) }

// Schema is the schema of the value, of which a view in time sees no other state.
func (d DB) Schema() *Schema { return d.snap().schema }

// AsOf is the view of the facts as they were after transaction t. Of a Since view it narrows what is seen.
func (d DB) AsOf(t uint64) DB {
	if !d.hasAsOf || t < d.asOf {
		d.asOf, d.hasAsOf = t, true
	}
	return d
}

// AsOfTime is AsOf the last transaction whose instant is not after at.
func (d DB) AsOfTime(at time.Time) DB { return d.AsOf(d.tAt(at)) }

// Since is the view of what was asserted after transaction t and still holds.
func (d DB) Since(t uint64) DB {
	d.since = max(d.since, t)
	return d
}

// SinceTime is Since the last transaction whose instant is not after at.
func (d DB) SinceTime(at time.Time) DB { return d.Since(d.tAt(at)) }

// History is the view of every datom, assertions and retractions, within the bounds that AsOf and Since set.
func (d DB) History() DB {
	d.history = true
	return d
}

// AsOfT, SinceT and IsHistory say what the value is a view of.
func (d DB) AsOfT() (t uint64, ok bool) { return d.asOf, d.hasAsOf }

// SinceT is the t that Since was given, 0 if it was not.
func (d DB) SinceT() uint64 { return d.since }

// IsHistory reports whether the value is a History view.
func (d DB) IsHistory() bool { return d.history }

// WithBasis is the value as it was at t, which must not be above BasisT: it reads exactly as that value did, but for schema and
// idents, which are d's. It is for the transactions of one batch, none of which changes the schema. It drops the views.
func (d DB) WithBasis(t uint64) DB { return DB{s: d.s, basis: min(t, d.basis)} }

// top is the last t that the value shows.
func (d DB) top() uint64 {
	if d.hasAsOf {
		return min(d.basis, d.asOf)
	}
	return d.basis
}

// tAt is the last t whose instant is not after at; 0 if there is none.
func (d DB) tAt(at time.Time) uint64 {
	s, ms := d.snap(), at.UnixMilli()
	return uint64(sort.Search(int(d.basis), func(i int) bool { return s.instantOf(uint64(i)+1) > ms }))
}

func (s *snapshot) meta(t uint64) (txMeta, bool) {
	if t == s.t {
		return txMeta{s.t, s.instant, s.next}, true
	}
	if n := uint64(len(s.recent)); t < s.t && s.t-t < n {
		if m := s.recent[n-1-(s.t-t)]; m.t == t {
			return m, true
		}
	}
	return txMeta{}, false
}

func (s *snapshot) instantOf(t uint64) int64 {
	if m, ok := s.meta(t); ok {
		return m.instant
	}
	if t == 0 {
		return 0
	}
	var buf [32]byte
	prefix := datom.AppendID(datom.AppendID(buf[:0], datom.TxID(t)), AttrTxInstant)
	if k := s.first(EAVT, prefix); k != nil {
		return decodeKey(EAVT, k).V.InstantMilli()
	}
	return 0
}

// first is the key of the first current fact with the prefix, or nil.
func (s *snapshot) first(ix Index, prefix []byte) (key []byte) {
	s.current(ix, prefix, func(k []byte) bool {
		key = k
		return false
	})
	return key
}

// current yields the keys of the current facts with the prefix.
func (s *snapshot) current(ix Index, prefix []byte, yield func([]byte) bool) {
	walk(s.ix[ix][0].runs, prefix, prefix, window{top: math.MaxUint64}, yield)
}

// window is which datoms a view shows.
type window struct {
	since   uint64 // exclusive
	top     uint64 // inclusive
	history bool
}

// walk yields the keys from from on, as long as they have the prefix.
func walk(runs []*run, from, prefix []byte, w window, yield func([]byte) bool) {
	if len(runs) == 0 {
		return
	}
	var m merger
	m.seek(runs, from, prefix)
	var decided []byte // the group whose newest visible key has been seen
	for k := m.key(); k != nil && hasPrefix(k, prefix); k = m.key() {
		t, added := keyT(k)
		if t > w.top || t <= w.since {
			m.next()
			continue
		}
		if !w.history {
			g := group(k)
			if decided != nil && string(decided) == string(g) {
				m.next()
				continue
			}
			decided = g
			if !added {
				m.next()
				continue
			}
		}
		if !yield(k) {
			return
		}
		m.next()
	}
}

// walkBack yields the keys below to, backwards, as long as they have the prefix.
func walkBack(runs []*run, to, prefix []byte, w window, yield func([]byte) bool) {
	if len(runs) == 0 {
		return
	}
	var m merger
	m.seekBack(runs, to, prefix)
	var newest []byte // the newest visible key so far of the group that is being walked through
	for k := m.key(); k != nil && hasPrefix(k, prefix); k = m.key() {
		t, _ := keyT(k)
		if t > w.top || t <= w.since {
			m.next()
			continue
		}
		if w.history {
			if !yield(k) {
				return
			}
			m.next()
			continue
		}
		if newest != nil && keyAdded(newest) && string(group(newest)) != string(group(k)) && !yield(newest) {
			return
		}
		newest = k
		m.next()
	}
	if newest != nil && keyAdded(newest) {
		yield(newest)
	}
}

func hasPrefix(k, prefix []byte) bool {
	return len(k) >= len(prefix) && string(k[:len(prefix)]) == string(prefix)
}

// source is the runs that a view of an index must merge, and what it shows of them.
func (d DB) source(ix Index) ([]*run, window) {
	s := d.snap()
	w := window{since: d.since, top: d.top(), history: d.history}
	cur, hist := s.ix[ix][0].runs, s.ix[ix][1].runs
	if !w.history {
		if w.top >= s.t {
			return cur, w
		}
		hist = runsAfter(hist, w.top) // of a pair that both ended before, neither is seen
	}
	if len(hist) == 0 {
		return cur, w
	}
	return append(append(make([]*run, 0, len(cur)+len(hist)), cur...), hist...), w
}

// rebased is a snapshot of its own that holds exactly what the value held at t, so that other transactions can follow.
func (s *snapshot) rebased(t uint64) *snapshot {
	if t >= s.t {
		return s
	}
	n := &snapshot{schema: s.schema, t: t, instant: s.instantOf(t), next: s.next, lineage: s.lineage}
	if m, ok := s.meta(t); ok {
		n.next = m.next
	}
	for ix := range s.ix {
		var cur, hist []*run
		for _, r := range s.ix[ix][0].runs {
			cur = append(cur, r.below(t))
		}
		for _, r := range s.ix[ix][1].runs {
			if r.maxT > t { // it may hold an assertion whose retraction is not seen any more
				cur = append(cur, r.below(t))
			} else {
				hist = append(hist, r)
			}
		}
		n.ix[ix] = [2]*part{makePart(nil, nil, cur), makePart(nil, nil, hist)}
	}
	return n
}

// below is the run without the keys of transactions after t.
func (r *run) below(t uint64) *run {
	if r.maxT <= t {
		return r
	}
	c := *r
	if c.upTo == 0 || t < c.upTo {
		c.upTo = t
	}
	return &c
}

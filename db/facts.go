package db

import (
	"bytes"
	"iter"

	"github.com/steledb/stele/datom"
)

// This file is what a Stage answers: the overlay first, then whatever the base says of facts that the overlay is silent on.

// One is the current value of a cardinality-one attribute, and the t that asserted it.
func (s *Stage) One(e, a datom.ID) (datom.Value, uint64, bool) {
	s.link()
	for i := s.over.from(byE, s.over.hashE(e)); i != 0; i = s.over.log[i-1].next[byE] {
		if d := s.over.log[i-1].d; d.E == e && d.A == a && d.Added && s.newest(d) == i {
			return d.V, d.T, true
		}
	}
	for k := range s.facts(EAVT, datom.AppendID(datom.AppendID(nil, e), a)) {
		return k.V, k.T, true
	}
	return datom.Value{}, 0, false
}

// Has reports whether a fact holds.
func (s *Stage) Has(e, a datom.ID, v datom.Value) bool {
	s.link()
	key := v.AppendKey(datom.AppendID(datom.AppendID(s.spare.key[:0], e), a))
	s.spare.key = key
	n := 1 + int(key[0])
	n += 1 + int(key[n])
	if i := s.over.fact(e, a, v, s.over.hashV(key[n:])); i != 0 {
		return s.over.log[i-1].d.Added
	}
	return s.base.first(EAVT, key) != nil
}

// Values is the current values of an attribute of an entity, in no particular order.
func (s *Stage) Values(e, a datom.ID) iter.Seq[datom.Value] {
	return func(yield func(datom.Value) bool) {
		s.link()
		for i := s.over.from(byE, s.over.hashE(e)); i != 0; i = s.over.log[i-1].next[byE] {
			if d := s.over.log[i-1].d; d.E == e && d.A == a && d.Added && s.newest(d) == i && !yield(d.V) {
				return
			}
		}
		for d := range s.facts(EAVT, datom.AppendID(datom.AppendID(nil, e), a)) {
			if !yield(d.V) {
				return
			}
		}
	}
}

// Facts is the current facts of an entity, in no particular order.
func (s *Stage) Facts(e datom.ID) iter.Seq[datom.Datom] {
	return func(yield func(datom.Datom) bool) {
		s.link()
		for i := s.over.from(byE, s.over.hashE(e)); i != 0; i = s.over.log[i-1].next[byE] {
			if d := s.over.log[i-1].d; d.E == e && d.Added && s.newest(d) == i && !yield(*d) {
				return
			}
		}
		for d := range s.facts(EAVT, datom.AppendID(nil, e)) {
			if !yield(d) {
				return
			}
		}
	}
}

// AttrFacts is the current facts of an attribute, in no particular order.
func (s *Stage) AttrFacts(a datom.ID) iter.Seq[datom.Datom] {
	return func(yield func(datom.Datom) bool) {
		s.link()
		for i := range s.over.log {
			if d := s.over.log[i].d; d.A == a && d.Added && s.newest(d) == int32(i+1) && !yield(*d) {
				return
			}
		}
		for d := range s.facts(AEVT, datom.AppendID(nil, a)) {
			if !yield(d) {
				return
			}
		}
	}
}

// AttrInUse reports whether any datom of any time is one of the attribute.
func (s *Stage) AttrInUse(a datom.ID) bool {
	for i := range s.over.log {
		if s.over.log[i].d.A == a {
			return true
		}
	}
	prefix := datom.AppendID(nil, a)
	for part := range 2 {
		found := false
		walk(s.base.ix[AEVT][part].runs, prefix, prefix, everything, func([]byte) bool { found = true; return false })
		if found {
			return true
		}
	}
	return false
}

// Referrers is the current datoms whose value is the ref v, in no particular order.
func (s *Stage) Referrers(v datom.ID) iter.Seq[datom.Datom] {
	return func(yield func(datom.Datom) bool) {
		s.link()
		ref := datom.Ref(v)
		for i := s.over.from(byRef, s.over.hashE(v)); i != 0; i = s.over.log[i-1].next[byRef] {
			if d := s.over.log[i-1].d; d.V == ref && d.Added && s.newest(d) == i && !yield(*d) {
				return
			}
		}
		for d := range s.facts(VAET, datom.AppendID(nil, v)) {
			if !yield(d) {
				return
			}
		}
	}
}

// Lookup is the entity that has the value of a unique attribute now. It finds nothing if the attribute is not unique.
func (s *Stage) Lookup(a datom.ID, v datom.Value) (datom.ID, bool) {
	if !s.isUnique(a) {
		return 0, false
	}
	s.link()
	prefix := v.AppendKey(datom.AppendID(s.spare.key[:0], a))
	s.spare.key = prefix
	h := hashAV(a, s.over.hashV(prefix[1+int(prefix[0]):]))
	for i := s.over.from(byAV, h); i != 0; i = s.over.log[i-1].next[byAV] {
		if d := s.over.log[i-1].d; d.A == a && d.V == v && d.Added && s.newest(d) == i {
			return d.E, true
		}
	}
	if s.seen != nil && !s.seen.has(h) {
		return 0, false
	}
	for d := range s.facts(AVET, bytes.Clone(prefix)) {
		return d.E, true
	}
	return 0, false
}

func (s *Stage) link() { s.over.link(s.isUnique) }

// newest is 1 + the newest overlay entry about the datom's fact; 0 if there is none.
func (s *Stage) newest(d *datom.Datom) int32 {
	if len(s.over.log) == 0 {
		return 0
	}
	s.spare.key = d.V.AppendKey(s.spare.key[:0])
	return s.over.fact(d.E, d.A, d.V, s.over.hashV(s.spare.key))
}

// facts is the current facts of the base with the prefix that the overlay says nothing about.
func (s *Stage) facts(ix Index, prefix []byte) iter.Seq[datom.Datom] {
	return func(yield func(datom.Datom) bool) {
		s.base.current(ix, prefix, func(k []byte) bool {
			d := decodeKey(ix, k)
			return s.newest(&d) != 0 || yield(d)
		})
	}
}

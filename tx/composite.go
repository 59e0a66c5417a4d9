package tx

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
)

// hand is a composite that was asserted or retracted by hand. It adds no datom, but must be what its constituents make.
type hand struct {
	fact
	from, to int // the facts stated about the entity, in Preparer.facts
}

// compositesDelta brings the composites of e up to date with fs, the facts stated about it.
func (p *Preparer) compositesDelta(e datom.ID, fs []fact, isNew bool) {
	p.comps = p.comps[:0]
	for i := range fs {
		if i > 0 && fs[i].a == fs[i-1].a {
			continue
		}
		for _, id := range fs[i].a.Composites {
			if !slices.Contains(p.comps, id) {
				p.comps = append(p.comps, id)
			}
		}
	}
	slices.Sort(p.comps)
	for _, id := range p.comps {
		a := p.s.Attr(id)
		made := p.made(e, a, fs, isNew)
		var old datom.Value
		if !isNew {
			old, _, _ = p.st.One(e, id)
		}
		if made == old {
			continue
		}
		pos := p.constituentPos(a, fs)
		if !old.IsNil() {
			p.emit(&fact{e: e, a: a, v: old, pos: pos})
		}
		if !made.IsNil() {
			p.emit(&fact{e: e, a: a, v: made, add: true, pos: pos})
		}
	}
}

// checkHand checks the composites that were written by hand.
func (p *Preparer) checkHand() {
	for i := range p.hand {
		h := &p.hand[i]
		if made := p.made(h.e, h.a, p.facts[h.from:h.to], p.isNew(h.e)); made != h.v {
			makes := "nothing, since none of them has a value"
			if !made.IsNil() {
				makes = p.show(made)
			}
			p.fault(phaseConflicts, DatomsConflict, h.pos, attrName(h.a), h.v, p.name(h.e), fmt.Sprintf("%s of %s is given as %s, but its constituents make it %s; "+
				"a composite follows from its constituents: change those", attrName(h.a), p.name(h.e), p.show(h.v), makes))
		}
	}
}

// constituentPos is where the first fact about a constituent stood.
func (p *Preparer) constituentPos(a *db.Attribute, fs []fact) int32 {
	pos := int32(-1)
	for i := range fs {
		if slices.Contains(a.TupleAttrs, fs[i].a.ID) && (pos < 0 || fs[i].pos < pos) {
			pos = fs[i].pos
		}
	}
	return pos
}

// made is what the constituents make of a composite of e, after the transaction; nil if none has a value.
func (p *Preparer) made(e datom.ID, a *db.Attribute, fs []fact, isNew bool) datom.Value {
	var elems [datom.MaxTuple]datom.Value
	n := min(len(a.TupleAttrs), datom.MaxTuple)
	some := false
	for i, id := range a.TupleAttrs[:n] {
		elems[i] = p.valueAfter(e, id, fs, isNew)
		some = some || !elems[i].IsNil()
	}
	if !some {
		return datom.Value{}
	}
	v, _ := datom.Tuple(elems[:n]...)
	return v
}

// valueAfter is the value of an attribute of cardinality one after the transaction; nil if there is none. fs are the facts stated
// about e, sorted and free of conflicts.
func (p *Preparer) valueAfter(e, a datom.ID, fs []fact, isNew bool) datom.Value {
	i, _ := slices.BinarySearchFunc(fs, a, func(f fact, a datom.ID) int { return cmp.Compare(f.a.ID, a) })
	g := fs[i:]
	for j := range g {
		if g[j].a.ID != a {
			g = g[:j]
			break
		}
		if g[j].add {
			return g[j].v
		}
	}
	if isNew {
		return datom.Value{}
	}
	v, _, ok := p.st.One(e, a)
	if !ok || slices.ContainsFunc(g, func(f fact) bool { return f.v == v }) {
		return datom.Value{}
	}
	return v
}

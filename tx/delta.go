package tx

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
)

// delta finds conflicts and works out the exact datoms: what changes nothing is dropped, what is replaced is retracted,
// composites follow their constituents.
func (p *Preparer) delta() {
	p.sortFacts()
	p.out = slices.Grow(p.out, len(p.facts)+len(p.facts)/8)
	for i := 0; i < len(p.facts); {
		e := p.facts[i].e
		j := i + 1
		for j < len(p.facts) && p.facts[j].e == e {
			j++
		}
		p.entityDelta(e, i, j)
		i = j
	}
	if !p.flt.any() {
		p.checkHand() // what is made of constituents is known only if they are free of conflicts
	}
}

// sortFacts sorts the facts by entity, attribute, value. Many facts are sorted by small keys first, and moved once.
func (p *Preparer) sortFacts() {
	fs := p.facts
	if len(fs) <= 16 {
		for i := 1; i < len(fs); i++ {
			for j := i; j > 0 && fs[j].compare(&fs[j-1]) < 0; j-- {
				fs[j], fs[j-1] = fs[j-1], fs[j]
			}
		}
		return
	}
	type key struct {
		e, a datom.ID
		i    int32
	}
	keys := make([]key, len(fs))
	for i := range fs {
		keys[i] = key{fs[i].e, fs[i].a.ID, int32(i)}
	}
	slices.SortFunc(keys, func(x, y key) int {
		switch {
		case x.e != y.e:
			return cmp.Compare(x.e, y.e)
		case x.a != y.a:
			return cmp.Compare(x.a, y.a)
		}
		return fs[x.i].compare(&fs[y.i])
	})
	sorted := make([]fact, len(fs))
	for i, k := range keys {
		sorted[i] = fs[k.i]
	}
	p.facts = sorted
}

// entityDelta is delta for one entity, about which facts[from:to] are stated.
func (p *Preparer) entityDelta(e datom.ID, from, to int) {
	fs := p.facts[from:to]
	isNew, composite := p.isNew(e), false
	for i := 0; i < len(fs); {
		a := fs[i].a
		j := i + 1
		for j < len(fs) && fs[j].a == a {
			j++
		}
		g := fs[i:j]
		i = j
		switch {
		case len(g) == 1 && isNew && len(a.TupleAttrs) == 0:
			if g[0].add {
				p.emit(&g[0])
			}
		case p.conflicts(a, g):
		case len(a.TupleAttrs) > 0:
			for i := range g {
				if i == 0 || g[i].v != g[i-1].v {
					p.hand = append(p.hand, hand{g[i], from, to})
				}
			}
		case a.Many:
			p.manyDelta(a, g, isNew)
		default:
			p.oneDelta(a, g, isNew)
		}
		composite = composite || len(a.Composites) > 0
	}
	if composite && !p.flt.any() {
		p.compositesDelta(e, fs, isNew)
	}
}

// conflicts reports what cannot be meant together.
func (p *Preparer) conflicts(a *db.Attribute, g []fact) bool {
	found := false
	var adds, retracts int // distinct values
	for i := range g {
		f := &g[i]
		if i > 0 && f.v == g[i-1].v {
			if f.add != g[i-1].add {
				found = true
				p.fault(phaseConflicts, DatomsConflict, min(f.pos, g[i-1].pos), attrName(a), f.v, p.name(f.e), fmt.Sprintf("%s %s of %s is both asserted "+
					"and retracted; a transaction is a set, without before and after", attrName(a), p.show(f.v), p.name(f.e)))
				adds++
			}
			continue
		}
		if f.add {
			adds++
		} else {
			retracts++
		}
	}
	if a.Many {
		return found
	}
	if adds > 1 && p.twoValues(a, g, true) {
		found = true
	}
	if retracts > 1 && p.twoValues(a, g, false) {
		found = true
	}
	return found
}

// twoValues reports two different values asserted, or retracted, of an attribute of cardinality one.
func (p *Preparer) twoValues(a *db.Attribute, g []fact, add bool) bool {
	var fs []*fact
	for i := range g {
		if f := &g[i]; f.add == add && (len(fs) == 0 || fs[len(fs)-1].v != f.v) {
			fs = append(fs, f)
		}
	}
	if len(fs) < 2 {
		return false
	}
	slices.SortFunc(fs, func(f, g *fact) int {
		return cmp.Or(datom.Compare(p.sortable(f.v), p.sortable(g.v)), compareNames(p.show(f.v), p.show(g.v)))
	})
	done := "retracted"
	if add {
		done = "asserted"
	}
	p.fault(phaseConflicts, DatomsConflict, min(fs[0].pos, fs[1].pos), attrName(a), fs[0].v, p.name(g[0].e), fmt.Sprintf("%s of %s, of cardinality one, "+
		"has two values %s: %s and %s", attrName(a), p.name(g[0].e), done, p.show(fs[0].v), p.show(fs[1].v)))
	return true
}

// oneDelta is the delta of one attribute of cardinality one, free of conflicts: at most one value asserted, one retracted.
func (p *Preparer) oneDelta(a *db.Attribute, g []fact, isNew bool) {
	var add, retract *fact
	for i := range g {
		if g[i].add {
			add = &g[i]
		} else {
			retract = &g[i]
		}
	}
	if add != nil && p.up.holds(a, add.v, add.e) {
		return // nor is another value of it retracted: that would be no datom
	}
	var old datom.Value
	var has bool
	switch {
	case isNew:
	case retract != nil && retract.is:
		old, has = retract.v, true
	default:
		old, _, has = p.st.One(g[0].e, a.ID)
	}
	if has && retract != nil && retract.v == old {
		p.emit(retract)
	} else {
		retract = nil
	}
	if add == nil || has && old == add.v {
		return
	}
	if has && retract == nil {
		p.emit(&fact{e: add.e, a: a, v: old, pos: add.pos})
	}
	p.emit(add)
}

// manyDelta is the delta of one attribute of cardinality many, free of conflicts.
func (p *Preparer) manyDelta(a *db.Attribute, g []fact, isNew bool) {
	for i := range g {
		f := &g[i]
		if i > 0 && f.v == g[i-1].v {
			continue
		}
		if has := f.is || !isNew && p.st.Has(f.e, a.ID, f.v); has != f.add {
			p.emit(f)
		}
	}
}

// emitted is a datom of the delta, as an index into Preparer.out, and where what made it stood.
type emitted struct {
	out, pos int32
}

// emit adds a datom to the delta, and notes what is to be checked about it. The instant of this transaction is kept apart.
func (p *Preparer) emit(f *fact) {
	if builtin(f.a.ID) {
		if f.a.ID == db.AttrTxInstant && f.e == p.txID {
			p.given, p.hasGiven, p.givenPos = f.v.InstantMilli(), true, f.pos
			return
		}
		p.reserved = append(p.reserved, emitted{int32(len(p.out)), f.pos})
	}
	if f.add && f.a.Unique != db.NotUnique {
		p.uniq = append(p.uniq, emitted{int32(len(p.out)), f.pos})
	}
	if f.add && len(f.a.Preds) > 0 {
		p.preds = append(p.preds, emitted{int32(len(p.out)), f.pos})
	}
	p.out = append(p.out, datom.Datom{E: f.e, A: f.a.ID, V: f.v, T: p.basis + 1, Added: f.add})
}

package tx

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
)

// fact is one assertion or retraction as the user meant it: written out, or what a value-less retract, retractEntity or cas
// comes to. Conflicts are judged on these, before no-ops are dropped.
type fact struct {
	e   datom.ID
	a   *db.Attribute
	v   datom.Value
	add bool
	is  bool // known to be stored now
	pos int32
}

func (f *fact) compare(g *fact) int {
	if c := cmp.Compare(f.e, g.e); c != 0 {
		return c
	}
	if c := cmp.Compare(f.a.ID, g.a.ID); c != 0 {
		return c
	}
	if c := datom.Compare(f.v, g.v); c != 0 {
		return c
	}
	switch {
	case f.add == g.add:
		return cmp.Compare(f.pos, g.pos)
	case g.add:
		return -1
	}
	return 1
}

// hand is a composite that was asserted or retracted by hand. It adds no datom, but must be what its constituents make.
type hand struct {
	fact
	from, to int // the facts stated about the entity, in Preparer.facts
}

// state turns the ops into facts, reading what is stored where their meaning depends on it.
func (p *Preparer) state() {
	p.facts = slices.Grow(p.facts, len(p.p.ops))
	for i := range p.p.ops {
		if len(p.facts) > p.lim.Datoms {
			return // retractEntity reached too much; the caller says so
		}
		o := &p.p.ops[i]
		switch o.kind {
		case opAdd, opRetract:
			f := fact{e: p.res[o.e].id, a: o.a, v: o.v, add: o.kind == opAdd, pos: o.pos}
			if o.ref != noRef {
				f.v = p.resolvedValue(o.v, o.ref)
			}
			p.facts = append(p.facts, f)
		case opRetractAll:
			p.retractAll(p.res[o.e].id, o.a, o.pos)
		case opRetractEntity:
			if p.res[o.e].state != stateMissing {
				p.retractEntity(p.res[o.e].id, o.pos)
			}
		case opCAS:
			p.cas(o)
		case opEnsure:
			p.checks = append(p.checks, ensured{p.res[o.e].id, p.res[o.ref].id, o.pos})
		}
	}
}

// resolvedValue is a value once every ent stands for an id.
func (p *Preparer) resolvedValue(v datom.Value, ref int32) datom.Value {
	switch {
	case isEntityRef(ref):
		return datom.Ref(p.res[ref].id)
	case isTupleRef(ref):
		t := p.p.tuples[tupleIndex(ref)]
		for i, e := range t.ents[:t.n] {
			if e != noRef {
				t.elems[i] = datom.Ref(p.res[e].id)
			}
		}
		v, _ = datom.Tuple(t.elems[:t.n]...) // the compiler checked the elements
	}
	return v
}

func (p *Preparer) retractAll(e datom.ID, a *db.Attribute, pos int32) {
	if p.isNew(e) {
		return
	}
	if !a.Many {
		if v, _, ok := p.st.One(e, a.ID); ok {
			p.facts = append(p.facts, fact{e: e, a: a, v: v, is: true, pos: pos})
		}
		return
	}
	for v := range p.st.Values(e, a.ID) {
		if len(p.facts) > p.lim.Datoms {
			return
		}
		p.facts = append(p.facts, fact{e: e, a: a, v: v, is: true, pos: pos})
	}
}

// retractEntity retracts what is stored about an entity, what refers to it, and its components.
func (p *Preparer) retractEntity(e datom.ID, pos int32) {
	if p.seen == nil {
		p.seen = map[datom.ID]bool{}
	}
	p.stack = append(p.stack[:0], e)
	for len(p.stack) > 0 {
		e := p.stack[len(p.stack)-1]
		p.stack = p.stack[:len(p.stack)-1]
		if p.seen[e] || p.isNew(e) {
			continue
		}
		p.seen[e] = true
		for d := range p.st.Facts(e) {
			if len(p.facts) > p.lim.Datoms {
				return
			}
			if a := p.gone(d, pos); a != nil && a.Component {
				p.stack = append(p.stack, d.V.Ref())
			}
		}
		for d := range p.st.Referrers(e) {
			if len(p.facts) > p.lim.Datoms {
				return
			}
			p.gone(d, pos)
		}
	}
}

// gone retracts a stored fact. Composites follow from their constituents.
func (p *Preparer) gone(d datom.Datom, pos int32) *db.Attribute {
	a := p.s.Attr(d.A)
	if a != nil && len(a.TupleAttrs) == 0 {
		p.facts = append(p.facts, fact{e: d.E, a: a, v: d.V, is: true, pos: pos})
	}
	return a
}

func (p *Preparer) cas(o *op) {
	e, old := p.res[o.e].id, &p.p.olds[o.old]
	if o.a.Many {
		p.fault(phaseCAS, CASCardinality, o.pos, attrName(o.a), datom.Value{}, p.name(e), fmt.Sprintf(":db/cas needs an attribute of cardinality one, and %s has "+
			"many; use :db/add and :db/retract", attrName(o.a)))
		return
	}
	want := p.resolvedValue(old.v, old.ref)
	v := p.resolvedValue(o.v, o.ref)
	found, _, ok := p.st.One(e, o.a.ID)
	if ok == old.none || ok && found != want {
		is := "has no value"
		if ok {
			is = "is " + p.show(found)
		}
		expected := "no value"
		if !old.none {
			expected = p.show(want)
		}
		p.fault(phaseCAS, CASFailed, o.pos, attrName(o.a), v, p.name(e), fmt.Sprintf("%s of %s was expected to be %s, but %s; read it again and decide anew",
			attrName(o.a), p.name(e), expected, is))
		return
	}
	if !old.none && want != v {
		p.facts = append(p.facts, fact{e: e, a: o.a, v: want, is: true, pos: o.pos})
	}
	p.facts = append(p.facts, fact{e: e, a: o.a, v: v, add: true, pos: o.pos})
}

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
				p.fault(phaseConflicts, DatomsConflict, min(f.pos, g[i-1].pos), attrName(a), p.sortable(f.v), p.name(f.e), fmt.Sprintf("%s %s of %s is both asserted "+
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
	p.fault(phaseConflicts, DatomsConflict, min(fs[0].pos, fs[1].pos), attrName(a), p.sortable(fs[0].v), p.name(g[0].e), fmt.Sprintf("%s of %s, of cardinality one, "+
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
			p.fault(phaseConflicts, DatomsConflict, h.pos, attrName(h.a), p.sortable(h.v), p.name(h.e), fmt.Sprintf("%s of %s is given as %s, but its constituents make it %s; "+
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

// unique checks that every unique value asserted is held by one entity after the transaction.
func (p *Preparer) unique() {
	for _, u := range p.uniq {
		d := &p.out[u.out]
		if p.up.absent(d.A, d.V) {
			continue
		}
		holder, ok := p.st.Lookup(d.A, d.V)
		if ok && holder != d.E && (d.E == p.txID && p.upserts(d) || !p.retracts(holder, d.A, d.V)) {
			p.uniqueConflict(d, u.pos, p.name(d.E), p.name(holder))
		}
	}
	if len(p.uniq) < 2 {
		return
	}
	slices.SortFunc(p.uniq, func(x, y emitted) int {
		a, b := &p.out[x.out], &p.out[y.out]
		return cmp.Or(cmp.Compare(a.A, b.A), datom.Compare(a.V, b.V), cmp.Compare(a.E, b.E))
	})
	for i := 0; i < len(p.uniq); {
		d := &p.out[p.uniq[i].out]
		j := i + 1
		for j < len(p.uniq) && p.out[p.uniq[j].out].A == d.A && p.out[p.uniq[j].out].V == d.V {
			j++
		}
		if j > i+1 {
			p.sharedValue(p.uniq[i:j])
		}
		i = j
	}
}

// sharedValue reports a unique value that the transaction asserts of several entities.
func (p *Preparer) sharedValue(us []emitted) {
	var names []string
	pos := us[0].pos
	for _, u := range us {
		names = append(names, p.name(p.out[u.out].E))
		pos = min(pos, u.pos)
	}
	slices.SortFunc(names, compareNames)
	p.uniqueConflict(&p.out[us[0].out], pos, names[0], names[1])
}

// upserts reports whether a tempid with this value would be the entity that has it. The transaction never is, so such a value of
// another entity is a conflict even if that gives it up in the same transaction.
func (p *Preparer) upserts(d *datom.Datom) bool {
	a := p.s.Attr(d.A)
	return a.Unique == db.UniqueIdentity && !(len(a.TupleAttrs) > 0 && slices.ContainsFunc(d.V.Tuple(), datom.Value.IsNil))
}

// retracts reports whether the delta retracts a fact of a unique attribute.
func (p *Preparer) retracts(e, a datom.ID, v datom.Value) bool {
	if p.freed == nil {
		p.freed = map[datom.Datom]bool{}
		for i := range p.out {
			if d := &p.out[i]; !d.Added && p.s.Attr(d.A).Unique != db.NotUnique {
				p.freed[*d] = true
			}
		}
	}
	return p.freed[datom.Datom{E: e, A: a, V: v, T: p.basis + 1}]
}

func (p *Preparer) uniqueConflict(d *datom.Datom, pos int32, x, y string) {
	a := p.s.Attr(d.A)
	if compareNames(y, x) < 0 {
		x, y = y, x
	}
	who := "both " + x + " and " + y
	if x == y {
		who = "two new entities"
	}
	p.fault(phaseUnique, UniqueConflict, pos, attrName(a), p.sortable(d.V), x, fmt.Sprintf("%s %s would belong to %s, but at most one entity may have it "+
		"(:db.unique/%s)", attrName(a), p.show(d.V), who, a.Unique))
}

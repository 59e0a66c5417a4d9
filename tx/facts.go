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

// state turns the ops into facts, reading what is stored where their meaning depends on it.
func (p *Preparer) state() {
	p.facts = slices.Grow(p.facts, len(p.p.ops))
	for i := range p.p.ops {
		if len(p.facts) > p.most {
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
		if len(p.facts) > p.most {
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
			if len(p.facts) > p.most {
				return
			}
			if a := p.gone(d, pos); a != nil && a.Component {
				p.stack = append(p.stack, d.V.Ref())
			}
		}
		for d := range p.st.Referrers(e) {
			if len(p.facts) > p.most {
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

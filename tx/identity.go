package tx

import (
	"encoding/binary"
	"slices"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
)

// candidate is what a value, or a tuple's element, may be: a value, or a class that is not bound.
type candidate struct {
	v    datom.Value
	node int32
}

// candidate is what a ref to ent e may be.
func (p *Preparer) candidate(e int32) candidate {
	if !p.free(e) {
		return candidate{datom.Ref(p.res[e].id), noNode}
	}
	root := p.up.find(e)
	if c := &p.up.class[root]; c.bound {
		return candidate{datom.Ref(c.id), noNode}
	}
	return candidate{node: root}
}

// eachIdentity calls f for the identity that the value of a unique attribute gives.
func (p *Preparer) eachIdentity(a *db.Attribute, v datom.Value, ref int32, f func(idKey)) {
	switch {
	case isEntityRef(ref):
		c := p.candidate(ref)
		f(idKey{a.ID, c.v, c.node})
	case isTupleRef(ref):
		t := &p.p.tuples[tupleIndex(ref)]
		var elems [datom.MaxTuple]candidate
		open := false
		for i := range t.n {
			elems[i] = candidate{t.elems[i], noNode}
			if e := t.ents[i]; e != noRef {
				elems[i] = p.candidate(e)
			}
			open = open || elems[i].node != noNode
		}
		f(tupleKey(a, elems[:t.n], open))
	default:
		f(idKey{a.ID, v, noNode})
	}
}

// maxTuples bounds how many tuples are made of candidates. More than one means that a constituent was given two values: a
// conflict in the end, whatever comes of it.
const maxTuples = 64

// tuples calls f for every tuple that the candidates make.
func (p *Preparer) tuples(a *db.Attribute, elems [][]candidate, f func(idKey)) {
	n := 1
	for _, e := range elems {
		if n *= len(e); n == 0 || n > maxTuples {
			return
		}
	}
	p.up.steps += n - 1
	var pick [datom.MaxTuple]candidate
	for i := range n {
		open, i := false, i
		for j, e := range elems {
			pick[j] = e[i%len(e)]
			i /= len(e)
			open = open || pick[j].node != noNode
		}
		f(tupleKey(a, pick[:len(elems)], open))
	}
}

func tupleKey(a *db.Attribute, elems []candidate, open bool) idKey {
	if !open {
		var vs [datom.MaxTuple]datom.Value
		for i, e := range elems {
			vs[i] = e.v
		}
		v, _ := datom.Tuple(vs[:len(elems)]...) // 2 to 8 elements, none a tuple: the schema saw to that
		return idKey{a.ID, v, noNode}
	}
	var b []byte
	for _, e := range elems {
		if e.node == noNode {
			b = e.v.AppendKey(b)
		} else {
			b = binary.BigEndian.AppendUint32(append(b, 0xff), uint32(e.node))
		}
	}
	return idKey{a.ID, datom.Bytes(b), symbolic}
}

// composites applies the rules to the composites whose constituents the class of this root asserts, all of them.
func (p *Preparer) composites(root int32) {
	u := &p.up
	u.class[root].dirty = false
	var todo []*db.Attribute
	for n := u.class[root].comps; n != 0; n = u.deps[n-1].next {
		u.steps++
		for _, id := range p.p.ops[u.deps[n-1].op].a.Composites {
			if c := p.s.Attr(id); c.Unique == db.UniqueIdentity && !slices.Contains(todo, c) {
				todo = append(todo, c)
			}
		}
	}
	for _, c := range todo {
		var elems [datom.MaxTuple][]candidate
		for n := u.class[root].comps; n != 0; n = u.deps[n-1].next {
			o := &p.p.ops[u.deps[n-1].op]
			for i, id := range c.TupleAttrs {
				if o.a.ID == id {
					elems[i] = p.constituent(elems[i], o)
				}
			}
		}
		p.tuples(c, elems[:len(c.TupleAttrs)], func(k idKey) {
			u.pending = append(u.pending, claim{key: k, ent: root, asserted: true})
		})
	}
}

// constituent adds what an op asserts to the candidates for an element.
func (p *Preparer) constituent(elems []candidate, o *op) []candidate {
	c := candidate{o.v, noNode}
	if isEntityRef(o.ref) {
		c = p.candidate(o.ref)
	}
	if len(elems) > maxTuples || slices.Contains(elems, c) {
		return elems
	}
	return append(elems, c)
}

package tx

import (
	"slices"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
)

// Which entity a tempid is follows from the identities that it asserts, and those may hold other tempids. So tempids are
// gathered into classes, a class being one entity, and the classes are closed under two rules until nothing changes:
//
//   - what asserts the same identity is the same entity: the classes are united;
//   - what asserts or retracts a stored identity is the entity that has it: the class is bound to that id.
//
// The identity (attribute, value) of a value that is a tempid is (attribute, that tempid's class, or the id that it is bound to),
// so whatever depends on a class is looked at again when the class changes. That is done in rounds: a round takes the
// identities as they are when it begins, and applies the first rule to all of them, then the second. So what comes of it does not
// depend on the order of the forms. A class that is to be bound to two ids is a conflict, and ends it. The class of the
// transaction is bound to the transaction's id from the start, and never to another.
type upserts struct {
	parent  []int32
	class   []class         // by root
	keyed   []keyed         // every identity that came up
	keys    map[idKey]int32 // … and where it is in keyed, once there are many
	queue   []int32         // ops to look at in the next round
	dirty   []int32         // ents to whose class's composites to look in the next round
	deps    []dep
	pending []claim // the identities of this round
	mixed   []int32 // ents whose class was made of two bound ones in this round
	clash   bool    // a class is bound to two ids
	steps   int
}

// class is a set of ents that are one entity.
type class struct {
	size    int32
	deps    int32 // 1 + the first dep in upserts.deps; 0: none
	last    int32 // 1 + the last one
	comps   int32 // the same for asserted constituents of composites with identity
	lastC   int32
	dirty   bool
	tx      bool
	bound   bool
	retract bool // bound only because it retracts an identity
	id      datom.ID
	more    []bond // what else it would have to be
	part    uint64
}

// bond is an id that a class is bound to, and whether only by a retraction.
type bond struct {
	id      datom.ID
	retract bool
}

// dep is one op in a list: of what depends on a class, or of a class's constituents.
type dep struct {
	op   int32
	comp bool // the op asserts a constituent: look at the composites of its entity
	next int32
}

// idKey is an identity: an attribute and a value; or, if node is not negative, the value that the class of root node will be.
type idKey struct {
	a    datom.ID
	v    datom.Value
	node int32
}

// keyed is an identity and who has it.
type keyed struct {
	key    idKey
	ent    int32 // the first that asserts it; -1: none does
	found  bool  // something stored has it
	holder datom.ID
}

// claim is an identity that an ent asserts or retracts.
type claim struct {
	key      idKey
	at       int32 // where the identity is in upserts.keyed
	ent      int32
	asserted bool
}

const (
	noNode   = -1
	symbolic = -2 // the value is an encoded tuple with classes in it
)

func (u *upserts) reset(keep int) {
	u.parent = emptied(u.parent, keep)
	u.class = emptied(u.class, keep)
	u.keyed = emptied(u.keyed, keep)
	u.queue = emptied(u.queue, keep)
	u.deps = emptied(u.deps, keep)
	u.dirty = emptied(u.dirty, keep)
	u.pending = emptied(u.pending, keep)
	u.keys = nil
	u.mixed = emptied(u.mixed, keep)
	u.clash, u.steps = false, 0
}

func (u *upserts) find(i int32) int32 {
	for u.parent[i] != i {
		u.parent[i] = u.parent[u.parent[i]]
		i = u.parent[i]
	}
	return i
}

// upsert resolves tempids as far as they are entities that exist, or one another.
func (p *Preparer) upsert() {
	u := &p.up
	u.parent = slices.Grow(u.parent, len(p.p.ents))
	u.class = slices.Grow(u.class, len(p.p.ents))
	for i := range p.p.ents {
		e := &p.p.ents[i]
		u.parent = append(u.parent, int32(i))
		c := class{size: 1, part: e.part}
		if e.kind == entTx {
			c.tx, c.bound, c.id = true, true, p.txID
		}
		u.class = append(u.class, c)
	}
	p.linkAliases()
	if p.p.identities || p.p.composites {
		p.seedUpserts()
		p.close()
	}
	p.judgeTempids()
}

// linkAliases makes an ident that is taken in this transaction one with the entity that takes it.
func (p *Preparer) linkAliases() {
	if !p.p.symbolic {
		return
	}
	for i := range p.p.ents {
		if e := &p.p.ents[i]; e.kind == entAlias {
			if r := p.res[e.ref]; r.state == stateTempid {
				p.unite(int32(i), e.ref)
			} else {
				p.res[i] = r
			}
		}
	}
}

// free reports whether the ent is a tempid, the transaction, or an alias of one: what takes part in upsert.
func (p *Preparer) free(i int32) bool {
	return p.res[i].state == stateTempid || p.p.ents[i].kind == entTx
}

// seedUpserts queues everything that gives identity, and notes what depends on which class.
func (p *Preparer) seedUpserts() {
	u := &p.up
	for i := range p.p.ops {
		o := &p.p.ops[i]
		if o.kind != opAdd && o.kind != opRetract || !p.free(o.e) {
			continue
		}
		if o.a.Unique == db.UniqueIdentity && !p.partial(o) {
			u.queue = append(u.queue, int32(i))
			p.depend(o, int32(i), false)
		}
		if o.kind == opAdd && len(o.a.Composites) > 0 && p.identifies(o.a) {
			p.depend(o, int32(i), true)
			c := &u.class[u.find(o.e)]
			u.deps = append(u.deps, dep{op: int32(i)})
			u.append(&c.comps, &c.lastC, int32(len(u.deps)))
			p.soil(o.e)
		}
	}
}

// identifies reports whether an attribute is a constituent of a composite that gives identity.
func (p *Preparer) identifies(a *db.Attribute) bool {
	for _, id := range a.Composites {
		if p.s.Attr(id).Unique == db.UniqueIdentity {
			return true
		}
	}
	return false
}

// partial reports whether the op's value is a composite with a constituent missing: that never upserts.
func (p *Preparer) partial(o *op) bool {
	if len(o.a.TupleAttrs) == 0 {
		return false
	}
	if isTupleRef(o.ref) {
		t := &p.p.tuples[tupleIndex(o.ref)]
		for i, v := range t.elems[:t.n] {
			if t.ents[i] == noRef && v.IsNil() {
				return true
			}
		}
		return false
	}
	return slices.ContainsFunc(o.v.Tuple(), datom.Value.IsNil)
}

// depend notes that an op is to be looked at again when the class of a tempid in its value changes.
func (p *Preparer) depend(o *op, i int32, comp bool) {
	switch {
	case isEntityRef(o.ref):
		p.dependOn(o.ref, i, comp)
	case isTupleRef(o.ref):
		t := &p.p.tuples[tupleIndex(o.ref)]
		for _, e := range t.ents[:t.n] {
			if e != noRef {
				p.dependOn(e, i, comp)
			}
		}
	}
}

func (p *Preparer) dependOn(e, op int32, comp bool) {
	if !p.free(e) {
		return
	}
	u := &p.up
	c := &u.class[u.find(e)]
	u.deps = append(u.deps, dep{op: op, comp: comp})
	u.append(&c.deps, &c.last, int32(len(u.deps)))
}

// append puts the list (or element) that begins and ends with dep n-1 at the end of another.
func (u *upserts) append(first, last *int32, n int32) { u.concat(first, last, n, n) }

func (u *upserts) concat(first, last *int32, from, to int32) {
	if from == 0 {
		return
	}
	if *last == 0 {
		*first = from
	} else {
		u.deps[*last-1].next = from
	}
	*last = to
}

// soil notes that the composites of an ent's class are to be looked at.
func (p *Preparer) soil(e int32) {
	u := &p.up
	if c := &u.class[u.find(e)]; !c.dirty {
		c.dirty = true
		u.dirty = append(u.dirty, e)
	}
}

// changed looks again at everything that depends on a class.
func (p *Preparer) changed(list int32) {
	u := &p.up
	for n := list; n != 0; n = u.deps[n-1].next {
		u.steps++
		if d := u.deps[n-1]; d.comp {
			p.soil(p.p.ops[d.op].e)
		} else {
			u.queue = append(u.queue, d.op)
		}
	}
}

// close applies the rules, round by round, until nothing changes.
func (p *Preparer) close() {
	u := &p.up
	most := 1<<18 + 64*len(p.p.ops) // far beyond what anything but an attack takes
	for len(u.queue) > 0 || len(u.dirty) > 0 {
		u.pending = u.pending[:0]
		for _, i := range u.queue {
			o := &p.p.ops[i]
			p.eachIdentity(o.a, o.v, o.ref, func(k idKey) {
				u.pending = append(u.pending, claim{key: k, ent: o.e, asserted: o.kind == opAdd})
			})
		}
		for _, e := range u.dirty {
			p.composites(u.find(e))
		}
		u.steps += len(u.queue) + len(u.dirty)
		u.queue, u.dirty = u.queue[:0], u.dirty[:0]
		p.unitePending()
		p.judgeMixed()
		p.bindPending()
		if u.clash {
			return
		}
		if u.steps > most {
			p.fault(phaseUpsert, LimitExceeded, -1, "", datom.Value{}, "", "the tempids depend on one another in too many ways; split the transaction")
			return
		}
	}
}

// unitePending applies the first rule to the identities of the round.
func (p *Preparer) unitePending() {
	u := &p.up
	for i := range u.pending {
		x := &u.pending[i]
		x.at = p.identity(x.key)
		if !x.asserted {
			continue
		}
		if k := &u.keyed[x.at]; k.ent < 0 {
			k.ent = x.ent
		} else {
			p.unite(x.ent, k.ent)
		}
	}
}

// bindPending applies the second rule.
func (p *Preparer) bindPending() {
	u := &p.up
	for i := range u.pending {
		x := &u.pending[i]
		k := &u.keyed[x.at]
		if !k.found {
			continue
		}
		switch c := &u.class[u.find(x.ent)]; {
		case c.tx:
		case !c.bound:
			c.bound, c.id, c.retract = true, k.holder, !x.asserted
			p.changed(c.deps)
		case c.id != k.holder:
			c.more = append(c.more, bond{id: k.holder})
			u.clash = true
		default:
			c.retract = c.retract && !x.asserted
		}
	}
}

// identity is where an identity is in upserts.keyed. One that comes up for the first time is looked up in what is stored.
func (p *Preparer) identity(k idKey) int32 {
	u := &p.up
	if i := u.position(k); i >= 0 {
		return i
	}
	x := keyed{key: k, ent: -1}
	if k.node == noNode {
		x.holder, x.found = p.st.Lookup(k.a, k.v)
	}
	u.keyed = append(u.keyed, x)
	n := int32(len(u.keyed) - 1)
	switch {
	case u.keys != nil:
		u.keys[k] = n
	case n >= few:
		u.keys = make(map[idKey]int32)
		for i := range u.keyed {
			u.keys[u.keyed[i].key] = int32(i)
		}
	}
	return n
}

// position is where an identity is in keyed; -1 if it did not come up.
func (u *upserts) position(k idKey) int32 {
	if u.keys != nil {
		if i, ok := u.keys[k]; ok {
			return i
		}
		return -1
	}
	for i := range u.keyed {
		if u.keyed[i].key == k {
			return int32(i)
		}
	}
	return -1
}

// absent reports whether a value of a unique attribute is known not to be stored. That it does not know says nothing.
func (u *upserts) absent(a datom.ID, v datom.Value) bool {
	i := u.position(idKey{a, v, noNode})
	return i >= 0 && !u.keyed[i].found
}

// holds reports whether a value is known to be stored, as that of e.
func (u *upserts) holds(a *db.Attribute, v datom.Value, e datom.ID) bool {
	if a.Unique != db.UniqueIdentity {
		return false
	}
	i := u.position(idKey{a.ID, v, noNode})
	return i >= 0 && u.keyed[i].found && u.keyed[i].holder == e
}

// unite makes the classes of two ents one.
func (p *Preparer) unite(x, y int32) {
	u := &p.up
	x, y = u.find(x), u.find(y)
	if x == y {
		return
	}
	if u.class[x].size < u.class[y].size {
		x, y = y, x
	}
	a, b := &u.class[x], &u.class[y]
	u.parent[y] = x
	a.size += b.size
	a.part = choosePart(a.part, b.part)
	switch {
	case !b.bound:
	case !a.bound:
		a.bound, a.id, a.tx, a.retract = true, b.id, b.tx, b.retract
		p.changed(a.deps)
	default:
		u.mixed = append(u.mixed, x)
		if b.tx {
			a.more = append(a.more, bond{a.id, a.retract})
			a.id, a.tx, a.retract = b.id, true, false
			p.changed(a.deps)
		} else {
			a.more = append(a.more, bond{b.id, b.retract})
		}
	}
	a.more = append(a.more, b.more...)
	p.changed(b.deps)
	u.concat(&a.deps, &a.last, b.deps, b.last)
	u.concat(&a.comps, &a.lastC, b.comps, b.lastC)
	if a.dirty = a.dirty || b.dirty; !a.dirty && a.comps != 0 {
		p.soil(x)
	}
}

// judgeMixed looks at the classes that were made of bound ones. To be two ids is a conflict. But a tempid that turns out to be the
// transaction is no other entity: if it asserts a unique value of one, the phase of uniqueness says so; only if it does nothing
// but retract one is it both.
func (p *Preparer) judgeMixed() {
	u := &p.up
	for _, e := range u.mixed {
		c := &u.class[u.find(e)]
		if !c.tx {
			for _, b := range c.more {
				if b.id != c.id {
					u.clash = true
				}
				c.retract = c.retract && b.retract
			}
		} else {
			all := slices.Clone(c.more)
			c.more = slices.DeleteFunc(c.more, func(b bond) bool {
				return slices.ContainsFunc(all, func(o bond) bool { return o.id == b.id && !o.retract })
			})
			u.clash = u.clash || len(c.more) > 0
		}
		if !u.clash {
			c.more = nil
		}
	}
	u.mixed = u.mixed[:0]
}

// choosePart is the partition of an entity that was given two: the one that is not the default, else the lower one.
func choosePart(a, b uint64) uint64 {
	switch {
	case a == datom.PartUser:
		return b
	case b == datom.PartUser:
		return a
	}
	return min(a, b)
}

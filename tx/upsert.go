package tx

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
)

// Which entity a tempid is follows from the identities that it asserts, and those may hold other tempids. So tempids are
// gathered into classes, a class being one entity, and the classes are closed under two rules until nothing changes:
//
//   - what asserts or retracts a stored identity is the entity that has it: the class is bound to that id;
//   - what asserts the same identity is the same entity: the classes are united.
//
// The identity (attribute, value) of a value that is a tempid is (attribute, that tempid's class, or the ids it is bound to),
// so whatever depends on a class is looked at again when the class changes. The rules only ever add, so the outcome does not
// depend on the order in which they are applied. A class that is bound to two ids is a conflict, unless it is the transaction, which is never another entity.
type upserts struct {
	parent []int32
	class  []class // by root
	keys   map[idKey]int32
	few    []keyed // in place of keys, as long as there are few
	queue  []int32 // ops to look at
	deps   []dep
	dirty  []int32 // ents whose class's composites are to be looked at
	steps  int
}

// class is a set of ents that are one entity.
type class struct {
	size  int32
	deps  int32 // 1 + the first dep in upserts.deps; 0: none
	last  int32 // 1 + the last one
	comps int32 // the same for asserted constituents of composites with identity
	lastC int32
	dirty bool
	tx    bool
	part  uint64
	ids   []datom.ID // what it is bound to, in order; the transaction's own id too
	one   [1]datom.ID
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

type keyed struct {
	key    idKey
	ent    int32
	looked bool // for a stored entity that has it, which is
	found  bool // and
	holder datom.ID
}

const (
	noNode   = -1
	symbolic = -2 // the value is an encoded tuple with classes in it
)

func (u *upserts) reset(keep int) {
	u.parent = emptied(u.parent, keep)
	u.class = emptied(u.class, keep)
	u.few = emptied(u.few, keep)
	u.queue = emptied(u.queue, keep)
	u.deps = emptied(u.deps, keep)
	u.dirty = emptied(u.dirty, keep)
	u.keys = nil
	u.steps = 0
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
	for i := range p.p.ents {
		e := &p.p.ents[i]
		u.parent = append(u.parent, int32(i))
		u.class = append(u.class, class{size: 1, part: e.part, tx: e.kind == entTx})
	}
	for i := range u.class {
		if u.class[i].tx {
			u.class[i].add(p.txID)
		}
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

// close applies the rules until nothing changes.
func (p *Preparer) close() {
	u := &p.up
	most := 1<<20 + 256*len(p.p.ops) // far beyond what anything but an attack takes
	for (len(u.queue) > 0 || len(u.dirty) > 0) && u.steps < most {
		for len(u.queue) > 0 && u.steps < most {
			i := u.queue[len(u.queue)-1]
			u.queue = u.queue[:len(u.queue)-1]
			u.steps++
			o := &p.p.ops[i]
			p.eachIdentity(o.a, o.v, o.ref, func(k idKey) { p.identity(o.e, k, o.kind == opAdd) })
		}
		dirty := u.dirty
		u.dirty = nil
		for _, e := range dirty {
			p.composites(u.find(e))
		}
		if u.dirty == nil {
			u.dirty = dirty[:0]
		}
	}
	if u.steps >= most {
		p.fault(phaseUpsert, LimitExceeded, -1, "", datom.Value{}, "", "the tempids depend on one another in too many ways; split the transaction")
	}
}

// identity applies both rules to one identity of an ent.
func (p *Preparer) identity(e int32, k idKey, asserted bool) {
	u := &p.up
	x := keyed{key: k, ent: e}
	if k.node == noNode {
		x.looked = true
		if x.holder, x.found = p.st.Lookup(k.a, k.v); x.found {
			p.bind(e, x.holder)
		}
	}
	if !asserted {
		return
	}
	if other, ok := u.key(x); ok {
		p.unite(e, other)
	}
}

// key finds the ent that asserted the identity first, or notes that x.ent did.
func (u *upserts) key(x keyed) (int32, bool) {
	if u.keys == nil {
		for i := range u.few {
			if u.few[i].key == x.key {
				return u.few[i].ent, true
			}
		}
		u.few = append(u.few, x)
		if len(u.few) <= few {
			return 0, false
		}
		u.keys = make(map[idKey]int32)
		for _, x := range u.few {
			u.keys[x.key] = x.ent
		}
		return 0, false
	}
	other, ok := u.keys[x.key]
	if !ok {
		u.keys[x.key] = x.ent
	}
	return other, ok
}

// absent reports whether a value of a unique attribute is known not to be stored. That it does not know says nothing.
func (u *upserts) absent(a datom.ID, v datom.Value) bool {
	x := u.remembered(a, v)
	return x != nil && !x.found
}

// holds reports whether a value is known to be stored, as that of e.
func (u *upserts) holds(a *db.Attribute, v datom.Value, e datom.ID) bool {
	if a.Unique != db.UniqueIdentity {
		return false
	}
	x := u.remembered(a.ID, v)
	return x != nil && x.found && x.holder == e
}

func (u *upserts) remembered(a datom.ID, v datom.Value) *keyed {
	for i := range u.few {
		if x := &u.few[i]; x.looked && x.key.a == a && x.key.v == v {
			return x
		}
	}
	return nil
}

// bind makes the class of e the entity id.
func (p *Preparer) bind(e int32, id datom.ID) {
	c := &p.up.class[p.up.find(e)]
	if c.add(id) {
		p.changed(c.deps)
	}
}

// add puts an id among those that a class is bound to, if it is not there yet.
func (c *class) add(id datom.ID) bool {
	if len(c.ids) == 0 {
		c.one[0] = id
		c.ids = c.one[:]
		return true
	}
	i, ok := slices.BinarySearch(c.ids, id)
	if !ok {
		c.ids = slices.Insert(c.ids, i, id)
	}
	return !ok
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
	a.tx = a.tx || b.tx
	a.part = choosePart(a.part, b.part)
	grown := false
	for _, id := range b.ids {
		grown = a.add(id) || grown
	}
	if grown {
		p.changed(a.deps)
	}
	p.changed(b.deps)
	u.concat(&a.deps, &a.last, b.deps, b.last)
	u.concat(&a.comps, &a.lastC, b.comps, b.lastC)
	dirty := a.dirty || b.dirty
	if a.dirty = dirty; !dirty && a.comps != 0 {
		p.soil(x)
	}
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

// candidate is what a value, or a tuple's element, may be: a value, or a class that is not bound.
type candidate struct {
	v    datom.Value
	node int32
}

// candidates appends what a ref to ent e may be.
func (p *Preparer) candidates(out []candidate, e int32) []candidate {
	if !p.free(e) {
		return append(out, candidate{datom.Ref(p.res[e].id), noNode})
	}
	root := p.up.find(e)
	ids := p.up.class[root].ids
	if len(ids) == 0 {
		return append(out, candidate{node: root})
	}
	for _, id := range ids {
		out = append(out, candidate{datom.Ref(id), noNode})
	}
	return out
}

// eachIdentity calls f for every identity that the value of a unique attribute gives.
func (p *Preparer) eachIdentity(a *db.Attribute, v datom.Value, ref int32, f func(idKey)) {
	switch {
	case isEntityRef(ref):
		var buf [2]candidate
		for _, c := range p.candidates(buf[:0], ref) {
			f(idKey{a.ID, c.v, c.node})
		}
	case isTupleRef(ref):
		t := &p.p.tuples[tupleIndex(ref)]
		var elems [datom.MaxTuple][]candidate
		for i := range t.n {
			if e := t.ents[i]; e != noRef {
				elems[i] = p.candidates(nil, e)
			} else {
				elems[i] = []candidate{{t.elems[i], noNode}}
			}
		}
		p.tuples(a, elems[:t.n], f)
	default:
		f(idKey{a.ID, v, noNode})
	}
}

// maxTuples bounds how many tuples are made of candidates. More than one means that a constituent was given two
// values, or is two entities: a conflict whatever comes of it.
const maxTuples = 4096

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
		// The class may be united with another meanwhile: that soils it again.
		p.tuples(c, elems[:len(c.TupleAttrs)], func(k idKey) { p.identity(root, k, true) })
	}
}

// constituent adds what an op asserts to the candidates for an element.
func (p *Preparer) constituent(elems []candidate, o *op) []candidate {
	from := len(elems)
	if isEntityRef(o.ref) {
		elems = p.candidates(elems, o.ref)
	} else {
		elems = append(elems, candidate{o.v, noNode})
	}
	for i := from; i < len(elems); {
		if slices.Contains(elems[:i], elems[i]) {
			elems = slices.Delete(elems, i, i+1)
		} else {
			i++
		}
	}
	return elems
}

// judgeTempids reports tempids that would have to be two entities, or are none.
func (p *Preparer) judgeTempids() {
	u := &p.up
	conflict := false
	for i := range p.p.ents {
		e := &p.p.ents[i]
		if e.kind == entTempid && e.isValue && !e.isEntity {
			name := p.entName(int32(i))
			p.fault(phaseUpsert, TempidNotAnEntity, e.pos, "", datom.Value{}, name, fmt.Sprintf("%s is used as a value, but nothing is said about it; assert "+
				"a fact of it in the same transaction, or use the id, ident or lookup ref of an entity that is there", name))
		}
		c := &u.class[i]
		conflict = conflict || u.parent[i] == int32(i) && len(c.ids) > 1 && !c.tx
	}
	if !conflict {
		return
	}
	first := map[int32]int32{} // by root, the ent whose name comes first
	for i := range p.p.ents {
		if e := &p.p.ents[i]; e.kind == entTempid {
			root := u.find(int32(i))
			if old, ok := first[root]; !ok || e.name != "" && (p.p.ents[old].name == "" || e.name < p.p.ents[old].name) {
				first[root] = int32(i)
			}
		}
	}
	for root, i := range first {
		if c := &u.class[root]; len(c.ids) > 1 && !c.tx {
			name := p.entName(i)
			p.fault(phaseUpsert, ConflictingUpsert, p.p.ents[i].pos, "", datom.Value{}, name, fmt.Sprintf("%s has unique values of both %s and %s, and cannot be "+
				"two entities", name, c.ids[0], c.ids[1]))
		}
	}
}

// allocate gives every tempid its entity: the one that its class is bound to, or a new one.
func (p *Preparer) allocate() {
	u := &p.up
	if p.p.schema {
		p.placeSchema()
	}
	for i := range p.p.ents {
		if p.res[i].state != stateTempid {
			continue
		}
		e := &p.p.ents[i]
		if !e.isEntity && !e.isValue {
			p.res[i].state = stateMissing
			continue
		}
		c := &u.class[u.find(int32(i))]
		switch {
		case c.tx:
			p.res[i] = resolved{p.txID, stateNew}
			continue
		case len(c.ids) == 0:
			c.ids = append(c.ids, p.newID(c.part))
		}
		p.res[i] = resolved{c.ids[0], stateStored}
		if p.isNew(c.ids[0]) {
			p.res[i].state = stateNew
		}
	}
}

// newPartition in place of a partition's number says that the new entity is a partition itself.
const newPartition = ^uint64(0)

// newID allocates an id. When there are none left the transaction is refused in the end; until then any will do.
func (p *Preparer) newID(part uint64) datom.ID {
	if part == newPartition {
		p.next.Part++
		if p.next.Part > datom.FirstSeq {
			p.exhausted = true
			p.next.Part = datom.FirstSeq
		}
		return datom.MakeID(datom.PartDB, p.next.Part-1)
	}
	p.next.Seq++
	if p.next.Seq > datom.MaxSeq {
		p.exhausted = true
		p.next.Seq = datom.MaxSeq
	}
	return datom.MakeID(part, p.next.Seq-1)
}

// placeSchema puts new attributes and partitions where they belong.
func (p *Preparer) placeSchema() {
	u := &p.up
	for i := range p.p.ops {
		o := &p.p.ops[i]
		if o.kind != opAdd {
			continue
		}
		switch o.a.ID {
		case db.AttrValueType:
			if p.free(o.e) {
				u.class[u.find(o.e)].part = datom.PartDB
			}
		case db.AttrInstallPartition:
			if p.free(o.ref) {
				u.class[u.find(o.ref)].part = newPartition
			}
		}
	}
}

package tx

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
)

// builtin reports whether an entity, often an attribute, is one that every database is born with.
func builtin(id datom.ID) bool { return db.IsBuiltin(id) }

// description is an entity's facts about being an attribute.
type description struct {
	ident                     datom.Keyword
	valueType, card           datom.ID
	hasIdent, hasType         bool
	hasCard, hasUnique        bool
	unique                    datom.ID
	component                 bool
	tupleAttrs                []datom.ID
	tupleTypes                []datom.Value
	tupleType                 datom.Keyword
	hasAttrs, hasTypes, hasTT bool
	some                      bool // something but :db/ident says that it is an attribute
}

func describe(facts iter.Seq[datom.Datom]) description {
	var x description
	for d := range facts {
		if d.A != db.AttrIdent && d.A != db.AttrInstallPartition && db.IsSchemaAttr(d.A) {
			x.some = true
		}
		switch d.A {
		case db.AttrIdent:
			x.ident, x.hasIdent = d.V.Keyword(), true
		case db.AttrValueType:
			x.valueType, x.hasType = d.V.Ref(), true
		case db.AttrCardinality:
			x.card, x.hasCard = d.V.Ref(), true
		case db.AttrUnique:
			x.unique, x.hasUnique = d.V.Ref(), true
		case db.AttrIsComponent:
			x.component = d.V.Bool()
		case db.AttrTupleAttrs:
			x.hasAttrs = true
			for _, v := range d.V.Tuple() {
				x.tupleAttrs = append(x.tupleAttrs, v.Ref())
			}
		case db.AttrTupleTypes:
			x.tupleTypes, x.hasTypes = d.V.Tuple(), true
		case db.AttrTupleType:
			x.tupleType, x.hasTT = d.V.Keyword(), true
		}
	}
	return x
}

func (x *description) many() bool { return x.card == db.CardinalityMany }

// describeAttr is the description of an attribute that the transaction does not touch.
func describeAttr(a *db.Attribute) description {
	x := description{ident: a.Ident, hasIdent: true, hasType: true, hasCard: true, card: db.CardinalityOne, some: true}
	x.valueType, _ = db.TypeID(a.Type)
	if a.Many {
		x.card = db.CardinalityMany
	}
	return x
}

// checkSchema checks the delta's datoms of built-in attributes: that what they make of the schema is sound, and may follow from what
// was there. It says whether the schema, an ident or a partition may have changed.
func (p *Preparer) checkSchema() bool {
	changed := false
	var touched []datom.ID
	for _, x := range p.reserved {
		d := &p.out[x.out]
		schema := db.IsSchemaAttr(d.A)
		changed = changed || schema
		switch {
		case d.A == db.AttrInstallPartition:
			p.checkPartition(d, x.pos)
		case builtin(d.E):
			p.fault(phaseSchema, InvalidAlteration, x.pos, p.attrNamed(d.A), d.V, d.E.String(), fmt.Sprintf("%s is built in and cannot be altered", p.specName(d.E)))
		case schema && (len(touched) == 0 || touched[len(touched)-1] != d.E):
			touched = append(touched, d.E) // out, and so reserved, is sorted by entity
			p.checkAttribute(d.E, x.pos)
		}
	}
	return changed
}

func (p *Preparer) attrNamed(id datom.ID) string { return attrName(p.s.Attr(id)) }

// change is the delta's datoms about an entity.
func (p *Preparer) change(e datom.ID) []datom.Datom {
	byE := func(d datom.Datom, e datom.ID) int { return cmp.Compare(d.E, e) }
	i, _ := slices.BinarySearchFunc(p.out, e, byE)
	j := i
	for j < len(p.out) && p.out[j].E == e {
		j++
	}
	return p.out[i:j]
}

// factsAfter is an entity's facts of built-in attributes after the transaction.
func (p *Preparer) factsAfter(e datom.ID) iter.Seq[datom.Datom] {
	return func(yield func(datom.Datom) bool) {
		delta := p.change(e)
		gone := map[datom.Datom]bool{}
		for _, d := range delta {
			if d.Added && !yield(d) {
				return
			}
			if !d.Added {
				gone[datom.Datom{A: d.A, V: d.V}] = true
			}
		}
		if p.isNew(e) {
			return
		}
		for d := range p.st.Facts(e) {
			if builtin(d.A) && !gone[datom.Datom{A: d.A, V: d.V}] && !yield(d) {
				return
			}
		}
	}
}

// attrAfter is the description of an attribute after the transaction; false if the entity is none then.
func (p *Preparer) attrAfter(id datom.ID) (description, bool) {
	if len(p.change(id)) > 0 {
		x := describe(p.factsAfter(id))
		return x, x.hasType && x.hasCard
	}
	if a := p.s.Attr(id); a != nil {
		return describeAttr(a), true
	}
	return description{}, false
}

// schemaFaults reports faults about one attribute.
type schemaFaults struct {
	p    *Preparer
	e    datom.ID
	pos  int32
	name string // of the attribute
}

func (f *schemaFaults) invalid(format string, args ...any) { f.add(InvalidSchema, format, args) }
func (f *schemaFaults) refused(format string, args ...any) { f.add(InvalidAlteration, format, args) }

func (f *schemaFaults) add(k Kind, format string, args []any) {
	f.p.fault(phaseSchema, k, f.pos, f.name, datom.Value{}, f.p.name(f.e), fmt.Sprintf(format, args...))
}

// checkAttribute checks an entity about which the delta says something that concerns attributes.
func (p *Preparer) checkAttribute(e datom.ID, pos int32) {
	x, was := describe(p.factsAfter(e)), p.s.Attr(e)
	f := &schemaFaults{p, e, pos, p.name(e)}
	if x.hasIdent {
		f.name = x.ident.String()
	} else if was != nil {
		f.name = attrName(was)
	}
	if was != nil && !(x.hasIdent && x.hasType && x.hasCard) {
		p.checkRemoval(f, was, &x)
		return
	}
	if !x.some {
		return
	}
	if was == nil && !p.complete(f, &x) {
		return
	}
	kind, ok := db.TypeKind(x.valueType)
	if !ok {
		f.invalid("%s is no :db/valueType; it is one of :db.type/boolean, :db.type/long, :db.type/string, :db.type/ref and so on", p.specName(x.valueType))
		return
	}
	if x.card != db.CardinalityOne && x.card != db.CardinalityMany {
		f.invalid("the :db/cardinality of %s must be :db.cardinality/one or :db.cardinality/many", f.name)
	}
	if x.hasUnique && x.unique != db.UniqueValueID && x.unique != db.UniqueIdentityID {
		f.invalid("the :db/unique of %s must be :db.unique/value or :db.unique/identity", f.name)
	}
	if x.component && kind != datom.KindRef {
		f.invalid("%s cannot be a component: only a ref can, and it is a :db.type/%s", f.name, kind)
	}
	if strings.HasPrefix(x.ident.Name(), "_") {
		f.invalid("an attribute cannot be called %s: a name that begins with _ is how a map form writes a reverse attribute", f.name)
	}
	p.checkTuple(f, &x, kind)
	if was != nil {
		p.checkAlteration(f, was, &x, kind)
	}
}

// complete reports what a new attribute lacks.
func (p *Preparer) complete(f *schemaFaults, x *description) bool {
	var lacks []string
	if !x.hasIdent {
		lacks = append(lacks, ":db/ident")
	}
	if !x.hasType {
		lacks = append(lacks, ":db/valueType")
	}
	if !x.hasCard {
		lacks = append(lacks, ":db/cardinality")
	}
	if len(lacks) > 0 {
		f.invalid("the attribute %s has no %s; an attribute needs :db/ident, :db/valueType and :db/cardinality", f.name, strings.Join(lacks, ", no "))
	}
	return len(lacks) == 0
}

// checkRemoval: an attribute lost its ident, value type or cardinality. One that was never used may go, but only as a whole.
func (p *Preparer) checkRemoval(f *schemaFaults, was *db.Attribute, x *description) {
	used := p.st.AttrInUse(f.e) || slices.ContainsFunc(p.out, func(d datom.Datom) bool { return d.A == f.e })
	switch {
	case used:
		f.refused("the ident, value type and cardinality of %s cannot be retracted: there are facts of it, now or in the past", attrName(was))
	case x.some:
		p.complete(f, x)
	default:
		for _, id := range was.Composites {
			if y, ok := p.attrAfter(id); ok && slices.Contains(y.tupleAttrs, f.e) || ok && len(p.change(id)) == 0 {
				f.refused("%s cannot be retracted: it is a constituent of %s", attrName(was), p.attrNamed(id))
			}
		}
	}
}

func (p *Preparer) checkTuple(f *schemaFaults, x *description, kind datom.Kind) {
	n := 0
	for _, has := range []bool{x.hasAttrs, x.hasTypes, x.hasTT} {
		if has {
			n++
		}
	}
	if kind != datom.KindTuple {
		if n > 0 {
			f.invalid("%s is a :db.type/%s; only a :db.type/tuple has :db/tupleAttrs, :db/tupleTypes or :db/tupleType", f.name, kind)
		}
		return
	}
	if n != 1 {
		f.invalid("the tuple %s needs exactly one of :db/tupleAttrs, :db/tupleTypes and :db/tupleType", f.name)
		return
	}
	if x.hasTT {
		p.checkElem(f, x.tupleType)
	}
	for _, v := range x.tupleTypes {
		p.checkElem(f, v.Keyword())
	}
	if x.hasAttrs && x.many() {
		f.invalid("the composite %s must be of cardinality one", f.name)
	}
	for i, id := range x.tupleAttrs {
		c, ok := p.attrAfter(id)
		k, _ := db.TypeKind(c.valueType)
		switch name := c.ident.String(); {
		case !ok:
			f.invalid("%s, in :db/tupleAttrs of %s, is not an attribute", p.specName(id), f.name)
		case slices.Contains(x.tupleAttrs[:i], id):
			f.invalid("%s is named twice in :db/tupleAttrs of %s", name, f.name)
		case c.many():
			f.invalid("%s, in :db/tupleAttrs of %s, is of cardinality many; a composite is made of attributes of cardinality one", name, f.name)
		case k == datom.KindTuple:
			f.invalid("%s, in :db/tupleAttrs of %s, is a tuple, and a tuple cannot hold a tuple", name, f.name)
		}
	}
}

// checkElem checks the type of a tuple's element.
func (p *Preparer) checkElem(f *schemaFaults, kw datom.Keyword) {
	switch k, ok := db.TypeNamed(kw); {
	case !ok:
		f.invalid("%s, in the tuple %s, is no value type", kw, f.name)
	case k == datom.KindTuple:
		f.invalid("the tuple %s cannot hold tuples", f.name)
	}
}

// checkAlteration checks what became of an attribute that was there already.
func (p *Preparer) checkAlteration(f *schemaFaults, was *db.Attribute, x *description, kind datom.Kind) {
	if kind != was.Type {
		f.refused("the value type of %s is :db.type/%s, and a value type never changes; install another attribute", f.name, was.Type)
		return
	}
	if kind == datom.KindTuple && !sameTuple(was, x) {
		f.refused("what the tuple %s is made of never changes; install another attribute", f.name)
		return
	}
	switch {
	case was.Many && !x.many():
		p.checkOne(f)
	case !was.Many && x.many() && len(was.Composites) > 0:
		f.refused("%s must stay of cardinality one: it is a constituent of %s", f.name, p.attrNamed(was.Composites[0]))
	}
	if was.Unique == db.NotUnique && x.hasUnique {
		p.checkUnique(f)
	}
}

func sameTuple(was *db.Attribute, x *description) bool {
	if !slices.Equal(was.TupleAttrs, x.tupleAttrs) || len(was.TupleTypes) != len(x.tupleTypes) {
		return false
	}
	for i, v := range x.tupleTypes {
		if k, _ := db.TypeNamed(v.Keyword()); k != was.TupleTypes[i] {
			return false
		}
	}
	k, _ := db.TypeNamed(x.tupleType)
	return k == was.TupleType
}

// attrFactsAfter is the facts of an attribute after the transaction.
func (p *Preparer) attrFactsAfter(a datom.ID) iter.Seq[datom.Datom] {
	return func(yield func(datom.Datom) bool) {
		gone := map[datom.Datom]bool{}
		for _, d := range p.out {
			if d.A != a {
				continue
			}
			if d.Added && !yield(d) {
				return
			}
			if !d.Added {
				gone[datom.Datom{E: d.E, V: d.V}] = true
			}
		}
		for d := range p.st.AttrFacts(a) {
			if !gone[datom.Datom{E: d.E, V: d.V}] && !yield(d) {
				return
			}
		}
	}
}

// offenders is how many entities a refused alteration names.
const offenders = 3

// checkOne: cardinality many becomes one, so no entity may have two values.
func (p *Preparer) checkOne(f *schemaFaults) {
	seen := map[datom.ID]int{}
	var bad []datom.ID
	for d := range p.attrFactsAfter(f.e) {
		if seen[d.E]++; seen[d.E] == 2 {
			bad = append(bad, d.E)
		}
	}
	if len(bad) == 0 {
		return
	}
	slices.Sort(bad)
	f.refused("%s cannot become of cardinality one: %d entities have more than one value: %s", f.name, len(bad), p.nameSome(bad))
}

// checkUnique: an attribute becomes unique, so no two entities may share a value.
func (p *Preparer) checkUnique(f *schemaFaults) {
	first := map[datom.Value]datom.ID{}
	shared := map[datom.Value][]datom.ID{}
	for d := range p.attrFactsAfter(f.e) {
		if e, ok := first[d.V]; !ok {
			first[d.V] = d.E
		} else if len(shared[d.V]) == 0 {
			shared[d.V] = []datom.ID{e, d.E}
		} else {
			shared[d.V] = append(shared[d.V], d.E)
		}
	}
	if len(shared) == 0 {
		return
	}
	var least datom.Value
	for v := range shared {
		if least.IsNil() || datom.Compare(v, least) < 0 {
			least = v
		}
	}
	slices.Sort(shared[least])
	f.refused("%s cannot become unique: %d values are shared; %s belongs to %s", f.name, len(shared), p.show(least), p.nameSome(shared[least]))
}

func (p *Preparer) nameSome(ids []datom.ID) string {
	var names []string
	for i, id := range ids {
		if i == offenders {
			names = append(names, "…")
			break
		}
		names = append(names, p.name(id))
	}
	return strings.Join(names, ", ")
}

// checkPartition checks a datom of :db.install/partition.
func (p *Preparer) checkPartition(d *datom.Datom, pos int32) {
	f := &schemaFaults{p, d.V.Ref(), pos, ":db.install/partition"}
	id := d.V.Ref()
	switch {
	case !d.Added:
		f.refused("the partition %s cannot be uninstalled", p.specName(id))
	case d.E != db.PartDBEntity:
		f.invalid("a partition is installed in :db.part/db: [:db/add :db.part/db :db.install/partition …]")
	case !p.isNew(id) || id.Part() != datom.PartDB || id.Seq() >= datom.FirstSeq:
		f.invalid("%s cannot become a partition: a partition is a new entity, named by a tempid", p.specName(id))
	default:
		if x := describe(p.factsAfter(id)); !x.hasIdent {
			f.invalid("the partition %s needs a :db/ident", p.name(id))
		} else if x.some {
			f.invalid("%s cannot be both a partition and an attribute", x.ident)
		}
	}
}

package db

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/steledb/stele/datom"
)

// Uniqueness says whether at most one entity may have a value of an attribute.
type Uniqueness uint8

const (
	NotUnique Uniqueness = iota
	UniqueValue
	UniqueIdentity // and a tempid that asserts the value is the entity that has it
)

// String is the name behind ":db.unique/", or "none".
func (u Uniqueness) String() string {
	switch u {
	case UniqueValue:
		return "value"
	case UniqueIdentity:
		return "identity"
	}
	return "none"
}

// Attribute is one attribute as the schema describes it. It belongs to a Schema and must not be changed.
type Attribute struct {
	ID        datom.ID
	Ident     datom.Keyword // the current one; "" if it was retracted
	Type      datom.Kind
	Many      bool
	Unique    Uniqueness
	Indexed   bool // :db/index
	Component bool
	NoHistory bool
	Fulltext  bool // kept as a fact, without effect

	// At most one of these three is set, and only on tuples.
	TupleAttrs []datom.ID   // a composite's constituents
	TupleTypes []datom.Kind // one for each element
	TupleType  datom.Kind   // of every element

	Preds []datom.Symbol // :db.attr/preds, in order

	Composites []datom.ID // the composites that this attribute is a constituent of, in order
}

// InAVET reports whether the attribute's datoms are in the AVET index: those of indexed and of unique attributes.
func (a *Attribute) InAVET() bool { return a.Indexed || a.Unique != NotUnique }

func (a *Attribute) equal(b *Attribute) bool {
	return a.ID == b.ID && a.Ident == b.Ident && a.Type == b.Type && a.Many == b.Many && a.Unique == b.Unique &&
		a.Indexed == b.Indexed && a.Component == b.Component && a.NoHistory == b.NoHistory && a.Fulltext == b.Fulltext &&
		slices.Equal(a.TupleAttrs, b.TupleAttrs) && slices.Equal(a.TupleTypes, b.TupleTypes) && a.TupleType == b.TupleType &&
		slices.Equal(a.Preds, b.Preds) && slices.Equal(a.Composites, b.Composites)
}

// Schema is the attributes, idents and partitions of a database value. It is derived from the datoms and immutable.
type Schema struct {
	version uint64
	attrs   map[datom.ID]*Attribute
	idents  layered[datom.Keyword, identOf]
	names   layered[datom.ID, datom.Keyword] // the current ident of each entity; "" if it was retracted
	parts   []uint64                         // installed partitions, in order
	text    int64                            // bytes of the idents that were ever given
}

// identOf is whom an ident names. An ident that was renamed or retracted still names its entity until another takes it.
type identOf struct {
	id      datom.ID
	current bool
}

// Version changes exactly when the schema, an ident or a partition did. It is derived from the datoms that made the schema: two schemas
// of one database have the same version only if they are the same.
func (s *Schema) Version() uint64 { return s.version }

// Attr is the attribute with this id, or nil.
func (s *Schema) Attr(id datom.ID) *Attribute { return s.attrs[id] }

// AttrByIdent is the attribute that the ident names, be it a former ident, or nil.
func (s *Schema) AttrByIdent(k datom.Keyword) *Attribute {
	if id, ok := s.Entid(k); ok {
		return s.attrs[id]
	}
	return nil
}

// Entid is the entity that an ident names. A renamed or retracted ident still answers, until another entity takes it.
func (s *Schema) Entid(k datom.Keyword) (datom.ID, bool) {
	x, ok := s.idents.get(k)
	return x.id, ok
}

// CurrentEntid is the entity whose :db/ident is k now.
func (s *Schema) CurrentEntid(k datom.Keyword) (datom.ID, bool) {
	x, ok := s.idents.get(k)
	return x.id, ok && x.current
}

// Ident is the entity's current ident.
func (s *Schema) Ident(id datom.ID) (datom.Keyword, bool) {
	k, ok := s.names.get(id)
	return k, ok && k != ""
}

// Attributes is all attributes by id, the built-in ones included.
func (s *Schema) Attributes() iter.Seq[*Attribute] {
	return func(yield func(*Attribute) bool) {
		for _, id := range slices.Sorted(maps.Keys(s.attrs)) {
			if !yield(s.attrs[id]) {
				return
			}
		}
	}
}

// Partitions is the numbers of the installed partitions, in order.
func (s *Schema) Partitions() iter.Seq[uint64] { return slices.Values(s.parts) }

// HasPartition reports whether the partition is installed.
func (s *Schema) HasPartition(part uint64) bool {
	_, ok := slices.BinarySearch(s.parts, part)
	return ok
}

// builtinSchema is the schema of a database that holds nothing but the built-ins.
func builtinSchema() *Schema {
	s := &Schema{attrs: map[datom.ID]*Attribute{}}
	idents, names := map[datom.Keyword]identOf{}, map[datom.ID]datom.Keyword{}
	for _, b := range builtins() {
		idents[b.ident] = identOf{b.id, true}
		names[b.id] = b.ident
		if b.id < datom.ID(datom.FirstSeq) {
			s.parts = append(s.parts, b.id.Seq())
		}
		if b.kind != datom.KindNil {
			s.attrs[b.id] = &Attribute{ID: b.id, Ident: b.ident, Type: b.kind, Many: b.many, Unique: b.unique, TupleType: b.tupleType}
		}
	}
	s.idents = s.idents.with(idents)
	s.names = s.names.with(names)
	return s
}

// schemaAttr reports whether datoms of the attribute can change a Schema.
func schemaAttr(a datom.ID) bool {
	switch a {
	case AttrIdent, AttrValueType, AttrCardinality, AttrUnique, AttrIndex, AttrIsComponent, AttrNoHistory, AttrFulltext,
		AttrTupleAttrs, AttrTupleTypes, AttrTupleType, AttrPreds, AttrInstallPartition:
		return true
	}
	return false
}

// IsSchemaAttr reports whether datoms of the attribute can change a Schema: a transaction that has any is a batch of its own.
func IsSchemaAttr(a datom.ID) bool { return schemaAttr(a) }

// advance is the schema after a transaction, s itself if that changed nothing, and whether an attribute changed. facts
// gives an entity's current facts after the transaction.
func (s *Schema) advance(datoms []datom.Datom, facts func(datom.ID) iter.Seq[datom.Datom]) (*Schema, bool) {
	var touched []datom.ID
	idents := map[datom.Keyword]identOf{}
	names := map[datom.ID]datom.Keyword{}
	parts := s.parts
	var sum uint64
	relevant := false
	for _, added := range []bool{false, true} { // what is given up first, so that it can be taken over
		for i := range datoms {
			d := &datoms[i]
			if d.Added != added || !schemaAttr(d.A) {
				continue
			}
			relevant = true
			sum += datomHash(d)
			switch d.A {
			case AttrIdent:
				touched = append(touched, d.E)
				s.noteIdent(d, idents, names)
			case AttrInstallPartition:
				parts = withPart(parts, d.V.Ref().Seq(), added)
			default:
				touched = append(touched, d.E)
			}
		}
	}
	if !relevant {
		return s, false
	}
	maps.DeleteFunc(idents, func(k datom.Keyword, x identOf) bool { old, ok := s.idents.get(k); return ok && old == x })
	maps.DeleteFunc(names, func(id datom.ID, k datom.Keyword) bool { old, ok := s.names.get(id); return ok && old == k })

	attrs := changedAttrs(s.attrs, touched, facts)
	attrsChanged := attrs != nil
	if !attrsChanged {
		attrs = s.attrs
	}
	if len(idents) == 0 && len(names) == 0 && slices.Equal(parts, s.parts) && !attrsChanged {
		return s, false
	}
	text := int64(0)
	for k := range idents {
		text += int64(len(k))
	}
	return &Schema{
		version: mix(s.version ^ mix(sum)),
		attrs:   attrs,
		idents:  s.idents.with(idents),
		names:   s.names.with(names),
		parts:   parts,
		text:    s.text + text,
	}, attrsChanged
}

func (s *Schema) noteIdent(d *datom.Datom, idents map[datom.Keyword]identOf, names map[datom.ID]datom.Keyword) {
	k := d.V.Keyword()
	if d.Added {
		idents[k] = identOf{d.E, true}
		names[d.E] = k
		return
	}
	if x, ok := s.idents.get(k); ok && x.id == d.E {
		idents[k] = identOf{d.E, false}
	}
	if old, ok := s.names.get(d.E); ok && old == k {
		names[d.E] = ""
	}
}

func withPart(parts []uint64, part uint64, added bool) []uint64 {
	i, ok := slices.BinarySearch(parts, part)
	switch {
	case added && !ok:
		return slices.Insert(slices.Clone(parts), i, part)
	case !added && ok:
		return slices.Delete(slices.Clone(parts), i, i+1)
	}
	return parts
}

// changedAttrs is attrs with those of the touched entities read anew; nil if that changes nothing.
func changedAttrs(attrs map[datom.ID]*Attribute, touched []datom.ID, facts func(datom.ID) iter.Seq[datom.Datom]) map[datom.ID]*Attribute {
	slices.Sort(touched)
	var out map[datom.ID]*Attribute
	composites := false
	for _, e := range slices.Compact(touched) {
		old, now := attrs[e], readAttr(e, facts(e))
		if now == nil && old == nil {
			continue
		}
		if now != nil && old != nil {
			now.Composites = old.Composites
			if now.equal(old) {
				continue
			}
		}
		if out == nil {
			out = maps.Clone(attrs)
		}
		if now == nil {
			delete(out, e)
		} else {
			out[e] = now
		}
		composites = true
	}
	if composites {
		linkComposites(out)
	}
	return out
}

// linkComposites gives every attribute the list of its composites.
func linkComposites(attrs map[datom.ID]*Attribute) {
	of := map[datom.ID][]datom.ID{}
	for _, a := range attrs {
		for _, c := range a.TupleAttrs {
			if !slices.Contains(of[c], a.ID) {
				of[c] = append(of[c], a.ID)
			}
		}
	}
	for id, a := range attrs {
		list := of[id]
		slices.Sort(list)
		if !slices.Equal(list, a.Composites) {
			c := *a
			c.Composites = list
			attrs[id] = &c
		}
	}
}

// readAttr makes an attribute of an entity's facts; nil if it is none.
func readAttr(e datom.ID, facts iter.Seq[datom.Datom]) *Attribute {
	a := &Attribute{ID: e}
	cardinality := false
	for d := range facts {
		switch d.A {
		case AttrIdent:
			a.Ident = d.V.Keyword()
		case AttrValueType:
			a.Type, _ = TypeKind(d.V.Ref())
		case AttrCardinality:
			cardinality = true
			a.Many = d.V.Ref() == CardinalityMany
		case AttrUnique:
			switch d.V.Ref() {
			case UniqueValueID:
				a.Unique = UniqueValue
			case UniqueIdentityID:
				a.Unique = UniqueIdentity
			}
		case AttrIndex:
			a.Indexed = d.V.Bool()
		case AttrIsComponent:
			a.Component = d.V.Bool()
		case AttrNoHistory:
			a.NoHistory = d.V.Bool()
		case AttrFulltext:
			a.Fulltext = d.V.Bool()
		case AttrTupleAttrs:
			for _, v := range d.V.Tuple() {
				a.TupleAttrs = append(a.TupleAttrs, v.Ref())
			}
		case AttrTupleTypes:
			for _, v := range d.V.Tuple() {
				k, _ := TypeNamed(v.Keyword())
				a.TupleTypes = append(a.TupleTypes, k)
			}
		case AttrTupleType:
			a.TupleType, _ = TypeNamed(d.V.Keyword())
		case AttrPreds:
			a.Preds = append(a.Preds, d.V.Symbol())
		}
	}
	if a.Type == datom.KindNil || !cardinality {
		return nil
	}
	slices.SortFunc(a.Preds, func(x, y datom.Symbol) int { return cmp.Compare(x, y) })
	return a
}

// datomHash is a hash of a datom; mix spreads the bits of one. (FNV-1a; the finisher of SplitMix64.)
func datomHash(d *datom.Datom) uint64 {
	h := uint64(14695981039346656037)
	for _, c := range appendKey(nil, EAVT, d) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return mix(h)
}

func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

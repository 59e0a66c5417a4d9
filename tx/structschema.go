package tx

import (
	"maps"
	"slices"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
)

// structSchema gathers the attributes of struct types.
type structSchema struct {
	known *db.Schema // the built-ins
	plans []*structPlan
	attrs []attrOf
	data  Data
}

// attrOf is an attribute and the field that says so.
type attrOf struct {
	attr datom.Keyword
	form Map
	by   string
}

func (s *structSchema) add(p *structPlan) error {
	if slices.Contains(s.plans, p) {
		return nil
	}
	s.plans = append(s.plans, p)
	for i := range p.fields {
		f := &p.fields[i]
		if err := s.attribute(p, f); err != nil {
			return err
		}
		if f.codec.sub != nil {
			if err := s.add(f.codec.sub); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *structSchema) attribute(p *structPlan, f *structField) error {
	if s.known.AttrByIdent(f.attr) != nil {
		return nil
	}
	m, err := f.schema(p)
	if err != nil {
		return err
	}
	for _, a := range s.attrs {
		if a.attr == f.attr {
			return sameSchema(p, f, m, a)
		}
	}
	s.attrs = append(s.attrs, attrOf{f.attr, m, p.name + "." + f.name})
	s.data = append(s.data, m)
	return nil
}

// sameSchema refuses two fields that say different things of one attribute.
func sameSchema(p *structPlan, f *structField, m Map, a attrOf) error {
	for _, keys := range []Map{m, a.form} {
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			if show(m[k]) != show(a.form[k]) {
				return p.fault(f.name, f.attr, "it says %s %s, and %s says %s", k, show(m[k]), a.by, show(a.form[k]))
			}
		}
	}
	return nil
}

func typeIdent(k datom.Kind) datom.Keyword { return datom.Keyword("db.type/" + k.String()) }

// schema is the attribute of a field as a map form.
func (f *structField) schema(p *structPlan) (Map, error) {
	m := Map{
		"db/ident":       f.attr,
		"db/valueType":   typeIdent(f.codec.kind),
		"db/cardinality": datom.Keyword("db.cardinality/one"),
	}
	if f.many {
		m["db/cardinality"] = datom.Keyword("db.cardinality/many")
	}
	switch {
	case f.codec.each != nil:
		m["db/tupleType"] = typeIdent(f.codec.each.kind)
	case f.codec.elems != nil:
		var types []any
		for _, e := range f.codec.elems {
			types = append(types, typeIdent(e.kind))
		}
		m["db/tupleTypes"] = types
	case f.codec.kind == datom.KindTuple:
		return nil, p.fault(f.name, f.attr, "the Go type does not say what the tuple holds; install the attribute by a map form")
	}
	if f.tags.unique != "" {
		m["db/unique"] = f.tags.unique
	}
	for k, set := range map[datom.Keyword]bool{"db/index": f.tags.index, "db/isComponent": f.tags.component, "db/noHistory": f.tags.nohistory} {
		if set {
			m[k] = true
		}
	}
	if f.tags.doc != "" {
		m["db/doc"] = f.tags.doc
	}
	return m, nil
}

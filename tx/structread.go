package tx

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
)

// structReader reads entities into structs.
type structReader struct {
	db    db.DB
	lim   Limits
	facts int
	path  []datom.ID // the entities that lead to where it is
}

// entity reads an entity into dst, a struct of p's type.
func (r *structReader) entity(p *structPlan, id datom.ID, dst reflect.Value) error {
	switch {
	case slices.Contains(r.path, id):
		return p.fault("", "", "the entity %s leads back to itself; read it with a datom.ID in place of the struct", id)
	case len(r.path) >= r.lim.Depth:
		return p.fault("", "", "entity %s lies more than %d deep", id, r.lim.Depth)
	}
	r.path = append(r.path, id)
	defer func() { r.path = r.path[:len(r.path)-1] }()
	if p.id != nil {
		if f := dst.FieldByIndex(p.id); f.Kind() != reflect.String {
			f.SetUint(uint64(id))
		}
	}
	for i := range p.fields {
		f := &p.fields[i]
		if err := r.field(f, id, dst.FieldByIndex(f.index)); err != nil {
			var inner *StructError
			if errors.As(err, &inner) {
				return err
			}
			return p.fault(f.name, f.attr, "%w (entity %s)", err, id)
		}
	}
	return nil
}

func (r *structReader) field(f *structField, id datom.ID, dst reflect.Value) error {
	a, err := f.attribute(r.db.Schema())
	if err != nil {
		return err
	}
	var found bool
	out := dst
	if f.many {
		out = reflect.Zero(dst.Type())
	}
	for x, err := range r.db.Datoms(db.EAVT, id, a.ID) {
		switch r.facts++; {
		case err != nil:
			return err
		case r.facts > r.lim.Datoms:
			return fmt.Errorf("there are more than %d values in all", r.lim.Datoms)
		}
		found = true
		if !f.many {
			if err := r.value(&f.codec, x.V, dst); err != nil {
				return err
			}
			continue
		}
		e := reflect.New(dst.Type().Elem()).Elem()
		if err := r.value(&f.codec, x.V, e); err != nil {
			return err
		}
		out = reflect.Append(out, e)
	}
	switch {
	case f.many:
		dst.Set(out)
	case found:
	case !f.codec.optional && !f.tags.omitempty:
		return fmt.Errorf("%w; a pointer or omitempty says that there may be none", ErrNoValue)
	default:
		dst.SetZero()
	}
	return nil
}

// attribute is the field's attribute, if it is one of the field's kind.
func (f *structField) attribute(s *db.Schema) (*db.Attribute, error) {
	a := s.AttrByIdent(f.attr)
	switch {
	case a == nil:
		return nil, fmt.Errorf("%w: there is no such ident in the schema", db.ErrNotAttribute)
	case a.Type != f.codec.kind:
		return nil, fmt.Errorf("%w: it is a %s, and the field a %s", db.ErrWrongType, a.Type, f.codec.kind)
	case a.Many && !f.many:
		return nil, fmt.Errorf("%w: it is of cardinality many, and the field no slice", db.ErrWrongType)
	case !a.Many && f.many:
		return nil, fmt.Errorf("%w: it is of cardinality one, and the field a slice", db.ErrWrongType)
	}
	return a, nil
}

// value sets dst to one value.
func (r *structReader) value(c *codec, v datom.Value, dst reflect.Value) error {
	if c.pointer {
		p := reflect.New(dst.Type().Elem())
		dst.Set(p)
		dst = p.Elem()
	}
	switch {
	case c.sub != nil:
		return r.entity(c.sub, v.Ref(), dst)
	case c.each != nil:
		elems := v.Tuple()
		dst.Set(reflect.MakeSlice(dst.Type(), len(elems), len(elems)))
		return r.elements(elems, func(i int) (*codec, reflect.Value) { return c.each, dst.Index(i) })
	case c.elems != nil:
		elems := v.Tuple()
		if len(elems) != len(c.elems) {
			return fmt.Errorf("%w: %s has %d elements, and the struct %d", db.ErrWrongType, v, len(elems), len(c.elems))
		}
		return r.elements(elems, func(i int) (*codec, reflect.Value) { return &c.elems[i], dst.Field(i) })
	}
	return c.set(r.db, v, dst)
}

func (r *structReader) elements(elems []datom.Value, at func(int) (*codec, reflect.Value)) error {
	for i, v := range elems {
		c, dst := at(i)
		var err error
		switch {
		case v.IsNil() && c.optional:
			dst.SetZero()
		case v.IsNil():
			err = fmt.Errorf("%w; a pointer says that there may be none", ErrNoValue)
		case v.Kind() != c.kind:
			err = fmt.Errorf("%w: %s is a %s, and the field a %s", db.ErrWrongType, v, v.Kind(), c.kind)
		default:
			err = r.value(c, v, dst)
		}
		if err != nil {
			return fmt.Errorf("element %d: %w", i+1, err)
		}
	}
	return nil
}

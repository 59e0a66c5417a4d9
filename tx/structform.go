package tx

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/steledb/stele/datom"
)

// structWriter makes a map form of a struct.
type structWriter struct {
	lim   Limits
	depth int
	facts int
	path  []pointee // the pointers that lead to where it is
}

// pointee is what a pointer points to: a struct and its first field have one address.
type pointee struct {
	addr uintptr
	typ  reflect.Type
}

func (w *structWriter) form(p *structPlan, rv reflect.Value) (Map, error) {
	if w.depth++; w.depth > w.lim.Depth {
		return nil, p.fault("", "", "structs are nested more than %d deep, or hold themselves", w.lim.Depth)
	}
	defer func() { w.depth-- }()
	m := make(Map, len(p.fields)+1)
	if p.id != nil {
		switch id := rv.FieldByIndex(p.id); {
		case id.IsZero():
		case id.Kind() == reflect.String:
			m[keyID] = id.String()
		default:
			m[keyID] = id.Interface()
		}
	}
	for i := range p.fields {
		f := &p.fields[i]
		if err := w.field(m, f, rv.FieldByIndex(f.index)); err != nil {
			var inner *StructError
			if errors.As(err, &inner) {
				return nil, err
			}
			return nil, p.fault(f.name, f.attr, "%w", err)
		}
	}
	return m, nil
}

func (w *structWriter) field(m Map, f *structField, rv reflect.Value) error {
	if !f.many {
		if f.codec.none(rv) || f.tags.omitempty && isEmpty(rv) {
			return nil
		}
		x, err := w.value(&f.codec, rv)
		m[f.attr] = x
		return err
	}
	n := rv.Len()
	if n == 0 {
		return nil
	}
	set := make(Set, n)
	for i := range n {
		e := rv.Index(i)
		if f.codec.none(e) {
			return fmt.Errorf("its element %d is nil, which is no value", i)
		}
		x, err := w.value(&f.codec, e)
		if err != nil {
			return err
		}
		set[i] = x
	}
	m[f.attr] = set
	return nil
}

// none reports whether a Go value is no value.
func (c *codec) none(rv reflect.Value) bool { return c.optional && rv.IsZero() }

// isEmpty is what omitempty omits.
func isEmpty(rv reflect.Value) bool {
	switch {
	case rv.Type() == typeTime:
		return rv.Interface().(time.Time).IsZero()
	case rv.Kind() == reflect.Slice:
		return rv.Len() == 0
	}
	return rv.IsZero()
}

// value is one value as transaction data.
func (w *structWriter) value(c *codec, rv reflect.Value) (any, error) {
	if w.facts++; w.facts > w.lim.Datoms {
		return nil, fmt.Errorf("there are more than %d values in all", w.lim.Datoms)
	}
	if c.pointer {
		if c.sub != nil {
			at := pointee{rv.Pointer(), c.sub.typ}
			if slices.Contains(w.path, at) {
				return nil, fmt.Errorf("the %s that it points to holds itself; refer to it by its id", c.sub.name)
			}
			w.path = append(w.path, at)
			defer func() { w.path = w.path[:len(w.path)-1] }()
		}
		rv = rv.Elem()
	}
	switch {
	case c.sub != nil:
		m, err := w.form(c.sub, rv)
		if err == nil && len(m) == 0 {
			err = errors.New("the struct in it says nothing; a nil pointer or omitempty says that there is none")
		}
		return m, err
	case c.each != nil:
		return w.elements(rv.Len(), func(i int) (*codec, reflect.Value) { return c.each, rv.Index(i) })
	case c.elems != nil:
		return w.elements(len(c.elems), func(i int) (*codec, reflect.Value) { return &c.elems[i], rv.Field(i) })
	}
	return c.get(rv)
}

// elements is a tuple of n elements.
func (w *structWriter) elements(n int, at func(int) (*codec, reflect.Value)) (any, error) {
	if n < datom.MinTuple || n > datom.MaxTuple {
		return nil, fmt.Errorf("a tuple has %d to %d elements, not %d", datom.MinTuple, datom.MaxTuple, n)
	}
	out := make([]any, n)
	for i := range out {
		c, rv := at(i)
		if c.none(rv) {
			continue
		}
		x, err := w.value(c, rv)
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", i+1, err)
		}
		out[i] = x
	}
	return out, nil
}

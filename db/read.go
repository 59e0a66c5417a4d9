package db

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/steledb/stele/datom"
)

var (
	// ErrNotEntity: an ident or a lookup ref that names no entity, or something that can name none.
	ErrNotEntity = errors.New("not an entity")
	// ErrNotAttribute: what stands in an attribute's place is none.
	ErrNotAttribute = errors.New("not an attribute")
	// ErrNotIndexed: the AVET index was asked about an attribute that is neither indexed nor unique.
	ErrNotIndexed = errors.New("the attribute is not indexed")
	// ErrWrongType: a value is not of its attribute's type.
	ErrWrongType = errors.New("wrong type for the attribute")
	// ErrComponents: too many components, or one that cannot stand where it does.
	ErrComponents = errors.New("bad index components")
)

// LookupRef names an entity by the value of one of its unique attributes.
type LookupRef struct {
	Attr  any // id or ident
	Value any
}

// Datoms is the datoms of an index whose first components are those given, in the index's order. Components stand in that
// order too: e, a, v, t for EAVT. Entities and attributes are given as datom.ID, as datom.Keyword (an ident), as a LookupRef (or a []any of
// two) or as an Entity; values as datom.Value or as what datom.Of takes, refs like entities; a transaction as its t (uint64) or its entity.
//
// What cannot be resolved is yielded as the only element's error, which wraps one of the sentinels of this package.
func (d DB) Datoms(ix Index, components ...any) iter.Seq2[datom.Datom, error] {
	return func(yield func(datom.Datom, error) bool) {
		p, err := d.place(ix, components)
		if err != nil {
			yield(datom.Datom{}, err)
			return
		}
		runs, w := d.source(ix)
		walk(runs, p.key, p.key, w, func(k []byte) bool {
			if p.hasT {
				if t, _ := keyT(k); t != p.t {
					return true
				}
			}
			return yield(decodeKey(ix, k), nil)
		})
	}
}

// Seek is the datoms of an index from the components on to its end. It takes what Datoms takes.
func (d DB) Seek(ix Index, components ...any) iter.Seq2[datom.Datom, error] {
	return func(yield func(datom.Datom, error) bool) {
		p, err := d.place(ix, components)
		if err != nil {
			yield(datom.Datom{}, err)
			return
		}
		runs, w := d.source(ix)
		emit := func(k []byte) bool { return yield(decodeKey(ix, k), nil) }
		if !p.hasT {
			walk(runs, p.key, nil, w, emit)
			return
		}
		// Which key of a fact decides is seen from the fact's first key on only.
		from := appendT(slices.Clone(p.key), p.t, true)
		walk(runs, p.key, nil, w, func(k []byte) bool { return string(k) < string(from) || emit(k) })
	}
}

// SeekBack is the datoms of an index backwards: those that the components name, from the last one on, then all that stand before
// them. Without components it begins at the index's end.
func (d DB) SeekBack(ix Index, components ...any) iter.Seq2[datom.Datom, error] {
	return func(yield func(datom.Datom, error) bool) {
		p, err := d.place(ix, components)
		if err != nil {
			yield(datom.Datom{}, err)
			return
		}
		runs, w := d.source(ix)
		emit := func(k []byte) bool { return yield(decodeKey(ix, k), nil) }
		end := afterPrefix(p.key)
		if !p.hasT {
			walkBack(runs, end, nil, w, emit)
			return
		}
		last := appendT(slices.Clone(p.key), p.t, false)
		walkBack(runs, end, nil, w, func(k []byte) bool { return string(k) > string(last) || emit(k) })
	}
}

// IndexRange is the datoms of an indexed attribute with values from from on and below to, in order; nil leaves an end open.
func (d DB) IndexRange(attr any, from, to any) iter.Seq2[datom.Datom, error] {
	return func(yield func(datom.Datom, error) bool) {
		start := []any{attr}
		if from != nil {
			start = append(start, from)
		}
		a, err := d.place(AVET, []any{attr})
		if err != nil {
			yield(datom.Datom{}, err)
			return
		}
		lo, err := d.place(AVET, start)
		if err != nil {
			yield(datom.Datom{}, err)
			return
		}
		var end []byte
		if to != nil {
			hi, err := d.place(AVET, []any{attr, to})
			if err != nil {
				yield(datom.Datom{}, err)
				return
			}
			end = hi.key
		}
		runs, w := d.source(AVET)
		walk(runs, lo.key, a.key, w, func(k []byte) bool {
			if end != nil && string(k) >= string(end) {
				return false
			}
			return yield(decodeKey(AVET, k), nil)
		})
	}
}

// Entid resolves whatever can stand for an entity: a datom.ID, which is taken as it is, a datom.Keyword (ident), a
// LookupRef or a []any of attribute and value, an Entity, a datom.Value that is a ref. The error wraps ErrNotEntity, or says what
// is wrong with a lookup ref.
func (d DB) Entid(x any) (datom.ID, error) {
	switch x := x.(type) {
	case datom.ID:
		if x >= datom.MaxID {
			return 0, fmt.Errorf("%w: %d", ErrNotEntity, uint64(x))
		}
		return x, nil
	case datom.Keyword:
		if id, ok := d.Schema().Entid(x); ok {
			return id, nil
		}
		return 0, fmt.Errorf("%w: there is no ident %s", ErrNotEntity, x)
	case Entity:
		return x.id, nil
	case datom.Value:
		switch x.Kind() {
		case datom.KindRef:
			return x.Ref(), nil
		case datom.KindKeyword:
			return d.Entid(x.Keyword())
		}
	case []any:
		if len(x) == 2 {
			return d.Entid(LookupRef{x[0], x[1]})
		}
	case LookupRef:
		a, err := d.attribute(x.Attr)
		if err != nil {
			return 0, err
		}
		if a.Unique == NotUnique {
			return 0, fmt.Errorf("%w: a lookup ref needs a unique attribute, %s is not", ErrNotEntity, d.nameOf(a.ID))
		}
		v, err := d.value(a, x.Value)
		if err != nil {
			return 0, err
		}
		if id, ok := d.Lookup(a.ID, v); ok {
			return id, nil
		}
		return 0, fmt.Errorf("%w: nothing has %s %s", ErrNotEntity, d.nameOf(a.ID), v)
	}
	return 0, fmt.Errorf("%w: a %T (%v)", ErrNotEntity, x, x)
}

// Ident is the current ident of an entity.
func (d DB) Ident(e datom.ID) (datom.Keyword, bool) { return d.Schema().Ident(e) }

// Lookup is the entity that has the value of a unique attribute. It finds nothing if the attribute is not unique.
func (d DB) Lookup(a datom.ID, v datom.Value) (e datom.ID, ok bool) {
	if at := d.Schema().Attr(a); at == nil || at.Unique == NotUnique {
		return 0, false
	}
	d.history = false
	runs, w := d.source(AVET)
	var buf [64]byte
	prefix := v.AppendKey(datom.AppendID(buf[:0], a))
	walk(runs, prefix, prefix, w, func(k []byte) bool {
		e, _ = decodeID(k[len(prefix):])
		ok = true
		return false
	})
	return e, ok
}

// place is where components point in an index.
type place struct {
	key  []byte // the encoded components but for t
	t    uint64
	hasT bool
}

// afterPrefix is above every key with the prefix, and below every other key that is above those. No component begins with 0xff, and
// the last bytes of a key are never all 0xff.
func afterPrefix(prefix []byte) []byte {
	return append(slices.Clone(prefix), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
}

func (d DB) place(ix Index, components []any) (p place, err error) {
	if ix >= numIndexes {
		return p, fmt.Errorf("%w: there is no %s", ErrComponents, ix)
	}
	if len(components) > 4 {
		return p, fmt.Errorf("%w: an index has 4 components, not %d", ErrComponents, len(components))
	}
	var attr *Attribute
	for i, x := range components {
		switch [numIndexes]string{"eavt", "aevt", "avet", "vaet"}[ix][i] {
		case 'e':
			e, err := d.Entid(x)
			if err != nil {
				return p, err
			}
			p.key = datom.AppendID(p.key, e)
		case 'a':
			if attr, err = d.attribute(x); err != nil {
				return p, err
			}
			if ix == AVET && !attr.InAVET() {
				return p, fmt.Errorf("%w: %s", ErrNotIndexed, d.nameOf(attr.ID))
			}
			p.key = datom.AppendID(p.key, attr.ID)
		case 'v':
			if ix == VAET {
				e, err := d.Entid(x)
				if err != nil {
					return p, err
				}
				p.key = datom.AppendID(p.key, e)
				continue
			}
			v, err := d.value(attr, x)
			if err != nil {
				return p, err
			}
			p.key = v.AppendKey(p.key)
		case 't':
			p.hasT = true
			switch x := x.(type) {
			case uint64:
				p.t = x
			case datom.ID:
				p.t = x.Seq()
			default:
				return p, fmt.Errorf("%w: a %T is no transaction", ErrComponents, x)
			}
			if p.t == 0 || p.t > datom.MaxSeq {
				return p, fmt.Errorf("%w: there is no transaction %d", ErrComponents, p.t)
			}
		}
	}
	return p, nil
}

// attribute resolves what stands in an attribute's place.
func (d DB) attribute(x any) (*Attribute, error) {
	id, err := d.Entid(x)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotAttribute, err)
	}
	if a := d.Schema().Attr(id); a != nil {
		return a, nil
	}
	return nil, fmt.Errorf("%w: %s", ErrNotAttribute, d.nameOf(id))
}

// value makes a value of the attribute's type, resolving what stands for an entity.
func (d DB) value(a *Attribute, x any) (datom.Value, error) {
	if a.Type == datom.KindTuple {
		if elems, ok := x.([]any); ok {
			return d.tuple(a, elems)
		}
	}
	v, err := d.typed(a.Type, x)
	if err != nil {
		return v, fmt.Errorf("%w (attribute %s)", err, d.nameOf(a.ID))
	}
	return v, nil
}

func (d DB) typed(k datom.Kind, x any) (datom.Value, error) {
	if k == datom.KindRef {
		e, err := d.Entid(x)
		return datom.Ref(e), err
	}
	v, err := datom.Of(x)
	if err != nil {
		return v, fmt.Errorf("%w: %w", ErrWrongType, err)
	}
	if v.Kind() == datom.KindDouble && k == datom.KindFloat {
		v = datom.Float(float32(v.Double()))
	}
	if v.Kind() != k {
		return v, fmt.Errorf("%w: %s is a %s, not a %s", ErrWrongType, v, v.Kind(), k)
	}
	return v, nil
}

func (d DB) tuple(a *Attribute, elems []any) (datom.Value, error) {
	vs := make([]datom.Value, len(elems))
	for i, x := range elems {
		if x == nil {
			continue
		}
		k := a.TupleType
		switch {
		case i < len(a.TupleTypes):
			k = a.TupleTypes[i]
		case i < len(a.TupleAttrs):
			if c := d.Schema().Attr(a.TupleAttrs[i]); c != nil {
				k = c.Type
			}
		}
		v, err := d.typed(k, x)
		if err != nil {
			return v, fmt.Errorf("%w (element %d of attribute %s)", err, i, d.nameOf(a.ID))
		}
		vs[i] = v
	}
	v, err := datom.Tuple(vs...)
	if err != nil {
		return v, fmt.Errorf("%w: %w (attribute %s)", ErrWrongType, err, d.nameOf(a.ID))
	}
	return v, nil
}

// nameOf is an entity for a person to read: its ident, or its id.
func (d DB) nameOf(id datom.ID) string {
	if k, ok := d.Ident(id); ok {
		return k.String()
	}
	return id.String()
}

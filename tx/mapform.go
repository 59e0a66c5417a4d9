package tx

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
)

// entry is one entry of a map form.
type entry struct {
	key   datom.Keyword // or, if it is empty, id
	id    datom.ID
	value any
	pos   Pos
}

const keyID datom.Keyword = "db/id"

// mapForm compiles a map form and returns its entity.
func (c *compiler) mapForm(f Form) int32 {
	if ps, ok := f.(Pairs); ok {
		at, pos := c.position(ps.Pos)
		defer func() { c.at, c.pos = at, pos }()
	}
	base, n := len(c.entries), len(c.p.ops)
	c.push(f)
	e := c.mapSubject(c.entries[base:])
	for i := base; i < len(c.entries); i++ {
		if x := c.entries[i]; x.key != keyID {
			at, pos := c.position(x.pos)
			c.entry(e, x)
			c.at, c.pos = at, pos
		}
	}
	clear(c.entries[base:])
	c.entries = c.entries[:base]
	if x := &c.p.ents[e]; n == len(c.p.ops) && x.kind != entTempid {
		c.emit(op{kind: opUse, e: e, ref: noRef}) // says nothing, but of an entity
	}
	return e
}

// push lays a map's entries on the stack, in an order of their own: a Go map has none, and ids should not depend on chance.
func (c *compiler) push(f Form) {
	base := len(c.entries)
	switch f := f.(type) {
	case Map:
		for k, v := range f {
			if k == "" {
				c.malformed("a map form has an empty key")
				continue
			}
			c.entries = append(c.entries, entry{key: k, value: v})
		}
		slices.SortFunc(c.entries[base:], func(a, b entry) int { return strings.Compare(string(a.key), string(b.key)) })
	case Pairs:
		for _, p := range f.Entries {
			e := entry{value: p.Value, pos: p.Pos}
			switch k := untyped(p.Key, datom.KindKeyword).(type) {
			case datom.Keyword:
				e.key = k
			case datom.ID:
				e.id = k
			case int64:
				e.id = datom.ID(k)
			}
			if e.key == "" && e.id == 0 {
				c.malformed(fmt.Sprintf("a map form's key is an attribute's ident or id, not %s", show(p.Key)))
				continue
			}
			c.entries = append(c.entries, e)
		}
	}
}

// untyped is what x stands for where a k is wanted, if x is Untyped and knows.
func untyped(x any, k datom.Kind) any {
	if u, ok := x.(Untyped); ok {
		if y, err := u.As(k); err == nil {
			return y
		}
	}
	return x
}

// mapSubject is the entity that a map form is about.
func (c *compiler) mapSubject(entries []entry) int32 {
	e, found := int32(0), false
	for _, x := range entries {
		if x.key != keyID {
			continue
		}
		if found {
			c.malformed("a map form has two :db/id")
		}
		e, found = c.entityOf(x.value), true
	}
	if !found {
		e = c.fresh(datom.PartUser)
	}
	return e
}

func (c *compiler) entry(e int32, x entry) {
	var a *db.Attribute
	if x.key == "" {
		a = c.attribute(x.id)
	} else if fwd, ok := reverse(x.key); ok {
		c.reverse(e, fwd, x)
		return
	} else {
		a = c.attributeNamed(x.key)
	}
	if a == nil {
		return
	}
	if a.ID == db.AttrEnsure {
		c.each(x.value, true, func(v any) { c.ensure(e, v) })
		return
	}
	if a.Many {
		c.each(x.value, a.Type == datom.KindRef, func(v any) { c.addValue(e, a, v) })
		return
	}
	c.addValue(e, a, x.value)
}

// reverse asserts [v fwd e] for the entry's value v, or its values.
func (c *compiler) reverse(e int32, fwd datom.Keyword, x entry) {
	a := c.attributeNamed(fwd)
	if a == nil {
		return
	}
	if a.Type != datom.KindRef {
		c.fault(phaseAttrs, WrongType, attrName(a), show(x.value), fmt.Sprintf("%s is the reverse of %s, which takes %s: only a ref can be "+
			"reversed", x.key, attrName(a), typeOf(c.s, a)))
		return
	}
	c.each(x.value, true, func(v any) {
		switch v := v.(type) {
		case Map:
			c.nested(e, a, v, true)
			return
		case Pairs:
			c.nested(e, a, v, true)
			return
		}
		if _, ref, ok := c.valueOf(a, v); ok {
			c.assert(ref, a, datom.Value{}, e)
		}
	})
}

// nested compiles a nested map and asserts [e a it], or [it a e] in reverse.
func (c *compiler) nested(e int32, a *db.Attribute, f Form, reversed bool) {
	if c.depth++; c.depth > c.lim.Depth {
		c.fault(phaseForm, LimitExceeded, "", "", fmt.Sprintf("maps are nested more than %d deep", c.lim.Depth))
		c.depth--
		return
	}
	if !a.Component && !c.identified(f) {
		at, pos := c.at, c.pos
		if ps, ok := f.(Pairs); ok {
			c.position(ps.Pos)
		}
		c.fault(phaseMaps, NestedWithoutIdentity, attrName(a), "", fmt.Sprintf("the map nested under %s is nobody's: give it a :db/id or a unique "+
			"attribute, or make %s a component (:db/isComponent)", attrName(a), attrName(a)))
		c.at, c.pos = at, pos
	}
	// The outer fact first, so that ids ascend from the outside in; its other end is filled in once it is known.
	n := len(c.p.ops)
	c.emit(op{kind: opUse, e: e, ref: noRef, a: a})
	m := c.mapForm(f)
	c.depth--
	if n == len(c.p.ops) {
		return // over the limit
	}
	o := &c.p.ops[n]
	o.kind, o.ref = assertion(a), m
	if reversed {
		o.e, o.ref = m, e
	}
	c.p.ents[o.e].isEntity = c.p.ents[o.e].isEntity || o.kind == opAdd
	c.p.ents[o.ref].isValue = true
}

// identified reports whether a nested map says which entity it is: by :db/id or a unique attribute.
func (c *compiler) identified(f Form) bool {
	unique := func(a *db.Attribute) bool { return a != nil && a.Unique != db.NotUnique }
	switch f := f.(type) {
	case Map:
		for k := range f {
			if k == keyID || unique(c.s.AttrByIdent(k)) {
				return true
			}
		}
	case Pairs:
		for _, p := range f.Entries {
			switch k := untyped(p.Key, datom.KindKeyword).(type) {
			case datom.Keyword:
				if k == keyID || unique(c.s.AttrByIdent(k)) {
					return true
				}
			case datom.ID:
				if unique(c.s.Attr(k)) {
					return true
				}
			}
		}
	}
	return false
}

// each calls f for every value that x stands for: the elements of a collection, or x itself. With refs, a vector that is a
// lookup ref is one value.
func (c *compiler) each(x any, refs bool, f func(any)) {
	switch xs := x.(type) {
	case Set:
		for _, v := range xs {
			f(v)
		}
	case []any:
		if refs && c.isLookup(xs) {
			f(x)
			return
		}
		for _, v := range xs {
			f(v)
		}
	case nil, string, datom.Keyword, int64, int, datom.ID, []byte, Map, Pairs, Untyped:
		f(x)
	default:
		if rv := reflect.ValueOf(x); rv.Kind() == reflect.Slice {
			for i := range rv.Len() {
				f(rv.Index(i).Interface())
			}
			return
		}
		f(x)
	}
}

// isLookup reports whether a vector in value position of a ref attribute is a lookup ref: a unique attribute's ident and a value.
func (c *compiler) isLookup(xs []any) bool {
	if len(xs) != 2 {
		return false
	}
	kw, ok := untyped(xs[0], datom.KindRef).(datom.Keyword)
	if !ok {
		return false
	}
	a := c.s.AttrByIdent(kw)
	return a != nil && a.Unique != db.NotUnique
}

package tx

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
)

// structPlan is what there is to know about a struct type. It is immutable once its type is examined.
type structPlan struct {
	typ    reflect.Type
	name   string
	id     []int // the index path of the id field, or nil
	fields []structField
}

// structField is a field that is mapped to an attribute.
type structField struct {
	name  string
	index []int // its path, through embedded structs
	attr  datom.Keyword
	many  bool
	codec codec // of its value, or, with many, of each
	tags  fieldTags
}

// fieldTags is what a field's tags say.
type fieldTags struct {
	id, tuple, omitempty, truncate bool
	index, component, nohistory    bool
	kind                           datom.Kind // of type=; KindNil: none
	unique                         datom.Keyword
	doc                            string
}

// plan examines a struct type, and those within it.
func (m *Mapper) plan(t reflect.Type) (*structPlan, error) {
	if p, ok := m.plans.Load(t); ok {
		return p.(*structPlan), nil
	}
	x := planner{m: m, plans: map[reflect.Type]*structPlan{}}
	p, err := x.plan(t)
	if err != nil {
		return nil, err
	}
	for t, p := range x.plans {
		m.plans.LoadOrStore(t, p)
	}
	return p, nil
}

// planner examines types that may hold one another.
type planner struct {
	m     *Mapper
	plans map[reflect.Type]*structPlan // some not complete yet
}

func (x *planner) plan(t reflect.Type) (*structPlan, error) {
	if p, ok := x.plans[t]; ok {
		return p, nil
	}
	if p, ok := x.m.plans.Load(t); ok {
		return p.(*structPlan), nil
	}
	p := &structPlan{typ: t, name: structName(t)}
	x.plans[t] = p
	if err := x.fields(p, t, nil); err != nil {
		return nil, err
	}
	if p.id == nil && len(p.fields) == 0 {
		return nil, p.fault("", "", "no field of it is mapped: it has none that is exported and has a stele tag")
	}
	return p, nil
}

func structName(t reflect.Type) string {
	if t.Name() == "" {
		return "without a name"
	}
	return t.String()
}

// fields adds the fields of t, which is the plan's type or embedded in it.
func (x *planner) fields(p *structPlan, t reflect.Type, at []int) error {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, tagged := f.Tag.Lookup("stele")
		index := append(slices.Clone(at), i)
		switch {
		case tag == "-":
		case f.Anonymous && !tagged:
			if err := x.embedded(p, f, index); err != nil {
				return err
			}
		case tagged && f.IsExported():
			if err := x.field(p, f, tag, index); err != nil {
				return err
			}
		}
	}
	return nil
}

func (x *planner) embedded(p *structPlan, f reflect.StructField, index []int) error {
	switch t := f.Type; {
	case t.Kind() == reflect.Struct:
		return x.fields(p, t, index)
	case t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct:
		return p.fault(f.Name, "", `a pointer to a struct cannot be embedded: embed the struct, or tag it "-"`)
	}
	return nil
}

func (p *structPlan) fault(field string, attr datom.Keyword, format string, args ...any) error {
	return &StructError{Struct: p.name, Field: field, Attr: attr, Err: fmt.Errorf(format, args...)}
}

func (x *planner) field(p *structPlan, f reflect.StructField, tag string, index []int) error {
	name, opts, _ := strings.Cut(tag, ",")
	tags, err := parseTags(opts, strings.Contains(tag, ","))
	if err != nil {
		return p.fault(f.Name, "", "%w", err)
	}
	if tags.id {
		return p.setID(f, name, tags, index)
	}
	attr, err := datom.ParseKeyword(name)
	switch {
	case name == "":
		return p.fault(f.Name, "", "its tag names no attribute")
	case err != nil:
		return p.fault(f.Name, "", "%w", err)
	case attr == keyID:
		return p.fault(f.Name, attr, `an entity's id is tagged ",id"`)
	case strings.HasPrefix(attr.Name(), "_"):
		return p.fault(f.Name, attr, "a struct has no reverse attributes: map the struct at the other end, or add the entry to the map form")
	}
	for _, g := range p.fields {
		if g.attr == attr {
			return p.fault(f.Name, attr, "the field %s has this attribute already", g.name)
		}
	}
	tags.doc = f.Tag.Get("doc")
	sf := structField{name: f.Name, index: index, attr: attr, tags: tags}
	if sf.many, sf.codec, err = x.shape(f.Type, tags); err != nil {
		var inner *StructError
		if errors.As(err, &inner) {
			return err // about a struct within
		}
		return p.fault(f.Name, attr, "%w", err)
	}
	if tags.component && sf.codec.kind != datom.KindRef {
		return p.fault(f.Name, attr, "only a ref can be a component, and it is a %s", sf.codec.kind)
	}
	p.fields = append(p.fields, sf)
	return nil
}

func (p *structPlan) setID(f reflect.StructField, name string, tags fieldTags, index []int) error {
	isString := f.Type.Kind() == reflect.String && f.Type != typeKeyword && f.Type != typeSymbol
	switch {
	case name != "" || tags != (fieldTags{id: true}):
		return p.fault(f.Name, "", `an entity's id is tagged ",id", and nothing beside`)
	case p.id != nil:
		return p.fault(f.Name, "", "there is an id field already")
	case f.Type != typeID && !isString:
		return p.fault(f.Name, "", "an entity's id is a datom.ID or, as a tempid, a string; not a %s", f.Type)
	}
	p.id = index
	return nil
}

// shape is what a field of type t holds: one value or many, and how each is converted.
func (x *planner) shape(t reflect.Type, tags fieldTags) (many bool, c codec, err error) {
	slice := t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8
	if slice && tags.tuple { // of one type: a tuple; of tuples: many
		e := t.Elem()
		if e.Kind() == reflect.Pointer && !isScalar(e) {
			e = e.Elem()
		}
		slice = e.Kind() == reflect.Struct && !isScalar(e) || e.Kind() == reflect.Slice && e.Elem().Kind() != reflect.Uint8
	}
	if !slice {
		c, err = x.codec(t, tags)
		return false, c, err
	}
	if t.Elem().Kind() == reflect.Pointer && !isScalar(t.Elem()) && t.Elem().Elem().Kind() != reflect.Struct {
		return false, c, fmt.Errorf("the elements of a slice are never missing; use []%s", t.Elem().Elem())
	}
	c, err = x.codec(t.Elem(), tags)
	return true, c, err
}

// codec is how one value of type t is converted; a pointer to what has a value is an optional one.
func (x *planner) codec(t reflect.Type, tags fieldTags) (codec, error) {
	if t.Kind() == reflect.Pointer && !isScalar(t) {
		if t.Elem().Kind() == reflect.Pointer {
			return codec{}, fmt.Errorf("a %s leads to a value by two pointers or more; one says whether there is a value", t)
		}
		if t.Elem().Kind() == reflect.Slice && t.Elem().Elem().Kind() != reflect.Uint8 {
			return codec{}, fmt.Errorf("a slice needs no pointer: empty, it is no value; use %s", t.Elem())
		}
		c, err := x.codec(t.Elem(), tags)
		c.pointer, c.optional = true, true
		return c, err
	}
	switch {
	case tags.tuple:
		return x.tuple(t, tags)
	case t.Kind() == reflect.Struct && !isScalar(t):
		if tags.kind != datom.KindNil && tags.kind != datom.KindRef {
			return codec{}, fmt.Errorf("a struct is a ref, not a %s", tags.kind)
		}
		p, err := x.plan(t)
		return codec{kind: datom.KindRef, sub: p}, err
	}
	return scalarCodec(t, tags)
}

// tuple is the codec of a tuple: a struct whose fields are the elements, or a slice of elements of one type.
func (x *planner) tuple(t reflect.Type, tags fieldTags) (codec, error) {
	c := codec{kind: datom.KindTuple}
	switch {
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		tags.tuple = false
		e, err := elemCodec(t.Elem(), tags)
		c.each, c.optional = &e, true
		return c, err
	case t.Kind() != reflect.Struct || isScalar(t):
		return c, fmt.Errorf("a tuple is a struct or a slice, not a %s", t)
	case tags.kind != datom.KindNil || tags.truncate:
		return c, errors.New("the types of a tuple's elements are said by the tags on its own fields")
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() || f.Anonymous {
			return c, fmt.Errorf("the field %s of the tuple %s is unexported or embedded; every field of a tuple is an element", f.Name, t)
		}
		opts := f.Tag.Get("stele")
		rest, ok := strings.CutPrefix(opts, ",")
		ft, err := parseTags(rest, ok)
		if err == nil && (opts != "" && !ok || ft != fieldTags{kind: ft.kind, truncate: ft.truncate}) {
			err = errors.New("the tag on an element says type= or truncate, nothing else, behind a comma")
		}
		var e codec
		if err == nil {
			e, err = elemCodec(f.Type, ft)
		}
		if err != nil {
			return c, fmt.Errorf("element %s: %w", f.Name, err)
		}
		c.elems = append(c.elems, e)
	}
	if n := len(c.elems); n < datom.MinTuple || n > datom.MaxTuple {
		return c, fmt.Errorf("a tuple has %d to %d elements, and %s has %d", datom.MinTuple, datom.MaxTuple, t, n)
	}
	return c, nil
}

func elemCodec(t reflect.Type, tags fieldTags) (codec, error) {
	if t.Kind() == reflect.Pointer && !isScalar(t) {
		c, err := scalarCodec(t.Elem(), tags)
		c.pointer, c.optional = true, true
		return c, err
	}
	return scalarCodec(t, tags)
}

// flag is the option that is written as one word, or nil.
func (t *fieldTags) flag(name string) *bool {
	switch name {
	case "id":
		return &t.id
	case "tuple":
		return &t.tuple
	case "omitempty":
		return &t.omitempty
	case "truncate":
		return &t.truncate
	case "index":
		return &t.index
	case "component":
		return &t.component
	case "nohistory":
		return &t.nohistory
	}
	return nil
}

// parseTags reads the options of a tag; some says that there are any.
func parseTags(opts string, some bool) (t fieldTags, err error) {
	if !some {
		return t, nil
	}
	for o := range strings.SplitSeq(opts, ",") {
		key, val, hasVal := strings.Cut(o, "=")
		flag := t.flag(key)
		switch {
		case flag != nil && !hasVal:
			*flag = true
		case key == "unique" && (val == "identity" || val == "value"):
			t.unique = datom.Keyword("db.unique/" + val)
		case key == "unique":
			return t, errors.New("unique is unique=identity or unique=value")
		case key == "type":
			var ok bool
			if t.kind, ok = db.TypeNamed(datom.Keyword("db.type/" + val)); !ok {
				return t, fmt.Errorf("type=%s is no value type; it is type=keyword, type=uri and so on", val)
			}
		default:
			return t, fmt.Errorf("its tag has the option %q, which is none", o)
		}
	}
	return t, nil
}

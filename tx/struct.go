package tx

import (
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
)

// A Mapper maps Go structs to transaction data, entities to structs, and struct types to schema. What a field is, its tag says:
//
//	type Person struct {
//		ID     datom.ID      `stele:",id"`                          // the entity's id
//		Email  string        `stele:"person/email,unique=identity"` // :person/email, a string
//		Age    *int64        `stele:"person/age"`                   // nil is no value
//		Nick   string        `stele:"person/nick,omitempty"`        // "" is no value
//		Mood   string        `stele:"person/mood,type=keyword"`     // :db.type/keyword
//		Tags   []string      `stele:"person/tags"`                  // of cardinality many
//		Boss   *Person       `stele:"person/boss"`                  // a ref to another Person
//		Home   Address       `stele:"person/home,component"`        // a ref to a part of this one
//		Team   datom.ID      `stele:"person/team"`                  // a ref to the entity with this id
//		Origin datom.Keyword `stele:"person/origin,type=ref"`       // a ref to the entity with this ident
//		Where  Point         `stele:"person/where,tuple"`           // a tuple: Point's fields in order
//	}
//
// The attribute's ident comes first, with or without its colon, then options:
//
//	id                     the entity, not an attribute: a datom.ID (0: none), or a string as a tempid ("": none), which reading leaves alone
//	type=T                 the value type, :db.type/T, where the Go type does not say; see below
//	tuple                  a struct is a tuple of its fields, each exported, nil pointers being missing elements; a slice is a tuple of
//	                       2 to 8 elements of one type; its options are those of the elements. With tags on a tuple's fields: `stele:",type=T"`
//	omitempty              the zero value, or an empty []byte, is no value
//	truncate               a time.Time is cut to the millisecond; without it, one that is finer is refused
//	unique=identity|value, index, component, nohistory
//	                       schema, as [SchemaOf] makes it; so is a tag of its own, doc:"…"
//
// Go types and their value types, the default first:
//
//	bool                               boolean
//	int … int64, uint … uint64         long; bigint. Ranges and signs are checked both ways
//	float32, float64                   float, double; double, float, exactly or not at all
//	string                             string; keyword (with or without colon), symbol, uri (the text as it is)
//	datom.Keyword, datom.Symbol        keyword, symbol; ref for a Keyword, by ident
//	datom.ID                           ref
//	time.Time                          instant; read in UTC
//	uuid.UUID                          uuid
//	[]byte                             bytes
//	*big.Int, *apd.Decimal, *url.URL   bigint, bigdec, uri
//	datom.Value                        what type= says
//	a struct, a pointer to one         ref; see tuple
//	a pointer to any of these          the same; nil is no value
//	a slice of any of these            the same, of cardinality many; it stands for a set: read in the order of values, each once
//
// Types derived from bool, the numbers, string and []byte count as those. The fields of a struct that is embedded without a tag
// count as the outer struct's. Other fields without a tag, those with the tag "-", and unexported ones are ignored. Two fields of one
// attribute, pointers to pointers and whatever else is not listed are refused.
//
// No value says nothing: a fact that is stored stays. Read the other way, a field that can be without value is set to its zero value, and
// for any other field an entity that has none is refused ([ErrNoValue]), so that what is read can be written back and changes nothing:
// given that each struct has an id field or a unique attribute, for without either it is a new entity each time that it is written.
//
// A Mapper examines each type once. The zero value is ready and serves any number of goroutines; it must not be copied after
// its first use. The functions [Struct], [Structs], [Read], [ReadInto] and [SchemaOf] do without: they examine the type at each call.
type Mapper struct {
	// Limits bound what structs hold and what is read for one: Depth, structs within one another, and Datoms, facts. A zero field takes
	// the value of DefaultLimits.
	Limits Limits

	plans sync.Map // of reflect.Type: *structPlan
}

// ErrNoValue: an entity has no value for a field that must have one.
var ErrNoValue = errors.New("no value")

// StructError is why a struct, or its type, cannot be mapped. Where it is about an entity's facts, it wraps [db.ErrNotAttribute],
// [db.ErrWrongType] or [ErrNoValue].
type StructError struct {
	Struct string        // the Go type
	Field  string        // empty if it is about all of it
	Attr   datom.Keyword // empty if it is about none
	Err    error
}

// Error is what it is about, and why.
func (e *StructError) Error() string {
	s := "struct " + e.Struct
	if e.Field != "" {
		s += ", field " + e.Field
	}
	if e.Attr != "" {
		s += ", attribute " + e.Attr.String()
	}
	return s + ": " + e.Err.Error()
}

// Unwrap is the cause.
func (e *StructError) Unwrap() error { return e.Err }

// Struct is a struct, or a pointer to one, as a map form, to be changed at will. Structs within it are nested maps. Values are checked as
// far as can be without a schema; an error is a *StructError.
func Struct(v any) (Map, error) { return new(Mapper).Struct(v) }

// Structs is structs, or pointers to them, as transaction data: a map form each. T may be any.
func Structs[T any](vs ...T) (Data, error) {
	m := new(Mapper)
	d := make(Data, len(vs))
	for i, v := range vs {
		f, err := m.Struct(v)
		if err != nil {
			return nil, err
		}
		d[i] = f
	}
	return d, nil
}

// Read reads the entity that e stands for (see [db.DB.Entid]) as a T, which is a struct. What a struct within it refers to is read too; entities that lead
// back to themselves are refused. A view in time reads what it shows, but a history view is refused. An error is a *StructError, or
// Entid's.
func Read[T any](d db.DB, e any) (T, error) {
	var v T
	err := new(Mapper).ReadInto(d, e, &v)
	return v, err
}

// ReadInto is Read into a struct that is there. It sets every field that is mapped, and, where it fails, none.
func ReadInto[T any](d db.DB, e any, dst *T) error { return new(Mapper).ReadInto(d, e, dst) }

// SchemaOf is the attributes that a struct type is mapped to, and those of the structs within it, as transaction data. Transacting it
// again changes nothing; it does not undo what a tag no longer says. Built-in attributes are left out. What tags cannot say, such as a composite
// tuple or a predicate, is added as a map form.
func SchemaOf[T any]() (Data, error) { return new(Mapper).Schema(reflect.TypeFor[T]()) }

// Struct is like the function.
func (m *Mapper) Struct(v any) (Map, error) {
	rv := reflect.ValueOf(v)
	if rv.Kind() == reflect.Pointer {
		rv = rv.Elem()
	}
	if rv.Kind() != reflect.Struct {
		return nil, &StructError{Struct: fmt.Sprintf("%T", v), Err: errors.New("it is no struct and no pointer to one")}
	}
	p, err := m.plan(rv.Type())
	if err != nil {
		return nil, err
	}
	w := structWriter{lim: m.Limits.orDefault()}
	return w.form(p, rv)
}

// ReadInto is like the function. dst is a pointer to a struct.
func (m *Mapper) ReadInto(d db.DB, e any, dst any) error {
	rv := reflect.ValueOf(dst)
	if rv.Kind() != reflect.Pointer || rv.IsNil() || rv.Elem().Kind() != reflect.Struct {
		return &StructError{Struct: fmt.Sprintf("%T", dst), Err: errors.New("it is no pointer to a struct")}
	}
	p, err := m.plan(rv.Elem().Type())
	if err != nil {
		return err
	}
	if d.IsHistory() {
		return &StructError{Struct: p.name, Err: errors.New("a history view holds what was true at different times; read a view that is not one")}
	}
	id, err := d.Entid(e)
	if err != nil {
		return err
	}
	tmp := reflect.New(p.typ).Elem()
	tmp.Set(rv.Elem())
	r := structReader{db: d, lim: m.Limits.orDefault()}
	if err := r.entity(p, id, tmp); err != nil {
		return err
	}
	rv.Elem().Set(tmp)
	return nil
}

// Schema is SchemaOf for the types given, which together make one schema: attributes that they share must agree.
func (m *Mapper) Schema(types ...reflect.Type) (Data, error) {
	s := structSchema{known: db.Empty().Schema()}
	for _, t := range types {
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			return nil, &StructError{Struct: t.String(), Err: errors.New("it is no struct")}
		}
		p, err := m.plan(t)
		if err != nil {
			return nil, err
		}
		if err := s.add(p); err != nil {
			return nil, err
		}
	}
	return s.data, nil
}

package tx

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/apd/v3"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
)

type point struct {
	X, Y int64
	Note *string
}

type address struct {
	ID     datom.ID `stele:",id"`
	Street string   `stele:"address/street"`
	City   string   `stele:"address/city,omitempty"`
}

type audit struct {
	Seen time.Time `stele:"audit/seen,omitempty,truncate"`
}

type mood string

type person struct {
	ID     datom.ID      `stele:",id"`
	Email  string        `stele:":person/email,unique=identity" doc:"who it is"`
	Age    *int64        `stele:"person/age"`
	Mood   mood          `stele:"person/mood,type=keyword,omitempty"`
	Tags   []string      `stele:"person/tags"`
	Home   *address      `stele:"person/home,component"`
	Boss   *person       `stele:"person/boss"`
	Team   datom.ID      `stele:"person/team,omitempty"`
	Origin datom.Keyword `stele:"person/origin,type=ref,omitempty"`
	At     *point        `stele:"person/at,tuple"`
	Path   []int64       `stele:"person/path,tuple"`
	audit
	Skipped  int `stele:"-"`
	Untagged int
	hidden   int `stele:"person/hidden"`
}

func ptr[T any](v T) *T { return &v }

// schemaDB is a database with the schema of a struct type.
func schemaDB[T any](t testing.TB) db.DB {
	t.Helper()
	s, err := SchemaOf[T]()
	if err != nil {
		t.Fatal(err)
	}
	return newDB(t, s...)
}

func TestStructRoundTrip(t *testing.T) {
	d := schemaDB[person](t)
	d = with(t, d, Map{"db/ident": datom.Keyword("origin/web")}).DBAfter
	boss := person{Email: "bo@x.org", Age: ptr(int64(0)), audit: audit{time.Date(2020, 1, 2, 3, 4, 5, 678_999_999, time.FixedZone("x", 3600))}}
	ann := person{
		Email: "ann@x.org", Age: ptr(int64(31)), Mood: "mood/good", Tags: []string{"a", "b"}, Home: &address{Street: "High Street"}, Boss: &boss,
		Origin: "origin/web", At: &point{X: 1, Y: -2, Note: ptr("here")}, Path: []int64{3, 1, 2}, Skipped: 1, Untagged: 2, hidden: 3,
	}
	data, err := Structs(ann)
	if err != nil {
		t.Fatal(err)
	}
	d = with(t, d, data...).DBAfter
	got, err := Read[person](d, db.LookupRef{Attr: datom.Keyword("person/email"), Value: "ann@x.org"})
	if err != nil {
		t.Fatal(err)
	}
	if got.ID == 0 || got.Boss.ID == 0 || !got.Boss.Seen.Equal(boss.Seen.Truncate(time.Millisecond)) {
		t.Errorf("%+v", got)
	}
	if got.Skipped+got.Untagged+got.hidden != 0 {
		t.Error("fields that are not mapped were set")
	}
	again, err := Struct(&got)
	if err != nil {
		t.Fatal(err)
	}
	// What was read says nothing new.
	if r := with(t, d, again); len(r.TxData) != 1 {
		t.Errorf("writing what was read changes something: %v", r.TxData)
	}
	bossID := got.Boss.ID
	got.ID, got.Boss.ID, got.Home.ID = 0, 0, 0
	got.Boss.Seen, boss.Seen = time.Time{}, time.Time{}
	ann.Skipped, ann.Untagged, ann.hidden = 0, 0, 0
	if !reflect.DeepEqual(got, ann) {
		t.Errorf("\n%+v\nis not\n%+v", got, ann)
	}

	// Into one that is there: what is not mapped stays, what has no value is cleared.
	into := person{Untagged: 7, hidden: 8, Tags: []string{"old"}, Home: &address{Street: "old"}}
	if err := ReadInto(d, bossID, &into); err != nil {
		t.Fatal(err)
	}
	if into.Untagged != 7 || into.hidden != 8 || into.Tags != nil || into.Home != nil || into.Email != "bo@x.org" || *into.Age != 0 {
		t.Errorf("%+v", into)
	}
	before := into
	if err := ReadInto(d, datom.Keyword("origin/web"), &into); !errors.Is(err, ErrNoValue) || !reflect.DeepEqual(before, into) {
		t.Errorf("%v: %+v", err, into)
	}
}

func TestSchemaOfStruct(t *testing.T) {
	s, err := SchemaOf[person]()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"person/email": "string one :db.unique/identity", "person/age": "long one", "person/mood": "keyword one", "person/tags": "string many",
		"person/home": "ref one component", "address/street": "string one", "address/city": "string one", "person/boss": "ref one", "person/team": "ref one",
		"person/origin": "ref one", "person/at": "tuple one [long long string]", "person/path": "tuple one long...", "audit/seen": "instant one",
	}
	d := newDB(t, s...)
	if r := with(t, d, s...); len(r.TxData) != 1 {
		t.Errorf("the schema again changes something: %v", r.TxData)
	}
	got := map[string]string{}
	for a := range d.Schema().Attributes() {
		if db.IsBuiltin(a.ID) {
			continue
		}
		text := a.Type.String() + map[bool]string{false: " one", true: " many"}[a.Many]
		if a.Unique != db.NotUnique {
			text += " :db.unique/" + a.Unique.String()
		}
		if a.Component {
			text += " component"
		}
		var types []string
		for _, k := range a.TupleTypes {
			types = append(types, k.String())
		}
		if types != nil {
			text += " [" + strings.Join(types, " ") + "]"
		} else if a.TupleType != datom.KindNil {
			text += " " + a.TupleType.String() + "..."
		}
		got[string(a.Ident)] = text
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n%v\nis not\n%v", got, want)
	}
	e, _ := d.Entity(datom.Keyword("person/email"))
	if doc, _ := e.Get(datom.Keyword("db/doc")); doc != datom.String("who it is") {
		t.Error(doc)
	}

	type flags struct {
		Ident datom.Keyword `stele:"db/ident"`
		A     string        `stele:"f/a,unique=value,nohistory"`
		B     int           `stele:"f/b,index"`
	}
	if s, err := SchemaOf[flags](); err != nil || len(s) != 2 {
		t.Errorf("%v, %v: built-in attributes are there already", s, err)
	}
	d = schemaDB[flags](t)
	a, b := d.Schema().AttrByIdent("f/a"), d.Schema().AttrByIdent("f/b")
	if a.Unique != db.UniqueValue || !a.NoHistory || a.Indexed || !b.Indexed || b.NoHistory {
		t.Errorf("%+v %+v", a, b)
	}
}

// A struct that lies within another by value, by pointer and in slices; tempids as ids; ids as refs.
func TestStructNesting(t *testing.T) {
	type line struct {
		Product string `stele:"line/product"`
		Count   uint8  `stele:"line/count"`
	}
	type customer struct {
		ID   string `stele:",id"`
		Name string `stele:"customer/name,unique=identity"`
	}
	type order struct {
		ID    string          `stele:",id"`
		First line            `stele:"order/first,component"`
		Lines []line          `stele:"order/lines,component"`
		By    *customer       `stele:"order/by"`
		For   *customer       `stele:"order/for"`
		Seen  []datom.ID      `stele:"order/seen"`
		Keys  []datom.Keyword `stele:"order/keys,type=ref"`
	}
	d := schemaDB[order](t)
	same := &customer{ID: "cy", Name: "Cy"}
	o := order{ID: "o", First: line{"nail", 0}, Lines: []line{{"bolt", 255}, {"nut", 1}}, By: same, For: same,
		Seen: []datom.ID{datom.TxID(1)}, Keys: []datom.Keyword{"db/doc", "db/ident"}}
	m, err := Struct(o)
	if err != nil {
		t.Fatal(err)
	}
	r := with(t, d, m)
	id, _ := r.Tempids.Get("o")
	got, err := Read[order](r.DBAfter, id)
	if err != nil {
		t.Fatal(err)
	}
	o.ID, same.ID = "", ""
	slices.SortFunc(got.Lines, func(a, b line) int { return strings.Compare(a.Product, b.Product) })
	slices.Sort(got.Keys)
	if !reflect.DeepEqual(got, o) {
		t.Errorf("\n%+v\nis not\n%+v", got, o)
	}
	if got.By == got.For {
		t.Error("two fields share a struct")
	}
}

func TestStructsThatAreRefused(t *testing.T) {
	type cyclic struct {
		Name string   `stele:"c/name"`
		Next *cyclic  `stele:"c/next"`
		Kids []cyclic `stele:"c/kids"`
	}
	loop := &cyclic{Name: "a"}
	loop.Next = &cyclic{Name: "b", Next: loop}
	slice := cyclic{Name: "a", Kids: make([]cyclic, 1)}
	slice.Kids[0].Kids = slice.Kids
	type single struct{ V string }
	type hides struct{ A, b int }
	type named struct {
		A int
		B int `stele:"x/b"`
	}
	type mistyped struct {
		A int
		B int `stele:",type=uri"`
	}
	type inner struct {
		V string `stele:"i/v,omitempty"`
	}
	for want, v := range map[string]any{
		"tx.cyclic, field Next, attribute :c/next: the tx.cyclic that it points to holds itself": loop,
		"tx.cyclic: structs are nested more than 64 deep, or hold themselves":                    slice,
		"struct int: it is no struct":        1,
		"struct *int: it is no struct":       new(int),
		"struct <nil>: it is no struct":      nil,
		"struct *tx.cyclic: it is no struct": (*cyclic)(nil),
		"field N, attribute :x/n: 18446744073709551615 is out of the range of a long": struct {
			N uint64 `stele:"x/n"`
		}{math.MaxUint64},
		"field T, attribute :x/t: 1970-01-01T00:00:00.000001Z is finer than a millisecond": struct {
			T time.Time `stele:"x/t"`
		}{time.UnixMicro(1)},
		"field T, attribute :x/t: the year 292277024627 is out of range": struct {
			T time.Time `stele:"x/t"`
		}{time.Unix(1<<63-1-62135596800, 0)},
		"field S, attribute :x/s: \"�\" is not valid UTF-8": struct {
			S string `stele:"x/s"`
		}{"\xff"},
		"field K, attribute :x/k: \"\" is not a keyword": struct {
			K datom.Keyword `stele:"x/k"`
		}{},
		"field K, attribute :x/k: \"a b\" is not a keyword": struct {
			K string `stele:"x/k,type=keyword"`
		}{"a b"},
		"field Y, attribute :x/y: \"1\" is not a symbol": struct {
			Y string `stele:"x/y,type=symbol"`
		}{"1"},
		"field U, attribute :x/u: \"%\" is not a URI": struct {
			U string `stele:"x/u,type=uri"`
		}{"%"},
		"field R, attribute :x/r: the id 0 refers to nobody": struct {
			R datom.ID `stele:"x/r"`
		}{},
		"field R, attribute :x/r: 9007199254740992 is not an entity id": struct {
			R datom.ID `stele:"x/r"`
		}{1 << 53},
		"field F, attribute :x/f: a float cannot hold 0.1 exactly": struct {
			F float64 `stele:"x/f,type=float"`
		}{0.1},
		"field D, attribute :x/d: NaN is not a finite decimal": struct {
			D *apd.Decimal `stele:"x/d"`
		}{&apd.Decimal{Form: apd.NaN}},
		"field V, attribute :x/v: 1 is a long, not a string": struct {
			V datom.Value `stele:"x/v,type=string"`
		}{datom.Long(1)},
		"field P, attribute :x/p: a tuple has 2 to 8 elements, not 1": struct {
			P []int `stele:"x/p,tuple"`
		}{[]int{1}},
		"field P, attribute :x/p: element 2: \"�\" is not valid UTF-8": struct {
			P []string `stele:"x/p,tuple"`
		}{[]string{"a", "\xff"}},
		"field I, attribute :x/i: the struct in it says nothing; a nil pointer or omitempty": struct {
			I inner `stele:"x/i"`
		}{},
		"field L, attribute :x/l: its element 1 is nil": struct {
			L []*inner `stele:"x/l"`
		}{[]*inner{{"a"}, nil}},
		// Types.
		"field B, attribute :x/a: the field A has this attribute already": struct {
			A, B int `stele:"x/a"`
		}{},
		"field N, attribute :address/street: the field Street has this attribute already": struct {
			address
			N int `stele:"address/street"`
		}{},
		"field A: its tag names no attribute": struct {
			A int `stele:",index"`
		}{},
		"field A: \"a b\" is not a keyword": struct {
			A int `stele:"a b"`
		}{},
		"field A: its tag has the option \"many\", which is none": struct {
			A int `stele:"x/a,many"`
		}{},
		"field A: its tag has the option \"\", which is none": struct {
			A int `stele:"x/a,"`
		}{},
		"field A: unique is unique=identity or unique=value": struct {
			A int `stele:"x/a,unique"`
		}{},
		"field A: type=text is no value type": struct {
			A int `stele:"x/a,type=text"`
		}{},
		"field A, attribute :x/a: a int cannot be a :db.type/string": struct {
			A int `stele:"x/a,type=string"`
		}{},
		"field A, attribute :x/a: only a ref can be a component, and it is a long": struct {
			A int `stele:"x/a,component"`
		}{},
		"field A, attribute :x/a: truncate is for a time.Time": struct {
			A int `stele:"x/a,truncate"`
		}{},
		"field A, attribute :x/a: a **int leads to a value by two pointers": struct {
			A **int `stele:"x/a"`
		}{},
		"field A, attribute :x/a: a slice needs no pointer": struct {
			A *[]int `stele:"x/a"`
		}{},
		"field A, attribute :x/a: the elements of a slice are never missing; use []int": struct {
			A []*int `stele:"x/a"`
		}{},
		"field A, attribute :x/a: a []int is no value": struct {
			A [][]int `stele:"x/a"`
		}{},
		"field A, attribute :x/a: a map[string]int is no value": struct {
			A map[string]int `stele:"x/a"`
		}{},
		"field A, attribute :x/a: a interface {} is no value": struct {
			A any `stele:"x/a"`
		}{},
		"field A, attribute :x/a: a [4]int is no value": struct {
			A [4]int `stele:"x/a"`
		}{},
		"struct big.Int: no field of it is mapped": struct {
			A big.Int `stele:"x/a"`
		}{},
		"field A, attribute :x/a: a struct is a ref, not a string": struct {
			A inner `stele:"x/a,type=string"`
		}{},
		"field A, attribute :x/a: the tag on a datom.Value needs type=": struct {
			A datom.Value `stele:"x/a"`
		}{},
		"field A, attribute :x/a: a tuple is a struct or a slice, not a int": struct {
			A int `stele:"x/a,tuple"`
		}{},
		"field A, attribute :x/a: a tuple has 2 to 8 elements, and tx.single has 1": struct {
			A single `stele:"x/a,tuple"`
		}{},
		"the field b of the tuple tx.hides is unexported or embedded": struct {
			A hides `stele:"x/a,tuple"`
		}{hides{A: 1, b: 2}},
		"the types of a tuple's elements are said by the tags on its own fields": struct {
			A point `stele:"x/a,tuple,type=long"`
		}{},
		"element B: the tag on an element says type= or truncate": struct {
			A named `stele:"x/a,tuple"`
		}{},
		"element B: a int cannot be a :db.type/uri": struct {
			A mistyped `stele:"x/a,tuple"`
		}{},
		"field A, attribute :x/_a: a struct has no reverse attributes": struct {
			A []inner `stele:"x/_a"`
		}{},
		"field A, attribute :db/id: an entity's id is tagged \",id\"": struct {
			A datom.ID `stele:"db/id"`
		}{},
		"field A: an entity's id is tagged \",id\", and nothing beside": struct {
			A datom.ID `stele:"x/a,id"`
		}{},
		"field A: an entity's id is a datom.ID or, as a tempid, a string; not a int": struct {
			A int `stele:",id"`
		}{},
		"field B: there is an id field already": struct {
			A, B datom.ID `stele:",id"`
		}{},
		"field inner: a pointer to a struct cannot be embedded": struct{ *inner }{},
	} {
		m, err := Struct(v)
		var e *StructError
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
			t.Errorf("\nexpected %s\ngot      %v (%v)", want, err, m)
		}
	}
	// The zero time is no value in any time zone.
	if m, err := Struct(person{Email: "a", audit: audit{time.Time{}.In(time.FixedZone("x", 3600))}}); err != nil || len(m) != 1 {
		t.Error(m, err)
	}
	// A long chain is no loop, but too deep all the same, unless the limit says otherwise.
	chain := &cyclic{Name: "end"}
	for range 64 {
		chain = &cyclic{Name: "more", Next: chain}
	}
	if _, err := Struct(chain); err == nil {
		t.Error("a chain of 65 is not refused")
	}
	if _, err := (&Mapper{Limits: Limits{Depth: 65}}).Struct(chain); err != nil {
		t.Error(err)
	}
	// Pointers that meet again and again are no loop, but more than there is room for.
	type fan struct {
		Name string `stele:"f/name"`
		To   []*fan `stele:"f/to"`
	}
	f := &fan{Name: "end"}
	for range 30 {
		f = &fan{Name: "more", To: []*fan{f, f}}
	}
	if _, err := (&Mapper{Limits: Limits{Datoms: 1000}}).Struct(f); err == nil || !strings.Contains(err.Error(), "more than 1000 values") {
		t.Error(err)
	}
}

func TestSchemaOfStructsThatDisagree(t *testing.T) {
	type a struct {
		N int `stele:"x/n"`
	}
	type b struct {
		N []int `stele:"x/n"`
		A a     `stele:"x/a"`
	}
	_, err := SchemaOf[b]()
	if want := "struct tx.a, field N, attribute :x/n: it says :db/cardinality :db.cardinality/one, and tx.b.N says :db.cardinality/many"; err == nil || err.Error() != want {
		t.Error(err)
	}
	if _, err := new(Mapper).Schema(reflect.TypeFor[int]()); err == nil {
		t.Error("an int has a schema")
	}
	type v struct {
		T datom.Value `stele:"x/t,type=tuple"`
	}
	if _, err := SchemaOf[v](); err == nil || !strings.Contains(err.Error(), "does not say what the tuple holds") {
		t.Error(err)
	}
}

func TestReadingWhatDoesNotFit(t *testing.T) {
	d := newDB(t,
		attribute("x/name", "string", Map{"db/unique": identity}), attribute("x/long", "long", nil), attribute("x/many", "long", Map{"db/cardinality": many}),
		attribute("x/big", "bigint", nil), attribute("x/double", "double", nil), attribute("x/ref", "ref", nil), attribute("x/uri", "uri", nil),
		attribute("x/pair", "tuple", Map{"db/tupleTypes": []any{datom.Keyword("db.type/long"), datom.Keyword("db.type/string")}}),
	)
	uri, err := datom.ParseURI("HTTP://x.org/%7e")
	if err != nil {
		t.Fatal(err)
	}
	r := with(t, d, Map{"db/id": "a", "x/name": "a", "x/long": int64(-1), "x/many": []any{int64(1), int64(300), int64(70000)}, "x/big": new(big.Int).Lsh(big.NewInt(1), 64),
		"x/double": 0.1, "x/ref": "b", "x/uri": uri, "x/pair": []any{nil, "s"}}, Map{"db/id": "b", "x/ref": "a"})
	d = r.DBAfter
	id, _ := r.Tempids.Get("a")
	read := func(v any) error { return new(Mapper).ReadInto(d, id, v) }
	type ring struct {
		Next *ring `stele:"x/ref"`
	}
	type pair struct {
		N int
		S string
	}
	type triple struct{ A, B, C *int }
	type wrong struct {
		N *string
		S string
	}
	for want, v := range map[string]any{
		"not an attribute": new(struct {
			A int `stele:"x/none"`
		}),
		"it is a long, and the field a string": new(struct {
			A string `stele:"x/long"`
		}),
		"it is of cardinality many, and the field no slice": new(struct {
			A int `stele:"x/many"`
		}),
		"it is of cardinality one, and the field a slice": new(struct {
			A []int `stele:"x/long"`
		}),
		"-1 is out of the range of uint": new(struct {
			A uint `stele:"x/long"`
		}),
		"300 is out of the range of int8": new(struct {
			A []int8 `stele:"x/many"`
		}),
		"70000 is out of the range of uint16": new(struct {
			A []uint16 `stele:"x/many"`
		}),
		"it is a long, and the field a bytes": new(struct {
			A []tiny `stele:"x/many"`
		}),
		"18446744073709551616N is out of the range of uint64": new(struct {
			A uint64 `stele:"x/big,type=bigint"`
		}),
		"18446744073709551616N is out of the range of int64": new(struct {
			A int64 `stele:"x/big,type=bigint"`
		}),
		"a float32 cannot hold 0.1 exactly": new(struct {
			A float32 `stele:"x/double,type=double"`
		}),
		"which has no ident": new(struct {
			A datom.Keyword `stele:"x/ref,type=ref"`
		}),
		"leads back to itself": new(ring),
		"a *url.URL does not keep": new(struct {
			A *url.URL `stele:"x/uri"`
		}),
		"element 1: no value": new(struct {
			A pair `stele:"x/pair,tuple"`
		}),
		"has 2 elements, and the struct 3": new(struct {
			A triple `stele:"x/pair,tuple"`
		}),
		"element 2: wrong type for the attribute": new(struct {
			A []*int `stele:"x/pair,tuple"`
		}),
	} {
		err := read(v)
		var e *StructError
		if !errors.As(err, &e) || e.Field == "" && want != "leads back to itself" || !strings.Contains(err.Error(), want) {
			t.Errorf("\nexpected %s\ngot      %v", want, err)
		}
	}
	if err := read(new(struct {
		A int `stele:"x/none"`
	})); !errors.Is(err, db.ErrNotAttribute) {
		t.Error(err)
	}
	if err := read(new(wrong)); err == nil {
		t.Error("a struct without tags is read")
	}
	if err := read(new(struct {
		A *string `stele:"x/long"`
	})); !errors.Is(err, db.ErrWrongType) {
		t.Error(err)
	}
	if err := read(struct {
		A int `stele:"x/long"`
	}{}); err == nil {
		t.Error("read into a value")
	}
	type long struct {
		A int `stele:"x/long"`
	}
	if _, err := Read[long](d, db.LookupRef{Attr: datom.Keyword("x/name"), Value: "nobody"}); !errors.Is(err, db.ErrNotEntity) {
		t.Error(err)
	}
	if _, err := Read[long](d.History(), id); err == nil || !strings.Contains(err.Error(), "history view") {
		t.Error(err)
	}
	if _, err := Read[long](d.AsOf(1), id); !errors.Is(err, ErrNoValue) {
		t.Error(err)
	}
	type text struct {
		A string `stele:"x/uri,type=uri"`
	}
	if x, err := Read[text](d, id); err != nil || x.A != uri.Text() {
		t.Error(x, err)
	}
	if err := (&Mapper{Limits: Limits{Datoms: 1}}).ReadInto(d, id, new(struct {
		A []int `stele:"x/many"`
	})); err == nil || !strings.Contains(err.Error(), "more than 1 values") {
		t.Error(err)
	}
}

// A chain of entities is read as far as the limit says; without end is refused by it.
func TestReadingDeepStructs(t *testing.T) {
	d := newDB(t, attribute("x/next", "ref", nil), attribute("x/long", "long", nil))
	var forms []Form
	for i := range 64 {
		forms = append(forms, Map{"db/id": fmt.Sprint("n", i), "x/next": fmt.Sprint("n", i+1)})
	}
	r := with(t, d, append(forms, Map{"db/id": "n64", "x/long": 1})...)
	type link struct {
		Next *link `stele:"x/next"`
	}
	id, _ := r.Tempids.Get("n0")
	if _, err := Read[link](r.DBAfter, id); err == nil || !strings.Contains(err.Error(), "lies more than 64 deep") {
		t.Error(err)
	}
	var l link
	if err := (&Mapper{Limits: Limits{Depth: 65}}).ReadInto(r.DBAfter, id, &l); err != nil {
		t.Error(err)
	}
	n := 0
	for x := &l; x != nil; x = x.Next {
		n++
	}
	if n != 65 {
		t.Errorf("%d links", n)
	}
}

type tiny uint8

// One Mapper serves many goroutines, with types that hold each other.
func TestMapperConcurrently(t *testing.T) {
	d := schemaDB[person](t)
	var m Mapper
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				f, err := m.Struct(person{Email: "a", Boss: &person{Email: "b"}})
				if err != nil {
					t.Error(err)
					return
				}
				r, err := With(d, Data{f})
				if err != nil {
					t.Error(err)
					return
				}
				var p person
				if err := m.ReadInto(r.DBAfter, db.LookupRef{Attr: datom.Keyword("person/email"), Value: "a"}, &p); err != nil || p.Boss.Email != "b" {
					t.Error(err, p)
				}
			}
		})
	}
	wg.Wait()
}

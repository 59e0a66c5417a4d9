package tx

import (
	"fmt"
	"math"
	"math/big"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/apd/v3"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
)

// TestStructsReadAsTheyWereWritten: structs of any type, with any values, are read from the database as they were written, and writing what was read
// changes nothing. Types are drawn too: every Go type that a field can have, with each of its value types, by pointer, in
// slices, in tuples, in structs within structs.
func TestStructsReadAsTheyWereWritten(t *testing.T) {
	bare := newDB(t)
	rapid.Check(t, func(t *rapid.T) {
		g := structGen{t: t}
		typ := g.structType(2, "")
		var m Mapper
		schema, err := m.Schema(typ)
		if err != nil {
			t.Fatalf("%v: %v", typ, err)
		}
		d := rapidWith(t, bare, schema).DBAfter
		if r := rapidWith(t, d, schema); len(r.TxData) != 1 {
			t.Fatalf("the schema again changes %v", r.TxData)
		}
		v := reflect.New(typ)
		g.fill(v.Elem())
		f, err := m.Struct(v.Interface())
		if err != nil {
			t.Fatalf("%+v: %v", v.Elem(), err)
		}
		f["db/id"] = "it"
		r := rapidWith(t, d, Data{f})
		id, ok := r.Tempids.Get("it")
		if !ok {
			return // all its fields are without value
		}
		got := reflect.New(typ)
		if err := m.ReadInto(r.DBAfter, id, got.Interface()); err != nil {
			t.Fatalf("%+v: %v", v.Elem(), err)
		}
		if want, have := picture(v.Elem(), ""), picture(got.Elem(), ""); want != have {
			t.Fatalf("wrote\n%s\nread\n%s", want, have)
		}
		again, err := m.Struct(got.Interface())
		if err != nil {
			t.Fatal(err)
		}
		if r := rapidWith(t, r.DBAfter, Data{again}); len(r.TxData) != 1 {
			t.Fatalf("writing what was read changes %v", r.TxData)
		}
	})
}

func rapidWith(t *rapid.T, d db.DB, data Data) *Report {
	r, err := WithEnv(d, data, Limits{}, &Env{Now: testNow})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// structGen draws struct types and values.
type structGen struct {
	t *rapid.T
	n int   // attributes so far
	m int64 // structs so far
}

// scalars are the Go types of one value and the options that their tags may have.
var scalars = []struct {
	typ  reflect.Type
	opts []string
}{
	{reflect.TypeFor[bool](), []string{""}},
	{reflect.TypeFor[int](), []string{"", ",type=bigint"}},
	{reflect.TypeFor[int8](), []string{"", ",type=bigint"}},
	{reflect.TypeFor[int64](), []string{"", ",type=bigint"}},
	{reflect.TypeFor[uint16](), []string{"", ",type=bigint"}},
	{reflect.TypeFor[uint64](), []string{"", ",type=bigint"}},
	{reflect.TypeFor[float32](), []string{"", ",type=double"}},
	{reflect.TypeFor[float64](), []string{""}},
	{reflect.TypeFor[string](), []string{"", ",type=keyword", ",type=symbol", ",type=uri"}},
	{reflect.TypeFor[datom.Keyword](), []string{"", ",type=ref"}},
	{reflect.TypeFor[datom.Symbol](), []string{""}},
	{reflect.TypeFor[datom.ID](), []string{""}},
	{reflect.TypeFor[time.Time](), []string{""}},
	{reflect.TypeFor[uuid.UUID](), []string{""}},
	{reflect.TypeFor[[]byte](), []string{""}},
	{reflect.TypeFor[*big.Int](), []string{""}},
	{reflect.TypeFor[*apd.Decimal](), []string{""}},
	{reflect.TypeFor[*url.URL](), []string{""}},
	{reflect.TypeFor[datom.Value](), []string{",type=long", ",type=string", ",type=bigdec"}},
}

// structType is a struct with an id, a number of its own and some fields, with structs within it to a depth.
func (g *structGen) structType(depth int, opts string) reflect.Type {
	fields := []reflect.StructField{
		{Name: "ID", Type: reflect.TypeFor[datom.ID](), Tag: `stele:",id"`},
		{Name: "Number", Type: reflect.TypeFor[int32](), Tag: reflect.StructTag(fmt.Sprintf(`stele:"t/a%d%s"`, g.n, opts))},
	}
	g.n++
	for i := range rapid.IntRange(1, 6).Draw(g.t, "fields") {
		s := rapid.SampledFrom(scalars).Draw(g.t, "scalar")
		typ, opts := s.typ, rapid.SampledFrom(s.opts).Draw(g.t, "options")
		canPoint := typ.Kind() != reflect.Pointer
		switch rapid.SampledFrom([]string{"scalar", "scalar", "struct", "tuple", "run"}).Draw(g.t, "what") {
		case "struct":
			if depth > 0 {
				if typ, opts, canPoint = g.structType(depth-1, ",unique=identity"), "", true; rapid.Bool().Draw(g.t, "component") {
					typ, opts = g.structType(depth-1, ""), ",component"
				}
			}
		case "tuple":
			typ, opts, canPoint = g.tupleType(), ",tuple", true
		case "run":
			typ, opts, canPoint = reflect.SliceOf(typ), opts+",tuple", false
		}
		switch rapid.IntRange(0, 3).Draw(g.t, "wrap") {
		case 1:
			if canPoint {
				typ = reflect.PointerTo(typ)
			}
		case 2:
			typ = reflect.SliceOf(typ)
		case 3:
			opts += ",omitempty"
		}
		fields = append(fields, reflect.StructField{Name: fmt.Sprintf("F%d", i), Type: typ, Tag: reflect.StructTag(fmt.Sprintf(`stele:"t/a%d%s"`, g.n, opts))})
		g.n++
	}
	return reflect.StructOf(fields)
}

func (g *structGen) tupleType() reflect.Type {
	var fields []reflect.StructField
	for i := range rapid.IntRange(2, 8).Draw(g.t, "elements") {
		s := rapid.SampledFrom(scalars).Draw(g.t, "scalar")
		f := reflect.StructField{Name: fmt.Sprintf("E%d", i), Type: s.typ}
		if opts := rapid.SampledFrom(s.opts).Draw(g.t, "options"); opts != "" {
			f.Tag = reflect.StructTag(`stele:"` + opts + `"`)
		}
		if s.typ.Kind() != reflect.Pointer && rapid.Bool().Draw(g.t, "pointer") {
			f.Type = reflect.PointerTo(s.typ)
		}
		fields = append(fields, f)
	}
	return reflect.StructOf(fields)
}

// fill draws the values of a struct.
func (g *structGen) fill(v reflect.Value) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		tag := f.Tag.Get("stele")
		switch {
		case f.Name == "ID":
		case f.Name == "Number":
			g.m++
			v.Field(i).SetInt(g.m)
		case f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() != reflect.Uint8:
			n := rapid.IntRange(0, 4).Draw(g.t, "len")
			if strings.Contains(tag, "tuple") && !isMany(f.Type) {
				if n = rapid.IntRange(2, 8).Draw(g.t, "len"); strings.Contains(tag, "omitempty") && n == 2 {
					n = 0
				}
			}
			s := reflect.MakeSlice(f.Type, n, n)
			for i := range n {
				if e := s.Index(i); e.Kind() == reflect.Slice && e.Type().Elem().Kind() != reflect.Uint8 { // a tuple
					k := rapid.IntRange(2, 8).Draw(g.t, "len")
					e.Set(reflect.MakeSlice(e.Type(), k, k))
					for j := range k {
						g.value(e.Index(j), tag)
					}
				} else {
					g.value(e, tag)
				}
			}
			v.Field(i).Set(s)
		case f.Type.Kind() == reflect.Pointer && rapid.Bool().Draw(g.t, "nil"):
		case strings.Contains(tag, "omitempty") && rapid.Bool().Draw(g.t, "empty"):
		default:
			g.value(v.Field(i), tag)
		}
	}
}

// isMany reports whether a slice that is tagged tuple holds tuples.
func isMany(t reflect.Type) bool {
	e := t.Elem()
	return e.Kind() == reflect.Slice && e.Elem().Kind() != reflect.Uint8 || e.Kind() == reflect.Struct && e.Name() == ""
}

// value draws one value.
func (g *structGen) value(v reflect.Value, tag string) {
	t := g.t
	name := rapid.StringMatching(`[a-z]{1,3}(/[a-z]{1,3})?`)
	draw := func(x any) { v.Set(reflect.ValueOf(x)) }
	switch v.Interface().(type) {
	case datom.ID:
		draw(datom.ID(rapid.Uint64Range(2048, 2060).Draw(t, "id")))
		return
	case datom.Keyword:
		if strings.Contains(tag, "type=ref") {
			draw(rapid.SampledFrom([]datom.Keyword{"db/doc", "db/ident", "db.type/long"}).Draw(t, "ident"))
		} else {
			draw(datom.Keyword(name.Draw(t, "keyword")))
		}
		return
	case datom.Symbol:
		draw(datom.Symbol("s" + name.Draw(t, "symbol")))
		return
	case time.Time:
		draw(time.UnixMilli(rapid.Int64Range(-1<<52, 1<<52).Draw(t, "ms")).In(time.FixedZone("z", rapid.IntRange(-40000, 40000).Draw(t, "zone"))))
		return
	case uuid.UUID:
		draw(uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "uuid")))
		return
	case []byte:
		draw(rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(t, "bytes"))
		return
	case *big.Int:
		n := big.NewInt(rapid.Int64().Draw(t, "bigint"))
		draw(n.Lsh(n, uint(rapid.IntRange(0, 80).Draw(t, "shift"))))
		return
	case *apd.Decimal:
		draw(apd.New(rapid.Int64().Draw(t, "coefficient"), int32(rapid.IntRange(-20, 20).Draw(t, "exponent"))))
		return
	case *url.URL:
		u, err := url.Parse("http://" + name.Draw(t, "host") + "?q=" + url.QueryEscape(rapid.String().Draw(t, "query")))
		if err != nil {
			t.Fatal(err)
		}
		draw(u)
		return
	case datom.Value:
		x := datom.String(rapid.String().Draw(t, "string"))
		if strings.Contains(tag, "long") {
			x = datom.Long(rapid.Int64().Draw(t, "long"))
		} else if strings.Contains(tag, "bigdec") {
			x, _ = datom.BigDec(apd.New(rapid.Int64().Draw(t, "coefficient"), 3))
		}
		draw(x)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		g.value(v.Elem(), tag)
	case reflect.Struct:
		if strings.Contains(tag, "tuple") {
			for i := range v.NumField() {
				if v.Field(i).Kind() != reflect.Pointer || rapid.Bool().Draw(t, "element") {
					g.value(v.Field(i), v.Type().Field(i).Tag.Get("stele"))
				}
			}
			return
		}
		g.fill(v)
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "bool"))
	case reflect.String:
		switch {
		case strings.Contains(tag, "type=keyword"), strings.Contains(tag, "type=symbol"):
			v.SetString("s" + name.Draw(t, "name"))
		case strings.Contains(tag, "type=uri"):
			v.SetString("http://x/%7e" + name.Draw(t, "path"))
		default:
			v.SetString(rapid.String().Draw(t, "string"))
		}
	case reflect.Float32:
		v.SetFloat(float64(rapid.OneOf(rapid.Float32(), rapid.SampledFrom([]float32{float32(math.NaN()), 0, float32(math.Inf(-1))})).Draw(t, "float")))
	case reflect.Float64:
		v.SetFloat(rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{math.NaN(), 0, math.Inf(1)})).Draw(t, "double"))
	case reflect.Uint16:
		v.SetUint(uint64(rapid.Uint16().Draw(t, "uint16")))
	case reflect.Uint64:
		top := uint64(math.MaxInt64)
		if strings.Contains(tag, "bigint") {
			top = math.MaxUint64
		}
		v.SetUint(rapid.OneOf(rapid.Uint64Range(0, top), rapid.Just(top)).Draw(t, "uint64"))
	case reflect.Int8:
		v.SetInt(int64(rapid.Int8().Draw(t, "int8")))
	default:
		v.SetInt(rapid.Int64().Draw(t, "int"))
	}
}

// picture is a Go value as text, in which what stands for the same value looks the same: ids of entities are left out, slices are
// sorted sets unless they are tuples.
func picture(v reflect.Value, tag string) string {
	switch x := v.Interface().(type) {
	case time.Time:
		return fmt.Sprint(x.UnixMilli())
	case []byte:
		return fmt.Sprintf("%x %v", x, x == nil || len(x) == 0 && strings.Contains(tag, "omitempty"))
	case *big.Int:
		return fmt.Sprint(x)
	case *apd.Decimal:
		if x == nil {
			return "nil"
		}
		y, _ := new(apd.Decimal).Reduce(x)
		if y.IsZero() {
			return "0"
		}
		return y.String()
	case *url.URL:
		return fmt.Sprint(x)
	case datom.Value:
		return x.String()
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return "nil"
		}
		return "&" + picture(v.Elem(), tag)
	case reflect.Struct:
		var b strings.Builder
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.Name != "ID" {
				fmt.Fprintf(&b, "%s:%s ", f.Name, picture(v.Field(i), f.Tag.Get("stele")))
			}
		}
		return "{" + b.String() + "}"
	case reflect.Slice:
		var parts []string
		for i := range v.Len() {
			parts = append(parts, picture(v.Index(i), tag))
		}
		if !strings.Contains(tag, "tuple") || isMany(v.Type()) {
			slices.Sort(parts)
			parts = slices.Compact(parts)
		}
		return fmt.Sprintf("%q", parts)
	case reflect.Float32, reflect.Float64:
		return fmt.Sprint(v.Float() + 0)
	}
	return fmt.Sprint(v.Interface())
}

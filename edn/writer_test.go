package edn

import (
	"bytes"
	"errors"
	"io"
	"math"
	"math/big"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/cockroachdb/apd/v3"
	"github.com/google/uuid"
	"pgregory.net/rapid"
)

func genName() *rapid.Generator[string] {
	return rapid.OneOf(rapid.StringMatching(`[a-zé*!_?$%&=<>][a-z0-9.*+!_?$%&=<>'#:-]{0,6}(/[a-z][a-z0-9/.]{0,5})?`), rapid.SampledFrom([]string{"/", "a//", "+", "-", "a/b/c"})).
		Filter(func(s string) bool { return Symbol(s).Valid() })
}

func genValue(depth int) *rapid.Generator[any] {
	ints := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-10, 10), rapid.SampledFrom([]int64{math.MinInt64, math.MaxInt64}))
	text := rapid.StringOfN(rapid.OneOf(rapid.Rune(), rapid.SampledFrom([]rune("ab\"\\\n\t\r\b\f\x00\x7f\u00a0\u2028;[]"))), 0, 8, -1)
	return rapid.Custom(func(t *rapid.T) any {
		most := 12
		if depth > 0 {
			most = 18
		}
		items := func() []any {
			return rapid.SliceOfN(genValue(depth-1), 0, 4).Draw(t, "items")
		}
		distinct := func() (out []any) {
			for _, x := range items() {
				dup := false
				for _, y := range out {
					dup = dup || Equal(x, y)
				}
				if !dup {
					out = append(out, x)
				}
			}
			return out
		}
		switch rapid.IntRange(0, most-1).Draw(t, "kind") {
		case 0:
			return nil
		case 1:
			return rapid.Bool().Draw(t, "bool")
		case 2:
			return ints.Draw(t, "int")
		case 3:
			x := big.NewInt(ints.Draw(t, "bigint"))
			return x.Lsh(x, rapid.UintRange(0, 200).Draw(t, "shift"))
		case 4:
			return rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1)})).Draw(t, "float")
		case 5:
			return apd.New(ints.Draw(t, "coeff"), rapid.OneOf(rapid.Int32Range(-25, 25), rapid.Int32Range(-MaxDecimalExponent, MaxDecimalExponent)).Draw(t, "exp"))
		case 6:
			return text.Draw(t, "string")
		case 7:
			return Char(rapid.OneOf(rapid.Rune(), rapid.SampledFrom([]rune("()[]\\\";,#a1 \n\t\u00a0\u2003"))).Draw(t, "char"))
		case 8:
			return Keyword(genName().Draw(t, "keyword"))
		case 9:
			return Symbol(genName().Draw(t, "symbol"))
		case 10:
			return time.Unix(rapid.Int64Range(-62_167_219_200, 253_402_300_799).Draw(t, "s"), rapid.SampledFrom([]int64{0, 1_000_000, 999_999_999}).Draw(t, "ns")).UTC()
		case 11:
			return uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "uuid"))
		case 12:
			return List{Items: items()}
		case 13:
			return Vector{Items: items()}
		case 14:
			return Set{Items: distinct()}
		case 15, 16:
			var m Map
			for _, key := range distinct() {
				m.Entries = append(m.Entries, Entry{Key: key, Value: genValue(depth-1).Draw(t, "value")})
			}
			return m
		default:
			return Tagged{Tag: Symbol(rapid.StringMatching(`[a-z]{1,4}(/[a-z]{1,4})?`).Filter(func(s string) bool {
				return s != "inst" && s != "uuid" && Symbol(s).Valid()
			}).Draw(t, "tag")), Value: genValue(depth-1).Draw(t, "tagged")}
		}
	})
}

func TestWriteAndReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := genValue(3).Draw(t, "v")
		b, err := Append([]byte("  "), v)
		if err != nil {
			t.Fatalf("%#v: %v", v, err)
		}
		got, err := Parse(b, Limits{})
		if err != nil || !Equal(got, v) || !Equal(v, got) {
			t.Fatalf("%s reads back as %#v, %v; it was %#v", b, got, err, v)
		}
		if again, err := Append([]byte("  "), got); err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%s is written again as %s, %v", b, again, err)
		}
	})
}

func TestWrite(t *testing.T) {
	for _, c := range []struct {
		v    any
		want string
	}{
		{mapOf(k("a"), vec(n(1), list(nil), set())), "{:a [1 (nil) #{}]}"}, {mapOf(k("a"), 1, k("b"), 2), "{:a 1, :b 2}"}, {1.0, "1.0"}, {1e21, "1e+21"}, {math.Inf(-1), "##-Inf"},
		{big.NewInt(-5), "-5N"}, {dec(150, -2), "1.50M"}, {dec(15, 3), "15E3M"}, {dec(-5, -3), "-0.005M"}, {dec(5, -9), "5E-9M"}, {dec(0, -3), "0.000M"}, {dec(1, 1<<30), "1E1073741824M"},
		{"a\"\\\n\x01é", `"a\"\\\n\u0001é"`}, {Char('a'), `\a`}, {Char(' '), `\space`}, {Char(','), `\u002c`}, {Char('('), `\(`}, {Char('é'), `\é`}, {Char(0), `\u0000`},
		{inst("2019-03-04T05:06:07.089Z"), `#inst "2019-03-04T05:06:07.089-00:00"`}, {inst("2019-03-04T05:06:07.0891Z"), `#inst "2019-03-04T05:06:07.089100000-00:00"`},
		{uuid.UUID{1}, `#uuid "01000000-0000-0000-0000-000000000000"`}, {tag("db/id", vec(k("db.part/user"))), "#db/id [:db.part/user]"}, {Symbol("a/b"), "a/b"},
	} {
		got, err := Append(nil, c.v)
		if err != nil || string(got) != c.want {
			t.Errorf("%#v is written %s, %v; want %s", c.v, got, err, c.want)
		}
	}
	self := Vector{Items: make([]any, 1)}
	self.Items[0] = self
	loop := self
	loop.Items[0] = loop
	for _, v := range []any{k(""), k("a b"), k(":a"), Symbol("1"), Symbol("nil"), "\xff", Char(0xd800), Char(-1), (*big.Int)(nil), (*apd.Decimal)(nil), &apd.Decimal{Form: apd.NaN}, dec(1, 1<<30+1),
		time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC), tag("1", nil), tag("inst", "x"), tag("+", 1), struct{}{}, float32(1), uint(1), vec(k("")), mapOf(k(""), 1), mapOf(1, k("")), loop} {
		if b, err := Append(nil, v); err == nil {
			t.Errorf("%#v is written %s", v, b)
		}
	}
}

func TestEqual(t *testing.T) {
	vs := []any{nil, true, false, n(1), n(2), big.NewInt(1), 1.0, math.NaN(), dec(1, 0), dec(-1, 0), dec(1, 1), "a", k("a"), Symbol("a"), Char('a'), inst("2019-01-01T00:00:00Z"), uuid.UUID{}, uuid.UUID{1},
		vec(), vec(n(1)), vec(vec()), set(), set(n(1)), set(n(2)), set(n(1), n(2)), mapOf(), mapOf(n(1), n(2)), mapOf(n(1), n(1)), mapOf(n(2), n(2)), tag("a", n(1)), tag("b", n(1)), tag("a", n(2)), struct{}{}}
	for i, a := range vs[:len(vs)-1] {
		for j, b := range vs {
			if Equal(a, b) != (i == j) || Equal(b, a) != (i == j) {
				t.Errorf("Equal(%#v, %#v) is %t", a, b, Equal(a, b))
			}
		}
	}
	for _, p := range [][2]any{{list(n(1)), vec(n(1))}, {set(n(1), n(2)), set(n(2), n(1))}, {mapOf(n(1), 2.0, n(3), 4.0), mapOf(n(3), 4.0, n(1), 2.0)}, {dec(100, 0), dec(1, 2)}, {dec(0, 5), dec(0, -5)}, {0.0, math.Copysign(0, -1)},
		{inst("2019-01-01T00:00:00Z"), inst("2019-01-01T01:00:00+01:00")}} {
		if !Equal(p[0], p[1]) {
			t.Errorf("%#v and %#v are not equal", p[0], p[1])
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, c := range readCases {
		f.Add([]byte(c.in))
	}
	f.Add([]byte(`[#:a{:b #{1 2}} #_ ^:x y "\u00e9" 1.5e3M ##Inf \newline] 2 ; c`))
	lim := Limits{Depth: 20, FormBytes: 1 << 12, Elements: 200, TokenBytes: 100}
	f.Fuzz(func(t *testing.T, in []byte) {
		a := NewReader(bytes.NewReader(in), lim)
		b := NewReader(iotest.OneByteReader(bytes.NewReader(in)), lim)
		for {
			v, err := a.Read()
			w, err2 := b.Read()
			if (err == nil) != (err2 == nil) || err != nil && err.Error() != err2.Error() {
				t.Fatalf("%v at once, %v byte by byte", err, err2)
			}
			if err != nil {
				var e *Error
				if err != io.EOF && (!errors.As(err, &e) || e.Pos.Offset > int64(len(in)) || e.Pos.Line < 1 || e.Pos.Column < 1) {
					t.Fatalf("%#v", err)
				}
				return
			}
			if !Equal(v, w) || !Equal(v, v) {
				t.Fatalf("%#v at once, %#v byte by byte", v, w)
			}
			text, err := Append(nil, v)
			if err != nil {
				t.Fatalf("%#v was read and cannot be written: %v", v, err)
			}
			if back, err := Parse(text, Limits{}); err != nil || !Equal(back, v) {
				t.Fatalf("%#v is written %s, which is %#v, %v", v, text, back, err)
			}
		}
	})
}

func BenchmarkRead(b *testing.B) {
	var doc strings.Builder
	doc.WriteString("[")
	for i := range 5000 {
		doc.WriteString(`#:release{:script :script/Latn, :name "Lord of Light / Born to Go", :country :country/GB, :gid #uuid "fd9726f9-ad1d-403b-a01d-d3bf00bada6d", :labels #:label{:gid #uuid "97ff8689-725a-4340-bd13-b65ab23eed8b"}, :status "Official", :artistCredit "Hawkwind", :year `)
		doc.WriteString(big.NewInt(int64(1960 + i%14)).String())
		doc.WriteString("} ")
	}
	doc.WriteString("]")
	in := []byte(doc.String())
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(in, Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}

package datom

import (
	"math"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cockroachdb/apd/v3"
	"github.com/google/uuid"
	"pgregory.net/rapid"
)

func TestOfIsTheInverseOfAny(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := genValue().Draw(t, "v")
		got, err := Of(v.Any())
		if err != nil || got != v {
			t.Fatalf("Of(%#v) = %v, %v; want %v", v.Any(), got, err, v)
		}
		if again, err := Of(v); err != nil || again != v {
			t.Fatalf("Of(%v) = %v, %v", v, again, err)
		}
	})
}

func dec(t *testing.T, s string) Value {
	t.Helper()
	d, _, err := apd.NewFromString(s)
	if err != nil {
		t.Fatal(err)
	}
	v, err := BigDec(d)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestEqualValuesAreOneMapKey(t *testing.T) {
	// n and m are made apart, so that nothing is equal because it is the same pointer.
	n, _ := new(big.Int).SetString("123456789012345678901234567890", 10)
	m, _ := new(big.Int).SetString("0123456789012345678901234567890", 10)
	padded := new(big.Int).SetBits(append([]big.Word{5}, 0)) // a number with a leading zero word
	negNaN := math.Float64frombits(0xfff8000000000007)
	for _, p := range [][2]Value{
		{Double(math.NaN()), Double(negNaN)},
		{Float(float32(math.NaN())), Float(math.Float32frombits(0xffc00001))},
		{Double(0), Double(negZero)},
		{Float(0), Float(float32(negZero))},
		{dec(t, "1.0"), dec(t, "1.00")},
		{dec(t, "100"), dec(t, "1E+2")},
		{dec(t, "0"), dec(t, "-0.000")},
		{dec(t, "-1230"), dec(t, "-1.23E3")},
		{BigInt(n), BigInt(m)},
		{BigInt(padded), BigInt(big.NewInt(5))},
		{BigInt(new(big.Int).Neg(new(big.Int))), BigInt(new(big.Int))},
		{Bytes(nil), Bytes([]byte{})},
		{Instant(time.UnixMilli(5).UTC()), Instant(time.UnixMilli(5).In(time.FixedZone("x", 3600)))},
	} {
		if p[0] != p[1] || Compare(p[0], p[1]) != 0 {
			t.Errorf("%v and %v are not equal", p[0], p[1])
		}
		if seen := map[Value]bool{p[0]: true}; !seen[p[1]] {
			t.Errorf("%v is not found by %v", p[0], p[1])
		}
	}
	for _, p := range [][2]Value{
		{Long(1), BigInt(big.NewInt(1))}, {Long(1), InstantMilli(1)}, {Long(1), Ref(1)}, {Double(1), Float(1)},
		{String("a"), KeywordValue("a")}, {String("a"), Bytes([]byte("a"))}, {Bool(false), {}}, {Long(0), {}},
	} {
		if p[0] == p[1] {
			t.Errorf("%v of %s and %v of %s are equal", p[0], p[0].Kind(), p[1], p[1].Kind())
		}
	}
}

func TestInstantIsCutTowardsThePast(t *testing.T) {
	for _, c := range []struct{ ns, ms int64 }{{1_999_999, 1}, {1_000_000, 1}, {-1, -1}, {-1_000_000, -1}, {-1_000_001, -2}} {
		if got := Instant(time.Unix(0, c.ns)).InstantMilli(); got != c.ms {
			t.Errorf("%d ns is %d ms, want %d", c.ns, got, c.ms)
		}
	}
	for _, ms := range []int64{math.MinInt64, math.MaxInt64, 0} {
		if got, err := Of(time.UnixMilli(ms)); ms == 0 && (err != nil || got.InstantMilli() != ms) {
			t.Errorf("%d ms: %v, %v", ms, got, err)
		}
	}
}

func TestOfRefuses(t *testing.T) {
	inf := &apd.Decimal{Form: apd.Infinite}
	huge := apd.New(1, math.MaxInt32)
	type named string
	for _, x := range []any{
		nil, Value{}, "\xff", Keyword(""), Keyword("a b"), Symbol("1"), MaxID, (*big.Int)(nil), (*apd.Decimal)(nil), (*url.URL)(nil),
		inf, huge, uint64(1), int32(1), named("x"), struct{}{}, time.Unix(math.MaxInt64/4, 0), time.Unix(math.MinInt64/4, 0),
		&url.URL{Scheme: "http", Host: "\xff", Opaque: "\xff"},
		[]any{}, []any{int64(1)}, make([]any, 9), []any{int64(1), []any{int64(1), int64(2)}}, []any{int64(1), "\xff"}, []any{int64(1), uint(1)},
	} {
		if v, err := Of(x); err == nil {
			t.Errorf("Of(%#v) is %v", x, v)
		}
	}
	for _, x := range []any{nil, Value{}} {
		if v, err := Of([]any{x, int64(1)}); err != nil || !v.Tuple()[0].IsNil() {
			t.Errorf("a tuple that begins with %#v: %v, %v", x, v, err)
		}
	}
	for _, s := range []string{"\xff", "http://a b/", ":"} {
		if v, err := ParseURI(s); err == nil {
			t.Errorf("ParseURI(%q) is %v", s, v)
		}
	}
	if v, err := ParseURI("http://x/#"); err != nil || v.Text() != "http://x/#" {
		t.Errorf("the text of a URI is not kept: %v, %v", v, err)
	}
}

// What comes from an accessor belongs to the caller, and so does what a value was made from.
func TestValuesShareNothing(t *testing.T) {
	in := []byte{1, 2, 3}
	n := big.NewInt(1 << 40)
	d := apd.New(15, -1)
	b, bi, bd := Bytes(in), BigInt(n), Value{}
	bd, _ = BigDec(d)
	in[0] = 9
	n.SetInt64(3)
	d.Coeff.SetInt64(3)
	b.Bytes()[1] = 9
	bi.BigInt().SetInt64(4)
	bd.BigDec().Coeff.SetInt64(4)
	if b.Text() != "\x01\x02\x03" || bi.BigInt().Int64() != 1<<40 || bd.String() != "1.5M" {
		t.Errorf("a value changed: %v %v %v", b, bi, bd)
	}
	enc := String("hello").AppendKey(nil)
	v, _, _ := DecodeKey(enc)
	clear(enc)
	if v.Text() != "hello" {
		t.Errorf("a decoded value shares memory with its encoding: %v", v)
	}
}

func TestString(t *testing.T) {
	tuple, err := Tuple(Value{}, String("x"), Long(1))
	if err != nil {
		t.Fatal(err)
	}
	for want, v := range map[string]Value{
		"nil": {}, "true": Bool(true), "-5": Long(-5), "5N": BigInt(big.NewInt(5)), "1.5M": dec(t, "1.50"), "1E+2M": dec(t, "100"),
		"1.5": Float(1.5), "2.0": Double(2), "1e+21": Double(1e21), "##NaN": Double(math.NaN()), "##-Inf": Float(float32(math.Inf(-1))),
		`#inst "1970-01-01T00:00:00.001Z"`: InstantMilli(1), ":a/b": KeywordValue("a/b"), "my/f": SymbolValue("my/f"),
		`"a\"\\\n\u0000é"`: String("a\"\\\n\x00é"), `#uri "http://a"`: URI(&url.URL{Scheme: "http", Host: "a"}), `#bytes "AQI="`: Bytes([]byte{1, 2}),
		`#uuid "00000000-0000-0000-0000-000000000000"`: UUID(uuid.Nil), "7": Ref(7), `[nil "x" 1]`: tuple,
	} {
		if got := v.String(); got != want {
			t.Errorf("%s of %s, want %s", got, v.Kind(), want)
		}
	}
	if got := (Datom{E: 1, A: 2, V: String("x"), T: 3, Added: true}).String(); got != `[1 2 "x" 3 true]` {
		t.Error(got)
	}
}

// A value of any size can be put into an error.
func TestStringIsShort(t *testing.T) {
	far, err := BigDec(apd.New(1, 1<<30-1))
	if err != nil {
		t.Fatal(err)
	}
	near, err := BigDec(apd.New(-7, -(1 << 30)))
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("é", 1<<20)
	digits, ok := new(apd.BigInt).SetString(strings.Repeat("7", 5000), 10)
	if !ok {
		t.Fatal("no number")
	}
	wide, err := BigDec(apd.NewWithBigInt(digits, 0))
	if err != nil {
		t.Fatal(err)
	}
	vs := []Value{far, near, wide, String(long), String("x" + long), KeywordValue(Keyword("x" + long)), SymbolValue(Symbol(long)),
		Bytes([]byte(long)), BigInt(new(big.Int).Lsh(big.NewInt(1), 1<<22)), String(strings.Repeat("\xff", 1000)), String(strings.Repeat("\x00", 1000))}
	tuple, err := Tuple(vs[:8]...)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range append(vs, tuple) {
		s := v.String()
		if len(s) > 500*8 || v.Kind() != KindTuple && len(s) > 500 {
			t.Errorf("%d bytes of %s", len(s), v.Kind())
		}
		if !utf8.ValidString(s) {
			t.Errorf("%q is not UTF-8", s)
		}
	}
}

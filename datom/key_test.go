package datom

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/apd/v3"
	"github.com/google/uuid"
	"pgregory.net/rapid"
)

var kinds = []Kind{
	KindBoolean, KindLong, KindBigInt, KindBigDec, KindFloat, KindDouble, KindInstant, KindKeyword, KindSymbol, KindString,
	KindUUID, KindURI, KindBytes, KindRef, KindTuple,
}

// genValue draws values of every kind, with a liking for what collides: zeros, signs, common prefixes, NUL bytes.
func genValue() *rapid.Generator[Value] {
	return rapid.OneOf(genScalar(), rapid.Custom(func(t *rapid.T) Value {
		elems := rapid.SliceOfN(rapid.OneOf(rapid.Just(Value{}), genScalar()), MinTuple, MaxTuple).Draw(t, "elems")
		v, err := Tuple(elems...)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}))
}

func genScalar() *rapid.Generator[Value] {
	text := rapid.StringOfN(rapid.SampledFrom([]rune("ab\x00\x01\x02\u00ff\uffff\U0001f600")), 0, 6, -1)
	ints := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-300, 300),
		rapid.SampledFrom([]int64{math.MinInt64, math.MaxInt64, -1 << 32, 1 << 32, -256, -257, 255, 256, 0, -1}))
	return rapid.Custom(func(t *rapid.T) Value {
		switch k := rapid.SampledFrom(kinds[:len(kinds)-1]).Draw(t, "kind"); k {
		case KindBoolean:
			return Bool(rapid.Bool().Draw(t, "bool"))
		case KindLong:
			return Long(ints.Draw(t, "long"))
		case KindInstant:
			return InstantMilli(ints.Draw(t, "ms"))
		case KindBigInt:
			n := big.NewInt(ints.Draw(t, "bigint"))
			n.Lsh(n, rapid.SampledFrom([]uint{0, 1, 8, 64, 200}).Draw(t, "shift"))
			return BigInt(n.Add(n, big.NewInt(rapid.Int64Range(-2, 2).Draw(t, "add"))))
		case KindBigDec:
			v, err := BigDec(apd.New(ints.Draw(t, "coeff"), rapid.Int32Range(-22, 22).Draw(t, "exp")))
			if err != nil {
				t.Fatal(err)
			}
			return v
		case KindFloat:
			return Float(rapid.OneOf(rapid.Float32(), rapid.SampledFrom(floats32)).Draw(t, "float"))
		case KindDouble:
			return Double(rapid.OneOf(rapid.Float64(), rapid.SampledFrom(floats64)).Draw(t, "double"))
		case KindKeyword:
			return KeywordValue(Keyword(rapid.SampledFrom([]string{"a", "a/b", "ab", "a/b/c", "é", "/"}).Draw(t, "keyword")))
		case KindSymbol:
			return SymbolValue(Symbol(rapid.SampledFrom([]string{"a", "a/b", "ab", "+", "-a", "/"}).Draw(t, "symbol")))
		case KindString:
			return String(text.Draw(t, "string"))
		case KindURI:
			v, err := ParseURI(rapid.SampledFrom([]string{"", "http://a", "http://a/b", "urn:x", "a%20b"}).Draw(t, "uri"))
			if err != nil {
				t.Fatal(err)
			}
			return v
		case KindBytes:
			return Bytes(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 2, 0x7f, 0x80, 0xff}), 0, 6).Draw(t, "bytes"))
		case KindUUID:
			return UUID(uuid.UUID(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0xff}), 16, 16).Draw(t, "uuid")))
		case KindRef:
			return Ref(ID(rapid.Uint64Range(0, uint64(MaxID)-1).Draw(t, "ref")))
		default:
			t.Fatalf("no generator for %s", k)
			return Value{}
		}
	})
}

var (
	negZero  = math.Copysign(0, -1)
	floats64 = []float64{0, negZero, math.NaN(), -math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64,
		-math.SmallestNonzeroFloat64, 1, -1}
	floats32 = []float32{0, float32(negZero), float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), math.MaxFloat32,
		math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32, 1, -1}
)

// modelCompare is the order of values as one would explain it, from what the accessors return.
func modelCompare(a, b Value) int {
	if a.Kind() != b.Kind() {
		return cmp.Compare(a.Kind(), b.Kind())
	}
	switch a.Kind() {
	case KindNil:
		return 0
	case KindBoolean:
		toInt := map[bool]int{true: 1}
		return cmp.Compare(toInt[a.Bool()], toInt[b.Bool()])
	case KindLong:
		return cmp.Compare(a.Long(), b.Long())
	case KindInstant:
		return a.Instant().Compare(b.Instant())
	case KindBigInt:
		return a.BigInt().Cmp(b.BigInt())
	case KindBigDec:
		return a.BigDec().Cmp(b.BigDec())
	case KindFloat:
		return compareFloats(float64(a.Float()), float64(b.Float()))
	case KindDouble:
		return compareFloats(a.Double(), b.Double())
	case KindKeyword, KindSymbol, KindString, KindURI:
		x, y := []rune(a.Text()), []rune(b.Text())
		for i := range min(len(x), len(y)) {
			if c := cmp.Compare(x[i], y[i]); c != 0 {
				return c
			}
		}
		return cmp.Compare(len(x), len(y))
	case KindUUID, KindBytes:
		return bytes.Compare([]byte(a.Text()), []byte(b.Text()))
	case KindRef:
		return cmp.Compare(a.Ref(), b.Ref())
	default:
		x, y := a.Tuple(), b.Tuple()
		for i := range min(len(x), len(y)) {
			if c := modelCompare(x[i], y[i]); c != 0 {
				return c
			}
		}
		return cmp.Compare(len(x), len(y))
	}
}

// compareFloats puts NaN last.
func compareFloats(a, b float64) int {
	switch {
	case a != a && b != b:
		return 0
	case a != a:
		return 1
	case b != b:
		return -1
	}
	return cmp.Compare(a, b)
}

func TestKeyRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, rest := genValue().Draw(t, "v"), rapid.SliceOf(rapid.Byte()).Draw(t, "rest")
		enc := v.AppendKey([]byte("before"))[len("before"):]
		b := append(bytes.Clone(enc), rest...)
		got, n, err := DecodeKey(b)
		if err != nil || got != v || n != len(enc) {
			t.Fatalf("%x decodes to %v, %d bytes of %d, %v", enc, got, n, len(enc), err)
		}
		if KeyLen(b) != n {
			t.Fatalf("KeyLen of %x is %d, not %d", enc, KeyLen(b), n)
		}
		for i := range len(enc) {
			if _, _, err := DecodeKey(enc[:i]); !errors.Is(err, ErrEncoding) {
				t.Fatalf("%x cut to %d bytes: %v", enc, i, err)
			}
		}
	})
}

func TestKeyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := genValue().Draw(t, "a")
		b := rapid.OneOf(genValue(), genValue().Filter(func(v Value) bool { return v.Kind() == a.Kind() })).Draw(t, "b")
		want := modelCompare(a, b)
		if got := Compare(a, b); got != want {
			t.Fatalf("Compare(%v, %v) = %d, want %d", a, b, got, want)
		}
		x, y := a.AppendKey(nil), b.AppendKey(nil)
		if got := bytes.Compare(x, y); got != want {
			t.Fatalf("%v and %v: encodings %x and %x compare %d, want %d", a, b, x, y, got, want)
		}
		if (a == b) != (want == 0) {
			t.Fatalf("%v == %v is %t, Compare %d", a, b, a == b, want)
		}
		if a != b && (bytes.HasPrefix(x, y) || bytes.HasPrefix(y, x)) {
			t.Fatalf("one of %x and %x is a prefix of the other", x, y)
		}
	})
}

// Every pair of values that are close to each other, which random draws meet too seldom.
func TestKeyOrderOfNeighbours(t *testing.T) {
	var vs []Value
	for _, f := range floats64 {
		vs = append(vs, Double(f), Float(float32(f)))
	}
	for i := range 64 {
		for d := int64(-1); d <= 1; d++ {
			n := int64(1)<<i + d
			vs = append(vs, Long(n), Long(-n), Long(^n), BigInt(big.NewInt(n)), BigInt(big.NewInt(-n)), InstantMilli(n))
		}
	}
	for i := range 53 {
		vs = append(vs, Ref(1<<i), Ref(1<<i-1))
	}
	vs = append(vs, Ref(MaxID-1))
	for _, s := range []string{"0", "1", "-1", "1.0", "10", "10.1", "101", "1.01", "1.1", "1.10", "-1.01", "-1.1", "0.1", "0.01", "-0.01",
		"1e1073741823", "-1e1073741823", "1e-1073741825", "-1e-1073741825", "123456789.987654321", "-0", "99", "100", "99.99"} {
		d, _, err := apd.NewFromString(strings.Split(s, "e")[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, e, ok := strings.Cut(s, "e"); ok {
			var exp int32
			fmt.Sscan(e, &exp)
			d.Exponent += exp
		}
		v, err := BigDec(d)
		if err != nil {
			t.Fatal(s, err)
		}
		vs = append(vs, v)
	}
	for i := range vs {
		for j := range vs {
			a, b := vs[i], vs[j]
			x, y := a.AppendKey(nil), b.AppendKey(nil)
			got := bytes.Compare(x, y)
			if a.Kind() == KindBigDec && b.Kind() == KindBigDec && (len(a.String()) > 40 || strings.Contains(a.String()+b.String(), "073741")) {
				if got != Compare(a, b) || (got == 0) != (a == b) {
					t.Errorf("%v and %v: %d", a, b, got)
				}
				continue // apd cannot compare such exponents
			}
			if want := modelCompare(a, b); got != want || Compare(a, b) != want || (a == b) != (want == 0) {
				t.Errorf("%v and %v: encodings compare %d, values %d, want %d", a, b, got, Compare(a, b), want)
			}
		}
	}
}

func TestDecodeKeyRefusesWhatIsNotCanonical(t *testing.T) {
	for name, b := range map[string][]byte{
		"empty":                             {},
		"unknown kind":                      {0x11, 0},
		"nil":                               {0, 0},
		"boolean 2":                         {0x10, 2},
		"long with a leading zero":          {0x18, 0x82, 0, 1},
		"negative long with a leading zero": {0x18, 0x7d, 0xff, 0xfe},
		"long of nine bytes":                {0x18, 0x89, 1, 2, 3, 4, 5, 6, 7, 8, 9},
		"long out of range":                 {0x18, 0x88, 0x80, 0, 0, 0, 0, 0, 0, 0},
		"double -0":                         {0x38, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"another NaN":                       {0x38, 0xff, 0xf8, 0, 0, 0, 0, 0, 2},
		"negative NaN":                      {0x38, 0, 7, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe},
		"float -0":                          {0x30, 0x7f, 0xff, 0xff, 0xff},
		"bigint zero with a length":         {0x20, 2, 0, 0, 0, 0},
		"bigint with a leading zero":        {0x20, 2, 0, 0, 0, 2, 0, 1},
		"negative bigint with one":          {0x20, 0, 0xff, 0xff, 0xff, 0xfd, 0xff, 0xfe},
		"bigint longer than the input":      {0x20, 2, 0xff, 0xff, 0xff, 0xff, 1},
		"bigint sign 3":                     {0x20, 3, 0, 0, 0, 1, 1},
		"bigdec sign 3":                     {0x28, 3, 0x80, 0, 0, 1, 11, 0},
		"bigdec without digits":             {0x28, 2, 0x80, 0, 0, 1, 0},
		"bigdec 0.01 as its digits":         {0x28, 2, 0x80, 0, 0, 1, 2, 0},
		"bigdec with trailing zeros":        {0x28, 2, 0x80, 0, 0, 1, 11, 1, 0},
		"bigdec digit 101":                  {0x28, 2, 0x80, 0, 0, 1, 102, 0},
		"bigdec exponent":                   {0x28, 2, 0xff, 0, 0, 1, 11, 0},
		"string that is not UTF-8":          {0x58, 0xff, 0, 1},
		"string with a bad escape":          {0x58, 'a', 0, 2},
		"string without an end":             {0x58, 'a', 0},
		"id with a leading zero":            {0x78, 2, 0, 1},
		"id 2^53":                           {0x78, 7, 0x20, 0, 0, 0, 0, 0, 0},
		"id of eight bytes":                 {0x78, 8, 1, 0, 0, 0, 0, 0, 0, 0},
		"tuple of one":                      {0x80, 1, 0},
		"tuple of nine":                     {0x80, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0},
		"tuple in a tuple":                  {0x80, 1, 0x80, 1, 1, 0, 0},
		"tuple without an end":              {0x80, 1, 1},
	} {
		if v, n, err := DecodeKey(b); !errors.Is(err, ErrEncoding) {
			t.Errorf("%s: %x gives %v, %d, %v", name, b, v, n, err)
		}
	}
}

func TestIDs(t *testing.T) {
	for _, id := range []ID{0, 1, 255, 256, 1 << 42, MakeID(PartUser, FirstSeq), TxID(7), MaxID - 1} {
		b := AppendID([]byte{9}, id)[1:]
		got, n, err := DecodeID(append(b, 7))
		if err != nil || got != id || n != len(b) {
			t.Errorf("%d: %x gives %d, %d, %v", id, b, got, n, err)
		}
		if MakeID(id.Part(), id.Seq()) != id {
			t.Errorf("%#v is put together as %d", id, MakeID(id.Part(), id.Seq()))
		}
	}
	if _, _, err := DecodeID(AppendID(nil, MaxID)); !errors.Is(err, ErrEncoding) {
		t.Errorf("2^53 as an id: %v", err)
	}
	if _, err := Of(MaxID); err == nil {
		t.Error("2^53 is taken as a ref")
	}
	if id := MakeID(FirstSeq-1, MaxSeq); id != MaxID-1 {
		t.Errorf("the largest partition and sequence make %d", id)
	}
	if !TxID(7).IsTx() || TxID(7).Seq() != 7 || MakeID(PartUser, 7).IsTx() {
		t.Error("TxID, IsTx and Seq disagree")
	}
}

// The log stores these bytes: the file is never edited, only added to.
func TestKeyGolden(t *testing.T) {
	must := func(v Value, err error) Value {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	dec := func(coeff int64, exp int32) Value { return must(BigDec(apd.New(coeff, exp))) }
	var out strings.Builder
	for _, v := range []Value{
		Bool(false), Bool(true), Long(0), Long(1), Long(-1), Long(256), Long(-257), Long(math.MaxInt64), Long(math.MinInt64),
		BigInt(new(big.Int)), BigInt(big.NewInt(1)), BigInt(big.NewInt(-256)), BigInt(new(big.Int).Lsh(big.NewInt(1), 80)),
		dec(0, 0), dec(1, 0), dec(-1, 0), dec(1050, -2), dec(-123, 7), dec(5, -9),
		Float(0), Float(1.5), Float(-1.5), Float(float32(math.NaN())), Float(float32(math.Inf(-1))),
		Double(0), Double(1.5), Double(-1.5), Double(math.NaN()), Double(math.Inf(1)),
		InstantMilli(0), InstantMilli(1700000000123), InstantMilli(-1),
		KeywordValue("person/name"), SymbolValue("my.ns/fn"), String(""), String("héllo"), String("a\x00b"),
		UUID(uuid.MustParse("00112233-4455-6677-8899-aabbccddeeff")), must(ParseURI("http://example.com/a?b#c")),
		Bytes(nil), Bytes([]byte{0, 1, 0xff}), Ref(0), Ref(MakeID(PartUser, FirstSeq)), Ref(MaxID - 1),
		must(Tuple(Long(7), String("seven"))), must(Tuple(Value{}, KeywordValue("green"), Value{})),
	} {
		fmt.Fprintf(&out, "%s %x %s\n", v.Kind(), v.AppendKey(nil), v)
	}
	const file = "testdata/keys.golden"
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; it should hold:\n%s", err, &out)
	}
	if out.String() != string(want) {
		t.Errorf("encodings changed. Now:\n%s\nin %s:\n%s", &out, file, want)
	}
	for line := range strings.Lines(string(want)) {
		var name string
		var enc []byte
		if _, err := fmt.Sscanf(line, "%s %x", &name, &enc); err != nil {
			t.Fatal(err)
		}
		if v, n, err := DecodeKey(enc); err != nil || n != len(enc) || v.Kind().String() != name {
			t.Errorf("%s: %v, %d, %v", strings.TrimSpace(line), v, n, err)
		}
	}
}

func FuzzDecodeKey(f *testing.F) {
	for _, k := range kinds {
		f.Add([]byte{byte(k), 0, 0, 1, 0xff})
		f.Add([]byte{byte(k), 2, 0x80, 0, 0, 1, 11, 0})
	}
	t1, _ := Tuple(Long(7), String("a\x00b"), Value{}, Ref(9), Double(2))
	for _, v := range []Value{t1, BigInt(big.NewInt(-1 << 40)), Long(-70000), Instant(time.Unix(9, 0)), UUID(uuid.Nil)} {
		f.Add(v.AppendKey(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, n, err := DecodeKey(b)
		if err != nil {
			if !errors.Is(err, ErrEncoding) {
				t.Fatalf("%v does not wrap ErrEncoding", err)
			}
			return
		}
		if again := v.AppendKey(nil); !bytes.Equal(again, b[:n]) {
			t.Fatalf("%x is encoded again as %x", b[:n], again)
		}
		if KeyLen(b) != n {
			t.Fatalf("KeyLen %d, decoded %d", KeyLen(b), n)
		}
		if len(v.String()) > 4000 {
			t.Fatalf("String is %d bytes", len(v.String()))
		}
		v.Any()
	})
}

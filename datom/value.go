package datom

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"math"
	"math/big"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cockroachdb/apd/v3"
	"github.com/google/uuid"
)

// Kind is a value's type. Its number is the first byte of the value's encoding and so orders values of different types;
// the gaps leave room. Numbers are never reused.
type Kind uint8

const (
	// KindNil is the zero Value: "no value". It stands inside tuples only, and sorts first.
	KindNil     Kind = 0x00
	KindBoolean Kind = 0x10
	KindLong    Kind = 0x18
	KindBigInt  Kind = 0x20
	KindBigDec  Kind = 0x28
	KindFloat   Kind = 0x30
	KindDouble  Kind = 0x38
	KindInstant Kind = 0x40
	KindKeyword Kind = 0x48
	KindSymbol  Kind = 0x50
	KindString  Kind = 0x58
	KindUUID    Kind = 0x60
	KindURI     Kind = 0x68
	KindBytes   Kind = 0x70
	KindRef     Kind = 0x78
	KindTuple   Kind = 0x80
)

var kindNames = map[Kind]string{
	KindNil: "nil", KindBoolean: "boolean", KindLong: "long", KindBigInt: "bigint", KindBigDec: "bigdec",
	KindFloat: "float", KindDouble: "double", KindInstant: "instant", KindKeyword: "keyword", KindSymbol: "symbol",
	KindString: "string", KindUUID: "uuid", KindURI: "uri", KindBytes: "bytes", KindRef: "ref", KindTuple: "tuple",
}

// String is the name after "db.type/".
func (k Kind) String() string {
	if s, ok := kindNames[k]; ok {
		return s
	}
	return fmt.Sprintf("kind(%#x)", uint8(k))
}

// Value is one immutable value of one [Kind]. == is equality. The zero Value is nil.
type Value struct {
	kind Kind
	num  uint64 // boolean, long, float, double, instant (ms), ref
	str  string // text and bytes as they are; uuid: 16 bytes; bigint, bigdec, tuple: the encoded payload
}

// The limits of what has an encoding. They are far above any sane value.
const (
	// MaxDecimalExponent bounds a decimal's scientific exponent either way.
	MaxDecimalExponent = 1 << 30
	// MinTuple and MaxTuple bound the number of a tuple's elements.
	MinTuple, MaxTuple = 2, 8
)

func Bool(b bool) Value {
	if b {
		return Value{kind: KindBoolean, num: 1}
	}
	return Value{kind: KindBoolean}
}
func Long(n int64) Value { return Value{kind: KindLong, num: uint64(n)} }

// Double makes NaN and zero canonical.
func Double(f float64) Value {
	switch {
	case f != f:
		f = math.NaN()
	case f == 0:
		f = 0
	}
	return Value{kind: KindDouble, num: math.Float64bits(f)}
}

// Float makes NaN and zero canonical.
func Float(f float32) Value {
	switch {
	case f != f:
		f = float32(math.NaN())
	case f == 0:
		f = 0
	}
	return Value{kind: KindFloat, num: uint64(math.Float32bits(f))}
}

// Instant has millisecond precision; what is finer is cut off (towards the past).
func Instant(t time.Time) Value { return Value{kind: KindInstant, num: uint64(t.UnixMilli())} }

// InstantMilli is the instant so many milliseconds after 1970-01-01T00:00:00Z.
func InstantMilli(ms int64) Value          { return Value{kind: KindInstant, num: uint64(ms)} }
func KeywordValue(k Keyword) Value         { return Value{kind: KindKeyword, str: string(k)} }
func SymbolValue(s Symbol) Value           { return Value{kind: KindSymbol, str: string(s)} }
func String(s string) Value                { return Value{kind: KindString, str: s} }
func UUID(u uuid.UUID) Value               { return Value{kind: KindUUID, str: string(u[:])} }
func Bytes(b []byte) Value                 { return Value{kind: KindBytes, str: string(b)} }
func Ref(id ID) Value                      { return Value{kind: KindRef, num: uint64(id)} }
func URI(u *url.URL) Value                 { return Value{kind: KindURI, str: u.String()} }
func uriString(s string) Value             { return Value{kind: KindURI, str: s} }
func BigInt(n *big.Int) Value              { return Value{kind: KindBigInt, str: string(appendBigInt(nil, n))} }
func encoded(k Kind, payload []byte) Value { return Value{kind: k, str: string(payload)} }

// BigDec is the decimal without its trailing zeros: 1.0 and 1.00 are one value. It refuses NaN, infinities and exponents
// beyond MaxDecimalExponent.
func BigDec(d *apd.Decimal) (Value, error) {
	if d.Form != apd.Finite {
		return Value{}, fmt.Errorf("%s is not a finite decimal", d)
	}
	b, err := appendBigDec(nil, d)
	if err != nil {
		return Value{}, err
	}
	return encoded(KindBigDec, b), nil
}

// Tuple holds MinTuple to MaxTuple elements, each a value that is not itself a tuple, or the zero Value for nil.
func Tuple(elems ...Value) (Value, error) {
	if len(elems) < MinTuple || len(elems) > MaxTuple {
		return Value{}, fmt.Errorf("a tuple has %d to %d elements, not %d", MinTuple, MaxTuple, len(elems))
	}
	var b []byte
	for _, e := range elems {
		if e.kind == KindTuple {
			return Value{}, fmt.Errorf("a tuple cannot hold a tuple")
		}
		b = e.appendElem(b)
	}
	return encoded(KindTuple, b), nil
}

// Of makes the value that a Go value stands for: bool, int64 (and int), *big.Int, float32, float64, *apd.Decimal,
// time.Time, Keyword, Symbol, string, uuid.UUID, *url.URL, []byte, ID, []any (a tuple; nil for a missing element) and Value
// itself. It refuses strings that are not UTF-8, keywords and symbols that could not be written, nil, and every other type.
func Of(x any) (Value, error) {
	switch x := x.(type) {
	case Value:
		if x.kind == KindNil {
			return Value{}, fmt.Errorf("nil is not a value")
		}
		return x, nil
	case string:
		if !utf8.ValidString(x) {
			return Value{}, fmt.Errorf("%q is not valid UTF-8", clip(x))
		}
		return String(x), nil
	case int64:
		return Long(x), nil
	case int:
		return Long(int64(x)), nil
	case bool:
		return Bool(x), nil
	case float64:
		return Double(x), nil
	case float32:
		return Float(x), nil
	case time.Time:
		return Instant(x), nil
	case Keyword:
		if !x.Valid() {
			return Value{}, fmt.Errorf("%q is not a keyword", clip(string(x)))
		}
		return KeywordValue(x), nil
	case Symbol:
		if !x.Valid() {
			return Value{}, fmt.Errorf("%q is not a symbol", clip(string(x)))
		}
		return SymbolValue(x), nil
	case uuid.UUID:
		return UUID(x), nil
	case []byte:
		return Bytes(x), nil
	case ID:
		if x >= MaxID {
			return Value{}, fmt.Errorf("%d is not an entity id", uint64(x))
		}
		return Ref(x), nil
	case *big.Int:
		if x == nil {
			return Value{}, fmt.Errorf("nil is not a value")
		}
		return BigInt(x), nil
	case *apd.Decimal:
		if x == nil {
			return Value{}, fmt.Errorf("nil is not a value")
		}
		return BigDec(x)
	case *url.URL:
		if x == nil {
			return Value{}, fmt.Errorf("nil is not a value")
		}
		if u := x.String(); utf8.ValidString(u) {
			return uriString(u), nil
		}
		return Value{}, fmt.Errorf("the URI is not valid UTF-8")
	case []any:
		elems := make([]Value, len(x))
		for i, e := range x {
			if e == nil {
				continue
			}
			v, err := Of(e)
			if err != nil {
				return Value{}, fmt.Errorf("tuple element %d: %w", i, err)
			}
			elems[i] = v
		}
		return Tuple(elems...)
	case nil:
		return Value{}, fmt.Errorf("nil is not a value")
	default:
		return Value{}, fmt.Errorf("a Go %T is not a value", x)
	}
}

// Any is the value as a Go value, the inverse of [Of]: an int64 for a long, an ID for a ref, a []any for a tuple, nil for
// nil. What it returns is the caller's.
func (v Value) Any() any {
	switch v.kind {
	case KindBoolean:
		return v.num != 0
	case KindLong:
		return int64(v.num)
	case KindBigInt:
		return v.BigInt()
	case KindBigDec:
		return v.BigDec()
	case KindFloat:
		return v.Float()
	case KindDouble:
		return v.Double()
	case KindInstant:
		return v.Instant()
	case KindKeyword:
		return Keyword(v.str)
	case KindSymbol:
		return Symbol(v.str)
	case KindString:
		return v.str
	case KindUUID:
		return v.UUID()
	case KindURI:
		return v.URI()
	case KindBytes:
		return []byte(v.str)
	case KindRef:
		return ID(v.num)
	case KindTuple:
		elems := v.Tuple()
		out := make([]any, len(elems))
		for i, e := range elems {
			out[i] = e.Any()
		}
		return out
	default:
		return nil
	}
}

// Kind is the value's type.
func (v Value) Kind() Kind { return v.kind }

// IsNil reports whether v is the zero Value.
func (v Value) IsNil() bool { return v.kind == KindNil }

// The accessors below answer for a value of their own kind; of another kind they return something meaningless.

func (v Value) Bool() bool           { return v.num != 0 }
func (v Value) Long() int64          { return int64(v.num) }
func (v Value) Float() float32       { return math.Float32frombits(uint32(v.num)) }
func (v Value) Double() float64      { return math.Float64frombits(v.num) }
func (v Value) Instant() time.Time   { return time.UnixMilli(int64(v.num)).UTC() }
func (v Value) InstantMilli() int64  { return int64(v.num) }
func (v Value) Ref() ID              { return ID(v.num) }
func (v Value) Keyword() Keyword     { return Keyword(v.str) }
func (v Value) Symbol() Symbol       { return Symbol(v.str) }
func (v Value) Bytes() []byte        { return []byte(v.str) }
func (v Value) BigInt() *big.Int     { n, _, _ := decodeBigInt([]byte(v.str)); return n }
func (v Value) BigDec() *apd.Decimal { d, _, _ := decodeBigDec([]byte(v.str)); return d }

// Text is the characters of a string, keyword (without colon), symbol or URI, or the bytes of bytes and uuid.
func (v Value) Text() string { return v.str }

// UUID is the value of a uuid.
func (v Value) UUID() (u uuid.UUID) { copy(u[:], v.str); return u }

// URI is the value of a uri, or nil if its text is no URL that Go can parse.
func (v Value) URI() *url.URL { u, _ := url.Parse(v.str); return u }

// Tuple is the elements of a tuple; the zero Value stands for nil.
func (v Value) Tuple() []Value {
	out := make([]Value, 0, MaxTuple)
	for b := []byte(v.str); len(b) > 0; {
		e, n, err := decodeElem(b)
		if err != nil {
			return out
		}
		out, b = append(out, e), b[n:]
	}
	return out
}

// Size is roughly how many bytes the value takes, for limits and budgets.
func (v Value) Size() int { return 16 + len(v.str) }

// Compare orders values: by Kind, then as the kind's order says (booleans false first; numbers by size, NaN last; text by
// code point; uuid and bytes as unsigned bytes; tuples element by element, nil first, the shorter first).
func Compare(a, b Value) int {
	if a.kind != b.kind {
		return cmp.Compare(a.kind, b.kind)
	}
	switch a.kind {
	case KindLong, KindInstant:
		return cmp.Compare(int64(a.num), int64(b.num))
	case KindFloat:
		return cmp.Compare(floatOrder32(uint32(a.num)), floatOrder32(uint32(b.num)))
	case KindDouble:
		return cmp.Compare(floatOrder64(a.num), floatOrder64(b.num))
	case KindBoolean, KindRef:
		return cmp.Compare(a.num, b.num)
	default:
		return strings.Compare(a.str, b.str)
	}
}

// String is the value as EDN writes it; text that is very long is clipped.
func (v Value) String() string {
	switch v.kind {
	case KindNil:
		return "nil"
	case KindBoolean:
		return strconv.FormatBool(v.Bool())
	case KindLong:
		return strconv.FormatInt(v.Long(), 10)
	case KindBigInt:
		return v.BigInt().String() + "N"
	case KindBigDec:
		return v.BigDec().String() + "M"
	case KindFloat:
		return formatFloat(float64(v.Float()), 32)
	case KindDouble:
		return formatFloat(v.Double(), 64)
	case KindInstant:
		return v.Instant().Format(`#inst "2006-01-02T15:04:05.000Z"`)
	case KindKeyword:
		return ":" + v.str
	case KindSymbol:
		return v.str
	case KindString:
		return strconv.Quote(clip(v.str))
	case KindUUID:
		return `#uuid "` + v.UUID().String() + `"`
	case KindURI:
		return `#uri ` + strconv.Quote(clip(v.str))
	case KindBytes:
		return `#bytes "` + base64.StdEncoding.EncodeToString([]byte(v.str)[:min(len(v.str), 48)]) + `"`
	case KindRef:
		return ID(v.num).String()
	case KindTuple:
		var parts []string
		for _, e := range v.Tuple() {
			parts = append(parts, e.String())
		}
		return "[" + strings.Join(parts, " ") + "]"
	default:
		return v.kind.String()
	}
}

func formatFloat(f float64, bits int) string {
	switch {
	case f != f:
		return "##NaN"
	case math.IsInf(f, 1):
		return "##Inf"
	case math.IsInf(f, -1):
		return "##-Inf"
	}
	s := strconv.FormatFloat(f, 'g', -1, bits)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}

func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}

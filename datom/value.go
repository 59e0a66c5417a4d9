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
	"unicode"
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
		return Value{kind: KindDouble, num: nanDouble}
	case f == 0:
		f = 0
	}
	return Value{kind: KindDouble, num: math.Float64bits(f)}
}

// Float makes NaN and zero canonical.
func Float(f float32) Value {
	switch {
	case f != f:
		return Value{kind: KindFloat, num: nanFloat}
	case f == 0:
		f = 0
	}
	return Value{kind: KindFloat, num: uint64(math.Float32bits(f))}
}

// The bits of the one NaN of each type. The log stores them, so they do not depend on the machine.
const (
	nanDouble = 0x7ff8000000000001
	nanFloat  = 0x7fc00000
)

// Instant has millisecond precision; what is finer is cut off (towards the past). t must lie within 290 million years of
// 1970, which [Of] checks.
func Instant(t time.Time) Value { return Value{kind: KindInstant, num: uint64(t.UnixMilli())} }

// InstantMilli is the instant so many milliseconds after 1970-01-01T00:00:00Z.
func InstantMilli(ms int64) Value          { return Value{kind: KindInstant, num: uint64(ms)} }
func KeywordValue(k Keyword) Value         { return Value{kind: KindKeyword, str: string(k)} }
func SymbolValue(s Symbol) Value           { return Value{kind: KindSymbol, str: string(s)} }
func String(s string) Value                { return Value{kind: KindString, str: s} }
func UUID(u uuid.UUID) Value               { return Value{kind: KindUUID, str: string(u[:])} }
func Bytes(b []byte) Value                 { return Value{kind: KindBytes, str: string(b)} }
func URI(u *url.URL) Value                 { return Value{kind: KindURI, str: u.String()} }
func BigInt(n *big.Int) Value              { return Value{kind: KindBigInt, str: string(appendBigInt(nil, n))} }
func encoded(k Kind, payload []byte) Value { return Value{kind: k, str: string(payload)} }

// Ref is a reference to id, which must be below [MaxID]; a decoder takes no other.
func Ref(id ID) Value { return Value{kind: KindRef, num: uint64(id)} }

// ParseURI is the URI of exactly this text, which url.Parse must accept. (A *url.URL does not keep every text as it was.)
func ParseURI(s string) (Value, error) {
	if !utf8.ValidString(s) {
		return Value{}, fmt.Errorf("%s is not valid UTF-8", quote(s))
	}
	if _, err := url.Parse(s); err != nil {
		return Value{}, fmt.Errorf("%s is not a URI", quote(s))
	}
	return Value{kind: KindURI, str: s}, nil
}

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
			return Value{}, fmt.Errorf("%s is not valid UTF-8", quote(x))
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
		if time.UnixMilli(x.UnixMilli()).Unix() != x.Unix() { // it overflowed
			return Value{}, fmt.Errorf("the year %d is out of range", x.Year())
		}
		return Instant(x), nil
	case Keyword:
		if !x.Valid() {
			return Value{}, fmt.Errorf("%s is not a keyword", quote(string(x)))
		}
		return KeywordValue(x), nil
	case Symbol:
		if !x.Valid() {
			return Value{}, fmt.Errorf("%s is not a symbol", quote(string(x)))
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
		return ParseURI(x.String())
	case []any:
		elems := make([]Value, len(x))
		for i, e := range x {
			if e == nil || e == any(Value{}) {
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
func (v Value) BigInt() *big.Int     { return decodeBigInt([]byte(v.str)) }
func (v Value) BigDec() *apd.Decimal { return decodeBigDec([]byte(v.str)) }

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

// String is the value as EDN writes it. What is very long is clipped and ends with "…", whatever its kind, so that a value
// can always be put into an error or a log line.
func (v Value) String() string {
	switch v.kind {
	case KindNil:
		return "nil"
	case KindBoolean:
		return strconv.FormatBool(v.Bool())
	case KindLong:
		return strconv.FormatInt(v.Long(), 10)
	case KindBigInt:
		if len(v.str) > clipAt {
			return fmt.Sprintf("…N (%d bits)", v.BigInt().BitLen())
		}
		return v.BigInt().String() + "N"
	case KindBigDec:
		if len(v.str) > clipAt {
			return fmt.Sprintf("…M (%d digits)", v.BigDec().NumDigits())
		}
		return v.BigDec().String() + "M" // in scientific notation where the exponent is large
	case KindFloat:
		return formatFloat(float64(v.Float()), 32)
	case KindDouble:
		return formatFloat(v.Double(), 64)
	case KindInstant:
		return v.Instant().Format(`#inst "2006-01-02T15:04:05.000Z"`)
	case KindKeyword:
		return ":" + clip(v.str)
	case KindSymbol:
		return clip(v.str)
	case KindString:
		return quote(v.str)
	case KindUUID:
		return `#uuid "` + v.UUID().String() + `"`
	case KindURI:
		return "#uri " + quote(v.str)
	case KindBytes:
		const most = clipAt / 4 * 3
		if len(v.str) > most {
			return `#bytes "` + base64.StdEncoding.EncodeToString([]byte(v.str[:most])) + `…"`
		}
		return `#bytes "` + base64.StdEncoding.EncodeToString([]byte(v.str)) + `"`
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

// quote is s, clipped, as an EDN string.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range clip(s) {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r < 0x10000 && !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

const clipAt = 64 // bytes of text

// clip is s, or its beginning and "…" if it is long, cut between runes.
func clip(s string) string {
	if len(s) <= clipAt {
		return s
	}
	n := clipAt
	for n > clipAt-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

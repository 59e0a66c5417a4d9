package edn

import (
	"encoding/hex"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cockroachdb/apd/v3"
	"github.com/google/uuid"
)

// Append appends the text of v, which [Reader] reads back as an equal value. Each scalar has one spelling, which Clojure's
// reader takes as well; elements and entries are written in the order in which they are held, separated by single spaces (entries by ", "). It takes the
// types that Reader returns and int; anything else, and what could not be read back (a keyword with a space in it, a string
// that is not UTF-8, a decimal that is not finite, a year beyond 9999), is an error.
func Append(dst []byte, v any) ([]byte, error) { return appendValue(dst, v, 0) }

// maxWriteDepth guards against values that contain themselves.
const maxWriteDepth = 10_000

func appendValue(dst []byte, v any, depth int) ([]byte, error) {
	if depth > maxWriteDepth {
		return nil, fmt.Errorf("values stand more than %d deep in one another", maxWriteDepth)
	}
	switch v := v.(type) {
	case nil:
		return append(dst, "nil"...), nil
	case bool:
		return strconv.AppendBool(dst, v), nil
	case int64:
		return strconv.AppendInt(dst, v, 10), nil
	case int:
		return strconv.AppendInt(dst, int64(v), 10), nil
	case float64:
		return appendFloat(dst, v), nil
	case string:
		return appendString(dst, v)
	case Char:
		return appendChar(dst, v)
	case Keyword:
		if !v.Valid() {
			return nil, fmt.Errorf("%q cannot be written as a keyword", clip(string(v)))
		}
		return append(append(dst, ':'), v...), nil
	case Symbol:
		if !v.Valid() {
			return nil, fmt.Errorf("%q cannot be written as a symbol", clip(string(v)))
		}
		return append(dst, v...), nil
	case *big.Int:
		if v == nil {
			return nil, fmt.Errorf("a nil *big.Int cannot be written")
		}
		return append(v.Append(dst, 10), 'N'), nil
	case *apd.Decimal:
		return appendDecimal(dst, v)
	case time.Time:
		u := v.UTC()
		if u.Year() < 0 || u.Year() > 9999 {
			return nil, fmt.Errorf("the year %d cannot be written", u.Year())
		}
		layout := "2006-01-02T15:04:05.000-00:00"
		if u.Nanosecond()%1_000_000 != 0 {
			layout = "2006-01-02T15:04:05.000000000-00:00"
		}
		dst = append(dst, `#inst "`...)
		return append(u.AppendFormat(dst, layout), '"'), nil
	case uuid.UUID:
		dst = append(dst, `#uuid "`...)
		dst = append(dst, v.String()...)
		return append(dst, '"'), nil
	case List:
		return appendItems(dst, "(", v.Items, ')', depth)
	case Vector:
		return appendItems(dst, "[", v.Items, ']', depth)
	case Set:
		return appendItems(dst, "#{", v.Items, '}', depth)
	case Map:
		dst = append(dst, '{')
		for i, e := range v.Entries {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			var err error
			if dst, err = appendValue(dst, e.Key, depth+1); err != nil {
				return nil, err
			}
			dst = append(dst, ' ')
			if dst, err = appendValue(dst, e.Value, depth+1); err != nil {
				return nil, err
			}
		}
		return append(dst, '}'), nil
	case Tagged:
		if first, _ := utf8.DecodeRuneInString(string(v.Tag)); !v.Tag.Valid() || !unicode.IsLetter(first) {
			return nil, fmt.Errorf("%q cannot be written as a tag", clip(string(v.Tag)))
		}
		if v.Tag == "inst" || v.Tag == "uuid" {
			return nil, fmt.Errorf("#%s is written for a value of its own type", v.Tag)
		}
		dst = append(append(append(dst, '#'), v.Tag...), ' ')
		return appendValue(dst, v.Value, depth+1)
	default:
		return nil, fmt.Errorf("a Go %T cannot be written as EDN", v)
	}
}

func appendItems(dst []byte, open string, items []any, end byte, depth int) ([]byte, error) {
	dst = append(dst, open...)
	for i, x := range items {
		if i > 0 {
			dst = append(dst, ' ')
		}
		var err error
		if dst, err = appendValue(dst, x, depth+1); err != nil {
			return nil, err
		}
	}
	return append(dst, end), nil
}

func appendFloat(dst []byte, f float64) []byte {
	switch {
	case f != f:
		return append(dst, "##NaN"...)
	case math.IsInf(f, 1):
		return append(dst, "##Inf"...)
	case math.IsInf(f, -1):
		return append(dst, "##-Inf"...)
	}
	from := len(dst)
	dst = strconv.AppendFloat(dst, f, 'g', -1, 64)
	for _, c := range dst[from:] {
		if c == '.' || c == 'e' {
			return dst
		}
	}
	return append(dst, ".0"...)
}

// appendDecimal writes digits and point where that is short, else an exponent: its length is that of the coefficient.
func appendDecimal(dst []byte, d *apd.Decimal) ([]byte, error) {
	if d == nil || d.Form != apd.Finite {
		return nil, fmt.Errorf("%s cannot be written as a decimal", d)
	}
	if d.Negative {
		dst = append(dst, '-')
	}
	digits := d.Coeff.Append(nil, 10)
	point := len(digits) + int(d.Exponent) // where it stands among the digits
	switch {
	case d.Exponent == 0:
		dst = append(dst, digits...)
	case d.Exponent < 0 && point > 0:
		dst = append(append(append(dst, digits[:point]...), '.'), digits[point:]...)
	case d.Exponent < 0 && point > -6:
		dst = append(dst, "0."...)
		for range -point {
			dst = append(dst, '0')
		}
		dst = append(dst, digits...)
	default:
		if d.Exponent > MaxDecimalExponent || d.Exponent < -MaxDecimalExponent {
			return nil, fmt.Errorf("the exponent %d cannot be written", d.Exponent)
		}
		dst = strconv.AppendInt(append(append(dst, digits...), 'E'), int64(d.Exponent), 10)
	}
	return append(dst, 'M'), nil
}

func appendString(dst []byte, s string) ([]byte, error) {
	if !utf8.ValidString(s) {
		return nil, fmt.Errorf("%q is not valid UTF-8", clip(s))
	}
	dst = append(dst, '"')
	from := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c != 0x7f {
			continue
		}
		dst = append(dst, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, `\n`...)
		case '\t':
			dst = append(dst, `\t`...)
		case '\r':
			dst = append(dst, `\r`...)
		default:
			dst = hex.AppendEncode(append(dst, `\u00`...), []byte{c})
		}
	}
	return append(append(dst, s[from:]...), '"'), nil
}

func appendChar(dst []byte, c Char) ([]byte, error) {
	for name, x := range charNames {
		if x == c {
			return append(append(dst, '\\'), name...), nil
		}
	}
	switch r := rune(c); {
	case !utf8.ValidRune(r):
		return nil, fmt.Errorf("U+%04X is no character", uint32(r))
	case unicode.IsPrint(r) && (r >= utf8.RuneSelf || class[byte(r)] == part || r == '(' || r == ')'):
		return utf8.AppendRune(append(dst, '\\'), r), nil
	case r < 0x10000:
		return fmt.Appendf(dst, `\u%04x`, r), nil
	default: // a character that has no printable form and no escape
		return utf8.AppendRune(append(dst, '\\'), r), nil
	}
}

// brief is v for a message.
func brief(v any) string {
	switch x := v.(type) {
	case List:
		return fmt.Sprintf("a list of %d", len(x.Items))
	case Vector:
		return fmt.Sprintf("a vector of %d", len(x.Items))
	case Set:
		return fmt.Sprintf("a set of %d", len(x.Items))
	case Map:
		return fmt.Sprintf("a map of %d", len(x.Entries))
	case Tagged:
		return "#" + clip(string(x.Tag)) + " …"
	}
	b, err := Append(nil, v)
	if err != nil {
		return fmt.Sprintf("a %T", v)
	}
	return clip(b)
}

package tx

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/cockroachdb/apd/v3"
	"github.com/google/uuid"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/edn"
)

// ReadJSON reads transactions from JSON, one at a time: values one after another, on lines of their own or not. Each is an
// array of forms, a single list form (an array that begins with a string), or a single map form (an object).
//
//	[{"db/id": "ann", "person/name": "Ann", "person/tags": ["a", "b"], "person/friend": {"person/name": "Bob"}},
//	 ["db/add", [":person/name", "Eve"], "person/age", 31]]
//
// Operations, attributes and the keys of objects are keywords, with or without their colon; "ns/_name" is a reverse
// attribute. An entity, also as the value of a ref, is
//
//	17592186046464            an id; a negative number is a tempid
//	":person/ann"             an ident: with its colon
//	"ann", "datomic.tx"       any other string: a tempid, the transaction
//	[":person/name", "Eve"]   a lookup ref: the attribute with its colon, which tells it from two values
//	{"person/name": "Eve"}    a nested map
//
// All other values are read as the attribute's type wants them, and refused where that would lose something:
//
//	boolean                  true, false
//	long, bigint             an integer without fraction or exponent, or a string of one (JavaScript's numbers end at 2^53)
//	bigdec                   any number, exactly as it is written, or a string of one
//	double, float            a number in its range, but no integer that it cannot hold; "NaN", "Infinity", "-Infinity"
//	string                   a string
//	keyword, symbol          a string; the keyword's colon may be left out
//	instant                  a string: RFC 3339, as EDN's #inst, in whole milliseconds
//	uuid                     a string: 8-4-4-4-12 hexadecimal digits
//	uri                      a string
//	bytes                    a string: base64, padded
//	tuple                    an array; null is a missing element
//
// A transaction function gets strings, int64 (*big.Int beyond its range), float64 for other numbers, bool, nil, []any and Pairs.
//
// An error ends the sequence: an [*Error] with a position (ErrMalformed, ErrLimitExceeded) for text that is no transaction,
// among it keys that stand twice in one object, invalid UTF-8 and half surrogate pairs; or what r returned.
func ReadJSON(r io.Reader, lim ReadLimits) iter.Seq2[Input, error] {
	return func(yield func(Input, error) bool) {
		j := newJSONReader(r, lim.orDefault())
		for n := 1; ; n++ {
			pos, err := j.frame()
			if err == io.EOF {
				return
			}
			in := Input{N: n, Pos: pos}
			if err == nil {
				in.Data, err = j.transaction()
			}
			if err != nil {
				yield(Input{N: n, Pos: pos}, err)
				return
			}
			if !yield(in, nil) {
				return
			}
		}
	}
}

// jsonString and jsonNumber (its text) are JSON's values until the attribute is known.
type (
	jsonString string
	jsonNumber string
)

var _, _ Untyped = jsonString(""), jsonNumber("")

// String is the string as an error's text shows it.
func (s jsonString) String() string { return datom.String(string(s)).String() }

// String is the number as it was written.
func (n jsonNumber) String() string { return string(n) }

// As reads the string as a value of kind k, as ReadJSON's comment says.
func (s jsonString) As(k datom.Kind) (any, error) {
	t := string(s)
	switch k {
	case datom.KindNil, datom.KindString:
		return t, nil
	case datom.KindRef:
		if len(t) > 1 && t[0] == ':' {
			return datom.ParseKeyword(t)
		}
		return t, nil
	case datom.KindKeyword:
		return datom.ParseKeyword(t)
	case datom.KindSymbol:
		if y := datom.Symbol(t); y.Valid() {
			return y, nil
		}
		return nil, errors.New("it is not a symbol")
	case datom.KindLong, datom.KindBigInt, datom.KindBigDec:
		if isJSONNumber(t) {
			return jsonNumber(t).As(k)
		}
		return nil, errors.New("it is a string that holds no number")
	case datom.KindDouble, datom.KindFloat:
		switch t {
		case "NaN":
			return sized(math.NaN(), k), nil
		case "Infinity":
			return sized(math.Inf(1), k), nil
		case "-Infinity":
			return sized(math.Inf(-1), k), nil
		}
		return nil, errors.New(`it is a string other than "NaN", "Infinity" and "-Infinity"`)
	case datom.KindInstant:
		x, err := edn.ParseInst(t)
		if err == nil && x.Nanosecond()%1_000_000 != 0 {
			err = errors.New("it is finer than a millisecond")
		}
		return x, err
	case datom.KindUUID:
		u, err := uuid.Parse(t)
		if err != nil || len(t) != 36 {
			return nil, errors.New("it is not 8-4-4-4-12 hexadecimal digits")
		}
		return u, nil
	case datom.KindURI:
		return datom.ParseURI(t)
	case datom.KindBytes:
		b, err := base64.StdEncoding.Strict().DecodeString(t)
		if err != nil || strings.ContainsAny(t, "\r\n") {
			return nil, errors.New("it is not base64")
		}
		return b, nil
	}
	return nil, errors.New("it is a string")
}

func sized(f float64, k datom.Kind) any {
	if k == datom.KindFloat {
		return float32(f)
	}
	return f
}

// As reads the number as a value of kind k, as ReadJSON's comment says.
func (n jsonNumber) As(k datom.Kind) (any, error) {
	t := string(n)
	integer := !strings.ContainsAny(t, ".eE")
	switch k {
	case datom.KindNil:
		if !integer {
			return n.float(64)
		}
		if x, err := strconv.ParseInt(t, 10, 64); err == nil {
			return x, nil
		}
		return n.bigInt(), nil
	case datom.KindLong, datom.KindRef:
		x, err := strconv.ParseInt(t, 10, 64)
		switch {
		case !integer:
			return nil, errors.New("it is written with a fraction or an exponent; an integer has neither")
		case err != nil:
			return nil, errors.New("it is out of the range of 64 bits")
		}
		return x, nil
	case datom.KindBigInt:
		if !integer {
			return nil, errors.New("it is written with a fraction or an exponent; an integer has neither")
		}
		return n.bigInt(), nil
	case datom.KindBigDec:
		x, err := edn.Parse([]byte(t+"M"), edn.Limits{TokenBytes: maxJSONNumber + 2})
		if err != nil {
			return nil, errors.New("its exponent is out of range")
		}
		return x.(*apd.Decimal), nil
	case datom.KindDouble, datom.KindFloat:
		bits := 64
		if k == datom.KindFloat {
			bits = 32
		}
		f, err := n.float(bits)
		if err != nil {
			return nil, err
		}
		if integer && new(big.Float).SetInt(n.bigInt()).Cmp(big.NewFloat(f)) != 0 {
			return nil, fmt.Errorf("it is an integer that a %s cannot hold", k)
		}
		return sized(f, k), nil
	}
	return nil, errors.New("it is a number")
}

func (n jsonNumber) bigInt() *big.Int {
	x, _ := new(big.Int).SetString(string(n), 10)
	return x
}

// float is the float nearest to n.
func (n jsonNumber) float(bits int) (float64, error) {
	f, err := strconv.ParseFloat(string(n), bits)
	if err != nil {
		return 0, errors.New("it is out of range")
	}
	return f, nil
}

// isJSONNumber reports whether all of s is a number by JSON's grammar, not too long.
func isJSONNumber(s string) bool {
	n := jsonNumberLen([]byte(s))
	return n > 0 && n == len(s) && n <= maxJSONNumber
}

package tx

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/big"
	"net/url"
	"reflect"
	"time"

	"github.com/cockroachdb/apd/v3"
	"github.com/google/uuid"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
)

// codec converts one Go value, of a field or of a slice's element, to a value and back.
type codec struct {
	kind     datom.Kind
	pointer  bool        // the Go value is a pointer to what is converted
	optional bool        // the Go type has a nil, which is no value
	sub      *structPlan // of a struct within; the others are empty then
	elems    []codec     // of a tuple that is a struct
	each     *codec      // of a tuple that is a slice

	get func(reflect.Value) (any, error)              // of a scalar
	set func(db.DB, datom.Value, reflect.Value) error // sets an addressable Go value
}

var (
	typeID      = reflect.TypeFor[datom.ID]()
	typeKeyword = reflect.TypeFor[datom.Keyword]()
	typeSymbol  = reflect.TypeFor[datom.Symbol]()
	typeValue   = reflect.TypeFor[datom.Value]()
	typeTime    = reflect.TypeFor[time.Time]()
	typeUUID    = reflect.TypeFor[uuid.UUID]()
	typeBigInt  = reflect.TypeFor[*big.Int]()
	typeDecimal = reflect.TypeFor[*apd.Decimal]()
	typeURL     = reflect.TypeFor[*url.URL]()
)

// isScalar reports whether a struct or a pointer is one value.
func isScalar(t reflect.Type) bool {
	switch t {
	case typeTime, typeValue, typeBigInt, typeDecimal, typeURL:
		return true
	}
	return false
}

// scalarCodec is the codec of a Go type that is one value.
func scalarCodec(t reflect.Type, tags fieldTags) (codec, error) {
	want := tags.kind
	takes := func(kinds ...datom.Kind) (datom.Kind, error) {
		if want == datom.KindNil {
			return kinds[0], nil
		}
		for _, k := range kinds {
			if k == want {
				return k, nil
			}
		}
		return 0, fmt.Errorf("a %s cannot be a :db.type/%s", t, want)
	}
	if tags.truncate && t != typeTime {
		return codec{}, fmt.Errorf("truncate is for a time.Time, not for a %s", t)
	}
	var c codec
	var err error
	switch t {
	case typeID:
		c.get, c.set = getID, setID
		c.kind, err = takes(datom.KindRef)
	case typeKeyword:
		c.get, c.set = getOf, setKeyword
		if c.kind, err = takes(datom.KindKeyword, datom.KindRef); c.kind == datom.KindRef {
			c.set = setIdent
		}
	case typeSymbol:
		c.get, c.set = getOf, setText
		c.kind, err = takes(datom.KindSymbol)
	case typeTime:
		c.get, c.set = getTime, setAny
		if tags.truncate {
			c.get = getTimeTruncated
		}
		c.kind, err = takes(datom.KindInstant)
	case typeUUID:
		c.get, c.set = getOf, setAny
		c.kind, err = takes(datom.KindUUID)
	case typeBigInt:
		c.get, c.set, c.optional = getOf, setAny, true
		c.kind, err = takes(datom.KindBigInt)
	case typeDecimal:
		c.get, c.set, c.optional = getOf, setAny, true
		c.kind, err = takes(datom.KindBigDec)
	case typeURL:
		c.get, c.set, c.optional = getOf, setURL, true
		c.kind, err = takes(datom.KindURI)
	case typeValue:
		if want == datom.KindNil {
			return c, errors.New("the tag on a datom.Value needs type=, for the Go type does not say")
		}
		c.kind, c.optional = want, true
		c.get, c.set = getValue(want), setValue
	default:
		c, err = kindCodec(t, takes)
	}
	return c, err
}

// kindCodec is scalarCodec for types that count as what they are derived from.
func kindCodec(t reflect.Type, takes func(...datom.Kind) (datom.Kind, error)) (c codec, err error) {
	switch t.Kind() {
	case reflect.Bool:
		c.get = func(v reflect.Value) (any, error) { return v.Bool(), nil }
		c.set = func(_ db.DB, v datom.Value, dst reflect.Value) error { dst.SetBool(v.Bool()); return nil }
		c.kind, err = takes(datom.KindBoolean)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		c.get, c.set = getInt, setInt
		if c.kind, err = takes(datom.KindLong, datom.KindBigInt); c.kind == datom.KindBigInt {
			c.get = func(v reflect.Value) (any, error) { return big.NewInt(v.Int()), nil }
		}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		c.get, c.set = getUint, setUint
		if c.kind, err = takes(datom.KindLong, datom.KindBigInt); c.kind == datom.KindBigInt {
			c.get = func(v reflect.Value) (any, error) { return new(big.Int).SetUint64(v.Uint()), nil }
		}
	case reflect.Float32, reflect.Float64:
		c.set = setFloat
		preferred, other := datom.KindDouble, datom.KindFloat
		if t.Kind() == reflect.Float32 {
			preferred, other = other, preferred
		}
		if c.kind, err = takes(preferred, other); c.kind == datom.KindFloat {
			c.get = getFloat
		} else {
			c.get = func(v reflect.Value) (any, error) { return v.Float(), nil }
		}
	case reflect.String:
		c.set = setText
		c.kind, err = takes(datom.KindString, datom.KindKeyword, datom.KindSymbol, datom.KindURI)
		c.get = getText(c.kind)
	case reflect.Slice:
		if t.Elem().Kind() != reflect.Uint8 {
			return c, fmt.Errorf("a %s is no value", t)
		}
		c.optional = true
		c.get = func(v reflect.Value) (any, error) { return bytes.Clone(v.Bytes()), nil }
		c.set = func(_ db.DB, v datom.Value, dst reflect.Value) error { dst.SetBytes(v.Bytes()); return nil }
		c.kind, err = takes(datom.KindBytes)
	default:
		err = fmt.Errorf("a %s is no value", t)
	}
	return c, err
}

// getOf is the Go value itself, if it is sound.
func getOf(v reflect.Value) (any, error) {
	x := v.Interface()
	_, err := datom.Of(x)
	return x, err
}

func setAny(_ db.DB, v datom.Value, dst reflect.Value) error {
	dst.Set(reflect.ValueOf(v.Any()))
	return nil
}

func getID(v reflect.Value) (any, error) {
	if v.Uint() == 0 {
		return nil, errors.New("the id 0 refers to nobody; omitempty or a pointer says that there is no value")
	}
	return getOf(v)
}

func setID(_ db.DB, v datom.Value, dst reflect.Value) error { dst.SetUint(uint64(v.Ref())); return nil }

func setKeyword(_ db.DB, v datom.Value, dst reflect.Value) error {
	dst.SetString(string(v.Keyword()))
	return nil
}

func setIdent(d db.DB, v datom.Value, dst reflect.Value) error {
	kw, ok := d.Ident(v.Ref())
	if !ok {
		return fmt.Errorf("it refers to %s, which has no ident; a datom.ID takes any entity", v.Ref())
	}
	dst.SetString(string(kw))
	return nil
}

func getTime(v reflect.Value) (any, error) {
	t := v.Interface().(time.Time)
	if t.Nanosecond()%int(time.Millisecond) != 0 {
		return nil, fmt.Errorf("%s is finer than a millisecond; cut it, or tag the field truncate", t.UTC().Format(time.RFC3339Nano))
	}
	return getTimeTruncated(v)
}

func getTimeTruncated(v reflect.Value) (any, error) {
	x, err := datom.Of(v.Interface())
	if err != nil {
		return nil, err
	}
	return x.Instant(), nil
}

func setURL(_ db.DB, v datom.Value, dst reflect.Value) error {
	u := v.URI()
	if u == nil || u.String() != v.Text() {
		return fmt.Errorf("a *url.URL does not keep %s as it is; a string tagged type=uri does", v)
	}
	dst.Set(reflect.ValueOf(u))
	return nil
}

func getValue(k datom.Kind) func(reflect.Value) (any, error) {
	return func(rv reflect.Value) (any, error) {
		v := rv.Interface().(datom.Value)
		switch {
		case v.Kind() != k:
			return nil, fmt.Errorf("%s is a %s, not a %s", v, v.Kind(), k)
		case k == datom.KindRef:
			return v.Ref(), nil
		}
		return v, nil
	}
}

func setValue(_ db.DB, v datom.Value, dst reflect.Value) error {
	dst.Set(reflect.ValueOf(v))
	return nil
}

func getInt(v reflect.Value) (any, error) { return v.Int(), nil }

func setInt(_ db.DB, v datom.Value, dst reflect.Value) error {
	n := v.Long()
	ok := true
	if v.Kind() == datom.KindBigInt {
		b := v.BigInt()
		n, ok = b.Int64(), b.IsInt64()
	}
	if !ok || dst.OverflowInt(n) {
		return fmt.Errorf("%s is out of the range of %s", v, dst.Type())
	}
	dst.SetInt(n)
	return nil
}

func getUint(v reflect.Value) (any, error) {
	if v.Uint() > math.MaxInt64 {
		return nil, fmt.Errorf("%d is out of the range of a long; a field tagged type=bigint takes it", v.Uint())
	}
	return int64(v.Uint()), nil
}

func setUint(_ db.DB, v datom.Value, dst reflect.Value) error {
	n, ok := uint64(v.Long()), v.Long() >= 0
	if v.Kind() == datom.KindBigInt {
		b := v.BigInt()
		n, ok = b.Uint64(), b.IsUint64()
	}
	if !ok || dst.OverflowUint(n) {
		return fmt.Errorf("%s is out of the range of %s", v, dst.Type())
	}
	dst.SetUint(n)
	return nil
}

func getFloat(v reflect.Value) (any, error) {
	f := v.Float()
	if float64(float32(f)) != f && f == f {
		return nil, fmt.Errorf("a float cannot hold %v exactly", f)
	}
	return float32(f), nil
}

func setFloat(_ db.DB, v datom.Value, dst reflect.Value) error {
	f := float64(v.Float())
	if v.Kind() == datom.KindDouble {
		f = v.Double()
	}
	if dst.Kind() == reflect.Float32 && float64(float32(f)) != f && f == f {
		return fmt.Errorf("a %s cannot hold %s exactly", dst.Type(), v)
	}
	dst.SetFloat(f)
	return nil
}

func getText(k datom.Kind) func(reflect.Value) (any, error) {
	return func(v reflect.Value) (any, error) {
		s := v.String()
		switch k {
		case datom.KindKeyword:
			return datom.ParseKeyword(s)
		case datom.KindSymbol:
			_, err := datom.Of(datom.Symbol(s))
			return datom.Symbol(s), err
		case datom.KindURI:
			return datom.ParseURI(s)
		}
		_, err := datom.Of(s)
		return s, err
	}
}

func setText(_ db.DB, v datom.Value, dst reflect.Value) error { dst.SetString(v.Text()); return nil }

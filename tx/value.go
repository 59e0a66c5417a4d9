package tx

import (
	"errors"
	"fmt"
	"math"
	"reflect"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
)

// Where a value has an entity in it that is known only once tempids and lookup refs are resolved, the compiler leaves a
// reference behind: noRef, the index of an ent, or that of a tuple as tupleRef(i).
const noRef = -1

func tupleRef(i int) int32       { return int32(-2 - i) }
func tupleIndex(ref int32) int   { return int(-2 - ref) }
func isTupleRef(ref int32) bool  { return ref < noRef }
func isEntityRef(ref int32) bool { return ref >= 0 }

// tupleForm is a tuple some of whose elements are entities: element i is ents[i] unless that is noRef.
type tupleForm struct {
	n     int
	elems [datom.MaxTuple]datom.Value
	ents  [datom.MaxTuple]int32
}

var errNotARef = errors.New("a ref names an entity: an id, an ident, a lookup ref, a tempid or, in a map form, a nested map")

// value converts x to attribute a's type. Where it is (or, in a tuple, holds) an entity, ref says which.
func (c *compiler) value(a *db.Attribute, x any) (v datom.Value, ref int32, err error) {
	if a.Type == datom.KindTuple {
		return c.tuple(a, x)
	}
	return c.scalar(a.Type, x)
}

func (c *compiler) scalar(k datom.Kind, x any) (v datom.Value, ref int32, err error) {
	if u, ok := x.(Untyped); ok {
		if x, err = u.As(k); err != nil {
			return v, noRef, err
		}
	}
	if k == datom.KindRef {
		ref, ok := c.entity(x)
		if !ok {
			return v, noRef, errNotARef
		}
		return v, ref, nil
	}
	switch x.(type) {
	case []any, Set:
		return v, noRef, errors.New("it is a collection, and only a map form gives an attribute of cardinality many several values")
	}
	v, err = datom.Of(x)
	if err != nil {
		return v, noRef, err
	}
	if v.Kind() != k {
		if k != datom.KindFloat || v.Kind() != datom.KindDouble {
			return v, noRef, fmt.Errorf("it is a %s", v.Kind())
		}
		f := v.Double()
		if float32(f) != float32(math.Inf(1)) && float32(f) != float32(math.Inf(-1)) || math.IsInf(f, 0) {
			v = datom.Float(float32(f))
		} else {
			return v, noRef, errors.New("it is out of a float's range")
		}
	}
	return v, noRef, c.measure(v)
}

// measure counts a value's bytes against the limits.
func (c *compiler) measure(v datom.Value) error {
	n := len(v.Text()) // of every kind that takes more than a word
	c.p.bytes += n
	if n > c.lim.ValueBytes {
		return &limitError{fmt.Sprintf("the value takes %d bytes; the limit is %d", n, c.lim.ValueBytes)}
	}
	return nil
}

// limitError tells a value that is too large from one of the wrong type.
type limitError struct{ msg string }

func (e *limitError) Error() string { return e.msg }

func (c *compiler) tuple(a *db.Attribute, x any) (v datom.Value, ref int32, err error) {
	if u, ok := x.(Untyped); ok {
		if x, err = u.As(datom.KindTuple); err != nil {
			return v, noRef, err
		}
	}
	var elems []any
	switch x := x.(type) {
	case []any:
		elems = x
	case datom.Value:
		if x.Kind() != datom.KindTuple {
			return v, noRef, fmt.Errorf("it is a %s", x.Kind())
		}
		for _, e := range x.Tuple() {
			if e.IsNil() {
				elems = append(elems, nil)
			} else {
				elems = append(elems, e)
			}
		}
	default:
		rv := reflect.ValueOf(x)
		if _, isBytes := x.([]byte); isBytes || rv.Kind() != reflect.Slice {
			return v, noRef, errors.New("it is not a tuple")
		}
		for i := range min(rv.Len(), datom.MaxTuple+1) {
			elems = append(elems, rv.Index(i).Interface())
		}
	}
	if len(elems) < datom.MinTuple || len(elems) > datom.MaxTuple {
		return v, noRef, fmt.Errorf("a tuple has %d to %d elements, not %d", datom.MinTuple, datom.MaxTuple, len(elems))
	}
	if n := arity(a); n > 0 && len(elems) != n {
		return v, noRef, fmt.Errorf("it has %d elements, not %d", len(elems), n)
	}
	tf := tupleForm{n: len(elems)}
	symbolic := false
	for i, e := range elems {
		tf.ents[i] = noRef
		if e == nil {
			continue
		}
		if a.ID == db.AttrTupleAttrs {
			if kw, ok := e.(datom.Keyword); ok {
				tf.ents[i], symbolic = c.identOrNew(kw), true
				continue
			}
		}
		if tf.elems[i], tf.ents[i], err = c.scalar(elemType(c.s, a, i), e); err != nil {
			var over *limitError
			if errors.As(err, &over) {
				return v, noRef, err
			}
			return v, noRef, fmt.Errorf("element %d, %s, should be a %s: %w", i+1, show(e), elemType(c.s, a, i), err)
		}
		symbolic = symbolic || tf.ents[i] != noRef
	}
	if symbolic {
		c.p.tuples = append(c.p.tuples, tf)
		return v, tupleRef(len(c.p.tuples) - 1), nil
	}
	if v, err = datom.Tuple(tf.elems[:tf.n]...); err != nil {
		return v, noRef, err
	}
	return v, noRef, c.measure(v)
}

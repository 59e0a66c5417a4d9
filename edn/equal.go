package edn

import (
	"hash/maphash"
	"math"
	"math/big"
	"time"

	"github.com/cockroachdb/apd/v3"
	"github.com/google/uuid"
)

// Equal reports whether two values are equal as EDN has it: numbers if they are of one type and equal (NaN is NaN, -0.0
// is 0.0, 1.0M is 1.00M), sequences if their elements are, lists being equal to vectors, sets and maps whatever the order.
// Positions do not count.
func Equal(a, b any) bool {
	switch a := a.(type) {
	case List:
		return equalItems(a.Items, b)
	case Vector:
		return equalItems(a.Items, b)
	case Set:
		b, ok := b.(Set)
		if !ok || len(a.Items) != len(b.Items) {
			return false
		}
		d := digester{seed: maphash.MakeSeed(), work: math.MaxInt}
		index := d.index(len(b.Items), func(i int) any { return b.Items[i] })
		for _, x := range a.Items {
			if _, ok := index.find(&d, x); !ok {
				return false
			}
		}
		return true
	case Map:
		b, ok := b.(Map)
		if !ok || len(a.Entries) != len(b.Entries) {
			return false
		}
		d := digester{seed: maphash.MakeSeed(), work: math.MaxInt}
		index := d.index(len(b.Entries), func(i int) any { return b.Entries[i].Key })
		for _, x := range a.Entries {
			i, ok := index.find(&d, x.Key)
			if !ok || !Equal(x.Value, b.Entries[i].Value) {
				return false
			}
		}
		return true
	case Tagged:
		b, ok := b.(Tagged)
		return ok && a.Tag == b.Tag && Equal(a.Value, b.Value)
	case float64:
		b, ok := b.(float64)
		return ok && (a == b || a != a && b != b)
	case *big.Int:
		b, ok := b.(*big.Int)
		return ok && a.Cmp(b) == 0
	case *apd.Decimal:
		b, ok := b.(*apd.Decimal)
		return ok && decimalKey(a) == decimalKey(b)
	case time.Time:
		b, ok := b.(time.Time)
		return ok && a.Equal(b)
	case nil, bool, int64, string, Char, Keyword, Symbol, uuid.UUID:
		switch b.(type) {
		case nil, bool, int64, string, Char, Keyword, Symbol, uuid.UUID:
			return a == b
		}
	}
	return false
}

func equalItems(a []any, b any) bool {
	var items []any
	switch b := b.(type) {
	case List:
		items = b.Items
	case Vector:
		items = b.Items
	default:
		return false
	}
	if len(a) != len(items) {
		return false
	}
	for i := range a {
		if !Equal(a[i], items[i]) {
			return false
		}
	}
	return true
}

// decimalKey is one key for all decimals of one value: 100M, 1E+2M and 100.0M.
type decimal struct {
	negative bool
	digits   string // the coefficient's bytes
	exponent int64
}

func decimalKey(d *apd.Decimal) decimal {
	if d.Coeff.Sign() == 0 {
		return decimal{}
	}
	text := d.Coeff.Text(10)
	n := len(text)
	for text[n-1] == '0' {
		n--
	}
	return decimal{d.Negative, text[:n], int64(d.Exponent) + int64(len(text)-n)}
}

// digester makes 64-bit digests: equal values have equal ones. Its seed is random, so that no input can be made to
// collide. work is what it may still do, in values and 64-byte pieces of text: a set within a set is digested once for each of them, and
// the bound keeps hostile nesting from multiplying.
type digester struct {
	seed maphash.Seed
	work int
}

func mix(h, x uint64) uint64 {
	h = (h ^ x) * 0x9e3779b97f4a7c15
	return h ^ h>>29
}

func (d *digester) text(kind uint64, s string) uint64 {
	d.work -= len(s) >> 6
	return mix(kind, maphash.String(d.seed, s))
}

func (d *digester) digest(v any) uint64 {
	if d.work--; d.work < 0 {
		return 0
	}
	switch v := v.(type) {
	case Keyword:
		return d.text(1, string(v))
	case string:
		return d.text(2, v)
	case Symbol:
		return d.text(3, string(v))
	case int64:
		return d.number(4, uint64(v))
	case float64:
		if v != v {
			return 5
		}
		if v == 0 {
			v = 0
		}
		return d.number(6, math.Float64bits(v))
	case bool:
		if v {
			return 7
		}
		return 8
	case Char:
		return d.number(9, uint64(v))
	case uuid.UUID:
		return mix(10, maphash.Bytes(d.seed, v[:]))
	case time.Time:
		return d.number(11, uint64(v.UnixMilli()))
	case *big.Int:
		d.work -= v.BitLen() >> 9
		return mix(uint64(12+v.Sign()), maphash.Bytes(d.seed, v.Bytes()))
	case *apd.Decimal:
		k := decimalKey(v)
		return mix(d.text(15, k.digits), uint64(k.exponent))
	case List:
		return d.items(v.Items)
	case Vector:
		return d.items(v.Items)
	case Set:
		var sum uint64 // whatever the order
		for _, x := range v.Items {
			sum += mix(16, d.digest(x))
		}
		return mix(17, sum)
	case Map:
		var sum uint64
		for _, x := range v.Entries {
			sum += mix(d.digest(x.Key), d.digest(x.Value))
		}
		return mix(18, sum)
	case Tagged:
		return mix(d.text(19, string(v.Tag)), d.digest(v.Value))
	default:
		return 20
	}
}

func (d *digester) number(kind, x uint64) uint64 {
	var b [8]byte
	for i := range b {
		b[i] = byte(x >> (8 * i))
	}
	return mix(kind, maphash.Bytes(d.seed, b[:]))
}

func (d *digester) items(items []any) uint64 {
	h := uint64(21)
	for _, x := range items {
		h = mix(h, d.digest(x))
	}
	return h
}

// index finds values by digest.
type index struct {
	at    func(int) any
	first map[uint64]int
}

func (d *digester) index(n int, at func(int) any) index {
	x := index{at, make(map[uint64]int, n)}
	for i := range n {
		x.add(d, i)
	}
	return x
}

// add puts value i into the index, unless an equal one is there, which it returns.
func (x index) add(d *digester, i int) (same int, found bool) {
	v := x.at(i)
	for h := d.digest(v); ; h++ {
		j, taken := x.first[h]
		if !taken {
			x.first[h] = i
			return 0, false
		}
		if Equal(x.at(j), v) {
			return j, true
		}
	}
}

func (x index) find(d *digester, v any) (int, bool) {
	for h := d.digest(v); ; h++ {
		j, taken := x.first[h]
		if !taken {
			return 0, false
		}
		if Equal(x.at(j), v) {
			return j, true
		}
	}
}

// duplicate is the first of n values that equals one before it, or -1.
func (r *Reader) duplicate(n int, at func(int) any) (int, error) {
	if n < 2 {
		return -1, nil
	}
	const perElement = 16
	budget := perElement * r.lim.Elements
	d := digester{seed: r.seed, work: budget - r.work}
	found := -1
	const few = 24
	if n <= few {
		var digests [few]uint64
		for i := 0; i < n && found < 0; i++ {
			digests[i] = d.digest(at(i))
			for j := range i {
				if digests[j] == digests[i] && d.work >= 0 && Equal(at(j), at(i)) {
					found = i
					break
				}
			}
		}
	} else {
		x := index{at, make(map[uint64]int, n)}
		for i := 0; i < n && found < 0 && d.work >= 0; i++ {
			if _, ok := x.add(&d, i); ok {
				found = i
			}
		}
	}
	if r.work = budget - d.work; d.work < 0 {
		return -1, r.beyond(r.start, "sets and map keys stand too deep in one another")
	}
	return found, nil
}

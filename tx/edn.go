package tx

import (
	"encoding/base64"
	"fmt"
	"io"
	"iter"
	"strconv"
	"time"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/edn"
)

// ReadEDN reads transactions from EDN, one at a time. Each top-level value is a transaction: a vector (or list) of forms,
// a single list form, or a single map form. An error ends the sequence: an [*Error] with a position (ErrMalformed,
// ErrLimitExceeded) for text that is no transaction, or what r returned. What package edn takes is taken; beyond that:
//
//	#db/id [:db.part/user]     a fresh tempid of that partition
//	#db/id [:db.part/user -1]  a tempid of that partition, the same wherever it stands in the transaction
//	#db/id [:db.part/tx]       the transaction entity
//	#uri "http://…"            a URI, its text kept as it is
//	#bytes "base64"            bytes
//
// #db/fn, every other tag, and characters, which no attribute can hold, are refused. What a value means where attributes may take it in
// more ways than one — a vector as a lookup ref, a tuple or many values, a string as a tempid, a keyword as an ident, -1 as a
// tempid — is decided when the transaction is compiled. An #inst is cut to the millisecond then, as Datomic does.
func ReadEDN(r io.Reader, lim ReadLimits) iter.Seq2[Input, error] {
	return func(yield func(Input, error) bool) {
		lim := lim.orDefault()
		c := ednReader{keywords{}}
		er := edn.NewReader(r, edn.Limits{Depth: lim.Depth, FormBytes: int64(lim.Bytes), Elements: lim.Elements})
		n := 0
		for v, err := range er.All() {
			n++
			in := Input{N: n, Pos: at(er.Pos())}
			if err != nil {
				err = readError(err)
			} else {
				in.Data, err = c.transaction(v, in.Pos)
			}
			if err != nil {
				yield(Input{N: n, Pos: in.Pos}, err)
				return
			}
			if !yield(in, nil) {
				return
			}
		}
	}
}

// ednReader makes transaction data of EDN values. It takes the values' slices over.
type ednReader struct {
	keywords keywords
}

func malformedAt(p Pos, format string, args ...any) error {
	return &Error{Kind: Malformed, Pos: p, Msg: fmt.Sprintf(format, args...)}
}

func (c *ednReader) transaction(v any, p Pos) (Data, error) {
	var items []any
	switch v := v.(type) {
	case edn.Vector:
		items = v.Items
	case edn.List:
		items = v.Items
	case edn.Map:
		items = []any{v}
	default:
		return nil, malformedAt(p, "a transaction is a vector of forms, a list form or a map form, not %s", ednKind(v))
	}
	if len(items) > 0 {
		switch items[0].(type) {
		case edn.Keyword, edn.Symbol: // forms are collections, so this is one form
			items = []any{v}
		}
	}
	d := make(Data, len(items))
	for i, x := range items {
		f, err := c.form(x, i+1, p)
		if err != nil {
			if e, ok := err.(*Error); ok && e.Pos.Form == 0 {
				e.Pos.Form = i + 1
			}
			return nil, err
		}
		d[i] = f
	}
	return d, nil
}

// form is the n-th form of the transaction at p.
func (c *ednReader) form(v any, n int, p Pos) (Form, error) {
	var items []any
	switch v := v.(type) {
	case edn.Map:
		m, err := c.pairs(v)
		m.Pos.Form = n
		return m, err
	case edn.Vector:
		items, p = v.Items, at(v.Pos)
	case edn.List:
		items, p = v.Items, at(v.Pos)
	default:
		return nil, malformedAt(p, "form %d is %s; a form is a list form or a map form", n, ednKind(v))
	}
	if len(items) == 0 {
		return nil, malformedAt(p, "a list form is empty; it begins with an operation, such as :db/add")
	}
	var op datom.Keyword
	switch x := items[0].(type) {
	case edn.Keyword:
		op = datom.Keyword(x)
	case edn.Symbol:
		return nil, malformedAt(p, "%s is a function on a Java class path; register a Go function with the transactor (Options.Functions) "+
			"and call it by a keyword", clip(string(x)))
	default:
		return nil, malformedAt(p, "a list form begins with an operation, such as :db/add, not with %s", ednKind(x))
	}
	args, err := c.values(items[1:], p)
	p.Form = n
	return List{Op: op, Args: args, Pos: p}, err
}

// values converts items in place.
func (c *ednReader) values(items []any, p Pos) ([]any, error) {
	for i, x := range items {
		v, err := c.value(x, p)
		if err != nil {
			return nil, err
		}
		items[i] = v
	}
	return items, nil
}

// value converts a value that stands in the collection at p.
func (c *ednReader) value(v any, p Pos) (any, error) {
	switch v := v.(type) {
	case edn.Keyword:
		return c.keywords.of(string(v)), nil
	case edn.Symbol:
		return datom.Symbol(v), nil
	case edn.Vector:
		return c.values(v.Items, at(v.Pos))
	case edn.List:
		return c.values(v.Items, at(v.Pos))
	case edn.Set:
		items, err := c.values(v.Items, at(v.Pos))
		return Set(items), err
	case edn.Map:
		return c.pairs(v)
	case edn.Tagged:
		return c.tagged(v, "")
	case edn.Char:
		return nil, malformedAt(p, "%s is a character, and no attribute holds those; write a string", ednKind(v))
	default: // nil, bool, int64, *big.Int, float64, *apd.Decimal, string, time.Time, uuid.UUID
		return v, nil
	}
}

func (c *ednReader) pairs(m edn.Map) (Pairs, error) {
	out := Pairs{Entries: make([]Pair, len(m.Entries)), Pos: at(m.Pos)}
	for i, e := range m.Entries {
		p := at(e.Pos)
		k, err := c.value(e.Key, p)
		if err != nil {
			return Pairs{}, err
		}
		var v any
		if t, ok := e.Value.(edn.Tagged); ok && t.Tag == tagFn {
			ident, _ := m.Get(edn.Keyword("db/ident"))
			name, _ := ident.(edn.Keyword)
			v, err = c.tagged(t, name)
		} else {
			v, err = c.value(e.Value, p)
		}
		if err != nil {
			return Pairs{}, err
		}
		out.Entries[i] = Pair{Key: k, Value: v, Pos: p}
	}
	return out, nil
}

const tagFn edn.Symbol = "db/fn"

// tagged converts a tagged value; name is the ident of the function that it is about to define, if that is known.
func (c *ednReader) tagged(t edn.Tagged, name edn.Keyword) (any, error) {
	p := at(t.Pos)
	text, isText := t.Value.(string)
	switch t.Tag {
	case "db/id":
		return c.tempid(t.Value, p)
	case "uri":
		if !isText {
			return nil, malformedAt(p, "a string should follow #uri")
		}
		v, err := datom.ParseURI(text)
		if err != nil {
			return nil, malformedAt(p, "%s", err)
		}
		return v, nil
	case "bytes":
		if !isText {
			return nil, malformedAt(p, "a string should follow #bytes")
		}
		b, err := base64.StdEncoding.Strict().DecodeString(text)
		if err != nil {
			return nil, malformedAt(p, "the text of #bytes is not base64")
		}
		return b, nil
	case tagFn:
		as := "the keyword that calls it"
		if name != "" {
			as = clip(name.String())
		}
		return nil, malformedAt(p, "#db/fn holds a function's Clojure or Java source, which cannot run here: write it in Go and register it with the "+
			"transactor as %s (Options.Functions)", as)
	}
	return nil, malformedAt(p, "the tag #%s is not known", clip(string(t.Tag)))
}

func (c *ednReader) tempid(v any, p Pos) (any, error) {
	var items []any
	switch v := v.(type) {
	case edn.Vector:
		items = v.Items
	case edn.List:
		items = v.Items
	}
	if len(items) == 1 || len(items) == 2 {
		if part, ok := items[0].(edn.Keyword); ok {
			id := Tempid{Part: datom.Keyword(part)}
			if len(items) == 1 {
				return id, nil
			}
			if n, ok := items[1].(int64); ok && n < 0 {
				id.Name = strconv.FormatInt(n, 10)
				return id, nil
			}
		}
	}
	return nil, malformedAt(p, "#db/id is followed by a vector of a partition and, perhaps, a negative number: #db/id [:db.part/user -1]")
}

// ednKind is v for a message: what it is, and the value itself where that is short.
func ednKind(v any) string {
	switch v := v.(type) {
	case edn.Vector:
		return "a vector"
	case edn.List:
		return "a list"
	case edn.Set:
		return "a set"
	case edn.Map:
		return "a map"
	case edn.Tagged:
		return "a value tagged #" + clip(string(v.Tag))
	case string:
		return "the string " + show(v)
	case time.Time:
		return "an instant"
	default:
		b, err := edn.Append(nil, v)
		if err != nil {
			return fmt.Sprintf("a Go %T", v)
		}
		return clip(string(b))
	}
}

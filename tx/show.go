package tx

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
)

// show is x as an error's text has it.
func show(x any) string { return showTo(x, 4) }

// showTo is show to a depth, since data may hold itself.
func showTo(x any, depth int) string {
	switch x := x.(type) {
	case nil:
		return "nil"
	case string:
		return datom.String(x).String()
	case datom.Keyword:
		return x.String()
	case datom.ID:
		return x.String()
	case Lookup:
		return showAll("[", []any{x.Attr, x.Value}, "]", depth)
	case Tempid:
		return x.String()
	case []any:
		return showAll("[", x, "]", depth)
	case Set:
		return showAll("#{", x, "}", depth)
	case Map, Pairs:
		return "a map"
	}
	if v, err := datom.Of(x); err == nil {
		return v.String()
	}
	if s, ok := x.(fmt.Stringer); ok {
		return clip(fmt.Sprint(s)) // which also survives a nil pointer
	}
	return fmt.Sprintf("a Go %T", x)
}

func showAll(open string, xs []any, end string, depth int) string {
	const most = 8
	var parts []string
	for i, x := range xs {
		if i == most || depth == 0 {
			parts = append(parts, "…")
			break
		}
		parts = append(parts, showTo(x, depth-1))
	}
	return open + strings.Join(parts, " ") + end
}

func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// attrName is an attribute as texts have it.
func attrName(a *db.Attribute) string {
	if a.Ident != "" {
		return a.Ident.String()
	}
	return a.ID.String()
}

// typeOf says what a takes.
func typeOf(s *db.Schema, a *db.Attribute) string {
	if a.Type != datom.KindTuple {
		return ":db.type/" + a.Type.String()
	}
	var b strings.Builder
	b.WriteString("a tuple of ")
	n := arity(a)
	if n == 0 {
		fmt.Fprintf(&b, "%d to %d :db.type/%s", datom.MinTuple, datom.MaxTuple, a.TupleType)
		return b.String()
	}
	for i := range n {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(":db.type/" + elemType(s, a, i).String())
	}
	return b.String()
}

// arity is the number of elements of a tuple attribute, 0 if it varies.
func arity(a *db.Attribute) int { return max(len(a.TupleAttrs), len(a.TupleTypes)) }

// elemType is the type of a tuple attribute's i-th element.
func elemType(s *db.Schema, a *db.Attribute, i int) datom.Kind {
	switch {
	case i < len(a.TupleAttrs):
		if c := s.Attr(a.TupleAttrs[i]); c != nil {
			return c.Type
		}
		return datom.KindNil
	case i < len(a.TupleTypes):
		return a.TupleTypes[i]
	}
	return a.TupleType
}

// String is the tempid as EDN writes it.
func (t Tempid) String() string {
	if t.Part == "" {
		return strconv.Quote(t.Name)
	}
	return "#db/id [" + t.Part.String() + " " + strconv.Quote(t.Name) + "]"
}

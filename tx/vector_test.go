package tx

import (
	"errors"
	"flag"
	"fmt"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
	"github.com/steledb/stele/edn"
)

var vectorDir = flag.String("vectors", "testdata/vectors", "directory of the vector files that TestVectors runs")

// TestVectors runs every case of the vector files: transactions, and what the facts, the delta, the past or the error must
// be. Every one is also run with the forms of its transactions in other orders, which must change nothing.
func TestVectors(t *testing.T) {
	for _, v := range readVectors(t) {
		t.Run(v.name, func(t *testing.T) {
			first := v.run(nil, false)
			if first.diff != "" {
				t.Fatalf("vector %s (%s)\n%s", v.name, v.file, first.diff)
			}
			for seed := range uint64(6) {
				lastOnly := seed%2 == 0 // else earlier transactions give out ids in another order, which texts show
				again := v.run(rand.New(rand.NewPCG(seed, 1)), lastOnly)
				if again.diff != "" {
					t.Fatalf("vector %s (%s), forms shuffled with seed %d\n%s", v.name, v.file, seed, again.diff)
				}
				if lastOnly && again.refusal != first.refusal {
					t.Fatalf("vector %s (%s), forms shuffled with seed %d: the error's text changed\nexpected: %s\ngot:      %s",
						v.name, v.file, seed, first.refusal, again.refusal)
				}
			}
		})
	}
}

type vector struct {
	file, name string
	schema     []any
	txs        [][]any
	m          edn.Map
}

func readVectors(t testing.TB) (out []vector) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(*vectorDir, "*.edn"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no vector files in %s (%v)", *vectorDir, err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		top, err := edn.Parse(b, edn.Limits{})
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		var schema []any
		list := top
		if m, ok := top.(edn.Map); ok {
			s, _ := m.Get("schema")
			schema = items(s)
			list, _ = m.Get("vectors")
		}
		for _, x := range items(list) {
			m := x.(edn.Map)
			name, _ := m.Get("name")
			v := vector{file: filepath.Base(file), name: name.(string), schema: schema, m: m}
			if s, ok := m.Get("schema"); ok {
				v.schema = items(s)
			}
			txs, _ := m.Get("txs")
			for _, x := range items(txs) {
				v.txs = append(v.txs, items(x))
			}
			out = append(out, v)
		}
	}
	return out
}

func items(x any) []any {
	switch x := x.(type) {
	case edn.Vector:
		return x.Items
	case edn.List:
		return x.Items
	case edn.Set:
		return x.Items
	}
	return nil
}

// outcome is what came of a vector: diff says how it differs from what was expected.
type outcome struct{ diff, refusal string }

// world is a database as the transactor keeps it: a stage and a preparer that live on.
type world struct {
	st    *db.Stage
	prep  Preparer
	names map[string]datom.ID
	ts    []uint64 // of the transactions
}

// testNow is the transactor's clock in tests: 2026-01-01T00:00:00Z.
const testNow = 1767225600000

func newWorld() *world {
	st := db.NewStage(db.Empty())
	st.Apply(db.Bootstrap())
	return &world{st: st, names: map[string]datom.ID{}}
}

// transact is what a transactor does with one transaction of a batch that never ends.
func (w *world) transact(d Data) (*Prepared, error) {
	env := &Env{Now: testNow}
	r, err := Compile(w.st.Schema(), d, Limits{})
	if err != nil {
		return nil, err
	}
	p, err := w.prep.Prepare(w.st, r, env)
	if err != nil {
		return nil, err
	}
	w.st.Apply(&p.Tx)
	for name, id := range p.Tempids().All() {
		w.names[name] = id
	}
	return p, nil
}

// run transacts the vector, the forms of all or of the last of its transactions shuffled if there is a shuffle.
func (v *vector) run(shuffle *rand.Rand, lastOnly bool) (out outcome) {
	w := newWorld()
	n := 0
	data := func(forms []any) (d Data) {
		n++
		for _, f := range forms {
			d = append(d, w.form(f))
		}
		if shuffle != nil && (!lastOnly || n > len(v.txs)) {
			shuffle.Shuffle(len(d), func(i, j int) { d[i], d[j] = d[j], d[i] })
		}
		return d
	}
	if schema := data(v.schema); len(schema) > 0 {
		if _, err := w.transact(schema); err != nil {
			out.diff = "the schema was refused: " + err.Error()
			return out
		}
	}
	want, fails := v.m.Get("error")
	var last *Prepared
	for i, forms := range v.txs {
		before := w.st.BasisT()
		p, err := w.transact(data(forms))
		if i == len(v.txs)-1 && fails {
			out.diff, out.refusal = judgeError(want, err)
			if w.st.BasisT() != before {
				out.diff += "\nthe stage was changed"
			}
			return out
		}
		if err != nil {
			out.diff = fmt.Sprintf("transaction %d was refused: %v", i+1, err)
			return out
		}
		w.ts = append(w.ts, p.Tx.T)
		last = p
	}
	out.diff = v.judge(w, last)
	return out
}

func judgeError(want any, err error) (diff, text string) {
	var e *Error
	kind, _ := want.(edn.Symbol)
	switch {
	case err == nil:
		return fmt.Sprintf("expected: %s\ngot:      no error", kind), ""
	case !errors.As(err, &e):
		return fmt.Sprintf("expected a *tx.Error, got %T: %v", err, err), ""
	case kind != "any" && e.Kind.String() != string(kind):
		return fmt.Sprintf("expected: %s\ngot:      %v", kind, err), ""
	}
	return "", err.Error()
}

func (v *vector) judge(w *world, last *Prepared) string {
	d := w.st.Snapshot()
	var diffs []string
	compare := func(what string, want, got []string) {
		slices.Sort(want)
		slices.Sort(got)
		want = slices.Compact(want)
		if !slices.Equal(want, got) {
			diffs = append(diffs, fmt.Sprintf("%s\nexpected: %s\ngot:      %s", what, strings.Join(want, " "), strings.Join(got, " ")))
		}
	}
	if x, ok := v.m.Get("facts"); ok {
		compare(":facts", w.expected(d, x), w.current(d, d))
	}
	if x, ok := v.m.Get("delta"); ok {
		var got []string
		for _, x := range last.Tx.Datoms {
			if x.A != db.AttrTxInstant {
				got = append(got, fmt.Sprintf("[%d %s %s %t]", x.E, w.attr(d, x.A), x.V, x.Added))
			}
		}
		compare(":delta", w.expected(d, x), got)
	}
	if x, ok := v.m.Get("as-of"); ok {
		for _, e := range x.(edn.Map).Entries {
			n := e.Key.(int64)
			compare(fmt.Sprintf(":as-of %d", n), w.expected(d, e.Value), w.current(d, d.AsOf(w.ts[n-1])))
		}
	}
	if x, ok := v.m.Get("history"); ok {
		var got []string
		for x, err := range d.History().Datoms(db.EAVT) {
			if err != nil {
				return err.Error()
			}
			if relevant(x.E) {
				got = append(got, fmt.Sprintf("[%d %s %s %d %t]", x.E, w.attr(d, x.A), x.V, x.Tx(), x.Added))
			}
		}
		compare(":history", w.expected(d, x), got)
	}
	for _, k := range []edn.Keyword{"same", "distinct"} {
		x, _ := v.m.Get(k)
		for _, pair := range items(x) {
			p := items(pair)
			a, b := w.names[p[0].(string)], w.names[p[1].(string)]
			if (a == b) != (k == "same") || a == 0 {
				diffs = append(diffs, fmt.Sprintf(":%s %v, but they are %d and %d", k, p, a, b))
			}
		}
	}
	return strings.Join(diffs, "\n")
}

// relevant reports whether an entity is neither schema nor a transaction.
func relevant(e datom.ID) bool { return e.Part() != datom.PartDB && !e.IsTx() }

func (w *world) current(d, view db.DB) (out []string) {
	for x, err := range view.Datoms(db.EAVT) {
		if err != nil {
			return []string{err.Error()}
		}
		if relevant(x.E) {
			out = append(out, fmt.Sprintf("[%d %s %s]", x.E, w.attr(d, x.A), x.V))
		}
	}
	return out
}

func (w *world) attr(d db.DB, a datom.ID) string { k, _ := d.Ident(a); return k.String() }

// expected is a set of facts or datoms of a vector, as text.
func (w *world) expected(d db.DB, set any) (out []string) {
	for _, x := range items(set) {
		f := items(x)
		kw := datom.Keyword(f[1].(edn.Keyword))
		a := d.Schema().AttrByIdent(kw)
		if a == nil {
			return []string{"no attribute " + kw.String()}
		}
		s := fmt.Sprintf("[%d %s %s", w.entity(d, f[0]), kw, w.expectedValue(d, a, f[2]))
		for _, y := range f[3:] {
			if b, ok := y.(bool); ok {
				s += fmt.Sprintf(" %t", b)
			} else {
				s += fmt.Sprintf(" %d", w.entity(d, y))
			}
		}
		out = append(out, s+"]")
	}
	return out
}

func (w *world) entity(d db.DB, x any) datom.ID {
	switch x := x.(type) {
	case string:
		return w.names[x]
	case edn.Keyword:
		id, _ := d.Schema().Entid(datom.Keyword(x))
		return id
	case edn.Tagged:
		return w.tagged(x)
	}
	return 1
}

func (w *world) tagged(x edn.Tagged) datom.ID {
	switch x.Tag {
	case "tx":
		n := x.Value.(int64)
		return datom.TxID(w.ts[n-1])
	case "id":
		id, ok := w.names[x.Value.(string)]
		if !ok {
			panic(fmt.Sprintf("no tempid %q", x.Value))
		}
		return id
	}
	panic("tag " + string(x.Tag))
}

func (w *world) expectedValue(d db.DB, a *db.Attribute, x any) string {
	if a.Type == datom.KindRef {
		return datom.Ref(w.entity(d, x)).String()
	}
	v, err := datom.Of(w.convert(x))
	if err != nil {
		return err.Error()
	}
	return v.String()
}

// form makes a form of EDN, as plainly as can be.
func (w *world) form(x any) Form {
	switch x := x.(type) {
	case edn.Vector:
		op, ok := x.Items[0].(edn.Keyword)
		if !ok {
			panic(fmt.Sprintf("form %v", x))
		}
		l := List{Op: datom.Keyword(op), Pos: Pos{Line: x.Pos.Line, Column: x.Pos.Column}}
		for _, y := range x.Items[1:] {
			l.Args = append(l.Args, w.convert(y))
		}
		return l
	case edn.Map:
		return w.convert(x).(Form)
	}
	panic(fmt.Sprintf("form %T", x))
}

func (w *world) convert(x any) any {
	switch x := x.(type) {
	case edn.Keyword:
		return datom.Keyword(x)
	case edn.Symbol:
		return datom.Symbol(x)
	case edn.Vector, edn.List:
		out := []any{}
		for _, y := range items(x) {
			out = append(out, w.convert(y))
		}
		return out
	case edn.Set:
		out := Set{}
		for _, y := range x.Items {
			out = append(out, w.convert(y))
		}
		return out
	case edn.Map:
		out := Pairs{Pos: Pos{Line: x.Pos.Line, Column: x.Pos.Column}}
		for _, e := range x.Entries {
			out.Entries = append(out.Entries, Pair{Key: w.convert(e.Key), Value: w.convert(e.Value), Pos: Pos{Line: e.Pos.Line, Column: e.Pos.Column}})
		}
		return out
	case edn.Tagged:
		return w.tagged(x)
	case *big.Int:
		return x
	}
	return x
}

package tx_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
	"github.com/steledb/stele/tx"
)

var modelTransactions = flag.Int("model", 0, "how many transactions TestModel generates, with a new seed; 0: 100,000, or 10,000 with -short or -race, the same ones each time")

const perRun = 25

// TestModel transacts random data, schema alterations among it, and compares the delta or the refusal's kind with what the naive
// implementation says, and at the end every view of the database. Each transaction is also judged with its forms in another order.
func TestModel(t *testing.T) {
	n := *modelTransactions
	switch {
	case n > 0:
	case testing.Short() || underRace:
		n = 10_000
	default:
		n = 100_000
	}
	set := func(name, value string) {
		f := flag.Lookup(name)
		if f.Value.String() != f.DefValue {
			return // the command line has said it
		}
		if err := f.Value.Set(value); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Value.Set(f.DefValue) })
	}
	set("rapid.checks", strconv.Itoa((n+perRun-1)/perRun))
	if *modelTransactions == 0 {
		set("rapid.seed", "1") // what CI says of a change is about the change
	}
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		for range perRun {
			seen[m.step(m.transaction())]++
		}
		m.views()
	})
	t.Log(seen)
}

// model is a database in both implementations.
type model struct {
	*rapid.T
	st    *db.Stage
	prep  tx.Preparer
	n     *naive
	known []datom.ID // entities
	txs   int
	ds    []*datom.Tx
}

var env = &tx.Env{Now: 1767225600000}

func newModel(t *rapid.T) *model {
	m := &model{T: t, st: db.NewStage(db.Empty()), n: newNaive()}
	m.st.Apply(db.Bootstrap())
	m.ds = append(m.ds, db.Bootstrap())
	if k := m.step(baseSchema()); k != "ok" {
		t.Fatal(k)
	}
	return m
}

func baseSchema() (d tx.Data) {
	add := func(name, kind string, more ...any) {
		m := tx.Map{
			"db/ident": datom.Keyword(name), "db/valueType": datom.Keyword("db.type/" + kind), "db/cardinality": datom.Keyword("db.cardinality/one"),
			"db/id": name,
		}
		for i := 0; i < len(more); i += 2 {
			m[datom.Keyword(more[i].(string))] = more[i+1]
		}
		d = append(d, m)
	}
	kw := func(s string) datom.Keyword { return datom.Keyword(s) }
	const unique, card, component = "db/unique", "db/cardinality", "db/isComponent"
	many, identity, value := kw("db.cardinality/many"), kw("db.unique/identity"), kw("db.unique/value")
	add("e/id", "string", unique, identity)
	add("e/key", "long", unique, identity)
	add("e/ssn", "string", unique, value)
	add("e/code", "keyword", unique, value, card, many)
	add("e/alias", "string", unique, identity, card, many)
	add("e/owner", "ref", unique, identity)
	add("e/ids", "string", unique, identity, card, many)
	add("e/owners", "ref", unique, identity, card, many)
	add("e/n", "long")
	add("e/s", "string")
	add("e/ok", "boolean")
	add("e/tag", "keyword", card, many)
	add("e/num", "long", card, many)
	add("e/ref", "ref")
	add("e/refs", "ref", card, many)
	add("e/part", "ref", component, true)
	add("e/parts", "ref", card, many, component, true)
	add("e/at", "tuple", "db/tupleTypes", []any{kw("db.type/long"), kw("db.type/string")})
	add("e/rt", "tuple", "db/tupleTypes", []any{kw("db.type/ref"), kw("db.type/long")}, unique, identity)
	add("e/hom", "tuple", "db/tupleType", kw("db.type/long"), card, many)
	add("e/a", "string")
	add("e/b", "long")
	add("e/ab", "tuple", "db/tupleAttrs", []any{kw("e/a"), kw("e/b")})
	add("e/x", "string")
	add("e/y", "keyword")
	add("e/xy", "tuple", "db/tupleAttrs", []any{kw("e/x"), kw("e/y")}, unique, value)
	add("e/d", "ref")
	add("e/ad", "tuple", "db/tupleAttrs", []any{kw("e/a"), kw("e/d")}, unique, identity)
	return d
}

// pick is a number below n, any as likely as another; rapid's own numbers are mostly small ones. 0 stays 0, for shrinking.
func (m *model) pick(n int) int {
	x := rapid.Uint64().Draw(m.T, "")
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return int((x ^ x>>31) % uint64(n))
}

// one is true once in so many.
func (m *model) one(in int) bool { return m.pick(in) == in-1 }

func pickOf[X any](m *model, xs ...X) X { return xs[m.pick(len(xs))] }

func (m *model) transaction() (d tx.Data) {
	m.txs++
	alter := m.one(8)
	n := 1 + m.pick(4)
	if m.one(4) {
		return m.identities()
	}
	if m.pick(3) > 0 { // so that tempids are entities: nothing is retracted
		defer func() {
			for _, name := range []string{"a", "b", "c", "d"} {
				if strings.Contains(fmt.Sprintf("%q", d), strconv.Quote(name)) {
					d = append(d, tx.Retract(name, "e/num", 99))
				}
			}
		}()
	}
	for range n {
		switch {
		case alter && m.pick(3) > 0:
			d = append(d, m.alteration())
		default:
			d = append(d, m.form())
		}
	}
	return d
}

func (m *model) form() tx.Form {
	if m.one(80) {
		return pickOf[tx.Form](m, tx.List{Op: tx.OpAdd, Args: []any{"a", datom.Keyword("e/n")}}, tx.Add("a", "e/nothing", 1), tx.CAS(m.stored(), "e/n", 1, nil))
	}
	switch m.pick(10) {
	case 0, 1, 2, 3:
		a := m.attr()
		return tx.Add(m.entity(), a.ident, m.value(a, 0, true))
	case 4:
		a := m.attr()
		return tx.Retract(m.entity(), a.ident, m.value(a, 0, false))
	case 5:
		return tx.RetractAll(m.entity(), m.attr().ident)
	case 6:
		e := m.stored()
		if m.one(20) {
			e = m.entity()
		}
		return tx.RetractEntity(e)
	case 7:
		a := m.attr()
		for range 2 {
			if a.many {
				a = m.attr()
			}
		}
		e := m.stored()
		if m.one(20) {
			e = m.entity()
		}
		var old any
		if id, ok := e.(datom.ID); ok && m.pick(4) > 0 {
			if vs := m.n.values(id, a.id); len(vs) > 0 {
				old = m.shown(vs[0])
			}
		} else if m.pick(4) > 0 {
			old = m.value(a, 0, false)
		}
		return tx.CAS(e, a.ident, old, m.value(a, 0, false))
	default:
		return m.mapForm(0)
	}
}

// identities is a transaction in which many tempids are said to be one another, through one another.
func (m *model) identities() (d tx.Data) {
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	names = names[:2+m.pick(7)]
	ref := func() any {
		if len(m.known) > 0 && m.one(12) {
			return pickOf(m, m.known...)
		}
		return pickOf(m, names...)
	}
	used := map[any]bool{}
	add := func(e any, a datom.Keyword, v any) {
		if m.one(25) {
			d = append(d, tx.Retract(e, a, v))
		} else {
			d = append(d, tx.Add(e, a, v))
		}
		used[e] = true
	}
	for range 2 + m.pick(12) {
		e := any(pickOf(m, names...))
		if m.one(30) {
			e = theTx
		}
		switch m.pick(9) {
		case 0, 1:
			add(e, "e/ids", pickOf(m, "v0", "v1", "v2", "v3", "v4", "v5"))
		case 2, 3, 4, 5:
			add(e, "e/owners", ref())
		case 6:
			add(e, "e/a", pickOf(m, "v0", "v1"))
			if m.one(3) {
				e = pickOf(m, names...)
			}
			add(e, "e/d", ref())
		case 7:
			add(e, "e/rt", []any{ref(), m.pick(2)})
		default:
			if l, ok := m.lookup(0).(tx.Lookup); ok {
				add(e, l.Attr, l.Value)
			}
		}
	}
	for _, name := range names {
		if !used[name] {
			d = append(d, tx.Retract(name, "e/num", 99))
		}
	}
	return d
}

// shown is a stored value as a user would write it.
func (m *model) shown(v datom.Value) any {
	switch v.Kind() {
	case datom.KindLong:
		return int(v.Long())
	case datom.KindTuple:
		var out []any
		for _, e := range v.Tuple() {
			if e.IsNil() {
				out = append(out, nil)
			} else {
				out = append(out, m.shown(e))
			}
		}
		return out
	}
	return v.Any()
}

// attr is an attribute that there is.
func (m *model) attr() *nattr {
	if m.one(40) {
		return &nattr{ident: pickOf[datom.Keyword](m, "db/ident", "db/doc"), kind: pickOf(m, datom.KindKeyword, datom.KindString)}
	}
	for range 10 {
		k := pickOf(m, attrNames...)
		if id, ok := m.n.idents[k]; ok && m.n.attrs[id] != nil {
			a := *m.n.attrs[id]
			a.ident = k
			return &a
		}
	}
	return &nattr{ident: "e/n", kind: datom.KindLong}
}

var attrNames = func() (out []datom.Keyword) {
	for _, f := range baseSchema() {
		out = append(out, f.(tx.Map)["db/ident"].(datom.Keyword))
	}
	return append(out, "n/0", "n/1", "n/2")
}()

func (m *model) stored() any {
	switch n := m.pick(12); {
	case n == 0:
		k := pickOf[datom.Keyword](m, "i/x", "i/y", "i/z")
		if _, ok := m.n.idents[k]; ok || m.one(10) {
			return k
		}
		return m.lookup(0)
	case n <= 2:
		return m.lookup(0)
	case n == 3:
		return datom.TxID(uint64(1 + m.pick(int(m.n.t))))
	case len(m.known) > 0:
		return pickOf(m, m.known...)
	}
	return m.lookup(0)
}

func (m *model) entity() any {
	switch n := m.pick(16); {
	case n < 8:
		return pickOf(m, "a", "b", "c", "d")
	case n == 8:
		return theTx
	case n == 9 && m.one(6):
		return datom.MakeID(datom.PartUser, 1<<30)
	}
	return m.stored()
}

func (m *model) lookup(depth int) any {
	if m.pick(10) > 0 {
		var found []datom.Datom
		for _, d := range m.n.history {
			if a := m.n.attrs[d.A]; d.Added && a != nil && a.unique != 0 && m.n.facts[nfact{d.E, d.A, d.V}] && !born(d.E) && a.ident != "" {
				found = append(found, d)
			}
		}
		if len(found) > 0 {
			d := pickOf(m, found...)
			return tx.Lookup{Attr: m.n.attrs[d.A].ident, Value: m.shown(d.V)}
		}
	}
	k := pickOf[datom.Keyword](m, "e/id", "e/key", "e/ssn", "e/alias", "e/owner", "e/rt", "e/ad", "e/xy", "e/code", "e/n")
	a := m.attrNamed(k)
	var v any
	if depth > 1 {
		v = "v0"
	} else {
		v = m.value(a, depth+1, false)
	}
	if m.one(2) {
		return []any{k, v}
	}
	return tx.Lookup{Attr: k, Value: v}
}

func (m *model) attrNamed(k datom.Keyword) *nattr {
	if id, ok := m.n.idents[k]; ok && m.n.attrs[id] != nil {
		return m.n.attrs[id]
	}
	return &nattr{ident: k, kind: datom.KindString}
}

// value is a value for one list form; with maps it may be a nested map.
func (m *model) value(a *nattr, depth int, maps bool) any {
	if m.one(150) {
		return pickOf[any](m, nil, 1.5, "v0", true, tx.Set{}, []any{1})
	}
	if a.kind == datom.KindTuple {
		n := max(len(a.tupleAttrs), len(a.tupleTypes))
		if n == 0 {
			n = 2 + m.pick(2)
		}
		var out []any
		for i := range n {
			var k datom.Kind
			switch {
			case len(a.tupleAttrs) > 0:
				k = m.n.attrs[a.tupleAttrs[i]].kind
			case len(a.tupleTypes) > 0:
				k = a.tupleTypes[i]
			default:
				k = a.tupleType
			}
			if m.one(5) {
				out = append(out, nil)
			} else {
				out = append(out, m.scalar(k, depth, false))
			}
		}
		return out
	}
	return m.scalar(a.kind, depth, maps)
}

func (m *model) scalar(k datom.Kind, depth int, maps bool) any {
	switch k {
	case datom.KindLong:
		return m.pick(3)
	case datom.KindString:
		return pickOf(m, "v0", "v1", "v2")
	case datom.KindBoolean:
		return m.one(2)
	case datom.KindKeyword:
		return pickOf[datom.Keyword](m, "i/x", "i/y", "i/z")
	case datom.KindRef:
		switch {
		case maps && depth < 3 && m.one(4):
			return m.mapForm(depth + 1)
		case depth > 0 && m.one(2):
			return m.lookup(depth)
		}
		return m.entity()
	}
	return "v0"
}

// mapForm is a map form. It always has a :db/id, for the model has no nameless tempids.
func (m *model) mapForm(depth int) tx.Map {
	f := tx.Map{"db/id": m.entity()}
	for range m.pick(4) {
		a := m.attr()
		if a.kind == datom.KindRef && m.one(4) {
			k := datom.Keyword(a.ident.Namespace() + "/_" + a.ident.Name())
			f[k] = m.entity()
			if m.one(3) {
				f[k] = []any{m.entity(), m.value(a, depth, true)}
			}
			continue
		}
		if a.many && m.one(2) {
			var vs []any
			for range m.pick(4) {
				vs = append(vs, m.value(a, depth, true))
			}
			if f[a.ident] = vs; m.one(2) {
				f[a.ident] = tx.Set(vs)
			}
			continue
		}
		f[a.ident] = m.value(a, depth, true)
	}
	if m.one(20) {
		f["e/_n"] = "a"
	}
	return f
}

func (m *model) alteration() tx.Form {
	kw := func(s string) datom.Keyword { return datom.Keyword(s) }
	a := pickOf(m, attrNames...)
	if m.one(40) {
		a = "db/doc"
	}
	card := pickOf(m, kw("db.cardinality/one"), kw("db.cardinality/many"))
	unique := pickOf(m, kw("db.unique/identity"), kw("db.unique/value"))
	switch m.pick(14) {
	case 0, 1:
		return tx.Map{"db/id": a, "db/cardinality": card}
	case 2, 3:
		return tx.Map{"db/id": a, "db/unique": unique}
	case 4:
		return tx.RetractAll(a, pickOf(m, kw("db/unique"), kw("db/isComponent"), kw("db/ident"), kw("db/valueType"), kw("db/tupleAttrs"), kw("db/cardinality")))
	case 5:
		return tx.Map{"db/id": a, "db/isComponent": m.one(2), "db/index": m.one(2)}
	case 6:
		return tx.Map{"db/id": a, "db/ident": pickOf(m, kw("n/0"), kw("n/1"), kw("n/2"), kw("i/x"), a)}
	case 7:
		return tx.RetractEntity(pickOf(m, a, kw("n/0"), kw("n/1"), kw("n/2")))
	case 8:
		return tx.Add(a, "db/valueType", kw("db.type/"+pickOf(m, "long", "string")))
	case 9:
		return tx.Map{"db/id": m.entity(), "db/ident": pickOf(m, kw("part/x"), kw("part/y")), "db.install/_partition": kw("db.part/db")}
	case 10:
		return tx.Add(m.stored(), "db/txInstant", 5)
	default:
		id := pickOf(m, kw("n/0"), kw("n/1"), kw("n/2"))
		f := tx.Map{
			"db/id": "new " + string(id), "db/ident": id, "db/valueType": kw("db.type/" + pickOf(m, "long", "string", "ref", "tuple", "tuple")),
			"db/cardinality": card, "db.install/_attribute": kw("db.part/db"),
		}
		if f["db/valueType"] == kw("db.type/tuple") && m.pick(10) > 0 {
			switch m.pick(3) {
			case 0:
				f["db/tupleAttrs"] = []any{pickOf(m, attrNames...), pickOf(m, attrNames...)}
			case 1:
				f["db/tupleTypes"] = []any{kw("db.type/long"), kw("db.type/" + pickOf(m, "ref", "string", "tuple", "nonsense"))}
			default:
				f["db/tupleType"] = kw("db.type/" + pickOf(m, "ref", "long", "tuple"))
			}
		}
		if m.one(3) {
			f["db/unique"] = unique
		}
		if m.one(6) {
			f["db/isComponent"] = true
		}
		if m.one(12) {
			delete(f, pickOf(m, kw("db/ident"), kw("db/valueType"), kw("db/cardinality")))
		}
		return f
	}
}

func (m *model) prepare(d tx.Data) (*tx.Prepared, error) {
	r, err := tx.Compile(m.st.Schema(), d, tx.Limits{})
	if err != nil {
		return nil, err
	}
	return m.prep.Prepare(m.st, r, env)
}

// step transacts d in both implementations, and says what came of it.
func (m *model) step(d tx.Data) string {
	p, err := m.prepare(d)
	x, kind := m.n.transact(d)

	shuffled := slices.Clone(d)
	rand.New(rand.NewPCG(uint64(m.txs), 7)).Shuffle(len(d), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	p2, err2 := m.prepare(shuffled)
	if fmt.Sprint(err) != fmt.Sprint(err2) {
		m.Fatalf("%s\nin another order, it is refused differently:\n%v\n%v", text(d), err, err2)
	}

	if err != nil {
		var e *tx.Error
		if !errors.As(err, &e) {
			m.Fatalf("%T: %v", err, err)
		}
		if e.Kind != kind {
			m.Fatalf("%s\nthe model says %q, but it was refused: %v", text(d), kindText(kind), err)
		}
		return e.Kind.String()
	}
	if kind != 0 {
		m.Fatalf("%s\nthe model refuses it, %s, but it came through", text(d), kind)
	}
	if a, b := named(p), named(p2); !slices.Equal(a, b) {
		m.Fatalf("%s\nin another order, the delta is different:\n%s\n%s", text(d), a, b)
	}
	m.commit(d, p, x)
	return "ok"
}

func kindText(k tx.Kind) string {
	if k == 0 {
		return "fine"
	}
	return k.String()
}

// commit compares an accepted transaction's outcomes, and applies it.
func (m *model) commit(d tx.Data, p *tx.Prepared, x *attempt) {
	next := m.n.next
	real := map[datom.ID]datom.ID{}
	taken := map[datom.ID]string{}
	for name, id := range x.ids {
		if name == theTx {
			continue
		}
		got, ok := p.Tempids().Get(name)
		switch {
		case !ok:
			m.Fatalf("%s\nthe tempid %q is not reported", text(d), name)
		case !x.fresh[id] || id == x.txID:
			if got != id {
				m.Fatalf("%s\n%q is %d, not %d", text(d), name, got, id)
			}
			continue
		}
		if old, ok := real[id]; ok && old != got {
			m.Fatalf("%s\n%q is %d and %d", text(d), name, old, got)
		}
		if other, ok := taken[got]; ok && x.ids[other] != id {
			m.Fatalf("%s\n%q and %q are both %d", text(d), name, other, got)
		}
		if _, ok := real[id]; !ok {
			if got.Seq() < datom.FirstSeq {
				next.Part++
			} else {
				next.Seq++
			}
		}
		real[id], taken[got] = got, name
		if m.n.allocated(got) {
			m.Fatalf("%s\n%q is %d, which was given out before", text(d), name, got)
		}
	}
	if p.Tx.Next != next {
		m.Fatalf("%s\nthe allocator is at %v, not %v", text(d), p.Tx.Next, next)
	}
	want := x.datoms(real)
	want = append(want, datom.Datom{E: x.txID, A: db.AttrTxInstant, V: datom.InstantMilli(env.Now), T: m.n.t + 1, Added: true})
	got := slices.Clone(p.Tx.Datoms)
	sortDatoms(want)
	sortDatoms(got)
	if !slices.Equal(want, got) {
		m.Fatalf("%s\nthe delta should be\n%s\nbut is\n%s", text(d), want, got)
	}
	schema := false
	for _, x := range got {
		schema = schema || db.IsSchemaAttr(x.A)
		if x.A == db.AttrValueType && x.Added && !m.n.allocated(x.E) && x.E.Part() != datom.PartDB {
			m.Fatalf("%s\nthe new attribute is %d", text(d), x.E)
		}
	}
	if p.Schema != schema {
		m.Fatalf("%s\nSchema is %t", text(d), p.Schema)
	}
	m.st.Apply(&p.Tx)
	m.ds = append(m.ds, &p.Tx)
	m.n.apply(got, next)
	for _, id := range real {
		if id.Part() != datom.PartDB {
			m.known = append(m.known, id)
		}
	}
	if schema || m.one(3) {
		m.st.Snapshot()
	}
}

// named is the delta with names in place of new ids, sorted.
func named(p *tx.Prepared) (out []string) {
	names := map[datom.ID]string{}
	for name, id := range p.Tempids().All() {
		if old, ok := names[id]; !ok || name < old {
			names[id] = name
		}
	}
	show := func(id datom.ID) string {
		if s, ok := names[id]; ok {
			return s
		}
		return id.String()
	}
	for _, d := range p.Tx.Datoms {
		v := d.V.String()
		switch d.V.Kind() {
		case datom.KindRef:
			v = show(d.V.Ref())
		case datom.KindTuple:
			v = ""
			for _, e := range d.V.Tuple() {
				if e.Kind() == datom.KindRef {
					v += " " + show(e.Ref())
				} else {
					v += " " + e.String()
				}
			}
		}
		out = append(out, fmt.Sprint(show(d.E), " ", d.A, " ", v, " ", d.Added))
	}
	slices.Sort(out)
	return out
}

// views compares every view of the database, and the database with one replayed from its transactions.
func (m *model) views() {
	d := m.st.Snapshot()
	again := db.NewStage(db.Empty())
	for _, x := range m.ds {
		again.Apply(x)
	}
	for _, d := range []db.DB{d, again.Snapshot()} {
		for t := range m.n.t + 1 {
			var asOf, since []datom.Datom
			open := map[nfact]datom.Datom{}
			for _, x := range m.n.history {
				if f := (nfact{x.E, x.A, x.V}); x.T <= t {
					if x.Added {
						open[f] = x
					} else {
						delete(open, f)
					}
				}
			}
			for _, x := range open {
				asOf = append(asOf, x)
			}
			for _, x := range m.n.history {
				if m.n.facts[nfact{x.E, x.A, x.V}] && x.Added && x.T > t && !slices.ContainsFunc(m.n.history, func(y datom.Datom) bool {
					return y.T > x.T && y.E == x.E && y.A == x.A && y.V == x.V
				}) {
					since = append(since, x)
				}
			}
			if t%5 == 0 || t == m.n.t {
				m.same(fmt.Sprint("as of ", t), asOf, d.AsOf(t))
				m.same(fmt.Sprint("since ", t), since, d.Since(t))
			}
		}
		m.same("history", m.n.history, d.History())
		for k, id := range m.n.idents {
			if got, ok := d.Schema().Entid(k); !ok || got != id {
				m.Fatalf("%s names %d, not %d", k, got, id)
			}
		}
		for id, a := range m.n.attrs {
			b := d.Schema().Attr(id)
			if b == nil || b.Type != a.kind || b.Many != a.many || (b.Unique != db.NotUnique) != (a.unique != 0) || b.Component != a.component ||
				!slices.Equal(b.TupleAttrs, a.tupleAttrs) {
				m.Fatalf("attribute %s is %+v, not %+v", a.ident, b, a)
			}
		}
	}
}

func (m *model) same(what string, want []datom.Datom, view db.DB) {
	var got []datom.Datom
	for x, err := range view.Datoms(db.EAVT) {
		if err != nil {
			m.Fatal(err)
		}
		got = append(got, x)
	}
	want = slices.Clone(want)
	sortDatoms(want)
	sortDatoms(got)
	if !slices.Equal(want, got) {
		m.Fatalf("%s should be\n%s\nbut is\n%s", what, want, got)
	}
}

func text(d tx.Data) string {
	var b strings.Builder
	for _, f := range d {
		fmt.Fprintf(&b, "  %#v\n", f)
	}
	return b.String()
}

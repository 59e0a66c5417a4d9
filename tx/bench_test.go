package tx

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
)

// BenchmarkTransaction measures, for each shape and size of schema, the three things that a transaction costs apart from the
// log: compile (on the caller's goroutine), prepare (in the serial section, against a stage of 100,000 entities), and all of
// compile, prepare, apply and a snapshot for every 256.
func BenchmarkTransaction(b *testing.B) {
	shapes := []struct {
		name   string
		datoms int // of the delta, :db/txInstant included
		data   func(w *benchWorld, i int) Data
	}{
		{"insert", 4, func(w *benchWorld, i int) Data {
			return Data{Map{"p/id": w.fresh(), "p/name": "somebody", "p/age": i % 100}}
		}},
		{"upsert", 3, func(w *benchWorld, i int) Data {
			return Data{Map{"p/id": w.stored(i), "p/age": w.count()}}
		}},
		{"update", 3, func(w *benchWorld, i int) Data {
			return Data{Add(w.ids[i%len(w.ids)], "p/age", w.count())}
		}},
		{"retractEntity", 21, func(w *benchWorld, i int) Data {
			return Data{RetractEntity(w.large[i%len(w.large)])}
		}},
		{"order", 32, func(w *benchWorld, i int) Data {
			var lines []any
			for j := range 10 {
				lines = append(lines, Map{"line/sku": "sku" + strconv.Itoa(j), "line/n": j})
			}
			return Data{Map{"order/id": w.fresh(), "order/lines": lines}}
		}},
	}
	for _, attrs := range []int{100, 2000} {
		w := newBenchWorld(b, attrs)
		for _, s := range shapes {
			name := fmt.Sprintf("%s/attrs=%d", s.name, attrs)
			var data []Data
			var reqs []*Request
			for i := range 256 {
				data = append(data, s.data(w, i*997))
				r, err := Compile(w.st.Schema(), data[i], Limits{})
				if err != nil {
					b.Fatal(err)
				}
				p, err := w.prep.Prepare(w.st, r, w.env)
				if err != nil {
					b.Fatal(err)
				}
				if len(p.Tx.Datoms) != s.datoms {
					b.Fatalf("%s: %d datoms, not %d: %v", s.name, len(p.Tx.Datoms), s.datoms, p.Tx.Datoms)
				}
				reqs = append(reqs, r)
			}
			b.Run(name+"/compile", func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if _, err := Compile(w.st.Schema(), data[i%256], Limits{}); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run(name+"/prepare", func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if _, err := w.prep.Prepare(w.st, reqs[i%256], w.env); err != nil {
						b.Fatal(err)
					}
				}
			})
			if s.name == "retractEntity" {
				continue // each can be retracted once only
			}
			b.Run(name+"/all", func(b *testing.B) {
				b.ReportAllocs()
				st := db.NewStage(w.db)
				for i := 0; b.Loop(); i++ {
					r, err := Compile(st.Schema(), s.data(w, i), Limits{})
					if err != nil {
						b.Fatal(err)
					}
					p, err := w.prep.Prepare(st, r, w.env)
					if err != nil {
						b.Fatal(err)
					}
					st.Apply(&p.Tx)
					if i%256 == 255 {
						st.Snapshot()
					}
				}
				st.Wait()
			})
		}
	}
}

// BenchmarkLarge measures what a datom costs in a large transaction, which must not be more than in a small one.
func BenchmarkLarge(b *testing.B) {
	w := newBenchWorld(b, 100)
	for _, n := range []int{1000, 10_000, 100_000} {
		var d Data
		for range n / 2 {
			d = append(d, Map{"p/id": w.fresh(), "p/name": "somebody", "order/lines": Map{"line/n": w.count()}})
		}
		datoms := n / 2 * 4
		b.Run(fmt.Sprintf("%d/compile", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := Compile(w.st.Schema(), d, Limits{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(datoms), "ns/datom")
		})
		r, err := Compile(w.st.Schema(), d, Limits{})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("%d/prepare", n), func(b *testing.B) {
			for b.Loop() {
				p, err := w.prep.Prepare(w.st, r, w.env)
				if err != nil || len(p.Tx.Datoms) != datoms+1 {
					b.Fatal(len(p.Tx.Datoms), err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(datoms), "ns/datom")
		})
	}
}

type benchWorld struct {
	st    *db.Stage
	db    db.DB
	prep  Preparer
	env   *Env
	ids   []datom.ID
	large []datom.ID // entities with 20 facts
	n     int
}

const benchEntities = 100_000

func newBenchWorld(b *testing.B, attrs int) *benchWorld {
	w := &benchWorld{st: db.NewStage(db.Empty()), env: &Env{Now: testNow}}
	w.st.Apply(db.Bootstrap())
	schema := Data{
		attribute("p/id", "string", Map{"db/unique": datom.Keyword("db.unique/identity")}),
		attribute("p/name", "string", nil),
		attribute("p/age", "long", nil),
		attribute("p/tags", "long", Map{"db/cardinality": datom.Keyword("db.cardinality/many")}),
		attribute("order/id", "string", Map{"db/unique": datom.Keyword("db.unique/identity")}),
		attribute("order/lines", "ref", Map{"db/cardinality": datom.Keyword("db.cardinality/many"), "db/isComponent": true}),
		attribute("line/sku", "string", nil),
		attribute("line/n", "long", nil),
	}
	for i := len(schema); i < attrs; i++ {
		schema = append(schema, attribute(datom.Keyword("filler/a"+strconv.Itoa(i)), "string", nil))
	}
	w.transact(b, schema)
	for i := 0; i < benchEntities; {
		var d Data
		for range 500 {
			d = append(d, Map{"db/id": strconv.Itoa(i), "p/id": w.stored(i), "p/name": "somebody", "p/age": i % 100})
			i++
		}
		for _, id := range w.transact(b, d).Tempids().All() {
			w.ids = append(w.ids, id)
		}
	}
	for i := range 256 {
		var tags []any
		for j := range 18 {
			tags = append(tags, j)
		}
		p := w.transact(b, Data{Map{"db/id": "x", "p/id": "large" + strconv.Itoa(i), "p/name": "large", "p/tags": tags}})
		id, _ := p.Tempids().Get("x")
		w.large = append(w.large, id)
	}
	w.db = w.st.Snapshot()
	w.st.Wait()
	return w
}

func (w *benchWorld) transact(b *testing.B, d Data) *Prepared {
	b.Helper()
	r, err := Compile(w.st.Schema(), d, Limits{})
	if err != nil {
		b.Fatal(err)
	}
	p, err := w.prep.Prepare(w.st, r, w.env)
	if err != nil {
		b.Fatal(err)
	}
	w.st.Apply(&p.Tx)
	w.st.Snapshot()
	return p
}

func (w *benchWorld) fresh() string       { return "fresh" + strconv.Itoa(w.count()) }
func (w *benchWorld) stored(i int) string { return "id" + strconv.Itoa(i%benchEntities) }
func (w *benchWorld) count() int          { w.n++; return 1000 + w.n }
func attribute(ident datom.Keyword, kind string, more Map) Map {
	m := Map{
		"db/ident":       ident,
		"db/valueType":   datom.Keyword("db.type/" + kind),
		"db/cardinality": datom.Keyword("db.cardinality/one"),
	}
	for k, v := range more {
		m[k] = v
	}
	return m
}

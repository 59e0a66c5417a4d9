package transactor

import (
	"context"
	"fmt"
	"math/big"
	"runtime"
	"strings"
	"testing"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/log/fs"
	"github.com/steledb/stele/tx"
)

// TestP5_TheAccountDoesNotDrift: after changes and retractions, with history, of values of every size, the account still is what is measured.
func TestP5_TheAccountDoesNotDrift(t *testing.T) {
	attr := func(name string, typ datom.Keyword, more tx.Map) tx.Map {
		m := tx.Map{"db/ident": datom.Keyword(name), "db/valueType": typ, "db/cardinality": datom.Keyword("db.cardinality/one")}
		for k, v := range more {
			m[k] = v
		}
		return m
	}
	for _, c := range []struct {
		name   string
		schema tx.Data
		n      int
		data   func(i int) tx.Data
	}{
		{"a few things changed again and again", tx.Data{attr("x/id", "db.type/long", tx.Map{"db/unique": datom.Keyword("db.unique/identity")}), attr("x/v", "db.type/string", nil)}, 30_000,
			func(i int) tx.Data { return tx.Data{tx.Map{"x/id": int64(i % 100), "x/v": someText(i, 1)}} }},
		{"indexed text changed", tx.Data{attr("x/id", "db.type/long", tx.Map{"db/unique": datom.Keyword("db.unique/identity")}), attr("x/v", "db.type/string", tx.Map{"db/index": true})}, 30_000,
			func(i int) tx.Data { return tx.Data{tx.Map{"x/id": int64(i % 1000), "x/v": someText(i, 1)}} }},
		{"unique text moved about", tx.Data{attr("x/id", "db.type/long", tx.Map{"db/unique": datom.Keyword("db.unique/identity")}), attr("x/v", "db.type/string", tx.Map{"db/unique": datom.Keyword("db.unique/value")})}, 30_000,
			func(i int) tx.Data { return tx.Data{tx.Map{"x/id": int64(i % 100), "x/v": fmt.Sprint("unique ", i)}} }},
		{"zero bytes, indexed", tx.Data{attr("x/v", "db.type/bytes", nil), attr("x/s", "db.type/string", tx.Map{"db/index": true})}, 3000,
			func(i int) tx.Data {
				return tx.Data{tx.Map{"x/v": make([]byte, 2000+i%7), "x/s": strings.Repeat("\x00", 1000) + fmt.Sprint(i)}}
			}},
		{"large text", tx.Data{attr("x/v", "db.type/string", nil)}, 100,
			func(i int) tx.Data { return tx.Data{tx.Map{"x/v": fmt.Sprint(i, strings.Repeat("large ", 50_000))}} }},
		{"bigints", tx.Data{attr("x/v", "db.type/bigint", nil)}, 20_000,
			func(i int) tx.Data { return tx.Data{tx.Map{"x/v": new(big.Int).Lsh(big.NewInt(int64(i)+1), 500)}} }},
		{"asserted and retracted", tx.Data{attr("x/id", "db.type/long", tx.Map{"db/unique": datom.Keyword("db.unique/identity")}), attr("x/v", "db.type/string", nil)}, 30_000,
			func(i int) tx.Data {
				if i%2 == 0 {
					return tx.Data{tx.Map{"x/id": int64(i), "x/v": someText(i, 1)}}
				}
				return tx.Data{tx.RetractEntity(tx.Lookup{Attr: "x/id", Value: int64(i - 1)})}
			}},
		{"many attributes", nil, 500, func(i int) tx.Data { return tx.Data{attr(fmt.Sprint("many/", i), "db.type/long", nil)} }},
		{"keys", nil, 30_000, func(i int) tx.Data {
			return tx.WithKey(tx.Data{tx.Map{"db/id": "a", "db/doc": "d"}}, fmt.Sprint("key ", i))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := liveHeap()
			l, err := fs.Open(t.Context(), fs.Options{Dir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			x := newWorld(t).openOn(l, Options{})
			if c.schema != nil {
				mustTransact(t, x, c.schema)
			}
			line := make(chan *Future, 500)
			done := make(chan error)
			go func() {
				var bad error
				for f := range line {
					if _, err := f.Wait(context.Background()); err != nil {
						bad = err
					}
				}
				done <- bad
			}()
			for i := range c.n {
				line <- mustSubmit(t, x, c.data(i))
			}
			close(line)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			settle(t, x)
			near(t, liveHeap()-before, x.Stats().Memory)
			runtime.KeepAlive(x)
		})
	}
}

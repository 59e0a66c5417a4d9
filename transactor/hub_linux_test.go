package transactor

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/log/fs"
	"github.com/steledb/stele/tx"
)

// A small request that becomes a huge transaction, in a process under a hard limit: what it takes until it is refused is bounded as well.
func TestP5_AHugeRetractionUnderAHardLimit(t *testing.T) {
	if underRace || testing.Short() {
		t.Skip("it takes seconds")
	}
	const budget = 64 * megabyte
	limit, dir := hardLimit(budget), t.TempDir()
	out, peak, err := limited(t, limit, exec.Command(os.Args[0], "-test.run", "^TestHub$", "-test.v"),
		endlessDir+"="+dir, endlessBudget+"="+strconv.Itoa(budget), fmt.Sprint("GOMEMLIMIT=", goMemLimit(limit)))
	if peak > limit || err != nil || !strings.Contains(out, "--- PASS: TestHub") {
		t.Errorf("%d bytes were resident, of %d: %v\n%s", peak, limit, err, out)
	}
	t.Logf("peak %d of %d\n%s", peak, limit, out)
}

func TestHub(t *testing.T) {
	dir := os.Getenv(endlessDir)
	if dir == "" {
		t.Skip("not asked to")
	}
	budget, _ := strconv.Atoi(os.Getenv(endlessBudget))
	l, err := fs.Open(t.Context(), fs.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	x, err := Open(t.Context(), l, Options{MemoryBudget: budget, Logger: slog.New(slog.DiscardHandler), FunctionTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer closeIn(t, x, time.Minute)
	one, many := datom.Keyword("db.cardinality/one"), datom.Keyword("db.cardinality/many")
	mustTransact(t, x, tx.Data{
		tx.Map{"db/ident": datom.Keyword("h/id"), "db/valueType": datom.Keyword("db.type/long"), "db/cardinality": one, "db/unique": datom.Keyword("db.unique/identity")},
		tx.Map{"db/ident": datom.Keyword("h/parts"), "db/valueType": datom.Keyword("db.type/ref"), "db/cardinality": many, "db/isComponent": true},
		tx.Map{"db/ident": datom.Keyword("h/n"), "db/valueType": datom.Keyword("db.type/long"), "db/cardinality": one},
	})
	n := 0
	for {
		var parts []any
		for range 500 {
			n++
			parts = append(parts, tx.Map{"h/n": int64(n)})
		}
		mustTransact(t, x, tx.Data{tx.Map{"h/id": int64(1), "h/parts": parts}})
		if m := x.Stats().Memory; m.Accounted()+m.Reserved > int64(budget)*8/10 {
			break
		}
	}
	t.Logf("%d parts: %+v, resident %d", n, x.Stats().Memory, residentPeak(os.Getpid()))
	for range 3 {
		_, err := x.Transact(t.Context(), tx.Data{tx.RetractEntity(tx.Lookup{Attr: "h/id", Value: int64(1)})})
		if !errors.Is(err, ErrMemoryBudget) {
			t.Errorf("%v", err)
		}
		t.Logf("resident %d: %v", residentPeak(os.Getpid()), err)
	}
}

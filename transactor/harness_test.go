package transactor

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/mem"
	"github.com/steledb/stele/tx"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is one store and what opens transactors on it.
type world struct {
	t      testing.TB
	server *mem.Server
}

func newWorld(t testing.TB) *world { return &world{t: t, server: mem.NewServer()} }

// open opens a transactor on the world's database and closes it when the test ends. Its handle is for injecting faults.
func (w *world) open(opt Options) (*Transactor, *mem.Log) {
	w.t.Helper()
	l := w.server.Open("main", mem.Options{})
	x := w.openOn(l, opt)
	return x, l
}

func (w *world) openOn(l log.Log, opt Options) *Transactor {
	w.t.Helper()
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if l.Info().Backend == "mem" {
		opt.TakeOver = true // what depends on leases opens for itself
	}
	x, err := Open(context.Background(), l, opt)
	if err != nil {
		w.t.Fatalf("Open: %v", err)
	}
	w.t.Cleanup(func() { closeIn(w.t, x, time.Minute) })
	return x
}

// closeIn closes x, whatever comes of it, within d.
func closeIn(t testing.TB, x *Transactor, d time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return x.Close(ctx)
}

// people is a little schema: a unique identity and a cardinality-one number.
var people = tx.Data{
	tx.Map{"db/ident": datom.Keyword("p/id"), "db/valueType": datom.Keyword("db.type/string"),
		"db/cardinality": datom.Keyword("db.cardinality/one"), "db/unique": datom.Keyword("db.unique/identity")},
	tx.Map{"db/ident": datom.Keyword("p/n"), "db/valueType": datom.Keyword("db.type/long"),
		"db/cardinality": datom.Keyword("db.cardinality/one")},
}

// person asserts one person, new or not.
func person(id string, n int) tx.Data { return tx.Data{tx.Map{"p/id": id, "p/n": int64(n)}} }

// step raises a person's number by one, if it is what it should be.
func step(id string, from int) tx.Data {
	return tx.Data{tx.CAS(tx.Lookup{Attr: "p/id", Value: id}, "p/n", int64(from), int64(from+1))}
}

func mustTransact(t testing.TB, x *Transactor, data tx.Data) *tx.Report {
	t.Helper()
	r, err := x.Transact(context.Background(), data)
	if err != nil {
		t.Fatalf("Transact: %v", err)
	}
	return r
}

func mustSubmit(t testing.TB, x *Transactor, data tx.Data, opts ...TxOptions) *Future {
	t.Helper()
	f, err := x.Submit(context.Background(), data, opts...)
	if err != nil {
		t.Fatalf("Submit: %v", err)
	}
	return f
}

// number is a person's p/n in d, or -1.
func number(t testing.TB, d db.DB, id string) int {
	t.Helper()
	attr, _ := d.Schema().Entid("p/id")
	e, ok := d.Lookup(attr, datom.String(id))
	if !ok {
		return -1
	}
	for x := range d.Datoms(db.EAVT, e, datom.Keyword("p/n")) {
		return int(x.V.Long())
	}
	return -1
}

// valve is a hook that can hold calls of one kind back and let them go.
type valve struct {
	op mem.Op

	mu      sync.Mutex
	shut    chan struct{} // nil: open
	waiting chan struct{} // a token for each call that arrived while shut
	fault   func(mem.Call) mem.Fault
}

func newValve(op mem.Op) *valve { return &valve{op: op, waiting: make(chan struct{}, 1024)} }

func (v *valve) hook(c mem.Call) mem.Fault {
	v.mu.Lock()
	shut, fault := v.shut, v.fault
	v.mu.Unlock()
	if c.Op == v.op && shut != nil {
		v.waiting <- struct{}{}
		<-shut
	}
	if fault != nil {
		return fault(c)
	}
	return mem.Fault{}
}

func (v *valve) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.shut = make(chan struct{})
}

func (v *valve) open() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.shut != nil {
		close(v.shut)
		v.shut = nil
	}
}

func (v *valve) inject(f func(mem.Call) mem.Fault) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.fault = f
}

// chain reads the whole log as a reader does and returns its objects, oldest first.
func (w *world) chain() []*log.Object {
	w.t.Helper()
	l := w.server.Open("main", mem.Options{})
	defer l.Close()
	return chainOf(w.t, l)
}

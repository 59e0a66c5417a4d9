package transactor

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
	"github.com/steledb/stele/log/fs"
	"github.com/steledb/stele/log/mem"
	"github.com/steledb/stele/tx"
)

// things is a schema of entities with ten attributes: nine of one type, and a unique number.
func things(valueType datom.Keyword) tx.Data {
	data := tx.Data{tx.Map{"db/ident": datom.Keyword("x/id"), "db/valueType": datom.Keyword("db.type/long"),
		"db/cardinality": datom.Keyword("db.cardinality/one"), "db/unique": datom.Keyword("db.unique/identity")}}
	for i := range 9 {
		data = append(data, tx.Map{"db/ident": datom.Keyword(fmt.Sprint("x/a", i)), "db/valueType": valueType,
			"db/cardinality": datom.Keyword("db.cardinality/one")})
	}
	return data
}

// shape is one kind of data: long numbers only, or mostly text.
type shape struct {
	name      string
	valueType datom.Keyword
	value     func(i, k int) any
	ids       int // how many things there are, changed again and again; 0: each is new
}

var shapes = []shape{
	{"long-only", "db.type/long", func(i, k int) any { return int64(i*k) * 7919 }, 0},
	{"text-heavy", "db.type/string", someText, 0},
}

func someText(i, k int) any {
	return fmt.Sprint(i, k, strings.Repeat(" inscribed once, never edited", 6))
}

// two are the i-th two of a shape's things: with the transaction's instant, 21 datoms.
func (s shape) two(i int) tx.Data {
	var data tx.Data
	for j := range 2 {
		m := tx.Map{"x/id": int64(2*i + j)}
		if s.ids > 0 {
			m["x/id"] = int64((2*i + j) % s.ids)
		}
		for k := range 9 {
			m[datom.Keyword(fmt.Sprint("x/a", k))] = s.value(2*i+j, k)
		}
		data = append(data, m)
	}
	return data
}

// load inserts twos until there are n datoms, many at a time.
func (s shape) load(t testing.TB, x *Transactor, n int) {
	t.Helper()
	mustTransact(t, x, things(s.valueType))
	var line []*Future
	for i := range n / 21 {
		if line = append(line, mustSubmit(t, x, s.two(i))); len(line) == 2000 {
			for _, f := range line {
				if _, err := f.Wait(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			line = line[:0]
		}
	}
	for _, f := range line {
		if _, err := f.Wait(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// settle commits a little, until no merge is at work in the background.
func settle(t testing.TB, x *Transactor) {
	t.Helper()
	for i := range 40 {
		x.term.Load().wait()
		mustTransact(t, x, tx.Data{tx.Map{"db/doc": fmt.Sprint("settling ", i)}})
	}
	x.term.Load().wait()
}

// liveHeap is what a collection leaves.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestP5_AccountedIsMeasured: at a hundred thousand and at a million datoms, the account of a transactor on a directory is within a fifth of what opening and
// filling it has added to the live heap. The log's own memory is in the measured part, and not in the account.
func TestP5_AccountedIsMeasured(t *testing.T) {
	for _, s := range shapes {
		for _, n := range []int{100_000, 1_000_000} {
			t.Run(fmt.Sprintf("%s %d", s.name, n), func(t *testing.T) {
				if n > 100_000 && (testing.Short() || underRace) {
					t.Skip("a million datoms take seconds")
				}
				before := liveHeap()
				l, err := fs.Open(t.Context(), fs.Options{Dir: t.TempDir()})
				if err != nil {
					t.Fatal(err)
				}
				x := newWorld(t).openOn(l, Options{})
				s.load(t, x, n)
				settle(t, x)
				measured := liveHeap() - before
				m := x.Stats().Memory
				near(t, measured, m)
				if m.Queue != 0 || m.Batches != 0 {
					t.Errorf("nothing is under way, and the account says %+v", m)
				}
				runtime.KeepAlive(x)
			})
		}
	}
}

// near compares an account with a measurement.
func near(t *testing.T, measured int64, m Memory) {
	t.Helper()
	accounted := m.Accounted()
	t.Logf("measured %d, accounted %d (%+.1f%%): %+v", measured, accounted, 100*float64(accounted-measured)/float64(measured), m)
	if accounted < measured*8/10 || accounted > measured*12/10 {
		t.Errorf("measured %d bytes, accounted for %d: more than a fifth apart", measured, accounted)
	}
}

// TestP5_TheQueueIsMeasured: what waits in the queue is accounted for as it is measured too.
func TestP5_TheQueueIsMeasured(t *testing.T) {
	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			w := newWorld(t)
			v := newValve(mem.OpAppend)
			x, l := w.open(Options{Depth: 1, MaxBatch: 10, StoreTimeout: time.Hour})
			mustTransact(t, x, things(s.valueType))
			l.SetHook(v.hook)
			v.close()
			defer v.open()
			mustSubmit(t, x, person0(0))
			<-v.waiting
			before, was := liveHeap(), x.Stats().Memory
			for i := range 3000 {
				mustSubmit(t, x, s.two(i))
			}
			measured := liveHeap() - before
			m := x.Stats().Memory
			t.Logf("measured %d, queue %d, batches %d, reserved %d", measured, m.Queue-was.Queue, m.Batches-was.Batches, m.Reserved-was.Reserved)
			m.Queue, m.Batches, m.Value, m.Unique, m.Stage, m.Other = m.Queue-was.Queue, m.Batches-was.Batches, m.Value-was.Value, 0, m.Stage-was.Stage, 0
			near(t, measured, m)
		})
	}
}

func person0(i int) tx.Data { return tx.Data{tx.Map{"db/doc": fmt.Sprint("document ", i)}} }

// fill inserts documents of a kilobyte until one is not admitted, and then as many small ones as still are.
func fill(t testing.TB, x *Transactor) (n int, err error) {
	t.Helper()
	for _, data := range []func(int) tx.Data{document, person0} {
		for err = nil; err == nil; n++ {
			if n > 50_000 {
				t.Fatal("there is no bound")
			}
			_, err = x.Transact(context.Background(), data(n))
		}
		n--
	}
	return n, err
}

func document(i int) tx.Data {
	return tx.Data{tx.Map{"db/doc": fmt.Sprint(i, strings.Repeat(".", 1000))}}
}

const megabyte = 1 << 20

func TestP5_PastTheBudgetWritesFailAndReadsGoOn(t *testing.T) {
	w := newWorld(t)
	x, _ := w.open(Options{MemoryBudget: 8 * megabyte})
	first := mustTransact(t, x, people)
	mustTransact(t, x, person("a", 1))
	n, err := fill(t, x)
	var full *MemoryError
	if !errors.Is(err, ErrMemoryBudget) || !errors.As(err, &full) || errors.Is(err, ErrBusy) || full.After != 0 {
		t.Fatalf("after %d documents: %v", n, err)
	}
	if full.Budget != 8*megabyte || full.Accounted+full.Reserved <= full.Budget || full.Accounted > full.Budget {
		t.Errorf("%+v", full)
	}
	if n < 1000 {
		t.Errorf("the budget is used up by %d documents of a kilobyte", n)
	}
	t.Logf("%d documents: %+v", n, x.Stats().Memory)
	for _, opt := range []TxOptions{{}, {Wait: true}, {Key: "k"}} {
		for _, data := range []tx.Data{document(0), person("a", 2), {tx.RetractEntity(first.Tx), tx.Add("x", "db/doc", "x")}} {
			if _, err := x.Submit(t.Context(), data, opt); !errors.Is(err, ErrMemoryBudget) {
				t.Errorf("%+v: %v", opt, err)
			}
		}
	}
	if s := x.Stats(); s.OverBudget < 11 || s.Refused != 0 || s.Busy != 0 {
		t.Errorf("over budget %d, refused %d, busy %d", s.OverBudget, s.Refused, s.Busy)
	}

	if d, err := x.Sync(t.Context()); err != nil || d.BasisT() != uint64(n+3) {
		t.Errorf("Sync: t = %d, %v", d.BasisT(), err)
	}
	if number(t, x.DB(), "a") != 1 || number(t, x.DB().AsOf(2), "a") != -1 {
		t.Error("reads do not go on")
	}
	if r, err := x.With(t.Context(), person("a", 5)); err != nil || number(t, r.DBAfter, "a") != 5 {
		t.Errorf("With: %v", err)
	}
	seen := 0
	for r, err := range x.Subscribe(t.Context(), 1) {
		if err != nil {
			t.Fatal(err)
		}
		if seen++; r.T == uint64(n+3) {
			break
		}
	}
	if seen != n+3 {
		t.Errorf("%d reports of %d", seen, n+3)
	}
	if err := closeIn(t, x, time.Minute); err != nil {
		t.Fatal(err)
	}

	// Whoever opens it under the same budget can read as well; with a larger one, writes go on.
	x, _ = w.open(Options{MemoryBudget: 8 * megabyte})
	if m, err := fill(t, x); !errors.Is(err, ErrMemoryBudget) || m > n/10 {
		t.Errorf("opened again: %d documents, %v", m, err)
	}
	if number(t, x.DB(), "a") != 1 {
		t.Error("opened again, it cannot be read")
	}
	if err := closeIn(t, x, time.Minute); err != nil {
		t.Fatal(err)
	}
	x, _ = w.open(Options{MemoryBudget: 16 * megabyte})
	mustTransact(t, x, person("a", 2))
}

func TestP5_ABudgetSmallerThanTheBootstrap(t *testing.T) {
	w := newWorld(t)
	x, _ := w.open(Options{MemoryBudget: 1})
	if _, err := x.Transact(t.Context(), people, TxOptions{Wait: true}); !errors.Is(err, ErrMemoryBudget) || errors.Is(err, ErrBusy) {
		t.Errorf("%v", err)
	}
	if d, err := x.Sync(t.Context()); err != nil || d.Schema().AttrByIdent("db/ident") == nil {
		t.Errorf("%v", err)
	}
	if m := x.Stats().Memory; m.Budget != 1 || m.Accounted() < 10_000 {
		t.Errorf("%+v", m)
	}
	if err := (Options{MemoryBudget: -1}).Validate(); err == nil || !strings.Contains(err.Error(), "MemoryBudget") {
		t.Errorf("-1: %v", err)
	}
}

// TestP5_TheQueueAndBatchesCount: with the store at a stand, what was admitted fills the budget. That passes, so it is ErrBusy as well.
func TestP5_TheQueueAndBatchesCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		v := newValve(mem.OpAppend)
		x := w.openOn(w.server.Open("main", mem.Options{Hook: v.hook}), Options{MemoryBudget: 24 * megabyte, Depth: 2, StoreTimeout: 100 * time.Hour})
		mustTransact(t, x, people)
		v.close()
		var futures []*Future
		var err error
		for err == nil {
			var f *Future
			if f, err = x.Submit(t.Context(), document(len(futures))); err == nil {
				futures = append(futures, f)
			}
		}
		var full *MemoryError
		if !errors.Is(err, ErrMemoryBudget) || !errors.Is(err, ErrBusy) || !errors.As(err, &full) || full.After <= 0 {
			t.Fatalf("%v", err)
		}
		synctest.Wait()
		m := x.Stats().Memory
		t.Logf("%d documents: %+v", len(futures), m)
		if m.Queue < int64(len(futures))*1000 || m.Batches < 2*1000 {
			t.Errorf("%d documents are pending: %+v", len(futures), m)
		}
		if sum := m.Accounted() + m.Reserved; sum > m.Budget+m.Budget/10 { // what is judged counts as what it was and as what it becomes
			t.Errorf("accounted %d, reserved %d, of %d", m.Accounted(), m.Reserved, m.Budget)
		}

		// Whoever waits gets in, once there is room.
		waiting := make(chan error, 1)
		go func() {
			_, err := x.Transact(t.Context(), document(0), TxOptions{Wait: true})
			waiting <- err
		}()
		synctest.Wait()
		v.open()
		for _, f := range futures {
			if _, err := f.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-waiting; err != nil {
			t.Errorf("waiting for room: %v", err)
		}
		mustTransact(t, x, document(1))
		m = x.Stats().Memory
		if m.Queue != 0 || m.Batches != 0 {
			t.Errorf("all is answered: %+v", m)
		}
		if m.Value+m.Value/2 > m.Budget {
			t.Errorf("what was admitted has become more than the budget: %+v", m)
		}
		closeIn(t, x, time.Hour)
	})
}

// TestP5_NobodyWaitsForMemoryThatNeverComes: whoever stands in the line when the database itself has filled the budget is sent away.
func TestP5_NobodyWaitsForMemoryThatNeverComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		x := w.openOn(w.server.Open("main", mem.Options{Delay: time.Millisecond}), Options{MemoryBudget: 6 * megabyte, QueueTransactions: 10})
		var wait sync.WaitGroup
		for i := range 50 {
			wait.Go(func() {
				for {
					_, err := x.Transact(context.Background(), document(i), TxOptions{Wait: true})
					if errors.Is(err, ErrMemoryBudget) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wait.Wait()
		if s := x.Stats(); s.Transactions < 500 || s.Memory.Queue != 0 {
			t.Errorf("%+v", s)
		}
		closeIn(t, x, time.Hour)
	})
}

// TestP5_WhatGrowsBeyondItsRequestIsRefused: a small request that becomes a large transaction, and a schema change that indexes much.
func TestP5_WhatGrowsBeyondItsRequestIsRefused(t *testing.T) {
	w := newWorld(t)
	explode := func(context.Context, db.DB, []any) (tx.Data, error) {
		var data tx.Data
		for i := range 2000 {
			data = append(data, document(i)...)
		}
		return data, nil
	}
	opt := Options{MemoryBudget: 20 * megabyte, Functions: map[datom.Keyword]tx.Func{"my/explode": explode}}
	x, _ := w.open(opt)
	mustTransact(t, x, tx.Data{tx.Map{"db/ident": datom.Keyword("x/text"), "db/valueType": datom.Keyword("db.type/string"),
		"db/cardinality": datom.Keyword("db.cardinality/one")}})
	for range 4 {
		var many tx.Data
		for i := range 1000 {
			many = append(many, tx.Map{"x/text": fmt.Sprint(i, strings.Repeat("-", 1000))})
		}
		mustTransact(t, x, many)
	}
	small := mustTransact(t, x, document(0)).T
	for name, data := range map[string]tx.Data{
		"a function":      {tx.Call("my/explode")},
		"a schema change": {tx.Map{"db/id": datom.Keyword("x/text"), "db/index": true}},
	} {
		_, err := x.Transact(t.Context(), data)
		var full *MemoryError
		if !errors.Is(err, ErrMemoryBudget) || !errors.As(err, &full) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r := mustTransact(t, x, document(1)); r.T != small+1 {
		t.Errorf("what was refused is in the database: t = %d", r.T)
	}
	if m := x.Stats().Memory; m.Queue != 0 || m.Batches != 0 {
		t.Errorf("%+v", m)
	}
	if err := closeIn(t, x, time.Minute); err != nil {
		t.Fatal(err)
	}
	opt.MemoryBudget = 64 * megabyte
	x, _ = w.open(opt)
	mustTransact(t, x, tx.Data{tx.Call("my/explode")})
	mustTransact(t, x, tx.Data{tx.Map{"db/id": datom.Keyword("x/text"), "db/index": true}})
}

// TestP5_ManyWritersAtTheBudget: at the edge of the budget the account never goes over it, what was acknowledged is there, and what was not admitted is not.
func TestP5_ManyWritersAtTheBudget(t *testing.T) {
	w := newWorld(t)
	x, _ := w.open(Options{MemoryBudget: 24 * megabyte, MaxBatch: 32})
	mustTransact(t, x, people)
	var mu sync.Mutex
	var acknowledged, turned []string
	var peak int64
	var wait sync.WaitGroup
	for g := range 8 {
		wait.Go(func() {
			for i, misses := 0, 0; misses < 20; i++ {
				name := fmt.Sprint(g, "/", i, strings.Repeat("+", 500))
				_, err := x.Transact(context.Background(), person(name, i))
				m := x.Stats().Memory
				mu.Lock()
				peak = max(peak, m.Accounted()+m.Reserved)
				switch {
				case err == nil:
					acknowledged = append(acknowledged, name)
				case errors.Is(err, ErrMemoryBudget):
					turned = append(turned, name)
				default:
					t.Error(err)
				}
				mu.Unlock()
				if err != nil && !errors.Is(err, ErrBusy) {
					misses++
				}
			}
		})
	}
	wait.Wait()
	if peak > 25*megabyte {
		t.Errorf("the account went up to %d", peak)
	}
	if len(acknowledged) < 1000 {
		t.Errorf("%d acknowledged", len(acknowledged))
	}
	t.Logf("%d acknowledged, %d not admitted, peak %d: %+v", len(acknowledged), len(turned), peak, x.Stats().Memory)
	for _, name := range acknowledged {
		if number(t, x.DB(), name) < 0 {
			t.Fatalf("%s was acknowledged", name)
		}
	}
	for _, name := range turned {
		if number(t, x.DB(), name) >= 0 {
			t.Fatalf("%s was not admitted", name)
		}
	}
}

// TestP5_SubscribersHoldNoOldIndexes: the window that subscribers read from does not keep the value of each batch alive.
func TestP5_SubscribersHoldNoOldIndexes(t *testing.T) {
	w := newWorld(t)
	x, _ := w.open(Options{})
	mustTransact(t, x, people)
	x.feed.join()
	defer x.feed.leave()
	for i := range 100 {
		mustTransact(t, x, person(fmt.Sprint(i), i))
	}
	x.feed.mu.Lock()
	defer x.feed.mu.Unlock()
	if len(x.feed.window) != 100 {
		t.Fatalf("%d stretches", len(x.feed.window))
	}
	for i := range x.feed.window[:99] {
		s := &x.feed.window[i]
		if s.after != x.DB().WithBasis(s.last()) || s.before != x.DB().WithBasis(s.first()-1) {
			t.Fatalf("stretch %d of 100 holds a value of its own", i)
		}
	}
	if x.Stats().Memory.Subscribers < 100*300 {
		t.Errorf("%+v", x.Stats().Memory)
	}
}

// TestP5_P7_WhatWasAdmittedIsCommitted: with the budget used up by what waits, the store fails. Recovery and what was admitted run on the reserve.
func TestP5_P7_WhatWasAdmittedIsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		v := newValve(mem.OpAppend)
		x := w.openOn(w.server.Open("main", mem.Options{Hook: v.hook}), Options{MemoryBudget: 12 * megabyte, Depth: 2, Retries: -1, StoreTimeout: time.Hour})
		mustTransact(t, x, people)
		v.close()
		var futures []*Future
		for {
			f, err := x.Submit(t.Context(), document(len(futures)))
			if err != nil {
				break
			}
			futures = append(futures, f)
		}
		synctest.Wait()
		var failedOnce atomic.Bool
		v.inject(func(c mem.Call) (f mem.Fault) {
			if c.Op == mem.OpAppend && failedOnce.CompareAndSwap(false, true) {
				f.Fail = errBroken
			}
			return f
		})
		v.open()
		failed := 0
		for _, f := range futures {
			_, err := f.Wait(t.Context())
			var lost *CommitError
			switch {
			case errors.As(err, &lost):
				failed++
			case err != nil:
				t.Fatal(err)
			}
		}
		s := x.Stats()
		if s.Takeovers != 1 || failed > 256 || s.Transactions < uint64(len(futures)-failed) {
			t.Errorf("%d takeovers, %d of %d failed, %d committed", s.Takeovers, failed, len(futures), s.Transactions)
		}
		if m := s.Memory; m.Queue != 0 || m.Batches != 0 || m.Accounted() > m.Budget {
			t.Errorf("%+v", m)
		}
		mustTransact(t, x, document(0))
		closeIn(t, x, time.Hour)
	})
}

// TestP5_P8_AResubmissionIsAnsweredBeyondTheBudget: what was committed under a key can be learned by submitting it again, as ErrUnknownOutcome says, also
// when the budget is used up: it commits nothing. What is new under a key is refused.
func TestP5_P8_AResubmissionIsAnsweredBeyondTheBudget(t *testing.T) {
	w := newWorld(t)
	x, _ := w.open(Options{MemoryBudget: 8 * megabyte})
	mustTransact(t, x, people)
	first, err := x.Transact(t.Context(), person("a", 1), TxOptions{Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fill(t, x); !errors.Is(err, ErrMemoryBudget) {
		t.Fatal(err)
	}
	for _, wait := range []bool{false, true} {
		r, err := x.Transact(t.Context(), person("a", 1), TxOptions{Key: "k", Wait: wait})
		if err != nil || !r.Repeated || r.T != first.T {
			t.Errorf("waiting %t: %+v, %v", wait, r, err)
		}
		if _, err := x.Transact(t.Context(), person("a", 2), TxOptions{Key: "k", Wait: wait}); !errors.Is(err, tx.ErrIdempotencyMismatch) {
			t.Errorf("waiting %t: another request under its key: %v", wait, err)
		}
		if _, err := x.Transact(t.Context(), person("a", 2), TxOptions{Key: "new", Wait: wait}); !errors.Is(err, ErrMemoryBudget) {
			t.Errorf("waiting %t: under a new key: %v", wait, err)
		}
	}
	if m := x.Stats().Memory; m.Queue != 0 || x.queue.taken != (share{}) {
		t.Errorf("%+v, %+v", m, x.queue.taken)
	}
}

package transactor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/mem"
	"github.com/steledb/stele/tx"
)

func TestReportHoldsWhatHappened(t *testing.T) {
	x, _ := newWorld(t).open(Options{})
	mustTransact(t, x, people)
	r := mustTransact(t, x, tx.Data{tx.Map{"db/id": "ann", "p/id": "ann", "p/n": int64(1)}})
	ann, ok := r.Tempids.Get("ann")
	if !ok {
		t.Fatal("the report does not know the tempid")
	}
	if r.T != x.DB().BasisT() || r.Tx != datom.TxID(r.T) || r.DBBefore.BasisT() != r.T-1 || r.DBAfter.BasisT() != r.T {
		t.Errorf("T = %d, Tx = %d, before %d, after %d; DB is at %d", r.T, r.Tx, r.DBBefore.BasisT(), r.DBAfter.BasisT(), x.DB().BasisT())
	}
	if len(r.TxData) != 3 { // p/id, p/n, db/txInstant
		t.Errorf("tx-data: %v", r.TxData)
	}
	r = mustTransact(t, x, person("ann", 2))
	if got := number(t, r.DBBefore, "ann"); got != 1 {
		t.Errorf("before: p/n = %d", got)
	}
	if got := number(t, r.DBAfter, "ann"); got != 2 {
		t.Errorf("after: p/n = %d", got)
	}
	if got := number(t, r.DBAfter.AsOf(r.T-1), "ann"); got != 1 {
		t.Errorf("as of before: p/n = %d", got)
	}
	for d := range r.DBAfter.Datoms(db.EAVT, ann) {
		if d.T != r.T && d.T != r.T-1 {
			t.Errorf("%v", d)
		}
	}
}

// One goroutine's submissions, hundreds in flight over many batches: t follows the order of submission, and every value that is
// ever shown is a later one.
func TestP1_TOrderIsQueueOrderIsInstallOrder(t *testing.T) {
	w := newWorld(t)
	x, l := w.open(Options{MaxBatch: 7, Depth: 4})
	mustTransact(t, x, people)
	// Objects become durable out of order: every other append is held up by a moment.
	l.SetHook(func(c mem.Call) mem.Fault {
		if c.Op == mem.OpAppend && c.Key.FirstT%2 == 0 {
			return mem.Fault{Delay: 3 * time.Millisecond}
		}
		return mem.Fault{}
	})
	const n = 500
	futures := make([]*Future, n)
	for i := range futures {
		futures[i] = mustSubmit(t, x, person(fmt.Sprint("p", i), i))
	}
	stop := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		for last := uint64(0); ; {
			now := x.DB().BasisT()
			if now < last {
				t.Errorf("DB went back from t = %d to %d", last, now)
				return
			}
			last = now
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	last := uint64(2)
	for i, f := range futures {
		r, err := f.Wait(context.Background())
		if err != nil {
			t.Fatalf("transaction %d: %v", i, err)
		}
		if r.T != last+1 {
			t.Fatalf("transaction %d has t = %d after %d", i, r.T, last)
		}
		last = r.T
		if x.DB().BasisT() < r.T {
			t.Fatalf("answered before DB shows it")
		}
	}
	close(stop)
	watch.Wait()
}

// Each transaction depends on the one before, which is not durable yet: all are judged against exactly their predecessors, and one that
// is refused changes nothing for those behind it.
func TestP2_JudgedAgainstExactlyThePredecessors(t *testing.T) {
	w := newWorld(t)
	v := newValve(mem.OpAppend)
	x, l := w.open(Options{MaxBatch: 8, Depth: 3})
	mustTransact(t, x, people)
	l.SetHook(v.hook)
	v.close()
	var futures []*Future
	futures = append(futures, mustSubmit(t, x, person("a", 0)))
	for i := range 60 {
		futures = append(futures, mustSubmit(t, x, step("a", i)))
		futures = append(futures, mustSubmit(t, x, step("a", 1000))) // refused
	}
	v.open()
	for i, f := range futures {
		_, err := f.Wait(context.Background())
		if i > 0 && i%2 == 0 {
			if !errors.Is(err, tx.ErrCASFailed) {
				t.Fatalf("%d: %v", i, err)
			}
		} else if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if got := number(t, x.DB(), "a"); got != 60 {
		t.Errorf("p/n = %d, want 60", got)
	}
	if s := x.Stats(); s.Refused != 60 || s.Transactions != 62 {
		t.Errorf("refused %d, committed %d", s.Refused, s.Transactions)
	}
}

// While a fence is held up nothing shows: no value, no report, no refusal, although the object is durable.
func TestP3_L7_NothingShowsBeforeTheFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		v := newValve(mem.OpVerify)
		x, l := w.open(Options{StoreTimeout: time.Hour})
		mustTransact(t, x, people)
		mustTransact(t, x, person("b", 5))
		before := x.DB().BasisT()
		stored := len(w.objects())
		l.SetHook(v.hook)
		v.close()
		committed := mustSubmit(t, x, person("a", 1))
		synctest.Wait()
		refusedByStage := mustSubmit(t, x, tx.Data{tx.CAS(tx.Lookup{Attr: "p/id", Value: "a"}, "p/n", int64(7), int64(8))})
		refusedAlone := mustSubmit(t, x, step("b", 1))
		synctest.Wait()
		if len(w.objects()) != stored+1 {
			t.Fatal("the object is not durable; the test proves nothing")
		}
		for name, f := range map[string]*Future{"commit": committed, "refusal that saw the stage": refusedByStage, "refusal": refusedAlone} {
			if f.answered() {
				t.Errorf("%s: answered before the fence", name)
			}
		}
		if got := x.DB().BasisT(); got != before {
			t.Errorf("DB shows t = %d before the fence", got)
		}
		v.open()
		if _, err := committed.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := refusedByStage.Wait(t.Context()); !errors.Is(err, tx.ErrCASFailed) {
			t.Error(err)
		}
		if _, err := refusedAlone.Wait(t.Context()); !errors.Is(err, tx.ErrCASFailed) {
			t.Error(err)
		}
		closeIn(t, x, time.Hour)
	})
}

// A later object that is durable and fenced waits for the one before it, which is not.
func TestP3_L7_AnswersWaitForEveryPredecessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		x, l := w.open(Options{StoreTimeout: time.Hour, MaxBatch: 1, Depth: 4})
		mustTransact(t, x, people)
		next := x.DB().BasisT() + 1
		v := newValve(0)
		hold := make(chan struct{})
		v.inject(func(c mem.Call) mem.Fault {
			if c.Op == mem.OpAppend && c.Key.FirstT == next {
				<-hold
			}
			return mem.Fault{}
		})
		l.SetHook(v.hook)
		first := mustSubmit(t, x, person("a", 1))
		second := mustSubmit(t, x, person("b", 1))
		refusal := mustSubmit(t, x, step("b", 9))
		synctest.Wait()
		if second.answered() || refusal.answered() || x.DB().BasisT() != next-1 {
			t.Errorf("answered, or shown, behind a gap: %t %t, DB at %d", second.answered(), refusal.answered(), x.DB().BasisT())
		}
		close(hold)
		if _, err := first.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := second.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := refusal.Wait(t.Context()); !errors.Is(err, tx.ErrCASFailed) {
			t.Error(err)
		}
		closeIn(t, x, time.Hour)
	})
}

// A fence that was begun before its object was durable proves nothing: another owner may have come between.
func TestL7_TheFenceBeginsAfterTheObjectIsDurable(t *testing.T) {
	w := newWorld(t)
	x, l := w.open(Options{})
	mustTransact(t, x, people)
	var mu sync.Mutex
	var calls []string
	l.SetHook(func(c mem.Call) mem.Fault {
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, c.Op.String())
		return mem.Fault{}
	})
	mustTransact(t, x, person("a", 1))
	l.SetHook(nil)
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(calls, " "); got != "Append Verify" {
		t.Errorf("store calls of one commit: %s", got)
	}
}

func TestP4_BatchesAreCappedByCountAndBytes(t *testing.T) {
	w := newWorld(t)
	v := newValve(mem.OpAppend)
	x, l := w.open(Options{MaxBatch: 16, MaxBatchBytes: 8 << 10, Depth: 2, StoreTimeout: time.Hour})
	mustTransact(t, x, people)
	start := x.DB().BasisT()
	l.SetHook(v.hook)
	v.close()
	var futures []*Future
	for i := range 100 {
		futures = append(futures, mustSubmit(t, x, person(fmt.Sprint("small", i), i)))
	}
	for i := range 20 {
		futures = append(futures, mustSubmit(t, x, person(strings.Repeat("x", 3000)+fmt.Sprint(i), i)))
	}
	huge := mustSubmit(t, x, person(strings.Repeat("y", 20000), 1)) // larger than a batch may be: goes alone
	futures = append(futures, huge)
	<-v.waiting
	<-v.waiting // both flushes are in flight and hold
	v.open()
	for _, f := range futures {
		if _, err := f.Wait(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	full, single := false, false
	for _, o := range w.chain() {
		if o.Kind != log.KindBatch || o.FirstT <= start {
			continue
		}
		if o.Count > 16 {
			t.Errorf("an object holds %d transactions", o.Count)
		}
		if o.Size() > 9<<10 && o.Count > 1 {
			t.Errorf("an object of %d transactions takes %d bytes", o.Count, o.Size())
		}
		full = full || o.Count == 16
		single = single || o.Count == 1 && o.Size() > 20000
	}
	if !full {
		t.Error("no object is full, although a hundred transactions waited")
	}
	if !single {
		t.Error("the large transaction did not go alone")
	}
	s := x.Stats()
	if s.BatchPeak != 16 || s.InFlightPeak != 2 {
		t.Errorf("batch peak %d, in flight peak %d", s.BatchPeak, s.InFlightPeak)
	}
}

// What no object could hold is refused, and the transactor goes on.
func TestP4_ATransactionLargerThanAnObjectIsRefused(t *testing.T) {
	x, _ := newWorld(t).open(Options{Limits: tx.Limits{ValueBytes: 40 << 20}})
	mustTransact(t, x, people)
	zeros := string(make([]byte, maxTransaction-1024)) // each zero takes two bytes in the log
	if _, err := x.Transact(context.Background(), person(zeros+zeros[:2048], 1)); !errors.Is(err, tx.ErrLimitExceeded) {
		t.Errorf("over the limit: %v", err)
	}
	if _, err := x.Transact(context.Background(), person(zeros, 1)); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	mustTransact(t, x, person("a", 1))
}

// With both flushes in flight, everything that comes meanwhile shares the next object.
func TestP4_ABatchGrowsWhileNoFlushIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		x := w.openOn(w.server.Open("main", mem.Options{Delay: time.Second}), Options{Depth: 1, StoreTimeout: time.Hour})
		mustTransact(t, x, people)
		before := x.Stats()
		first := mustSubmit(t, x, person("first", 0))
		synctest.Wait() // it is on its way alone
		var futures []*Future
		for i := range 50 {
			futures = append(futures, mustSubmit(t, x, person(fmt.Sprint(i), i)))
		}
		for _, f := range append(futures, first) {
			if _, err := f.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if s := x.StatsSince(before); s.Objects != 2 || s.BatchPeak != 50 {
			t.Errorf("%d objects, the largest of %d", s.Objects, s.BatchPeak)
		}
		closeIn(t, x, time.Hour)
	})
}

// An idle transactor sends at once: one transaction takes exactly its two store calls.
func TestP4_AnIdleTransactorNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		x := w.openOn(w.server.Open("main", mem.Options{Delay: time.Second}), Options{StoreTimeout: time.Hour})
		mustTransact(t, x, people)
		for i := range 5 {
			begin := time.Now()
			mustTransact(t, x, person("a", i))
			if took := time.Since(begin); took != 2*time.Second {
				t.Errorf("a lone transaction took %v, two store calls 2s", took)
			}
		}
		closeIn(t, x, time.Hour)
	})
}

func TestP5_AFullQueueIsBusy(t *testing.T) {
	w := newWorld(t)
	v := newValve(mem.OpAppend)
	x, l := w.open(Options{QueueTransactions: 10, MaxBatch: 2, Depth: 1, StoreTimeout: time.Hour})
	mustTransact(t, x, people)
	l.SetHook(v.hook)
	v.close()
	var futures []*Future
	for i := range 10 {
		futures = append(futures, mustSubmit(t, x, person(fmt.Sprint(i), i)))
	}
	if _, err := x.Submit(context.Background(), person("one too many", 0)); !errors.Is(err, ErrBusy) {
		t.Errorf("the eleventh: %v", err)
	}
	v.open()
	for _, f := range futures {
		if _, err := f.Wait(context.Background()); err != nil {
			t.Error(err)
		}
	}
	mustTransact(t, x, person("again", 1)) // answered ones have given back their room
	if s := x.Stats(); s.Busy != 1 {
		t.Errorf("busy: %d", s.Busy)
	}
	if _, err := x.Submit(context.Background(), tx.Data{tx.Map{"p/id": strings.Repeat("x", 1<<20)}}); err != nil {
		t.Errorf("a megabyte fits the default queue: %v", err)
	}
}

func TestP6_ACallersContextEndsItsWaitAndNothingElse(t *testing.T) {
	w := newWorld(t)
	v := newValve(mem.OpAppend)
	x, l := w.open(Options{StoreTimeout: time.Hour})
	mustTransact(t, x, people)
	l.SetHook(v.hook)
	v.close()
	ctx, cancel := context.WithCancel(context.Background())
	cancelled := make(chan error, 1)
	go func() {
		_, err := x.Transact(ctx, person("cancelled", 1))
		cancelled <- err
	}()
	<-v.waiting
	other := mustSubmit(t, x, person("other", 2))
	cancel()
	err := <-cancelled
	var pending *PendingError
	if !errors.As(err, &pending) || !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnknownOutcome) {
		t.Fatalf("a cancelled wait: %v", err)
	}
	v.open()
	if _, err := pending.Future.Wait(context.Background()); err != nil {
		t.Errorf("the cancelled transaction itself: %v", err)
	}
	if _, err := other.Wait(context.Background()); err != nil {
		t.Errorf("somebody else's: %v", err)
	}
	if number(t, x.DB(), "cancelled") != 1 || number(t, x.DB(), "other") != 2 {
		t.Error("both are committed")
	}
	if _, err := x.Transact(ctx, person("never", 1)); !errors.Is(err, context.Canceled) || errors.As(err, &pending) && number(t, x.DB(), "never") != -1 {
		t.Errorf("a context that has ended admits nothing: %v", err)
	}
}

func TestAStreamStopsExactlyAtItsFirstRefusal(t *testing.T) {
	x, _ := newWorld(t).open(Options{MaxBatch: 4, Depth: 2})
	mustTransact(t, x, people)
	var after *Future
	var futures []*Future
	for i := range 40 {
		data := person(fmt.Sprint("s", i), i)
		if i == 23 {
			data = step("s0", 99)
		}
		after = mustSubmit(t, x, data, TxOptions{After: after})
		futures = append(futures, after)
	}
	for i, f := range futures {
		_, err := f.Wait(context.Background())
		switch {
		case i < 23 && err != nil:
			t.Errorf("%d: %v", i, err)
		case i == 23 && (!errors.Is(err, tx.ErrCASFailed) || errors.Is(err, ErrPredecessorRefused)):
			t.Errorf("%d: %v", i, err)
		case i > 23 && (!errors.Is(err, tx.ErrCASFailed) || !errors.Is(err, ErrPredecessorRefused)):
			t.Errorf("%d: %v", i, err)
		}
	}
	if number(t, x.DB(), "s22") != 22 || number(t, x.DB(), "s24") != -1 {
		t.Error("the stream did not stop where it should")
	}
	y, _ := newWorld(t).open(Options{})
	if _, err := y.Submit(context.Background(), people, TxOptions{After: after}); err == nil {
		t.Error("a predecessor of another transactor was taken")
	}
}

// A transaction that changes the schema is a batch of its own, so that every report's values have their own schema.
func TestSchemaChangesAreBatchesOfTheirOwn(t *testing.T) {
	w := newWorld(t)
	v := newValve(mem.OpAppend)
	x, l := w.open(Options{Depth: 1, StoreTimeout: time.Hour})
	mustTransact(t, x, people)
	l.SetHook(v.hook)
	v.close()
	a := mustSubmit(t, x, person("a", 1))
	b := mustSubmit(t, x, person("b", 1))
	rename := mustSubmit(t, x, tx.Data{tx.Add(datom.Keyword("p/n"), "db/ident", datom.Keyword("p/number"))})
	c := mustSubmit(t, x, tx.Data{tx.Map{"p/id": "c", "p/number": int64(3)}})
	v.open()
	for _, f := range []*Future{a, b, c} {
		if _, err := f.Wait(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	r, err := rename.Wait(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if r.DBBefore.Schema().AttrByIdent("p/number") != nil && r.DBBefore.Schema().AttrByIdent("p/number").Ident == "p/number" {
		t.Error("the value before has the schema of the value after")
	}
	if got := r.DBAfter.Schema().AttrByIdent("p/number"); got == nil || got.Ident != "p/number" {
		t.Errorf("after: %+v", got)
	}
	for _, o := range w.chain() {
		if o.Kind == log.KindBatch && o.FirstT <= r.T && r.T <= o.LastT() && o.Count != 1 {
			t.Errorf("the schema change shares its object with %d others", o.Count-1)
		}
	}
}

func TestWithCommitsNothing(t *testing.T) {
	x, _ := newWorld(t).open(Options{})
	mustTransact(t, x, people)
	basis := x.DB().BasisT()
	r, err := x.With(context.Background(), person("a", 1))
	if err != nil {
		t.Fatal(err)
	}
	if number(t, r.DBAfter, "a") != 1 || number(t, x.DB(), "a") != -1 || x.DB().BasisT() != basis {
		t.Error("With shows in the database, or not in its report")
	}
	r, err = tx.With(r.DBAfter, step("a", 1))
	if err != nil || number(t, r.DBAfter, "a") != 2 {
		t.Errorf("chained: %v", err)
	}
}

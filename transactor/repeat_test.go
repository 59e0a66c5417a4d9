package transactor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
	"github.com/steledb/stele/log/mem"
	"github.com/steledb/stele/tx"
)

// order is a request whose repetition would be seen: a new entity with a tempid, without an identity.
func order(n int) tx.Data { return tx.Data{tx.Map{"db/id": "order", "p/n": int64(n)}} }

// orders counts the entities that order made.
func orders(t testing.TB, d db.DB, n int) (count int) {
	t.Helper()
	for x, err := range d.Datoms(db.AEVT, datom.Keyword("p/n")) {
		if err != nil {
			t.Fatal(err)
		}
		if x.V.Long() == int64(n) {
			count++
		}
	}
	return count
}

func keyed(t testing.TB, x *Transactor, key string, data tx.Data) *tx.Report {
	t.Helper()
	r, err := x.Transact(context.Background(), data, TxOptions{Key: key})
	if err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	return r
}

// sameReport sees that again is what first was.
func sameReport(t testing.TB, again, first *tx.Report) {
	t.Helper()
	was, _ := first.Tempids.Get("order")
	is, ok := again.Tempids.Get("order")
	if !again.Repeated || again.T != first.T || again.Tx != first.Tx || !ok || is != was || !slices.Equal(again.TxData, first.TxData) ||
		again.DBBefore.BasisT() != first.DBBefore.BasisT() || again.DBAfter.BasisT() != first.DBAfter.BasisT() {
		t.Errorf("repeated %t, t %d, order %v, %v; was t %d, order %v, %v", again.Repeated, again.T, is, again.TxData, first.T, was, first.TxData)
	}
}

// TestP8_AKeyIsCommittedOnce: resubmitted in the same process, after a restart, and to a new owner.
func TestP8_AKeyIsCommittedOnce(t *testing.T) {
	w := newWorld(t)
	x, _ := w.open(Options{})
	mustTransact(t, x, people)
	first := keyed(t, x, "k", order(1))
	if first.Repeated {
		t.Error("the first is a repetition")
	}
	mustTransact(t, x, person("a", 5))
	sameReport(t, keyed(t, x, "k", order(1)), first)
	inForms, err := x.Transact(t.Context(), append(order(1), tx.Map{"db/id": tx.TxEntity, "stele.tx/key": "k"}))
	if err != nil {
		t.Fatal(err)
	}
	sameReport(t, inForms, first)

	y, _ := w.open(Options{}) // deposes x
	sameReport(t, keyed(t, y, "k", order(1)), first)
	closeIn(t, y, time.Minute)
	z, _ := w.open(Options{})
	basis := z.DB().BasisT()
	sameReport(t, keyed(t, z, "k", order(1)), first)
	if _, err := z.Transact(t.Context(), order(2), TxOptions{Key: "k"}); !errors.Is(err, tx.ErrIdempotencyMismatch) {
		t.Errorf("another request: %v", err)
	}
	if n := orders(t, z.DB(), 1); n != 1 || z.DB().BasisT() != basis {
		t.Errorf("%d orders; t %d, was %d", n, z.DB().BasisT(), basis)
	}
	if s := z.Stats(); s.Repeated != 1 || s.Refused != 1 || s.Transactions != 0 {
		t.Errorf("repeated %d, refused %d, committed %d", s.Repeated, s.Refused, s.Transactions)
	}
}

// TestP8_ManyAtOnce: many resubmit one key while its first is in flight; one commits, all have its report, and none before the fence of
// what they were judged against.
func TestP8_ManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		v := newValve(mem.OpVerify)
		l := w.server.Open("main", mem.Options{Hook: v.hook})
		x := w.openOn(l, Options{MaxBatch: 4, Depth: 3})
		mustTransact(t, x, people)
		v.close()
		var futures []*Future
		for i := range 30 {
			key := fmt.Sprint("k", i%3)
			futures = append(futures, mustSubmit(t, x, order(i%3), TxOptions{Key: key}))
		}
		synctest.Wait()
		for i, f := range futures {
			if f.answered() {
				t.Errorf("%d is answered ahead of its fence", i)
			}
		}
		v.open()
		firsts := map[uint64]int{}
		for i, f := range futures {
			r, err := f.Wait(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !r.Repeated {
				firsts[r.T]++
			}
			first, _ := futures[i%3].Wait(t.Context())
			if i > 2 {
				sameReport(t, r, first)
			}
		}
		for n := range 3 {
			if got := orders(t, x.DB(), n); got != 1 {
				t.Errorf("%d orders of %d", got, n)
			}
		}
		if len(firsts) != 3 {
			t.Errorf("%d were no repetitions", len(firsts))
		}
	})
}

// TestP8_P7_ResubmittedAfterAnUnknownOutcome: the caller of a deposed owner that was cut off submits again to the next owner, whether or not
// the first has landed.
func TestP8_P7_ResubmittedAfterAnUnknownOutcome(t *testing.T) {
	for _, landed := range []bool{true, false} {
		t.Run(fmt.Sprint("landed ", landed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				x, l := w.open(Options{StoreTimeout: time.Second, Retries: -1})
				mustTransact(t, x, people)
				l.SetHook(func(c mem.Call) mem.Fault {
					if c.Op == mem.OpAppend && landed {
						return mem.Fault{Lose: errBroken}
					}
					return mem.Fault{Fail: errBroken}
				})
				f := mustSubmit(t, x, order(1), TxOptions{Key: "k"})
				synctest.Wait()
				y, _ := w.open(Options{})
				r := keyed(t, y, "k", order(1))
				if r.Repeated != landed {
					t.Errorf("repeated %t", r.Repeated)
				}
				sameReport(t, keyed(t, y, "k", order(1)), r)
				if n := orders(t, y.DB(), 1); n != 1 {
					t.Errorf("%d orders", n)
				}
				closeIn(t, x, time.Second)
				if _, err := f.Wait(t.Context()); !errors.Is(err, ErrUnknownOutcome) {
					t.Errorf("the first: %v", err)
				}
			})
		})
	}
}

// TestP8_AReportThatCannotBeRead: the answer still says that it was committed, and when; and what comes after it goes on.
func TestP8_AReportThatCannotBeRead(t *testing.T) {
	w := newWorld(t)
	x, l := w.open(Options{Retries: -1})
	mustTransact(t, x, people)
	first := keyed(t, x, "k", order(1))
	l.SetHook(func(c mem.Call) mem.Fault {
		if c.Op == mem.OpRead || c.Op == mem.OpGet {
			return mem.Fault{Fail: errBroken}
		}
		return mem.Fault{}
	})
	again := mustSubmit(t, x, order(1), TxOptions{Key: "k"})
	behind := mustSubmit(t, x, order(2), TxOptions{After: again})
	var repeat *RepeatError
	if _, err := again.Wait(t.Context()); !errors.As(err, &repeat) || repeat.T != first.T || !errors.Is(err, errBroken) {
		t.Errorf("%v", err)
	}
	if _, err := behind.Wait(t.Context()); err != nil {
		t.Errorf("behind a transaction that was committed: %v", err)
	}
	late := mustSubmit(t, x, order(3), TxOptions{After: again})
	if _, err := late.Wait(t.Context()); err != nil {
		t.Errorf("behind a transaction that was committed: %v", err)
	}
	l.SetHook(nil)
	sameReport(t, keyed(t, x, "k", order(1)), first)
}

// TestP5_P8_ARepetitionCountsUntilItIsAnswered: thousands of resubmissions cannot pile up behind a slow log.
func TestP5_P8_ARepetitionCountsUntilItIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		v := newValve(mem.OpRead)
		l := w.server.Open("main", mem.Options{Hook: v.hook})
		x := w.openOn(l, Options{QueueTransactions: 20, StoreTimeout: time.Hour})
		mustTransact(t, x, people)
		first := keyed(t, x, "k", order(1))
		v.close()
		var futures []*Future
		busy := false
		for range 40 {
			f, err := x.Submit(t.Context(), order(1), TxOptions{Key: "k"})
			if busy = errors.Is(err, ErrBusy); busy {
				break
			}
			futures = append(futures, f)
			synctest.Wait()
		}
		if !busy || len(futures) != 20 {
			t.Errorf("%d were admitted", len(futures))
		}
		closing := make(chan error)
		go func() { closing <- closeIn(t, x, time.Hour) }()
		synctest.Wait()
		v.open()
		if err := <-closing; err != nil {
			t.Errorf("Close: %v", err)
		}
		for _, f := range futures { // Close drains what was admitted
			r, err := f.Wait(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			sameReport(t, r, first)
		}
	})
}

// TestP8_ConcurrentCallers: goroutines that retry as clients do.
func TestP8_ConcurrentCallers(t *testing.T) {
	w := newWorld(t)
	x, _ := w.open(Options{MaxBatch: 8})
	mustTransact(t, x, people)
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for i := range 50 {
				keyed(t, x, fmt.Sprint("k", i), order(i))
			}
		})
	}
	wait.Wait()
	for i := range 50 {
		if n := orders(t, x.DB(), i); n != 1 {
			t.Errorf("%d orders of %d", n, i)
		}
	}
}

// TestP8_P10_ARepetitionThatClosingCutsOff: what it repeats was committed, or sent; so it is not said to have never been.
func TestP8_P10_ARepetitionThatClosingCutsOff(t *testing.T) {
	for _, committed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			x, l := w.open(Options{StoreTimeout: time.Hour, Retries: -1, MaxBatch: 1})
			mustTransact(t, x, people)
			if committed {
				keyed(t, x, "k", order(1))
			}
			v := newValve(mem.OpVerify)
			l.SetHook(v.hook)
			v.close()
			for range 2 {
				f := mustSubmit(t, x, order(1), TxOptions{Key: "k"})
				defer func() {
					if _, err := f.Wait(t.Context()); !errors.Is(err, ErrUnknownOutcome) || errors.Is(err, ErrClosed) {
						t.Errorf("committed %t: %v", committed, err)
					}
				}()
			}
			synctest.Wait()
			time.AfterFunc(2*time.Second, v.open)
			closeIn(t, x, time.Second)
		})
	}
}

// TestP8_P10_CloseDrainsRepetitions: as long as the log is being read, however long that takes altogether.
func TestP8_P10_CloseDrainsRepetitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := w.handle()
		x := mustOpen(t, l, Options{StoreTimeout: 10 * time.Second})
		mustTransact(t, x, people)
		first := keyed(t, x, "k", order(1))
		l.SetHook(func(c mem.Call) mem.Fault {
			if c.Op == mem.OpRead {
				return mem.Fault{Delay: time.Second}
			}
			return mem.Fault{}
		})
		var futures []*Future
		for range 200 {
			futures = append(futures, mustSubmit(t, x, order(1), TxOptions{Key: "k"}))
		}
		if err := closeIn(t, x, time.Hour); err != nil {
			t.Errorf("Close: %v", err)
		}
		for _, f := range futures {
			r, err := f.Wait(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			sameReport(t, r, first)
		}
		if root, err := w.handle().Root(t.Context()); err != nil || root.Lease != 0 {
			t.Errorf("the lease was not released: %+v, %v", root, err)
		}
	})
}

func TestP8_AMismatchIsJudgedAgainWhenTheFirstIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		x, l := w.open(Options{Retries: -1, MaxBatch: 1, StoreTimeout: time.Second})
		mustTransact(t, x, people)
		var done atomic.Bool
		l.SetHook(func(c mem.Call) mem.Fault {
			if c.Op == mem.OpAppend && !done.Swap(true) {
				return mem.Fault{Delay: 100 * time.Millisecond, Fail: errBroken}
			}
			return mem.Fault{}
		})
		f1 := mustSubmit(t, x, order(1), TxOptions{Key: "k"})
		f2 := mustSubmit(t, x, order(2), TxOptions{Key: "k"})
		f3 := mustSubmit(t, x, order(1), TxOptions{Key: "k"})
		_, err := f1.Wait(t.Context())
		var ce *CommitError
		if !errors.As(err, &ce) {
			t.Errorf("first: %v", err)
		}
		r, err := f2.Wait(t.Context())
		if err != nil || r.Repeated {
			t.Errorf("second: %v", err)
		}
		if _, err := f3.Wait(t.Context()); !errors.Is(err, tx.ErrIdempotencyMismatch) {
			t.Errorf("third: %v", err)
		}
		again := keyed(t, x, "k", order(2))
		sameReport(t, again, r)
	})
}

func TestP8_ARefusedKeyIsFree(t *testing.T) {
	w := newWorld(t)
	x, _ := w.open(Options{})
	mustTransact(t, x, people)
	mustTransact(t, x, person("a", 1))
	if _, err := x.Transact(t.Context(), step("a", 7), TxOptions{Key: "k"}); !errors.Is(err, tx.ErrCASFailed) {
		t.Fatal(err)
	}
	r := keyed(t, x, "k", order(1))
	sameReport(t, keyed(t, x, "k", order(1)), r)
}

func TestP8_ManyTempidsUnderAKey(t *testing.T) {
	w := newWorld(t)
	x, _ := w.open(Options{})
	mustTransact(t, x, people)
	var data tx.Data
	for i := range 150000 {
		data = append(data, tx.Map{"db/id": fmt.Sprintf("a tempid with quite a long name, that of number %d", i), "p/n": int64(i)})
	}
	first, err := x.Transact(t.Context(), data, TxOptions{Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	closeIn(t, x, time.Minute)
	y, _ := w.open(Options{})
	again, err := y.Transact(t.Context(), data, TxOptions{Key: "k"})
	if err != nil || again.T != first.T || len(again.Tempids.Map()) != 150000 {
		t.Errorf("%v", err)
	}
}

// TestP8_RepeatsOfADeposedOwner: resubmissions while their owner is deposed are answered truly.
func TestP8_RepeatsOfADeposedOwner(t *testing.T) {
	for _, start := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			v := newValve(mem.OpVerify)
			x := w.openOn(w.server.Open("main", mem.Options{Hook: v.hook}), Options{MaxBatch: 2, Depth: 3})
			mustTransact(t, x, people)
			var before *tx.Report
			if start {
				before = keyed(t, x, "k0", order(0))
			}
			v.close()
			var fs []*Future
			for i := range 9 {
				fs = append(fs, mustSubmit(t, x, order(i/3), TxOptions{Key: fmt.Sprint("k", i/3)}))
			}
			synctest.Wait()
			y := w.openOn(w.server.Open("main", mem.Options{}), Options{})
			v.open()
			for i, f := range fs {
				r, err := f.Wait(t.Context())
				n := orders(t, y.DB(), i/3)
				switch {
				case err == nil && n != 1:
					t.Errorf("%d committed, and there are %d", i, n)
				case err != nil && !errors.Is(err, ErrUnknownOutcome) && n == 1 && before == nil:
					t.Errorf("%d: %v, and it is there", i, err)
				case err == nil:
					sameReport(t, keyed(t, y, fmt.Sprint("k", i/3), order(i/3)), r)
				}
			}
			closeIn(t, y, time.Minute)
		})
	}
}

package transactor

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/mem"
	"github.com/steledb/stele/tx"
)

// A batch of refusals has no object. One whose fence failed must not hide that the object behind it has landed.
func TestP7_L1_RefusalsDoNotHideWhatLandedBehindThem(t *testing.T) {
	for _, deposed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			x, l := w.open(Options{MaxBatch: 1, Depth: 4, Retries: -1, StoreTimeout: time.Hour})
			mustTransact(t, x, people)
			mustTransact(t, x, person("a", 5))
			v := newValve(mem.OpVerify)
			if !deposed {
				v.inject(ofEpoch(mem.OpVerify, epochOf(t, l), mem.Fault{Fail: errBroken}))
			}
			l.SetHook(v.hook)
			v.close()
			refusal, landed := mustSubmit(t, x, step("a", 1)), mustSubmit(t, x, person("b", 1))
			synctest.Wait()
			if deposed {
				y, _ := w.open(Options{})
				defer closeIn(t, y, time.Hour)
			}
			v.open()
			if _, err := refusal.Wait(t.Context()); !errors.Is(err, tx.ErrCASFailed) {
				t.Errorf("deposed %t: the refusal: %v", deposed, err)
			}
			if _, err := landed.Wait(t.Context()); err != nil {
				t.Errorf("deposed %t: what landed: %v", deposed, err)
			}
			if !deposed {
				mustTransact(t, x, person("c", 1))
			}
			closeIn(t, x, time.Hour)
		})
	}
}

// Every fence covers what was acknowledged last: a store that lost it commits nothing behind the hole.
func TestL7_L11_AFenceNoticesThatAnAcknowledgedObjectIsGone(t *testing.T) {
	for _, sync := range []bool{false, true} {
		w := newWorld(t)
		x, l := w.open(Options{Retries: -1})
		mustTransact(t, x, people)
		r := mustTransact(t, x, person("a", 1))
		root, err := l.Root(context.Background())
		if err != nil || !l.Remove(root.Instance, log.Key{Epoch: root.Epoch, FirstT: r.T}) {
			t.Fatal("nothing to lose", err)
		}
		if sync {
			_, err = x.Sync(context.Background())
		} else {
			_, err = x.Transact(context.Background(), person("b", 1))
		}
		if err == nil {
			t.Fatalf("sync %t: it goes on behind a hole", sync)
		}
		<-x.Ended()
		if err := x.Err(); !errors.Is(err, log.ErrRolledBack) {
			t.Errorf("sync %t: ended with %v", sync, err)
		}
	}
}

// What is in flight when another object's fence fails has not failed: it is judged again.
func TestP7_OnlyAFailedAppendFailsItsTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		x, l := w.open(Options{MaxBatch: 1, Depth: 4, Retries: -1, StoreTimeout: time.Hour})
		mustTransact(t, x, people)
		epoch, basis := epochOf(t, l), x.DB().BasisT()
		block := make(chan struct{})
		l.SetHook(func(c mem.Call) mem.Fault {
			switch {
			case c.Op == mem.OpVerify && c.Check.Epoch == epoch:
				return mem.Fault{Delay: time.Second, Fail: errBroken}
			case c.Op == mem.OpAppend && c.Key == log.Key{Epoch: epoch, FirstT: basis + 2}:
				<-block
			}
			return mem.Fault{}
		})
		a, b := mustSubmit(t, x, person("a", 1)), mustSubmit(t, x, person("b", 1))
		if _, err := a.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := b.Wait(t.Context()); err != nil {
			t.Errorf("its append was under way: %v", err)
		}
		close(block)
		closeIn(t, x, time.Hour)
	})
}

// A store that is out of reach for a while costs no epochs, and the transactor goes on by itself.
func TestP7_AnOutageIsSatOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		x, l := w.open(Options{})
		mustTransact(t, x, people)
		begin := time.Now()
		l.SetHook(func(mem.Call) mem.Fault {
			if time.Since(begin) < 2*time.Minute {
				return mem.Fault{Fail: log.WithOutcome(log.NotWritten, errBroken)}
			}
			return mem.Fault{}
		})
		var failed *CommitError
		if _, err := x.Transact(t.Context(), person("a", 1)); !errors.As(err, &failed) {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		mustTransact(t, x, person("b", 1))
		closeIn(t, x, time.Hour)
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		x, l := w.open(Options{MaxOutage: time.Minute})
		mustTransact(t, x, people)
		l.SetHook(func(mem.Call) mem.Fault { return mem.Fault{Fail: log.WithOutcome(log.NotWritten, errBroken)} })
		_, err := x.Transact(t.Context(), person("a", 1))
		if !errors.Is(err, ErrClosed) || errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("every try said that nothing was written: %v", err)
		}
		<-x.Ended()
	})
}

// Epochs that answer somebody are not barren, even if all were refused; and a transactor that has had enough of failures still looks
// whether somebody else owns the database, and what became of its transactions there.
func TestP7_BarrenEpochsAndDeposition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		x, l := w.open(Options{Retries: -1, MaxEpochs: 1, MaxBatch: 1})
		mustTransact(t, x, people)
		mustTransact(t, x, person("a", 5))
		for range 3 {
			failed := false
			l.SetHook(func(c mem.Call) mem.Fault {
				if c.Op == mem.OpVerify && !failed {
					failed = true
					return mem.Fault{Fail: errBroken}
				}
				return mem.Fault{}
			})
			if _, err := x.Transact(t.Context(), step("a", 1)); !errors.Is(err, tx.ErrCASFailed) {
				t.Fatal(err)
			}
		}
		v := newValve(mem.OpVerify)
		l.SetHook(v.hook)
		v.close()
		f := mustSubmit(t, x, person("b", 1))
		synctest.Wait()
		y, _ := w.open(Options{})
		v.open()
		if _, err := f.Wait(t.Context()); err != nil {
			t.Errorf("it is on the new owner's chain: %v", err)
		}
		closeIn(t, x, time.Hour)
		closeIn(t, y, time.Hour)
	})
}

// Recovery over a long chain of epochs, each a round trip, is progress and not a store that hangs.
func TestP10_ALongRecoveryIsNotAHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for i := range 60 {
			x, _ := w.open(Options{})
			if i == 0 {
				mustTransact(t, x, people)
			}
			closeIn(t, x, time.Hour)
		}
		x, err := Open(context.Background(), w.server.Open("main", mem.Options{Delay: 100 * time.Millisecond}), Options{StoreTimeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		closeIn(t, x, time.Hour)
	})
}

// A deadline of the store's is not taken for the caller's.
func TestP10_AStoreTimeoutSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		x, l := w.open(Options{StoreTimeout: 5 * time.Second, Retries: -1})
		mustTransact(t, x, people)
		l.Freeze()
		if _, err := x.Sync(t.Context()); !errors.Is(err, errStoreTimeout) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		l.Thaw()
		closeIn(t, x, time.Hour)
	})
}

// A deposed owner looks for its objects where they must be, not through all that its successor has written.
func TestL1_ADeposedOwnerReadsNoMoreThanItMust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		x, l := w.open(Options{Retries: -1, Depth: 1})
		mustTransact(t, x, people)
		v := newValve(mem.OpVerify)
		l.SetHook(v.hook)
		v.close()
		f := mustSubmit(t, x, person("a", 1))
		synctest.Wait()
		y, _ := w.open(Options{MaxBatch: 1})
		for i := range 3000 {
			if _, err := mustSubmit(t, y, person("z", i)).Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		pages := 0
		v.inject(func(c mem.Call) mem.Fault {
			if c.Op == mem.OpRead {
				pages++
			}
			return mem.Fault{}
		})
		v.open()
		if _, err := f.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if <-x.Ended(); pages > 1 {
			t.Errorf("it read %d pages", pages)
		}
		closeIn(t, y, time.Hour)
	})
}

// While the next owner has not begun, a range waits; it never ends short.
func TestL8_TxRangeWaitsForTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		x, l := w.open(Options{Retries: -1, StoreTimeout: time.Hour})
		mustTransact(t, x, people)
		mustTransact(t, x, person("a", 1))
		epoch := epochOf(t, l)
		v := newValve(mem.OpAppend)
		l.SetHook(func(c mem.Call) mem.Fault {
			switch {
			case c.Op == mem.OpVerify && c.Check.Epoch == epoch:
				return mem.Fault{Fail: errBroken}
			case c.Op == mem.OpAppend && c.Key.Epoch == epoch+1:
				return v.hook(c)
			}
			return mem.Fault{}
		})
		v.close()
		mustSubmit(t, x, person("b", 1))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		n, failed := uint64(0), error(nil)
		for _, err := range x.TxRange(ctx, 1, 0) {
			if failed = err; err == nil {
				n++
			}
		}
		if !errors.Is(failed, context.DeadlineExceeded) {
			t.Errorf("%d transactions, then %v", n, failed)
		}
		v.open()
		want := x.DB().BasisT()
		n = 0
		for _, err := range x.TxRange(t.Context(), 1, want+1) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != want {
			t.Errorf("%d transactions of %d", n, want)
		}
		closeIn(t, x, time.Hour)
	})
}

// A name that was deleted and made again is another database.
func TestTxRangeOfADeletedDatabase(t *testing.T) {
	w := newWorld(t)
	x, l := w.open(Options{})
	mustTransact(t, x, people)
	ctx := context.Background()
	for _, next := range []func(*log.Root) *log.Root{(*log.Root).Tombstone, (*log.Root).Recreate} {
		r, err := l.Root(ctx)
		if err == nil {
			err = l.CompareAndSwap(ctx, r, next(r))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	y, _ := w.open(Options{})
	mustTransact(t, y, people)
	for got, err := range x.TxRange(ctx, 2, 3) {
		if err == nil {
			t.Errorf("another database's transaction: %v", got)
		}
	}
}

// A reader that opens a database whose owner is just beginning waits for it.
func TestL8_OpenReadOnlyWaitsForTheFirstStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := w.server.Open("main", mem.Options{})
		root := log.NewRoot()
		if err := l.CompareAndSwap(t.Context(), nil, root); err != nil {
			t.Fatal(err)
		}
		if err := l.CompareAndSwap(t.Context(), root, root.Acquire(log.NewID(), "nobody")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if r, err := OpenReadOnly(ctx, w.server.Open("main", mem.Options{})); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v %v", r, err)
		}
		time.AfterFunc(5*time.Second, func() {
			x, _ := w.open(Options{})
			closeIn(t, x, time.Hour)
		})
		r, err := OpenReadOnly(t.Context(), w.server.Open("main", mem.Options{}))
		if err != nil || r.DB().BasisT() != 1 {
			t.Fatalf("%v", err)
		}
		r.Close(t.Context())
	})
}

// P9: a function that panics fails its transaction; one that heeds its context fails its own when time is up; one that does
// not closes the transactor, and everybody is answered.
func TestP9_FunctionsAndPredicates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		w := newWorld(t)
		x, _ := w.open(Options{
			FunctionTimeout: time.Second,
			Functions: map[datom.Keyword]tx.Func{
				"f/panics": func(context.Context, db.DB, []any) (tx.Data, error) { panic("oh") },
				"f/slow":   func(ctx context.Context, _ db.DB, _ []any) (tx.Data, error) { <-ctx.Done(); return nil, ctx.Err() },
				"f/stuck":  func(context.Context, db.DB, []any) (tx.Data, error) { <-block; return nil, nil },
				"f/person": func(_ context.Context, d db.DB, args []any) (tx.Data, error) {
					return person(args[0].(string), int(d.BasisT())), nil
				},
			},
			Predicates: Predicates{Attr: map[datom.Symbol]tx.AttrPred{
				"p/panics": func(context.Context, datom.Value) error { panic("oh") },
			}},
		})
		mustTransact(t, x, people)
		mustTransact(t, x, tx.Data{tx.Map{"db/ident": datom.Keyword("p/checked"), "db/valueType": datom.Keyword("db.type/long"),
			"db/cardinality": datom.Keyword("db.cardinality/one"), "db.attr/preds": datom.Symbol("p/panics")}})
		for _, name := range []datom.Keyword{"f/panics", "f/slow"} {
			if _, err := x.Transact(t.Context(), tx.Data{tx.Call(name)}); !errors.Is(err, tx.ErrFunctionFailed) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := x.Transact(t.Context(), tx.Data{tx.Map{"p/checked": int64(1)}}); !errors.Is(err, tx.ErrAttrPredFailed) {
			t.Errorf("a predicate that panics: %v", err)
		}
		basis := x.DB().BasisT()
		if r := mustTransact(t, x, tx.Data{tx.Call("f/person", "a")}); number(t, r.DBAfter, "a") != int(basis) {
			t.Error("a function does not see the value before")
		}
		stuck := mustSubmit(t, x, tx.Data{tx.Call("f/stuck")})
		behind := mustSubmit(t, x, person("b", 1))
		if _, err := stuck.Wait(t.Context()); !errors.Is(err, ErrFunctionStuck) {
			t.Errorf("stuck: %v", err)
		}
		if _, err := behind.Wait(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("behind it: %v", err)
		}
		<-x.Ended()
		close(block)
	})
}

// Close does not wait for a function that does not return.
func TestP9_P10_CloseReturnsAlthoughAFunctionDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		w := newWorld(t)
		x, _ := w.open(Options{FunctionTimeout: time.Hour, Functions: map[datom.Keyword]tx.Func{
			"f/stuck": func(context.Context, db.DB, []any) (tx.Data, error) { <-block; return nil, nil },
		}})
		f := mustSubmit(t, x, tx.Data{tx.Call("f/stuck")})
		begin := time.Now()
		closeIn(t, x, time.Second)
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("Close took %v", took)
		}
		if _, err := f.Wait(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("%v", err)
		}
		close(block)
	})
}

// What the end of an epoch gives up has not failed, and what lands of it behind the reading is no rollback: it is judged again.
func TestP7_WhatIsGivenUpIsJudgedAgain(t *testing.T) {
	for _, lands := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			x, l := w.open(Options{MaxBatch: 1, Depth: 4, Retries: -1, StoreTimeout: time.Hour})
			mustTransact(t, x, people)
			epoch, basis := epochOf(t, l), x.DB().BasisT()
			read := make(chan struct{}) // the chain was, by the next epoch
			l.SetHook(func(c mem.Call) mem.Fault {
				switch {
				case c.Op == mem.OpVerify && c.Check.Epoch == epoch:
					return mem.Fault{Delay: time.Second, Fail: errBroken}
				case c.Op == mem.OpAppend && c.Key == log.Key{Epoch: epoch, FirstT: basis + 2} && lands:
					<-read // whatever its context says
				case c.Op == mem.OpAppend && c.Key == log.Key{Epoch: epoch, FirstT: basis + 2}:
					return mem.Fault{Delay: time.Minute}
				case c.Op == mem.OpAppend && c.Key == log.StartKey(epoch+1) && lands:
					close(read)
					time.Sleep(time.Second)
				}
				return mem.Fault{}
			})
			a, b := mustSubmit(t, x, person("a", 1)), mustSubmit(t, x, person("b", 1))
			for _, f := range []*Future{a, b} {
				if _, err := f.Wait(t.Context()); err != nil {
					t.Errorf("lands %t: %v", lands, err)
				}
			}
			if d := x.DB(); number(t, d, "a") != 1 || number(t, d, "b") != 1 || d.BasisT() != basis+2 {
				t.Errorf("lands %t: a %d, b %d, t %d behind %d", lands, number(t, d, "a"), number(t, d, "b"), d.BasisT(), basis)
			}
			closeIn(t, x, time.Hour)
		})
	}
}

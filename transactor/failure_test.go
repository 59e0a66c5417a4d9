package transactor

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/mem"
	"github.com/steledb/stele/tx"
)

var errBroken = errors.New("the store is broken")

// ofEpoch injects a fault into every call of one kind that belongs to one epoch.
func ofEpoch(op mem.Op, epoch uint64, fault mem.Fault) func(mem.Call) mem.Fault {
	return func(c mem.Call) mem.Fault {
		at := c.Key.Epoch
		if c.Op == mem.OpVerify {
			at = c.Check.Epoch
		}
		if c.Op == op && at == epoch {
			return fault
		}
		return mem.Fault{}
	}
}

func epochOf(t *testing.T, l log.Log) uint64 {
	t.Helper()
	r, err := l.Root(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return r.Epoch
}

// The lowest object that did not land gets its error; what was staged or queued behind it is judged again, by what is
// there now, in its order.
func TestP7_WhatWasBehindAFailedAppendIsJudgedAgain(t *testing.T) {
	w := newWorld(t)
	x, l := w.open(Options{MaxBatch: 1, Depth: 3, Retries: -1})
	mustTransact(t, x, people)
	epoch, basis := epochOf(t, l), x.DB().BasisT()
	v := newValve(mem.OpAppend)
	v.inject(ofEpoch(mem.OpAppend, epoch, mem.Fault{Fail: log.WithOutcome(log.NotWritten, errBroken)}))
	l.SetHook(v.hook)
	v.close()
	lost := mustSubmit(t, x, person("a", 1))
	behind := mustSubmit(t, x, person("b", 1))
	needsLost := mustSubmit(t, x, step("a", 1)) // was staged as a commit; without its predecessor it is refused
	refused := mustSubmit(t, x, person("c", 1))
	again := mustSubmit(t, x, step("b", 1))
	<-v.waiting
	v.open()
	var failed *CommitError
	if _, err := lost.Wait(context.Background()); !errors.As(err, &failed) || !errors.Is(err, errBroken) {
		t.Errorf("the transaction whose append failed: %v", err)
	}
	if _, err := needsLost.Wait(context.Background()); !errors.Is(err, tx.ErrNotAnEntity) && !errors.Is(err, tx.ErrInvalidLookupRef) {
		t.Errorf("the one that depended on it: %v", err)
	}
	for i, f := range []*Future{behind, refused, again} {
		r, err := f.Wait(context.Background())
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		if r.T != basis+1+uint64(i) {
			t.Errorf("%d: t = %d", i, r.T)
		}
	}
	if number(t, x.DB(), "a") != -1 || number(t, x.DB(), "b") != 2 {
		t.Error("the values are not what was answered")
	}
	if now := epochOf(t, l); now <= epoch {
		t.Errorf("still epoch %d", now)
	}
	if s := x.Stats(); s.Failed != 1 || s.Takeovers != 1 {
		t.Errorf("failed %d, takeovers %d", s.Failed, s.Takeovers)
	}
	w.chain()
}

// An append whose reply is lost every time has landed: its transaction is committed, once, and its report is right.
func TestP7_L1_AnAppendThatLandedIsCommitted(t *testing.T) {
	w := newWorld(t)
	x, l := w.open(Options{Retries: 1})
	mustTransact(t, x, people)
	l.SetHook(ofEpoch(mem.OpAppend, epochOf(t, l), mem.Fault{Lose: errBroken}))
	r, err := x.Transact(context.Background(), person("a", 1))
	if err != nil {
		t.Fatal(err)
	}
	l.SetHook(nil)
	if number(t, r.DBAfter, "a") != 1 || number(t, r.DBBefore, "a") != -1 {
		t.Error("the report's values are wrong")
	}
	if r = mustTransact(t, x, step("a", 1)); number(t, r.DBAfter, "a") != 2 {
		t.Error("the transactor does not go on from there")
	}
	count := 0
	for _, o := range w.chain() {
		for d, err := range o.Txs() {
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range d.Datoms {
				if x.Added && x.V.Text() == "a" {
					count++
				}
			}
		}
	}
	if count != 1 {
		t.Errorf("the transaction is in the log %d times", count)
	}
}

func TestP7_AFenceThatFailsEndsTheEpochAndLosesNothing(t *testing.T) {
	w := newWorld(t)
	x, l := w.open(Options{Retries: -1, MaxBatch: 2, Depth: 2})
	mustTransact(t, x, people)
	epoch := epochOf(t, l)
	l.SetHook(ofEpoch(mem.OpVerify, epoch, mem.Fault{Fail: errBroken}))
	var futures []*Future
	for i := range 20 {
		futures = append(futures, mustSubmit(t, x, person(fmt.Sprint(i), i)))
	}
	for i, f := range futures {
		if _, err := f.Wait(context.Background()); err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	if now := epochOf(t, l); now != epoch+1 {
		t.Errorf("epoch %d after %d", now, epoch)
	}
}

// What lands after the next epoch's start is fenced is dead: its transaction was answered as failed, and is in no later log.
func TestP7_L5_AnObjectThatLandsLateIsDead(t *testing.T) {
	w := newWorld(t)
	x, l := w.open(Options{Retries: -1})
	mustTransact(t, x, people)
	epoch := epochOf(t, l)
	var held mem.Held
	l.SetHook(ofEpoch(mem.OpAppend, epoch, mem.Fault{Hold: &held}))
	var failed *CommitError
	if _, err := x.Transact(context.Background(), person("a", 1)); !errors.As(err, &failed) {
		t.Fatalf("an append that is on its way: %v", err)
	}
	if err := held.Land(); err != nil {
		t.Fatal(err)
	}
	mustTransact(t, x, person("b", 1))
	if err := closeIn(t, x, time.Minute); err != nil {
		t.Fatal(err)
	}
	y, _ := w.open(Options{})
	if number(t, y.DB(), "a") != -1 || number(t, y.DB(), "b") != 1 {
		t.Error("the late object is in the log")
	}
}

// The head that a takeover adopts is a guess until its own start is durable and fenced: nobody is answered from it before.
func TestP7_L4_NothingIsAnsweredBeforeTheOwnStartIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		x, l := w.open(Options{Retries: -1, StoreTimeout: time.Hour})
		mustTransact(t, x, people)
		epoch, basis := epochOf(t, l), x.DB().BasisT()
		v := newValve(mem.OpVerify)
		v.inject(ofEpoch(mem.OpAppend, epoch, mem.Fault{Lose: errBroken}))
		l.SetHook(v.hook)
		v.close()
		f := mustSubmit(t, x, person("a", 1))
		synctest.Wait() // it has landed; the next epoch's start waits for its fence
		if epochOf(t, l) != epoch+1 {
			t.Fatal("no takeover; the test proves nothing")
		}
		if f.answered() || x.DB().BasisT() != basis {
			t.Errorf("answered %t, DB at %d, before the start is fenced", f.answered(), x.DB().BasisT())
		}
		v.open()
		if _, err := f.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		closeIn(t, x, time.Hour)
	})
}

func TestP7_ItClosesWithTheCauseAfterTooManyBarrenEpochs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		x, l := w.open(Options{Retries: -1, MaxEpochs: 3})
		mustTransact(t, x, people)
		l.SetHook(func(c mem.Call) mem.Fault {
			if c.Op == mem.OpAppend {
				return mem.Fault{Fail: errBroken}
			}
			return mem.Fault{}
		})
		sent := mustSubmit(t, x, person("a", 1))
		if _, err := sent.Wait(t.Context()); !errors.Is(err, ErrUnknownOutcome) || !errors.Is(err, errBroken) {
			t.Errorf("what was sent: %v", err)
		}
		<-x.Ended()
		if err := x.Err(); !errors.Is(err, errBroken) {
			t.Errorf("Err: %v", err)
		}
		if _, err := x.Submit(t.Context(), person("b", 1)); !errors.Is(err, ErrClosed) || !errors.Is(err, errBroken) {
			t.Errorf("Submit after the end: %v", err)
		}
		if x.DB().BasisT() != 2 {
			t.Error("reads do not go on")
		}
	})
}

// Another owner takes over: what it found on the chain is committed, what it did not find is not; nothing is unknown, and nothing of the
// deposed owner shows any more.
func TestL1_ADeposedOwnerLearnsTheFateOfItsOpenTransactions(t *testing.T) {
	w := newWorld(t)
	x, l := w.open(Options{MaxBatch: 1, Depth: 2, Retries: -1, StoreTimeout: 200 * time.Millisecond})
	mustTransact(t, x, people)
	next := x.DB().BasisT() + 1
	var held mem.Held
	v := newValve(mem.OpVerify)
	v.inject(func(c mem.Call) mem.Fault {
		if c.Op == mem.OpAppend && c.Key.FirstT == next+1 {
			return mem.Fault{Hold: &held, Lose: errBroken}
		}
		return mem.Fault{}
	})
	l.SetHook(v.hook)
	v.close()
	landed := mustSubmit(t, x, person("landed", 1))
	<-v.waiting
	y, _ := w.open(Options{}) // the new owner reads the log: the first object is there, the second is on its way
	notLanded := mustSubmit(t, x, person("late", 1))
	neverSent := mustSubmit(t, x, person("queued", 1))
	l.SetHook(nil)
	v.open()
	if _, err := landed.Wait(context.Background()); err != nil {
		t.Errorf("on the new owner's chain: %v", err)
	}
	if _, err := notLanded.Wait(context.Background()); err == nil || errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("not on it: %v", err)
	}
	if _, err := neverSent.Wait(context.Background()); !errors.Is(err, ErrDeposed) {
		t.Errorf("never sent: %v", err)
	}
	<-x.Ended()
	if err := x.Err(); !errors.Is(err, ErrDeposed) {
		t.Errorf("Err: %v", err)
	}
	_ = held.Land()
	mustTransact(t, y, person("new", 1))
	if number(t, y.DB(), "landed") != 1 || number(t, y.DB(), "late") != -1 || number(t, y.DB(), "queued") != -1 {
		t.Error("the new owner's log is not what was answered")
	}
}

func TestL3_EveryOpenTakesANewEpochUnderAFreshClaim(t *testing.T) {
	w := newWorld(t)
	seen := make(map[log.ID]bool)
	for i := range 4 {
		x, l := w.open(Options{})
		r, err := l.Root(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if r.Epoch != uint64(i+1) || seen[r.Claim] {
			t.Errorf("open %d: epoch %d, claim %s seen before: %t", i, r.Epoch, r.Claim, seen[r.Claim])
		}
		seen[r.Claim] = true
		if i == 0 {
			mustTransact(t, x, people)
		}
		mustTransact(t, x, person(fmt.Sprint(i), i))
		if i%2 == 0 {
			if err := closeIn(t, x, time.Minute); err != nil {
				t.Fatal(err)
			}
		} // else it is deposed by the next
	}
}

// An acquisition whose answer was lost is settled by the claim in the root, not by taking another epoch.
func TestL3_ALostAnswerToTheAcquisitionIsSettledByItsClaim(t *testing.T) {
	w := newWorld(t)
	l := w.server.Open("main", mem.Options{})
	lost := 0
	l.SetHook(func(c mem.Call) mem.Fault {
		if c.Op == mem.OpCompareAndSwap && c.Root.Epoch == 1 && lost == 0 {
			lost++
			return mem.Fault{Lose: errBroken}
		}
		return mem.Fault{}
	})
	x := w.openOn(l, Options{})
	mustTransact(t, x, people)
	if e := epochOf(t, l); e != 1 || lost != 1 {
		t.Errorf("epoch %d", e)
	}
}

func TestL1_L2_L4_ReopeningFindsExactlyWhatWasAcknowledged(t *testing.T) {
	w := newWorld(t)
	want := make(map[string]int)
	for round := range 5 {
		x, _ := w.open(Options{MaxBatch: 5, Depth: 3})
		for id, n := range want {
			if got := number(t, x.DB(), id); got != n {
				t.Fatalf("round %d: %s is %d, want %d", round, id, got, n)
			}
		}
		if round == 0 {
			mustTransact(t, x, people)
		}
		var futures []*Future
		for i := range 50 {
			futures = append(futures, mustSubmit(t, x, person(fmt.Sprint(i%30), round*100+i)))
		}
		basis := x.DB().BasisT()
		for i, f := range futures {
			r, err := f.Wait(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			want[fmt.Sprint(i%30)] = round*100 + i
			basis = r.T
		}
		if err := closeIn(t, x, time.Minute); err != nil {
			t.Fatal(err)
		}
		y, _ := w.open(Options{})
		if got := y.DB().BasisT(); got != basis {
			t.Errorf("basis %d after reopening, %d before", got, basis)
		}
	}
}

// A store that does not answer is given up on; the transactor takes over from itself once it answers again.
func TestP10_EveryStoreCallHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		x, l := w.open(Options{StoreTimeout: 5 * time.Second, Retries: -1})
		mustTransact(t, x, people)
		l.Freeze()
		f := mustSubmit(t, x, person("a", 1))
		begin := time.Now()
		time.AfterFunc(20*time.Second, l.Thaw) // in the bubble's own time
		_, err := f.Wait(t.Context())
		if errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("the store is back: %v", err)
		}
		if took := time.Since(begin); took > 2*time.Minute {
			t.Errorf("it took %v", took)
		}
		mustTransact(t, x, person("b", 1))
		closeIn(t, x, time.Hour)
	})
}

// A store that never answers again costs the transactor its epochs, and everybody is told.
func TestP10_AStoreThatNeverAnswersHangsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		x, l := w.open(Options{StoreTimeout: 5 * time.Second, Retries: 1, MaxBatch: 1, Depth: 1})
		mustTransact(t, x, people)
		l.Freeze()
		sent, queued := mustSubmit(t, x, person("a", 1)), mustSubmit(t, x, person("b", 1))
		if _, err := sent.Wait(t.Context()); !errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("sent: %v", err)
		}
		if _, err := queued.Wait(t.Context()); !errors.Is(err, ErrClosed) || errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("never sent: %v", err)
		}
		if _, err := x.Sync(t.Context()); err == nil {
			t.Error("Sync succeeded")
		}
		<-x.Ended()
	})
}

// The reading of the log in a takeover has a deadline as well.
func TestP10_ARecoveryThatHangsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		x, l := w.open(Options{StoreTimeout: 5 * time.Second, Retries: -1})
		mustTransact(t, x, people)
		epoch, hung := epochOf(t, l), false
		l.SetHook(func(c mem.Call) mem.Fault {
			switch {
			case c.Op == mem.OpAppend && c.Key.Epoch == epoch:
				return mem.Fault{Fail: errBroken}
			case c.Op == mem.OpRead && !hung: // one goroutine takes over
				hung = true
				return mem.Fault{Delay: 1000 * time.Hour}
			}
			return mem.Fault{}
		})
		begin := time.Now()
		lost := mustSubmit(t, x, person("a", 1))
		var failed *CommitError
		if _, err := lost.Wait(t.Context()); !errors.As(err, &failed) {
			t.Error(err)
		}
		if took := time.Since(begin); !hung || took > time.Minute {
			t.Errorf("hung %t, took %v", hung, took)
		}
		mustTransact(t, x, person("b", 1))
		closeIn(t, x, time.Hour)
	})
}

func TestP10_CloseReturnsAndAnswersEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		x, l := w.open(Options{StoreTimeout: time.Hour, MaxBatch: 1, Depth: 1})
		mustTransact(t, x, people)
		l.Freeze()
		sent := mustSubmit(t, x, person("a", 1))
		unsent := mustSubmit(t, x, person("b", 1))
		queued := mustSubmit(t, x, person("c", 1))
		synctest.Wait()
		begin := time.Now()
		if err := closeIn(t, x, 3*time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v", err)
		}
		if took := time.Since(begin); took > 4*time.Second {
			t.Errorf("Close took %v", took)
		}
		if _, err := sent.Wait(t.Context()); !errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("sent: %v", err)
		}
		for _, f := range []*Future{unsent, queued} {
			if _, err := f.Wait(t.Context()); !errors.Is(err, ErrClosed) || errors.Is(err, ErrUnknownOutcome) {
				t.Errorf("never sent: %v", err)
			}
		}
		if _, err := x.Transact(t.Context(), person("d", 1)); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		l.Thaw()
	})
}

func TestCloseDrainsWhatWasAdmitted(t *testing.T) {
	w := newWorld(t)
	x := w.openOn(w.server.Open("main", mem.Options{Delay: time.Millisecond}), Options{MaxBatch: 3, Depth: 2})
	mustTransact(t, x, people)
	var futures []*Future
	for i := range 100 {
		futures = append(futures, mustSubmit(t, x, person(fmt.Sprint(i), i)))
	}
	if err := closeIn(t, x, time.Minute); err != nil {
		t.Fatal(err)
	}
	for i, f := range futures {
		if !f.answered() || f.err != nil {
			t.Fatalf("%d: %v", i, f.err)
		}
	}
	if err := closeIn(t, x, time.Minute); err != nil {
		t.Errorf("the second Close: %v", err)
	}
}

func TestSyncFencesBeforeItAnswers(t *testing.T) {
	w := newWorld(t)
	x, _ := w.open(Options{})
	mustTransact(t, x, people)
	if d, err := x.Sync(context.Background()); err != nil || d.BasisT() != 2 {
		t.Fatalf("t = %d, %v", d.BasisT(), err)
	}
	y, _ := w.open(Options{})
	mustTransact(t, y, person("a", 1))
	if _, err := x.Sync(context.Background()); !errors.Is(err, ErrDeposed) {
		t.Errorf("Sync of a deposed owner: %v", err)
	}
	<-x.Ended()
}

func TestL11_AnOwnerDoesNotGoBack(t *testing.T) {
	w := newWorld(t)
	x, l := w.open(Options{Retries: -1})
	mustTransact(t, x, people)
	restore := l.Backup()
	mustTransact(t, x, person("a", 1))
	l.SetHook(ofEpoch(mem.OpVerify, epochOf(t, l), mem.Fault{Fail: errBroken}))
	v := newValve(mem.OpRoot)
	v.inject(ofEpoch(mem.OpVerify, epochOf(t, l), mem.Fault{Fail: errBroken}))
	l.SetHook(v.hook)
	v.close()
	f := mustSubmit(t, x, person("b", 1))
	<-v.waiting // the epoch has failed and the root is about to be read
	restore()   // to before the first person, who was acknowledged
	v.open()
	if _, err := f.Wait(context.Background()); err == nil {
		t.Error("committed on a store that went back")
	}
	<-x.Ended()
	if err := x.Err(); !errors.Is(err, log.ErrRolledBack) {
		t.Errorf("Err: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	w := newWorld(t)
	quiet := Options{MustExist: true}
	if _, err := Open(context.Background(), w.server.Open("main", mem.Options{}), quiet); !errors.Is(err, ErrNoDatabase) {
		t.Errorf("MustExist: %v", err)
	}
	if _, err := Open(context.Background(), w.server.Open("main", mem.Options{}), Options{MaxBatch: -1, StoreTimeout: -1}); err == nil {
		t.Error("negative options were taken")
	}
	l := w.server.Open("main", mem.Options{})
	if err := l.CompareAndSwap(context.Background(), nil, log.NewRoot()); err != nil {
		t.Fatal(err)
	}
	r, _ := l.Root(context.Background())
	if err := l.CompareAndSwap(context.Background(), r, r.Tombstone()); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(context.Background(), l, Options{}); !errors.Is(err, ErrDeleted) {
		t.Errorf("a tombstone: %v", err)
	}
}

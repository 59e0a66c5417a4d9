package transactor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/log/mem"
	"github.com/steledb/stele/tx"
)

// P6: thousands of contexts end while their transactions wait in the line, in the queue, in a batch, in flight and during takeovers. What was admitted is
// committed or answered as everybody's is, what was not is in no log, nobody who stayed is disturbed, and nothing is left behind.
func TestP6_ACancellationStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var appends atomic.Int64
		hook := func(c mem.Call) (f mem.Fault) {
			if c.Op == mem.OpAppend && c.Object.Kind != 0 && appends.Add(1)%40 == 39 {
				f.Lose = errBroken // landed, and nobody knows
			}
			return f
		}
		x := w.openOn(w.server.Open("main", mem.Options{Delay: 2 * time.Millisecond, Hook: hook}),
			Options{QueueTransactions: 64, MaxBatch: 8, Depth: 3, Retries: -1, MaxEpochs: 1000, StoreTimeout: time.Hour})
		for {
			if _, err := x.Transact(t.Context(), people); err == nil {
				break
			}
		}
		const callers, each = 200, 20
		type outcome struct {
			name    string
			pending *Future
			err     error
		}
		outcomes := make(chan outcome, callers*each)
		var wait sync.WaitGroup
		for g := range callers {
			wait.Go(func() {
				r := rand.New(rand.NewPCG(uint64(g), 1))
				for i := range each {
					ctx, cancel := context.WithCancel(t.Context())
					if g%4 != 0 { // the others stay
						time.AfterFunc(time.Duration(r.IntN(120_000))*time.Microsecond, cancel)
					}
					name := fmt.Sprintf("%d/%d", g, i)
					_, err := x.Transact(ctx, person(name, g), TxOptions{Wait: true})
					o := outcome{name: name, err: err}
					if p := new(PendingError); errors.As(err, &p) {
						o.pending = p.Future
					}
					outcomes <- o
					cancel()
				}
			})
		}
		wait.Wait()
		close(outcomes)
		committed, pended, lost, never := 0, 0, 0, 0
		for o := range outcomes {
			err := o.err
			if o.pending != nil {
				pended++
				_, err = o.pending.Wait(t.Context())
			}
			n := number(t, x.DB(), o.name)
			switch failed := new(CommitError); {
			case err == nil && n >= 0:
				committed++
			case errors.As(err, &failed) && n < 0:
				lost++
			case o.pending == nil && errors.Is(err, context.Canceled) && n < 0:
				never++
			default:
				t.Errorf("%s: %v, and it is %d", o.name, err, n)
			}
		}
		t.Logf("%d committed, %d of them or of the lost after their callers had gone, %d lost, %d never admitted, %d takeovers", committed, pended, lost, never, x.Stats().Takeovers)
		if pended < 100 || never < 100 || x.Stats().Takeovers < 5 {
			t.Error("the storm was none")
		}
		x.queue.mu.Lock()
		if x.queue.taken != (share{}) || x.queue.line.Len() != 0 || len(x.queue.waiting) != 0 {
			t.Errorf("%+v in the queue, %d in the line, %d waiting", x.queue.taken, x.queue.line.Len(), len(x.queue.waiting))
		}
		x.queue.mu.Unlock()
		if m := x.Stats().Memory; m.Queue != 0 || m.Batches != 0 {
			t.Errorf("%+v", m)
		}
		if err := closeIn(t, x, time.Hour); err != nil {
			t.Error(err)
		}
	})
}

// P6: a whole line that gives up at once delays nobody for long.
func TestP6_ManyGiveUpWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, _, release := full(t, 2)
		ctx, cancel := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		for i := range 10_000 {
			wait.Go(func() {
				if _, err := x.Submit(ctx, person(fmt.Sprint(i), 1), TxOptions{Wait: true}); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		cancel()
		wait.Wait()
		release()
		if _, err := x.Transact(t.Context(), person("later", 1), TxOptions{Wait: true}); err != nil {
			t.Error(err)
		}
	})
}

// P5, P7: what a takeover gives back is there for whoever waits for room before anybody is answered: the failed epoch's batches and stage keep nobody out
// for good who fits without them.
func TestP5_P7_WhoWaitsIsNotSentAwayForAnEpochThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		v := newValve(mem.OpAppend)
		x := w.openOn(w.server.Open("main", mem.Options{Hook: v.hook}), Options{MemoryBudget: 11 * megabyte, Depth: 1, Retries: -1, StoreTimeout: time.Hour})
		large := func(s string) tx.Data { return tx.Data{tx.Map{"db/doc": s + strings.Repeat(".", megabyte)}} }
		v.inject(ofEpoch(mem.OpAppend, epochOf(t, x.log), mem.Fault{Fail: errBroken}))
		v.close()
		first := mustSubmit(t, x, large("first"))
		synctest.Wait()
		if _, err := x.Submit(t.Context(), large("second")); !errors.Is(err, ErrBusy) || !errors.Is(err, ErrMemoryBudget) {
			t.Fatalf("there is room beside the first: %v", err)
		}
		result := make(chan error, 1)
		go func() {
			_, err := x.Transact(t.Context(), large("second"), TxOptions{Wait: true})
			result <- err
		}()
		synctest.Wait()
		v.open()
		if _, err := first.Wait(t.Context()); !errors.As(err, new(*CommitError)) {
			t.Errorf("the first: %v", err)
		}
		if err := <-result; err != nil {
			t.Errorf("who waited: %v", err)
		}
		closeIn(t, x, time.Hour)
	})
}

// P7: the last of too many barren epochs leaves nothing unknown either: the store is in reach, and says what has landed.
func TestP7_TheLastEpochLeavesNothingUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		x, l := w.open(Options{MaxEpochs: 3, Retries: -1})
		mustTransact(t, x, people)
		l.SetHook(func(c mem.Call) (f mem.Fault) {
			if c.Op == mem.OpAppend && c.Key.FirstT != 0 {
				f.Fail = errBroken // it may have landed, for all that this says
			}
			return f
		})
		for i := 0; ; i++ {
			_, err := x.Transact(t.Context(), person("a", i))
			if errors.Is(err, ErrClosed) {
				break
			}
			if lost := new(CommitError); !errors.As(err, &lost) || errors.Is(err, ErrUnknownOutcome) {
				t.Fatalf("%d: %v", i, err)
			}
			if i > 10 {
				t.Fatal("it does not end")
			}
		}
	})
}

package transactor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/log/mem"
)

// full opens a transactor with room for n, fills it, and returns what lets it work again.
func full(t *testing.T, n int) (x *Transactor, filling []*Future, release func()) {
	t.Helper()
	w := newWorld(t)
	v := newValve(mem.OpAppend)
	x = w.openOn(w.server.Open("main", mem.Options{Hook: v.hook}), Options{QueueTransactions: n, MaxBatch: 1, Depth: 1, StoreTimeout: time.Hour})
	mustTransact(t, x, people)
	v.close()
	for i := range n {
		filling = append(filling, mustSubmit(t, x, person(fmt.Sprint("first", i), i)))
	}
	synctest.Wait()
	return x, filling, v.open
}

func TestP5_BusySaysWhenToComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, _, release := full(t, 4)
		defer release()
		_, err := x.Submit(t.Context(), person("x", 1))
		var busy *BusyError
		if !errors.As(err, &busy) || !errors.Is(err, ErrBusy) || busy.After <= 0 || busy.After > time.Minute {
			t.Fatalf("%v", err)
		}
		if !strings.Contains(err.Error(), busy.After.String()) {
			t.Errorf("%q does not say %v", err, busy.After)
		}
		if n := x.Stats().Busy; n != 1 {
			t.Errorf("%d busy", n)
		}
	})
}

// TestP5_WaitingForRoomIsFair: those who wait are admitted in their order, and nobody who does not wait gets in ahead of them.
func TestP5_WaitingForRoomIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, filling, release := full(t, 3)
		var mu sync.Mutex
		var order []string
		var wait sync.WaitGroup
		for i := range 20 {
			wait.Go(func() {
				name := fmt.Sprintf("w%02d", i)
				f, err := x.Submit(t.Context(), person(name, i), TxOptions{Wait: true})
				if err != nil {
					t.Error(err)
					return
				}
				r, err := f.Wait(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, fmt.Sprintf("%06d %s", r.T, name))
				mu.Unlock()
			})
			synctest.Wait() // it stands in the line
		}
		if _, err := x.Submit(t.Context(), person("pushy", 1)); !errors.Is(err, ErrBusy) {
			t.Errorf("ahead of those who wait: %v", err)
		}
		release()
		wait.Wait()
		for _, f := range filling {
			if _, err := f.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		}
		slices.Sort(order)
		for i, got := range order {
			if !strings.HasSuffix(got, fmt.Sprintf("w%02d", i)) {
				t.Errorf("number %d by t is %s", i, got)
			}
		}
		mustTransact(t, x, person("later", 1))
	})
}

// TestP5_P6_WhoGivesUpWaitingLeavesNoTrace: not in the queue, not in the line, not in the way of those behind.
func TestP5_P6_WhoGivesUpWaitingLeavesNoTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, _, release := full(t, 2)
		ctx, cancel := context.WithCancelCause(t.Context())
		gaveUp := errors.New("gave up")
		results := make(chan error, 2)
		go func() {
			_, err := x.Submit(ctx, person("impatient", 1), TxOptions{Wait: true})
			results <- err
		}()
		synctest.Wait()
		behind := make(chan *Future, 1)
		go func() { behind <- mustSubmit(t, x, person("patient", 1), TxOptions{Wait: true}) }()
		synctest.Wait()
		cancel(gaveUp)
		if err := <-results; !errors.Is(err, gaveUp) {
			t.Errorf("%v", err)
		}
		release()
		if _, err := (<-behind).Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if n := number(t, x.DB(), "impatient"); n != -1 {
			t.Error("who gave up is in the database")
		}
		x.queue.mu.Lock()
		defer x.queue.mu.Unlock()
		if x.queue.taken != (share{}) || x.queue.line.Len() != 0 {
			t.Errorf("%+v in the queue, %d in the line", x.queue.taken, x.queue.line.Len())
		}
	})
}

func TestP10_CloseSendsThoseAwayWhoWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, filling, release := full(t, 2)
		results := make(chan error, 3)
		for i := range 3 {
			go func() {
				_, err := x.Submit(t.Context(), person(fmt.Sprint("w", i), 1), TxOptions{Wait: true})
				results <- err
			}()
		}
		synctest.Wait()
		go closeIn(t, x, time.Hour)
		for range 3 {
			if err := <-results; !errors.Is(err, ErrClosed) {
				t.Errorf("%v", err)
			}
		}
		release()
		for _, f := range filling {
			if _, err := f.Wait(t.Context()); err != nil {
				t.Errorf("what was admitted: %v", err)
			}
		}
		<-x.Ended()
	})
}

// P5: what BusyError suggests is more than nothing and less than for ever, whatever the options and however slow the store.
func TestP5_TheSuggestedWaitIsSane(t *testing.T) {
	for _, opt := range []Options{
		{QueueTransactions: 1, MaxBatch: 1, Depth: 1},
		{QueueTransactions: 1 << 62, MaxBatch: 1, Depth: 1},
		{QueueTransactions: 1, MaxBatch: 1 << 10, Depth: 1 << 52},
		{QueueTransactions: 1, MaxBatch: 1 << 10, Depth: 1 << 60},
	} {
		for _, flush := range []time.Duration{0, time.Millisecond, time.Hour} {
			x := &Transactor{opt: opt, stats: newRecorder()}
			x.stats.flush.Store(int64(flush))
			var busy *BusyError
			if err := x.notAdmitted(ErrBusy); !errors.As(err, &busy) || busy.After <= 0 || busy.After > time.Minute {
				t.Errorf("%+v, %v: %v", opt, flush, err)
			}
		}
	}
}

// P5: a large transaction that waits for room gets it, though small ones keep coming, and those behind it wait until it has.
func TestP5_ALargeOneThatWaitsIsNotStarved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		x := w.openOn(w.server.Open("main", mem.Options{Delay: time.Millisecond}), Options{QueueBytes: 64 << 10, MaxBatch: 1, Depth: 1})
		mustTransact(t, x, people)
		ctx, stop := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		for g := range 20 {
			wait.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					name := fmt.Sprint(g, "/", i, strings.Repeat("s", 5<<10))
					if _, err := x.Transact(t.Context(), person(name, i), TxOptions{Wait: g%2 == 0}); err != nil && !errors.Is(err, ErrBusy) {
						t.Error(err)
					}
					time.Sleep(100 * time.Microsecond)
				}
			})
		}
		for i := range 20 {
			began := time.Now()
			if _, err := x.Transact(t.Context(), person(fmt.Sprint("large", i, strings.Repeat("l", 60<<10)), i), TxOptions{Wait: true}); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("it waited for %v", took)
			}
		}
		stop()
		wait.Wait()
		if x.queue.taken != (share{}) {
			t.Errorf("%+v", x.queue.taken)
		}
		closeIn(t, x, time.Hour)
	})
}

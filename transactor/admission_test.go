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
		if x.queue.taken != (share{}) || len(x.queue.line) != 0 {
			t.Errorf("%+v in the queue, %d in the line", x.queue.taken, len(x.queue.line))
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

package transactor

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
	"github.com/steledb/stele/log/mem"
	"github.com/steledb/stele/tx"
)

// storeOps are all calls that a transactor makes.
var storeOps = []mem.Op{mem.OpRoot, mem.OpCompareAndSwap, mem.OpAppend, mem.OpVerify, mem.OpGet, mem.OpList, mem.OpRead}

// P10: whichever call it is that the store does not answer, Open returns with its context, and also without one, in bounded time.
func TestP10_OpenReturnsWhicheverCallHangs(t *testing.T) {
	for _, op := range storeOps {
		for _, hurried := range []bool{true, false} {
			t.Run(op.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					x, _ := w.open(Options{})
					mustTransact(t, x, people)
					mustTransact(t, x, person("a", 1))
					closeIn(t, x, time.Minute)
					l := w.server.Open("main", mem.Options{Hook: func(c mem.Call) (f mem.Fault) {
						if c.Op == op {
							f.Delay = 1000 * time.Hour
						}
						return f
					}})
					ctx, cancel, most := t.Context(), func() {}, 10*time.Minute
					if hurried {
						ctx, cancel = context.WithTimeout(ctx, 3*time.Second)
						most = 5 * time.Second
					}
					defer cancel()
					began := time.Now()
					x, err := Open(ctx, l, Options{StoreTimeout: 5 * time.Second, Logger: slog.New(slog.DiscardHandler)})
					if took := time.Since(began); took > most {
						t.Errorf("hurried %t: Open took %v: %v", hurried, took, err)
					} else {
						t.Logf("hurried %t: Open took %v: %v", hurried, took, err)
					}
					if err == nil {
						closeIn(t, x, time.Minute)
					}
				})
			})
		}
	}
}

// P10: whichever call it is that the store does not answer, be it during work, a takeover or the release, Close returns soon after its context ends,
// and everybody is answered.
func TestP10_CloseReturnsWhicheverCallHangs(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		for _, op := range storeOps {
			for _, broken := range []bool{false, true} {
				t.Run(op.String(), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						w := newWorld(t)
						l := w.server.Open("main", mem.Options{})
						x, err := Open(t.Context(), l, Options{StoreTimeout: 2 * time.Second, MaxBatch: 1, Depth: 2, Retries: -1, Logger: slog.New(slog.DiscardHandler)})
						if err != nil {
							t.Fatal(err)
						}
						mustTransact(t, x, people)
						release := make(chan struct{})
						defer func() { close(release); synctest.Wait() }()
						epoch := epochOf(t, l)
						l.SetHook(func(c mem.Call) (f mem.Fault) {
							switch {
							case broken && c.Op == mem.OpAppend && c.Key.Epoch == epoch:
								f.Fail = errBroken
							case c.Op != op:
							case deaf:
								<-release
							default:
								f.Delay = 1000 * time.Hour
							}
							return f
						})
						var futures []*Future
						for i := range 5 {
							futures = append(futures, mustSubmit(t, x, person("a", i)))
						}
						time.Sleep(time.Second) // until somebody hangs
						began := time.Now()
						done := make(chan struct{})
						go func() {
							err := closeIn(t, x, 3*time.Second)
							t.Logf("deaf %t, broken %t: Close took %v: %v", deaf, broken, time.Since(began), err)
							close(done)
						}()
						select {
						case <-done:
						case <-time.After(time.Hour):
							t.Errorf("deaf %t, broken %t: Close does not return", deaf, broken)
							return
						}
						if took := time.Since(began); took > 10*time.Second {
							t.Errorf("deaf %t, broken %t: Close took %v", deaf, broken, took)
						}
						for i, f := range futures {
							if !f.answered() {
								t.Errorf("%d is not answered", i)
								continue
							}
							var lost *CommitError
							if _, err := f.Wait(t.Context()); err != nil && !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrClosed) && !errors.As(err, &lost) {
								t.Errorf("%d: %v", i, err)
							}
						}
					})
				})
			}
		}
	}
}

// P10: Close during an outage, by many at once, some of them in a hurry: all return soon after the first context ends, with the same answer, and so do those
// who wait for anything else.
func TestP10_ManyCloseDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		x, l := w.open(Options{MaxBatch: 1, Depth: 2, StoreTimeout: 2 * time.Second})
		mustTransact(t, x, people)
		l.SetHook(func(mem.Call) mem.Fault { return mem.Fault{Fail: errBroken} })
		var futures []*Future
		for i := range 10 {
			futures = append(futures, mustSubmit(t, x, person("a", i)))
		}
		time.Sleep(time.Minute) // it is taking over, again and again
		synced := make(chan error, 1)
		go func() { _, err := x.Sync(t.Context()); synced <- err }()
		time.Sleep(time.Minute)
		began := time.Now()
		errs := make(chan error, 10)
		for i := range 10 {
			go func() { errs <- closeIn(t, x, time.Duration(3+100*i)*time.Second) }()
		}
		first := <-errs
		if !errors.Is(first, context.DeadlineExceeded) {
			t.Errorf("Close: %v", first)
		}
		for range 9 {
			if err := <-errs; err.Error() != first.Error() {
				t.Errorf("Close: %v, and %v", first, err)
			}
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("Close took %v", took)
		}
		unknown := 0
		for i, f := range futures {
			switch _, err := f.Wait(t.Context()); {
			case errors.Is(err, ErrUnknownOutcome):
				unknown++
			case !errors.Is(err, ErrClosed):
				t.Errorf("%d: %v", i, err)
			}
		}
		if unknown > 2 {
			t.Errorf("%d of 2 that were sent are unknown", unknown)
		}
		if err := <-synced; err == nil {
			t.Error("Sync succeeded")
		}
	})
}

// P9, P10: a function that waits for a transaction of its own waits for itself: it is refused when its time is up, and the other goes on.
func TestP9_P10_AFunctionThatTransacts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var x *Transactor
		var inner *PendingError
		x, _ = w.open(Options{Functions: map[datom.Keyword]tx.Func{
			"f/transacts": func(ctx context.Context, _ db.DB, _ []any) (tx.Data, error) {
				_, err := x.Transact(ctx, person("inner", 1))
				errors.As(err, &inner)
				return nil, err
			},
			"f/closes": func(ctx context.Context, _ db.DB, _ []any) (tx.Data, error) { return nil, x.Close(ctx) },
		}})
		mustTransact(t, x, people)
		if _, err := x.Transact(t.Context(), tx.Data{tx.Call("f/transacts")}); !errors.Is(err, tx.ErrFunctionFailed) {
			t.Errorf("%v", err)
		}
		if _, err := inner.Future.Wait(t.Context()); err != nil {
			t.Errorf("the inner one: %v", err)
		}
		_, err := x.Transact(t.Context(), tx.Data{tx.Call("f/closes")})
		if !errors.Is(err, ErrClosed) {
			t.Errorf("closing itself: %v", err)
		}
		<-x.Ended()
	})
}

// P10: whatever the moment at which Close runs out of time, whoever is in flight is answered. Very many wait for the context's end here, so that some moments lie
// between its end and what it sets off.
func TestP10_CloseOutOfTimeForgetsNobody(t *testing.T) {
	for range 20 {
		w := newWorld(t)
		sent := make(chan struct{}, 1)
		x := w.openOn(w.server.Open("main", mem.Options{Hook: func(c mem.Call) (f mem.Fault) {
			if c.Op == mem.OpAppend && c.Key.FirstT > 3 {
				f.Delay = 1000 * time.Hour
				sent <- struct{}{}
			}
			return f
		}}), Options{Retries: -1})
		mustTransact(t, x, people)
		mustTransact(t, x, person("a", 0))
		f := mustSubmit(t, x, person("a", 1))
		<-sent
		for range 5000 {
			context.AfterFunc(x.ctx, func() {})
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		x.Close(ctx)
		if !f.answered() {
			t.Fatal("it is not answered, and never will be")
		}
	}
}

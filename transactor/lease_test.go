package transactor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/mem"
)

// clockless is a store without a clock that everybody sees alike, as S3 is.
type clockless struct{ *mem.Log }

func (l clockless) RootAge(ctx context.Context) (*log.Root, time.Duration, error) {
	root, err := l.Root(ctx)
	return root, -1, err
}

// inBothClocks runs f in virtual time, on a store that tells a root's age and on one that does not.
func inBothClocks(t *testing.T, f func(t *testing.T, w *world, handle func(*mem.Log) log.Log)) {
	for _, c := range []struct {
		name   string
		handle func(*mem.Log) log.Log
	}{
		{"store's clock", func(l *mem.Log) log.Log { return l }},
		{"own observation", func(l *mem.Log) log.Log { return clockless{l} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, newWorld(t), c.handle) })
		})
	}
}

func (w *world) handle() *mem.Log { return w.server.Open("main", mem.Options{Delay: time.Millisecond}) }

// lawful opens as people do: without deposing anybody. It closes what it opened when the test ends.
func lawful(t *testing.T, l log.Log, opt Options) (*Transactor, error) {
	t.Helper()
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	x, err := Open(t.Context(), l, opt)
	if err == nil {
		t.Cleanup(func() { closeIn(t, x, time.Minute) })
	}
	return x, err
}

func mustOpen(t *testing.T, l log.Log, opt Options) *Transactor {
	t.Helper()
	x, err := lawful(t, l, opt)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return x
}

func TestL9_AStandbyWaitsUntilTheLeaseHasRunOut(t *testing.T) {
	inBothClocks(t, func(t *testing.T, w *world, handle func(*mem.Log) log.Log) {
		const lease = 6 * time.Second
		dead := w.handle()
		x := mustOpen(t, handle(dead), Options{Lease: lease})
		mustTransact(t, x, people)
		mustTransact(t, x, person("a", 1))
		time.Sleep(10 * lease) // it is renewed
		dead.Freeze()
		begin := time.Now()
		y := mustOpen(t, handle(w.handle()), Options{Lease: time.Second})
		if waited := time.Since(begin); waited < lease*2/3-time.Second || waited > lease+lease/4 {
			t.Errorf("the standby waited %v for a lease of %v", waited, lease)
		}
		mustTransact(t, y, person("b", 2))
		dead.Thaw()
		if _, err := x.Transact(t.Context(), person("c", 3)); err == nil {
			t.Error("the owner that was stopped still commits")
		}
		d := y.DB()
		if a, b, c := number(t, d, "a"), number(t, d, "b"), number(t, d, "c"); a != 1 || b != 2 || c != -1 {
			t.Errorf("a %d, b %d, c %d", a, b, c)
		}
	})
}

func TestClose_ReleasesTheLease(t *testing.T) {
	inBothClocks(t, func(t *testing.T, w *world, handle func(*mem.Log) log.Log) {
		x := mustOpen(t, handle(w.handle()), Options{Lease: time.Hour})
		mustTransact(t, x, people)
		closing := time.AfterFunc(time.Minute, func() { closeIn(t, x, time.Minute) })
		defer closing.Stop()
		begin := time.Now()
		mustOpen(t, handle(w.handle()), Options{})
		if waited := time.Since(begin) - time.Minute; waited < 0 || waited > 2*longestWatch {
			t.Errorf("a standby waited %v for a lease that was released", waited)
		}
	})
}

func TestOpen_ThatFailsReleasesTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		mustTransact(t, mustOpen(t, w.handle(), Options{Lease: 100 * time.Millisecond}), people)
		l := w.handle()
		l.SetHook(func(c mem.Call) mem.Fault {
			if c.Op == mem.OpRead {
				return mem.Fault{Fail: errBroken}
			}
			return mem.Fault{}
		})
		if _, err := lawful(t, l, Options{Lease: time.Hour, TakeOver: true, Retries: -1}); !errors.Is(err, errBroken) {
			t.Fatalf("Open: %v", err)
		}
		begin := time.Now()
		mustOpen(t, w.handle(), Options{})
		if waited := time.Since(begin); waited > time.Minute {
			t.Errorf("the next one waited %v", waited)
		}
	})
}

func TestNoWait_SaysWhoOwnsTheDatabase(t *testing.T) {
	inBothClocks(t, func(t *testing.T, w *world, handle func(*mem.Log) log.Log) {
		mustOpen(t, handle(w.handle()), Options{Owner: "alice", Endpoint: "10.0.0.1:9", Lease: 8 * time.Second})
		_, err := lawful(t, handle(w.handle()), Options{NoWait: true})
		var owned *OwnedError
		if !errors.As(err, &owned) || !errors.Is(err, ErrOwned) {
			t.Fatalf("Open: %v", err)
		}
		if owned.Owner != "alice" || owned.Endpoint != "10.0.0.1:9" || owned.Left <= 5*time.Second || owned.Left > 8*time.Second {
			t.Errorf("%+v", owned)
		}
		for _, part := range []string{"alice", "10.0.0.1:9", "lease"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not name %s", err, part)
			}
		}
	})
}

func TestOpen_WaitsAsLongAsItsContext(t *testing.T) {
	inBothClocks(t, func(t *testing.T, w *world, handle func(*mem.Log) log.Log) {
		x := mustOpen(t, handle(w.handle()), Options{Owner: "alice", Lease: time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var out bytes.Buffer
		_, err := Open(ctx, handle(w.handle()), Options{Logger: slog.New(slog.NewTextHandler(&out, nil))})
		if !errors.Is(err, ErrOwned) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Open: %v", err)
		}
		if n := strings.Count(out.String(), "owner=alice"); n != 1 {
			t.Errorf("the log names the owner %d times: %s", n, &out)
		}
		mustTransact(t, x, people) // an hour of being waited for has done it no harm
		if got := x.Stats(); got.Renewals < 3600 || got.Takeovers != 0 {
			t.Errorf("renewals %d, takeovers %d", got.Renewals, got.Takeovers)
		}
	})
}

// TestOpen_AStandbySitsOutAnOutage: the store goes while somebody waits, and comes back; the standby has not given up.
func TestOpen_AStandbySitsOutAnOutage(t *testing.T) {
	inBothClocks(t, func(t *testing.T, w *world, handle func(*mem.Log) log.Log) {
		dead := w.handle()
		mustTransact(t, mustOpen(t, handle(dead), Options{Lease: time.Minute}), people)
		l := w.handle()
		opened := make(chan *Transactor)
		go func() { opened <- mustOpen(t, handle(l), Options{}) }()
		time.Sleep(10 * time.Second)
		l.SetHook(func(mem.Call) mem.Fault { return mem.Fault{Fail: errBroken} })
		dead.Freeze()
		time.Sleep(5 * time.Minute)
		l.SetHook(nil)
		mustTransact(t, <-opened, person("a", 1))
		dead.Thaw()

		// One that lasts is given up, and says so.
		l = w.handle()
		gone := make(chan error)
		go func() {
			_, err := lawful(t, handle(l), Options{MaxOutage: time.Minute})
			gone <- err
		}()
		time.Sleep(10 * time.Second)
		l.SetHook(func(mem.Call) mem.Fault { return mem.Fault{Fail: errBroken} })
		if err := <-gone; !errors.Is(err, errBroken) {
			t.Errorf("Open: %v", err)
		}
		// One that is there from the beginning is no standby's.
		l = w.handle()
		l.SetHook(func(mem.Call) mem.Fault { return mem.Fault{Fail: errBroken} })
		if _, err := lawful(t, handle(l), Options{}); !errors.Is(err, errBroken) {
			t.Errorf("Open: %v", err)
		}
	})
}

func TestTakeOver_DeposesAtOnceAndKeepsWhatWasAcknowledged(t *testing.T) {
	inBothClocks(t, func(t *testing.T, w *world, handle func(*mem.Log) log.Log) {
		x := mustOpen(t, handle(w.handle()), Options{Lease: time.Minute})
		mustTransact(t, x, people)
		mustTransact(t, x, person("a", 1))
		begin := time.Now()
		y := mustOpen(t, handle(w.handle()), Options{TakeOver: true})
		if waited := time.Since(begin); waited > time.Second {
			t.Errorf("TakeOver waited %v", waited)
		}
		mustTransact(t, y, person("b", 2))
		if a := number(t, y.DB(), "a"); a != 1 {
			t.Errorf("a %d", a)
		}
		// The deposed owner has nothing to do, and learns of it by its next renewal.
		select {
		case <-x.Ended():
		case <-time.After(time.Minute):
			t.Error("an idle owner does not notice that it was deposed")
		}
		if err := x.Err(); !errors.Is(err, ErrDeposed) {
			t.Errorf("Err: %v", err)
		}
	})
}

// TestLease_NeitherARecoveryNorAFlushLosesIt: the lease is renewed while the log is being read, and while an append hangs.
func TestLease_NeitherARecoveryNorAFlushLosesIt(t *testing.T) {
	for _, slow := range []mem.Op{mem.OpRead, mem.OpAppend} {
		t.Run(fmt.Sprint(slow), func(t *testing.T) {
			inBothClocks(t, func(t *testing.T, w *world, handle func(*mem.Log) log.Log) {
				mustTransact(t, mustOpen(t, w.handle(), Options{Lease: 10 * time.Millisecond}), people)
				l := w.handle()
				v := newValve(slow)
				v.close()
				l.SetHook(v.hook)
				opened := make(chan *Transactor)
				go func() {
					opened <- mustOpen(t, handle(l), Options{Owner: "slow", Lease: 3 * time.Second, TakeOver: true, StoreTimeout: time.Hour})
				}()
				<-v.waiting
				time.Sleep(time.Minute)
				_, err := lawful(t, handle(w.handle()), Options{NoWait: true})
				var owned *OwnedError
				if !errors.As(err, &owned) || owned.Owner != "slow" || owned.Left < time.Second {
					t.Errorf("a standby, after a minute: %v", err)
				}
				v.open()
				x := <-opened
				mustTransact(t, x, person("a", 1))
			})
		})
	}
}

// TestL9_SafetyDoesNotDependOnTheLease: a standby whose clock says that every lease has run out only deposes; nothing that
// was acknowledged is lost, nothing of the deposed owner follows.
func TestL9_SafetyDoesNotDependOnTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var owners []*Transactor
		mustTransact(t, mustOpen(t, hasty{w.handle()}, Options{}), people)
		want := map[string]bool{}
		for i := range 20 {
			x := mustOpen(t, hasty{w.handle()}, Options{Owner: fmt.Sprint(i)})
			owners = append(owners, x)
			for j, x := range owners {
				name := fmt.Sprintf("%d-%d", i, j)
				_, err := x.Transact(t.Context(), person(name, 1))
				if want[name] = err == nil; err == nil && x != owners[i] {
					t.Errorf("owner %d commits although %d has taken over", j, i)
				}
			}
		}
		d := owners[len(owners)-1].DB()
		for name, committed := range want {
			if there := number(t, d, name) == 1; there != committed {
				t.Errorf("%s: acknowledged %t, there %t", name, committed, there)
			}
		}
	})
}

// hasty is a store whose clock runs far ahead.
type hasty struct{ *mem.Log }

func (l hasty) RootAge(ctx context.Context) (*log.Root, time.Duration, error) {
	root, err := l.Root(ctx)
	return root, 1000 * time.Hour, err
}

// TestStandbys_OneTakesOverAndTheOthersWait: many wait for one owner; when it dies, one of them owns, and the others wait for that one.
func TestStandbys_OneTakesOverAndTheOthersWait(t *testing.T) {
	inBothClocks(t, func(t *testing.T, w *world, handle func(*mem.Log) log.Log) {
		dead := w.handle()
		x := mustOpen(t, handle(dead), Options{Lease: time.Second})
		mustTransact(t, x, people)
		const standbys = 5
		opened := make(chan *Transactor, standbys)
		ctx, cancel := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		for range standbys {
			wait.Go(func() {
				y, err := Open(ctx, handle(w.handle()), Options{Lease: time.Second, Logger: slog.New(slog.DiscardHandler)})
				switch {
				case err == nil:
					opened <- y
				case !errors.Is(err, context.Canceled) || !errors.Is(err, ErrOwned):
					t.Errorf("Open: %v", err)
				}
			})
		}
		time.Sleep(time.Minute)
		if len(opened) > 0 {
			t.Fatal("a living owner was deposed")
		}
		dead.Freeze()
		y := <-opened
		for range 60 {
			mustTransact(t, y, person("a", 1))
			time.Sleep(time.Second)
		}
		if len(opened) > 0 {
			t.Error("a second standby has taken over from the first")
		}
		closeIn(t, y, time.Minute)
		z := <-opened
		mustTransact(t, z, person("b", 1))
		cancel()
		wait.Wait()
		closeIn(t, z, time.Minute)
		dead.Thaw()
	})
}

// TestLease_RenewalsWhoseAnswersAreLost: a renewal that landed unseen renews, and a root that somebody else changed within the same claim (as the
// indexer does) is renewed as it now is.
func TestLease_RenewalsWhoseAnswersAreLost(t *testing.T) {
	inBothClocks(t, func(t *testing.T, w *world, handle func(*mem.Log) log.Log) {
		l := w.handle()
		x := mustOpen(t, handle(l), Options{Lease: 3 * time.Second})
		mustTransact(t, x, people)
		n := 0
		l.SetHook(func(c mem.Call) mem.Fault {
			if c.Op == mem.OpCompareAndSwap {
				if n++; n%2 == 0 {
					return mem.Fault{Lose: errBroken}
				}
			}
			return mem.Fault{}
		})
		other := w.handle()
		defer other.Close()
		for range 30 {
			time.Sleep(time.Second)
			for {
				root, err := other.Root(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				next := root.Next()
				next.Collect++
				if err := other.CompareAndSwap(t.Context(), root, next); err == nil {
					break
				}
			}
			mustTransact(t, x, person("a", 1))
		}
		if s := x.Stats(); s.Takeovers != 0 || s.Renewals < 25 {
			t.Errorf("takeovers %d, renewals %d", s.Takeovers, s.Renewals)
		}
		root, err := other.Root(t.Context())
		if err != nil || root.Collect != 30 || root.Epoch != 1 {
			t.Errorf("%+v, %v", root, err)
		}
		l.SetHook(nil)
	})
}

// rootless is a store on which reads that take long keep everybody waiting, but for what the lease needs.
type rootless struct {
	*mem.Log
	busy atomic.Bool
}

func (l *rootless) Root(ctx context.Context) (*log.Root, error) {
	if l.busy.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return l.Log.Root(ctx)
}

// TestLease_ARenewalWhoseAnswerIsLostIsSettledBesideLongReads: else every one after it conflicts, and the lease runs out.
func TestLease_ARenewalWhoseAnswerIsLostIsSettledBesideLongReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := &rootless{Log: w.handle()}
		x := mustOpen(t, l, Options{Owner: "alice", Lease: 3 * time.Second})
		mustTransact(t, x, people)
		l.busy.Store(true)
		var lost atomic.Bool
		l.SetHook(func(c mem.Call) mem.Fault {
			if c.Op == mem.OpCompareAndSwap && !lost.Swap(true) {
				return mem.Fault{Lose: errBroken}
			}
			return mem.Fault{}
		})
		time.Sleep(time.Minute)
		var owned *OwnedError
		if _, err := lawful(t, w.handle(), Options{NoWait: true}); !errors.As(err, &owned) || owned.Owner != "alice" {
			t.Errorf("a standby, after a minute: %v", err)
		}
		l.busy.Store(false)
		closeIn(t, x, time.Minute)
	})
}

// TestOpen_ThatIsCancelledWhileItAcquiresReleasesTheLease: its swap may have landed, although nobody was told.
func TestOpen_ThatIsCancelledWhileItAcquiresReleasesTheLease(t *testing.T) {
	inBothClocks(t, func(t *testing.T, w *world, handle func(*mem.Log) log.Log) {
		mustTransact(t, mustOpen(t, handle(w.handle()), Options{Lease: 100 * time.Millisecond}), people)
		l := w.handle()
		ctx, cancel := context.WithCancel(t.Context())
		l.SetHook(func(c mem.Call) mem.Fault {
			if c.Op == mem.OpCompareAndSwap && c.Root.Lease > 0 {
				cancel()
				return mem.Fault{Lose: errBroken}
			}
			return mem.Fault{}
		})
		if _, err := Open(ctx, handle(l), Options{Lease: time.Hour, TakeOver: true, Logger: slog.New(slog.DiscardHandler)}); err == nil {
			t.Fatal("it was cancelled")
		}
		begin := time.Now()
		mustOpen(t, handle(w.handle()), Options{})
		if waited := time.Since(begin); waited > time.Minute {
			t.Errorf("the next one waited %v", waited)
		}
	})
}

// TestP10_WhatHasEndedRenewsNoLease: also where the store does not even return when a call's context ends.
func TestP10_WhatHasEndedRenewsNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		v := newValve(mem.OpAppend)
		l := w.handle()
		x := mustOpen(t, l, Options{Lease: 3 * time.Second, StoreTimeout: time.Second})
		mustTransact(t, x, people)
		l.SetHook(v.hook)
		v.close()
		mustSubmit(t, x, person("a", 1))
		synctest.Wait()
		closeIn(t, x, time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		y, err := Open(ctx, w.handle(), Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Errorf("a minute after the owner has ended: %v", err)
		} else {
			closeIn(t, y, time.Minute)
		}
		v.open()
	})
}

// TestOpen_ThatIsDeposedWhileItCreatesWaitsAgain: as one does that is deposed while it reads the log.
func TestOpen_ThatIsDeposedWhileItCreatesWaitsAgain(t *testing.T) {
	inBothClocks(t, func(t *testing.T, w *world, handle func(*mem.Log) log.Log) {
		l := w.handle()
		var once sync.Once
		l.SetHook(func(c mem.Call) mem.Fault {
			if c.Op == mem.OpAppend && c.Object.Kind == log.KindBatch {
				once.Do(func() {
					y := mustOpen(t, handle(w.handle()), Options{TakeOver: true})
					mustTransact(t, y, people)
					closeIn(t, y, time.Minute)
				})
			}
			return mem.Fault{}
		})
		x := mustOpen(t, handle(l), Options{})
		mustTransact(t, x, person("a", 1))
	})
}

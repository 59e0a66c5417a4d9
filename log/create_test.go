package log_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/mem"
)

// bare is a place without a database.
func bare(t testing.TB) *world {
	w := &world{TB: t, ctx: context.Background(), server: mem.NewServer(), names: map[log.Hash]string{}}
	w.l = w.handle()
	return w
}

// failing makes the first n calls of an operation fail with an error of no outcome. landed: they had their effect all the same.
func failing(l *mem.Log, op mem.Op, n int, landed bool) {
	var calls atomic.Int64
	l.SetHook(func(c mem.Call) mem.Fault {
		if c.Op != op || calls.Add(1) > int64(n) {
			return mem.Fault{}
		}
		if landed {
			return mem.Fault{Lose: errors.New("the reply was lost")}
		}
		return mem.Fault{Fail: errors.New("out of reach")}
	})
}

func TestCreate(t *testing.T) {
	w := bare(t)
	r, err := log.Create(w.ctx, w.l)
	w.check(err)
	if *r != *w.root() || r.Version != 1 || r.Epoch != 0 || r.Owner != "" {
		t.Fatalf("created %+v", r)
	}
	_, err = log.Create(w.ctx, w.l)
	wantError(t, err, log.ErrExists, "create again")
	if log.OutcomeOf(err) != log.Rejected {
		t.Fatalf("it is %s", log.OutcomeOf(err))
	}
}

// An answer that was lost is settled by the instance id, also if the root has moved on since.
func TestCreate_SettlesLostAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, hook := range map[string]func(*world){
			"the root is there":            func(w *world) { failing(w.l, mem.OpCompareAndSwap, 1, true) },
			"it is not there yet":          func(w *world) { failing(w.l, mem.OpCompareAndSwap, 3, false) },
			"the root is out of reach too": func(w *world) { failing(w.l, mem.OpRoot, 3, false) },
			"somebody has opened it meanwhile": func(w *world) {
				failing(w.l, mem.OpCompareAndSwap, 1, true)
				hook, n := w.handle(), 0
				w.l.SetHook(func(c mem.Call) mem.Fault {
					switch {
					case c.Op == mem.OpCompareAndSwap:
						return mem.Fault{Lose: errors.New("the reply was lost")}
					case c.Op == mem.OpRoot:
						if n++; n == 2 {
							old, err := hook.Root(w.ctx)
							w.check(err)
							w.check(hook.CompareAndSwap(w.ctx, old, old.Acquire(log.NewID(), "another")))
						}
					}
					return mem.Fault{}
				})
			},
		} {
			w := bare(t)
			hook(w)
			r, err := log.Create(w.ctx, w.l)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			w.l.SetHook(nil)
			if *r != *w.root() {
				t.Fatalf("%s: created %+v", name, r)
			}
		}
	})
}

// A create whose request is still on its way is unknown, and says so; one that somebody else was faster than is not.
func TestCreate_Outcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bare(t)
		var held mem.Held
		w.l.SetHook(func(c mem.Call) mem.Fault {
			if c.Op == mem.OpCompareAndSwap {
				return mem.Fault{Hold: &held}
			}
			return mem.Fault{}
		})
		_, err := log.Create(w.ctx, w.l)
		if err == nil || log.OutcomeOf(err) != log.Unknown {
			t.Fatalf("create: %v, %s", err, log.OutcomeOf(err))
		}
		w.l.SetHook(nil)
		if _, err := w.l.Root(w.ctx); !errors.Is(err, log.ErrNoRoot) {
			t.Fatal(err)
		}
		w.check(held.Land())
		w.root()

		w = bare(t)
		failing(w.l, mem.OpRoot, 100, false)
		_, err = log.Create(w.ctx, w.l)
		if err == nil || log.OutcomeOf(err) != log.NotWritten {
			t.Fatalf("create: %v, %s", err, log.OutcomeOf(err))
		}

		w = bare(t)
		other := w.handle()
		on(w.l, mem.OpCompareAndSwap, 1, func() { _, err := log.Create(w.ctx, other); w.check(err) })
		_, err = log.Create(w.ctx, w.l)
		wantError(t, err, log.ErrExists, "create behind another")
		ended, cancel := context.WithCancel(w.ctx)
		cancel()
		_, err = log.Create(ended, w.l)
		wantError(t, err, context.Canceled, "create")
	})
}

// What is left of a deleted database goes when another takes its name: afterwards nobody would know its instance.
func TestCreate_OverATombstone(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	w.land(a.batch(1))
	w.check(w.l.PutBlob(w.ctx, a.root.Instance, "0-a", []byte("x")))
	old := w.root()
	tomb := old.Tombstone()
	w.check(w.l.CompareAndSwap(w.ctx, old, tomb))
	r, err := log.Create(w.ctx, w.l)
	w.check(err)
	if *r != *w.root() || r.Version != tomb.Version+1 || r.Epoch != 0 || r.Instance == tomb.Instance || r.Lineage == tomb.Lineage {
		t.Fatalf("created %+v behind %+v", r, tomb)
	}
	w.isGone(tomb.Instance)
	b := w.open()
	b.wants("")
}

// isGone fails if something of an instance is left.
func (w *world) isGone(inst log.ID) {
	w.Helper()
	for k, err := range w.l.List(w.ctx, inst, log.Key{}) {
		w.check(err)
		w.Fatalf("%s is left", k)
	}
	if _, err := w.l.GetBlob(w.ctx, inst, "0-a"); !errors.Is(err, log.ErrNotFound) {
		w.Fatalf("the blob: %v", err)
	}
}

func TestDelete(t *testing.T) {
	w := bare(t)
	wantError(t, log.Delete(w.ctx, w.l, log.DeleteOptions{}), log.ErrNoRoot, "delete nothing")
	w = newWorld(t)
	a := w.open()
	w.land(a.batch(1))
	w.check(w.l.PutBlob(w.ctx, a.root.Instance, "0-a", []byte("x")))
	for range 2 {
		w.check(log.Delete(w.ctx, w.l, log.DeleteOptions{}))
		if r := w.root(); !r.Deleted || r.Instance != a.root.Instance || r.Version != a.root.Version+1 {
			t.Fatalf("the root is %+v", r)
		}
		w.isGone(a.root.Instance)
	}
	wantError(t, a.l.Verify(w.ctx, log.Check{Instance: a.root.Instance, Epoch: 1, Claim: a.root.Claim}), log.ErrNotOwner, "verify")
}

// lease sets the lease of the root, as its owner does.
func (w *world) lease(d time.Duration) *log.Root {
	w.Helper()
	old := w.root()
	next := old.Next()
	next.Lease = d
	next.LeaseCounter++
	w.check(w.l.CompareAndSwap(w.ctx, old, next))
	return next
}

func TestDelete_HeedsALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.open()
		w.land(a.batch(1))
		held := w.lease(time.Minute)
		err := log.Delete(w.ctx, w.l, log.DeleteOptions{})
		wantError(t, err, log.ErrOwned, "delete what is owned")
		if *w.root() != *held || len(chainOf(w)) != 2 {
			t.Fatal("it was deleted all the same")
		}
		// By the store's clock it has run out.
		time.Sleep(time.Minute)
		w.check(log.Delete(w.ctx, w.l, log.DeleteOptions{}))

		// Where the store has no clock, only a release is known.
		w = newWorld(t)
		w.open()
		w.lease(time.Minute)
		time.Sleep(time.Hour)
		wantError(t, log.Delete(w.ctx, ageless{w.l}, log.DeleteOptions{}), log.ErrOwned, "delete what may be owned")
		w.lease(0)
		w.check(log.Delete(w.ctx, ageless{w.l}, log.DeleteOptions{}))

		// By force, while the owner goes on renewing.
		w = newWorld(t)
		w.open()
		w.lease(time.Minute)
		other := w.handle()
		n := 0
		other.SetHook(func(c mem.Call) mem.Fault {
			if c.Op == mem.OpCompareAndSwap {
				if n++; n <= 20 {
					w.lease(time.Minute)
				}
			}
			return mem.Fault{}
		})
		w.check(log.Delete(w.ctx, other, log.DeleteOptions{Force: true}))
		if !w.root().Deleted || n != 21 {
			t.Fatalf("%+v after %d tries", w.root(), n)
		}
		// A lease that is taken between the look and the swap counts.
		w = newWorld(t)
		w.open()
		other = w.handle()
		on(other, mem.OpCompareAndSwap, 1, func() { w.lease(time.Minute) })
		wantError(t, log.Delete(w.ctx, other, log.DeleteOptions{}), log.ErrOwned, "delete what was taken meanwhile")
	})
}

// ageless is a store without a clock.
type ageless struct{ log.Log }

func (l ageless) RootAge(ctx context.Context) (*log.Root, time.Duration, error) {
	r, err := l.Root(ctx)
	return r, -1, err
}

func chainOf(w *world) []*log.Object {
	w.Helper()
	r := w.reader(log.ReaderOptions{})
	r.sync()
	return r.got
}

// A deletion that stops anywhere is finished by the next, and touches no database that has the name by then.
func TestDelete_Interrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.open()
		failing(w.l, mem.OpDelete, 100, false)
		if err := log.Delete(w.ctx, w.l, log.DeleteOptions{}); err == nil {
			t.Fatal("nothing was said")
		}
		w.l.SetHook(nil)
		if !w.root().Deleted {
			t.Fatal("the root comes first")
		}
		w.check(log.Delete(w.ctx, w.l, log.DeleteOptions{}))
		w.isGone(a.root.Instance)

		// The answer to the tombstone is lost, and the name is taken again before the root is read.
		w = newWorld(t)
		a = w.open()
		l, n := w.handle(), 0
		l.SetHook(func(c mem.Call) mem.Fault {
			switch {
			case c.Op == mem.OpCompareAndSwap:
				return mem.Fault{Lose: errors.New("the reply was lost")}
			case c.Op == mem.OpRoot:
				if n++; n == 3 {
					_, err := log.Create(w.ctx, w.handle())
					w.check(err)
					b := w.open()
					w.land(b.batch(1))
				}
			}
			return mem.Fault{}
		})
		w.check(log.Delete(w.ctx, l, log.DeleteOptions{}))
		if r := w.root(); r.Deleted || r.Instance == a.root.Instance || len(chainOf(w)) != 2 {
			t.Fatalf("the next database became %+v", r)
		}

		// A store that refuses for ever is not asked for ever.
		w = newWorld(t)
		w.l.SetHook(func(c mem.Call) mem.Fault {
			if c.Op == mem.OpCompareAndSwap {
				return mem.Fault{Fail: log.ErrConflict}
			}
			return mem.Fault{}
		})
		wantError(t, log.Delete(w.ctx, w.l, log.DeleteOptions{}), log.ErrConflict, "delete")
	})
}

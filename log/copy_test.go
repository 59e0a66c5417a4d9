package log_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/mem"
)

// copyTo copies the world's database to another name of its server.
func (w *world) copyTo(to *mem.Log, o log.CopyOptions) (*log.Root, error) {
	return log.Copy(w.ctx, w.handle(), to, o)
}

func (w *world) place(name string) *mem.Log { return w.server.Open(name, mem.Options{}) }

// chainIn is what a fresh reader is handed.
func (w *world) chainIn(l log.Log) []*log.Object {
	w.Helper()
	var chain []*log.Object
	root, err := l.Root(w.ctx)
	w.check(err)
	st, err := log.NewReader(l, log.ReaderOptions{From: root.Sealed.Head()}).Sync(w.ctx, func(o *log.Object) error { chain = append(chain, o); return nil })
	w.check(err)
	if st.Waiting {
		w.Fatal("the reader waits")
	}
	return chain
}

// wantCopy fails unless to holds the chain want and the copy's own start, in an epoch above all of want, released.
func (w *world) wantCopy(to log.Log, root *log.Root, want []*log.Object) {
	w.Helper()
	src := w.root()
	now, err := to.Root(w.ctx)
	w.check(err)
	switch {
	case *now != *root:
		w.Fatalf("the copy's root is %+v, and %+v was returned", now, root)
	case now.Lineage != src.Lineage || now.Format != src.Format:
		w.Fatalf("%+v is no copy of %+v", now, src)
	case now.Instance == src.Instance || now.Claim == src.Claim || now.Claim.IsZero():
		w.Fatalf("%+v has an id of %+v", now, src)
	case now.Lease != 0 || now.LeaseCounter != 0:
		w.Fatalf("it is not released: %+v", now)
	}
	got := w.chainIn(to)
	if len(got) != len(want)+1 || !slices.EqualFunc(got[:len(want)], want, sameBytes) {
		w.Fatalf("the copy holds %s, want %s", w.show(got), w.show(want))
	}
	start := got[len(want)]
	if start.Kind != log.KindStart || start.Epoch != now.Epoch || start.Epoch <= src.Epoch || start.Claim != now.Claim || start.Fenced != start.LastT() {
		w.Fatalf("its start is %+v under %+v, and the source's root is %+v", start.Header, now, src)
	}
}

func TestCopy(t *testing.T) {
	w := newWorld(t)
	for range 3 {
		a := w.open()
		w.land(a.batch(2), a.batch(1))
		a.batch(1) // never lands
		w.land(a.batch(1))
		w.skip(1)
	}
	w.open()
	to := w.place("copy")
	var objects []int
	var bytes int64
	root, err := w.copyTo(to, log.CopyOptions{Progress: func(n int, b int64) { objects, bytes = append(objects, n), b }})
	w.check(err)
	want := w.chainIn(w.l)
	w.wantCopy(to, root, want)
	if root.Epoch != 8 || root.Version != 1 {
		t.Fatalf("the root is %+v", root)
	}
	size := int64(0)
	for _, o := range w.chainIn(to) {
		size += int64(o.Size())
	}
	if len(objects) != len(want)+1 || objects[len(objects)-1] != len(want)+1 || bytes != size {
		t.Fatalf("told of %v and %d bytes, of %d", objects, bytes, size)
	}
	_, err = w.copyTo(to, log.CopyOptions{})
	wantError(t, err, log.ErrExists, "copy again")
	_, err = w.copyTo(w.handle(), log.CopyOptions{})
	wantError(t, err, log.ErrExists, "copy to itself")
	// Its next owner goes on from there.
	next := root.Acquire(log.NewID(), "test")
	w.check(to.CompareAndSwap(w.ctx, root, next))
	found, err := log.Recover(w.ctx, to, next, log.Head{}, func(*log.Object) error { return nil })
	w.check(err)
	if found.Head.LastT != want[len(want)-1].LastT() || found.Dead != 0 || len(found.Unfenced) != 2 {
		t.Fatalf("its owner finds %+v", found) // unfenced are the newest start in the source, and the copy's
	}
}

func TestCopy_OfNothing(t *testing.T) {
	w := bare(t)
	to := w.place("copy")
	_, err := w.copyTo(to, log.CopyOptions{})
	wantError(t, err, log.ErrNoRoot, "copy nothing")
	w = newWorld(t) // of epoch 0
	to = w.place("copy")
	root, err := w.copyTo(to, log.CopyOptions{})
	w.check(err)
	w.wantCopy(to, root, nil)
	w.check(log.Delete(w.ctx, w.l, log.DeleteOptions{}))
	_, err = w.copyTo(w.place("another"), log.CopyOptions{})
	wantError(t, err, log.ErrDeleted, "copy what was deleted")
}

// Over a tombstone, of whose database nothing stays.
func TestCopy_OverATombstone(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	w.land(a.batch(1))
	to := w.place("copy")
	first, err := w.copyTo(to, log.CopyOptions{})
	w.check(err)
	failing(to, mem.OpDelete, 1000, false)
	synctest.Test(t, func(t *testing.T) {
		if err := log.Delete(w.ctx, to, log.DeleteOptions{}); err == nil {
			t.Fatal("nothing was said")
		}
	})
	to.SetHook(nil)
	root, err := w.copyTo(to, log.CopyOptions{})
	w.check(err)
	w.wantCopy(to, root, w.chainIn(w.l))
	if root.Version != first.Version+2 || root.Instance == first.Instance {
		t.Fatalf("%+v behind %+v", root, first)
	}
	for k := range to.List(w.ctx, first.Instance, log.Key{}) {
		t.Fatalf("%s is left", k)
	}
}

// A Copy that dies at any of its calls leaves no database, or a whole one; and the next makes one.
func TestCopy_InterruptedAnywhere(t *testing.T) {
	w := newWorld(t)
	for range 2 {
		a := w.open()
		w.land(a.batch(1), a.batch(1))
	}
	src := w.chainIn(w.l)
	for _, landed := range []bool{false, true} {
		for k := 1; ; k++ {
			to := w.place(fmt.Sprintf("copy %d %t", k, landed))
			ctx, cancel := context.WithCancel(w.ctx)
			var mu sync.Mutex
			n := 0
			to.SetHook(func(c mem.Call) mem.Fault {
				mu.Lock()
				defer mu.Unlock()
				if n++; n < k || c.Op == mem.OpDelete && n > k {
					return mem.Fault{}
				}
				cancel()
				if landed && n == k {
					return mem.Fault{Lose: errors.New("the process died")}
				}
				return mem.Fault{Fail: errors.New("the process died")}
			})
			_, err := log.Copy(ctx, w.handle(), to, log.CopyOptions{})
			cancel()
			to.SetHook(nil)
			if err == nil {
				if k < len(src)+3 {
					t.Fatalf("done after %d calls", k)
				}
				break
			}
			root, err := to.Root(w.ctx)
			if errors.Is(err, log.ErrNoRoot) {
				root, err = w.copyTo(to, log.CopyOptions{})
			}
			w.check(err)
			w.wantCopy(to, root, src)
		}
	}
}

// What was written of a copy that failed goes away; unless its root may still come.
func TestCopy_RemovesWhatItWrote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.open()
		w.land(a.batch(1), a.batch(1))
		to := w.place("copy")
		var inst log.ID
		var mu sync.Mutex
		gone := errors.New("the disk is full")
		to.SetHook(func(c mem.Call) mem.Fault {
			mu.Lock()
			defer mu.Unlock()
			if c.Op == mem.OpAppend && c.Key.FirstT == 2 {
				return mem.Fault{Fail: log.WithOutcome(log.NotWritten, gone)}
			}
			return mem.Fault{}
		})
		_, err := w.copyTo(to, log.CopyOptions{})
		wantError(t, err, gone, "copy")
		if log.OutcomeOf(err) != log.NotWritten {
			t.Fatalf("it is %s", log.OutcomeOf(err))
		}
		if n := to.Instances(); n != 0 {
			t.Fatalf("%d instances are left", n)
		}

		to = w.place("another")
		var held mem.Held
		to.SetHook(func(c mem.Call) mem.Fault {
			if c.Op == mem.OpCompareAndSwap {
				inst = c.Root.Instance
				return mem.Fault{Hold: &held}
			}
			return mem.Fault{}
		})
		_, err = w.copyTo(to, log.CopyOptions{})
		if err == nil || log.OutcomeOf(err) != log.Unknown {
			t.Fatalf("copy: %v, %s", err, log.OutcomeOf(err))
		}
		to.SetHook(nil)
		w.check(held.Land())
		root, err := to.Root(w.ctx)
		w.check(err)
		if root.Instance != inst {
			t.Fatalf("%+v", root)
		}
		w.wantCopy(to, root, w.chainIn(w.l))

		// Somebody else creates a database there while it is copied.
		to = w.place("third")
		on(to, mem.OpCompareAndSwap, 1, func() { _, err := log.Create(w.ctx, w.place("third")); w.check(err) })
		_, err = w.copyTo(to, log.CopyOptions{})
		wantError(t, err, log.ErrExists, "copy")
		if n := to.Instances(); n != 0 {
			t.Fatalf("%d instances are left", n)
		}
	})
}

// Several copy to one place: one of them makes the database, and nothing is left of the others.
func TestCopy_Race(t *testing.T) {
	for range 20 {
		w := newWorld(t)
		a := w.open()
		w.land(a.batch(1), a.batch(1))
		var wg sync.WaitGroup
		roots := make([]*log.Root, 4)
		errs := make([]error, len(roots))
		for i := range roots {
			wg.Go(func() { roots[i], errs[i] = w.copyTo(w.place("copy"), log.CopyOptions{}) })
		}
		wg.Wait()
		won := 0
		for i, err := range errs {
			if err == nil {
				won++
				w.wantCopy(w.place("copy"), roots[i], w.chainIn(w.l))
			} else {
				wantError(t, err, log.ErrExists, "copy behind another")
			}
		}
		if n := w.place("copy").Instances(); won != 1 || n != 1 {
			t.Fatalf("%d won, and %d instances are left", won, n)
		}
	}
}

// Failures that pass are waited for, wherever they come.
func TestCopy_TriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, op := range []mem.Op{mem.OpRoot, mem.OpCompareAndSwap, mem.OpAppend, mem.OpGet, mem.OpList, mem.OpRead, mem.OpPutBlob, mem.OpGetBlob} {
			for _, landed := range []bool{false, true} {
				w := newWorld(t)
				a := w.open()
				w.land(a.batch(1), a.batch(1))
				w.check(w.l.PutBlob(w.ctx, w.root().Instance, "0-a", []byte("a blob")))
				old := w.root()
				next := old.Next()
				next.Snapshot = "0-a"
				w.check(w.l.CompareAndSwap(w.ctx, old, next))
				from, to := w.handle(), w.place("copy")
				failing(from, op, 2, landed)
				failing(to, op, 2, landed)
				root, err := log.Copy(w.ctx, from, to, log.CopyOptions{})
				if err != nil {
					t.Fatalf("%s: %v", op, err)
				}
				to.SetHook(nil)
				w.wantCopy(to, root, w.chainIn(w.l))
			}
		}
	})
}

// An owner appends while it is copied, as fast as it can; and others take over.
func TestCopy_BesideOwners_L8(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	w.land(a.batch(1), a.batch(1))
	acked := w.chainIn(w.l)
	from, to := w.handle(), w.place("copy")
	p, reads := a, 0
	from.SetHook(func(c mem.Call) mem.Fault {
		if reads++; reads > 200 {
			t.Error("the copy follows the owner for ever")
			return mem.Fault{Fail: log.ErrClosed}
		}
		if reads == 4 || reads == 11 || reads == 23 {
			w.skip(1)
			p = w.open()
		}
		w.land(p.batch(1))
		return mem.Fault{}
	})
	root, err := log.Copy(w.ctx, from, to, log.CopyOptions{})
	w.check(err)
	got := w.chainIn(to)
	got = got[:len(got)-1]
	if len(got) < len(acked) || !slices.EqualFunc(got, w.chainIn(w.l)[:len(got)], sameBytes) {
		t.Fatalf("the copy holds %s of %s", w.show(got), w.show(w.chainIn(w.l)))
	}
	for _, o := range got {
		if o.Epoch >= root.Epoch {
			t.Fatalf("%s is copied, and the copy's epoch is %d", w.name(o), root.Epoch)
		}
	}
}

// A reading of the store may go on for as long as the owner appends: the copy does not.
func TestCopy_EndsBesideAFastOwner(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	w.land(a.batch(1), a.batch(1))
	from := &unending{Log: w.handle(), left: 1000, land: func() { w.land(a.batch(1000)) }} // of 30 kB
	to := w.place("copy")
	root, err := log.Copy(w.ctx, from, to, log.CopyOptions{})
	w.check(err)
	if from.left == 0 {
		t.Fatal("the copy follows the owner for ever")
	}
	w.wantCopy(to, root, w.chainIn(w.l)[:3])
}

// unending is a store in which somebody appends whenever a reading comes to the end.
type unending struct {
	log.Log
	left int
	land func()
}

func (u *unending) Read(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[*log.Object, error] {
	return func(yield func(*log.Object, error) bool) {
		for u.left > 0 {
			for o, err := range u.Log.Read(ctx, inst, after) {
				if !yield(o, err) || err != nil {
					return
				}
				after = o.Key()
			}
			u.left--
			u.land()
		}
	}
}

// It stops where the log ended when it began, and its epoch is above all that it saw all the same.
func TestCopy_EpochAboveAllSeen(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	w.land(a.batch(1))
	want := w.chainIn(w.l)
	from, to := w.handle(), w.place("copy")
	on(from, mem.OpRead, 1, func() {
		w.skip(3)
		w.land(w.open().batch(1))
	})
	root, err := log.Copy(w.ctx, from, to, log.CopyOptions{})
	w.check(err)
	w.wantCopy(to, root, want)
	if root.Epoch != 6 {
		t.Fatalf("its epoch is %d", root.Epoch)
	}
}

// While the newest epoch has no start nothing is proven, and nothing is copied as if it were.
func TestCopy_WaitsForAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.open()
		w.land(a.batch(1))
		b := w.take().recover()
		from, to := w.handle(), w.place("copy")
		n := 0
		from.SetHook(func(c mem.Call) mem.Fault {
			if c.Op == mem.OpGet && c.Key == log.StartKey(2) {
				if n++; n == 20 {
					w.land(b.start())
				}
			}
			return mem.Fault{}
		})
		root, err := log.Copy(w.ctx, from, to, log.CopyOptions{})
		w.check(err)
		w.wantCopy(to, root, w.chainIn(w.l))
		if n != 20 {
			t.Fatalf("looked %d times", n)
		}
		w.take()
		ctx, cancel := context.WithCancel(w.ctx)
		n = 0
		from.SetHook(func(c mem.Call) mem.Fault {
			if n++; n == 100 {
				cancel()
			}
			return mem.Fault{}
		})
		_, err = log.Copy(ctx, from, w.place("another"), log.CopyOptions{})
		wantError(t, err, context.Canceled, "copy")
		cancel()
	})
}

// A sealed log: the copy begins where the chunks end, and has what the root names, and what that names.
func TestCopy_Sealed(t *testing.T) {
	blobs := map[string]string{"3-chunks": "3-c1 3-c2", "3-c1": "a chunk", "3-c2": "another", "3-snapshot": "3-s1", "3-s1": "a segment"}
	names := func(name string, b []byte) (out []string, err error) {
		switch name {
		case "3-chunks":
			return []string{"3-c1", "3-c2"}, nil
		case "3-snapshot":
			return []string{"3-s1"}, nil
		}
		return nil, nil
	}
	sealed := func(t *testing.T) (*world, *owner) {
		w := newWorld(t)
		a := w.open()
		last := a.batch(1)
		w.land(last, a.batch(1))
		for name, b := range blobs {
			w.check(w.l.PutBlob(w.ctx, w.root().Instance, name, []byte(b)))
		}
		w.seal(last, true)
		old := w.root()
		next := old.Next()
		next.Chunks, next.Snapshot, next.Collect = "3-chunks", "3-snapshot", 3
		w.check(w.l.CompareAndSwap(w.ctx, old, next))
		return w, a
	}
	w, _ := sealed(t)
	to := w.place("copy")
	root, err := w.copyTo(to, log.CopyOptions{Names: names})
	w.check(err)
	w.wantCopy(to, root, w.chainIn(w.l))
	src := w.root()
	if root.Sealed != src.Sealed || root.Chunks != src.Chunks || root.Snapshot != src.Snapshot || root.Collect != src.Collect {
		t.Fatalf("the copy's root is %+v, the source's %+v", root, src)
	}
	for name, b := range blobs {
		got, err := to.GetBlob(w.ctx, root.Instance, name)
		w.check(err)
		if string(got) != b {
			t.Fatalf("blob %s is %q", name, got)
		}
	}

	// It is sealed further, and collected, while it is copied.
	for _, op := range []mem.Op{mem.OpGetBlob, mem.OpList, mem.OpRead} {
		w, a := sealed(t)
		from, to := w.handle(), w.place("copy")
		on(from, op, 1, func() {
			w.land(a.batch(1))
			last := a.batch(1)
			w.land(last, a.batch(1))
			for _, name := range []string{"4-chunks", "4-snapshot"} {
				w.check(w.l.PutBlob(w.ctx, w.root().Instance, name, []byte(name)))
			}
			w.seal(last, true)
			old := w.root()
			next := old.Next()
			next.Chunks, next.Snapshot, next.Collect = "4-chunks", "4-snapshot", 4
			w.check(w.l.CompareAndSwap(w.ctx, old, next))
			for name := range blobs {
				w.l.RemoveBlob(old.Instance, name)
			}
		})
		root, err := log.Copy(w.ctx, from, to, log.CopyOptions{Names: names})
		if err != nil {
			t.Fatalf("sealed at the first %s: %v", op, err)
		}
		w.wantCopy(to, root, w.chainIn(w.l))
		if root.Chunks != "4-chunks" || root.Collect != 4 {
			t.Fatalf("sealed at the first %s: the root is %+v", op, root)
		}
	}

	// A blob that the root names is gone.
	w, _ = sealed(t)
	w.l.RemoveBlob(w.root().Instance, "3-c2")
	_, err = w.copyTo(w.place("copy"), log.CopyOptions{Names: names})
	wantError(t, err, log.ErrCorrupt, "copy without a blob")
}

func TestCopy_OfADamagedLog(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	lost := a.batch(1)
	w.land(lost, a.batch(1))
	w.open()
	w.lose(lost)
	to := w.place("copy")
	_, err := w.copyTo(to, log.CopyOptions{})
	wantError(t, err, log.ErrCorrupt, "copy")
	if _, err := to.Root(w.ctx); !errors.Is(err, log.ErrNoRoot) || to.Instances() != 0 {
		t.Fatalf("something is left: %v", err)
	}
	w = newWorld(t)
	w.open()
	early := w.root()
	w.open()
	w.rollRootBack(early)
	_, err = w.copyTo(w.place("copy"), log.CopyOptions{})
	wantError(t, err, log.ErrRolledBack, "copy what was rolled back")
}

// What a large log takes in memory is bounded: never more on its way than the destination's depth.
func TestCopy_Depth(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	for range 500 {
		w.land(a.batch(1))
	}
	to := w.place("copy")
	var mu sync.Mutex
	flying, most := 0, 0
	to.SetHook(func(c mem.Call) mem.Fault {
		if c.Op == mem.OpAppend {
			mu.Lock()
			flying++
			most = max(most, flying)
			mu.Unlock()
			runtime.Gosched()
			mu.Lock()
			flying--
			mu.Unlock()
		}
		return mem.Fault{}
	})
	_, err := w.copyTo(to, log.CopyOptions{})
	w.check(err)
	if most < 2 || most > to.Info().Depth {
		t.Fatalf("%d appends at once, and the depth is %d", most, to.Info().Depth)
	}
}

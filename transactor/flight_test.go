package transactor

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/log/mem"
)

// A store that does not even return when a call's context ends keeps neither Close nor anybody who waits: a batch is in flight, the next one waits
// for it, and the transactions behind are queued.
func TestP10_AStoreThatIsDeafKeepsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, op := range []mem.Op{mem.OpAppend, mem.OpVerify} {
			v := newValve(op)
			x, l := newWorld(t).open(Options{StoreTimeout: time.Second, MaxBatch: 1, Depth: 1})
			mustTransact(t, x, people)
			l.SetHook(v.hook)
			v.close()
			sent := mustSubmit(t, x, person("a", 1))
			next := mustSubmit(t, x, person("b", 1))
			queued := mustSubmit(t, x, person("c", 1))
			synctest.Wait()
			begin := time.Now()
			if err := closeIn(t, x, 3*time.Second); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v: Close: %v", op, err)
			}
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("%v: Close took %v", op, took)
			}
			if _, err := sent.Wait(t.Context()); !errors.Is(err, ErrUnknownOutcome) {
				t.Errorf("%v: sent: %v", op, err)
			}
			for _, f := range []*Future{next, queued} {
				if _, err := f.Wait(t.Context()); !errors.Is(err, ErrClosed) || errors.Is(err, ErrUnknownOutcome) {
					t.Errorf("%v: never sent: %v", op, err)
				}
			}
			v.open()
		}
	})
}

// Flushes that end out of order are installed in order, each once, by whoever closes the gap; what lies behind a failed one is not.
func TestP1_FlightsAreInstalledInOrder(t *testing.T) {
	f := newFlights(8, 1<<20, new(account))
	var installed []*batch
	install := func(b *batch) { installed = append(installed, b) }
	bs := make([]*batch, 6)
	for i := range bs {
		bs[i] = &batch{size: 1, done: make(chan struct{})}
		f.began(bs[i])
	}
	bs[4].appendErr = errBroken
	for _, step := range []struct{ ends, installed int }{{1, 0}, {2, 0}, {0, 3}, {5, 3}, {4, 3}, {3, 4}} {
		if f.ended(bs[step.ends], install); len(installed) != step.installed {
			t.Fatalf("once %d has ended %d are installed, not %d", step.ends, len(installed), step.installed)
		}
	}
	for i, b := range installed {
		if b != bs[i] {
			t.Fatalf("what was installed as number %d is not batch %d", i, i)
		}
	}
	if left := f.drain(t.Context()); len(left) != 2 || left[0] != bs[4] || left[1] != bs[5] {
		t.Fatalf("%d are left", len(left))
	}
	if ok, n := f.free(1); !ok || n != 0 {
		t.Fatalf("free %t, %d in flight", ok, n)
	}
}

// Batches that wait for a predecessor's flush hold room as well: a flush that takes for ever does not pile them up.
func TestP4_FlightsAreBounded(t *testing.T) {
	f := newFlights(2, 1<<20, new(account))
	none := func(*batch) { t.Error("something was installed") }
	n := 0
	for began := (*batch)(nil); ; n++ {
		if ok, _ := f.free(1); !ok {
			break
		}
		b := &batch{size: 1, done: make(chan struct{})}
		if f.began(b); began != nil {
			f.ended(b, none)
		}
		if began == nil {
			began = b // does not end
		}
	}
	if n != 4 {
		t.Fatalf("%d batches behind one that does not end", n)
	}
	if ok, _ := newFlights(2, 10, new(account)).free(11); !ok {
		t.Fatal("a batch that is larger than the bound is not sent at all")
	}
	f = newFlights(2, 10, new(account))
	f.began(&batch{size: 6, done: make(chan struct{})})
	if ok, _ := f.free(5); ok {
		t.Fatal("more bytes are in flight than may be")
	}
}

// While somebody installs, whoever ends another flight leaves it to him; and the epoch is not over before he has ended, although time is.
func TestP1_OneInstallsForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlights(8, 1<<20, new(account))
		hold := make(chan struct{})
		var begun, ended atomic.Int32
		install := func(*batch) {
			begun.Add(1)
			<-hold
			ended.Add(1)
		}
		for range 3 {
			f.began(&batch{done: make(chan struct{})})
		}
		first, second := f.line[0], f.line[1]
		go f.ended(first, install)
		synctest.Wait()
		go f.ended(second, install)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var left []*batch
		drained := make(chan struct{})
		go func() { left = f.drain(ctx); close(drained) }()
		synctest.Wait()
		if begun.Load() != 1 || isClosed(drained) {
			t.Errorf("%d at it at the same time; drained: %t", begun.Load(), isClosed(drained))
		}
		close(hold)
		<-drained
		if ended.Load() != 2 || len(left) != 1 {
			t.Errorf("%d installed, %d left", ended.Load(), len(left))
		}
	})
}

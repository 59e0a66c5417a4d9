package transactor

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/mem"
)

func (w *world) read() *Reader {
	w.t.Helper()
	return w.readOn(w.server.Open("main", mem.Options{}))
}

// readOn opens the database read-only on a log of the test's, until the test ends.
func (w *world) readOn(l log.Log) *Reader {
	w.t.Helper()
	r, err := OpenReadOnly(context.Background(), l)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { r.Close(context.Background()) })
	return r
}

func TestL8_AReaderSeesWhatWasAcknowledgedBeforeItsSync(t *testing.T) {
	w := newWorld(t)
	if _, err := OpenReadOnly(context.Background(), w.server.Open("main", mem.Options{})); !errors.Is(err, ErrNoDatabase) {
		t.Fatalf("a database that is not there: %v", err)
	}
	x, _ := w.open(Options{})
	mustTransact(t, x, people)
	r := w.read()
	for i := range 10 {
		report := mustTransact(t, x, person("a", i))
		if number(t, r.DB(), "a") == i {
			t.Fatal("it reads without being asked")
		}
		d, err := r.Sync(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if d.BasisT() < report.T || number(t, d, "a") != i || number(t, r.DB(), "a") != i {
			t.Errorf("t = %d after %d", d.BasisT(), report.T)
		}
	}
	if s := r.Stats(); s.Transactions != x.DB().BasisT() || s.Syncs != 11 {
		t.Errorf("%+v", s)
	}
	if err := r.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if _, err := r.Sync(context.Background()); !errors.Is(err, ErrClosed) {
		t.Errorf("Sync after Close: %v", err)
	}
	if number(t, r.DB(), "a") != 9 {
		t.Error("a closed reader's value is gone")
	}
}

// While the root names an owner whose start is not there yet, a reader keeps what it had proven: an object of the owner before
// may be dead.
func TestL8_AReaderTrustsNothingOfADeposedOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		x, l := w.open(Options{StoreTimeout: time.Hour})
		mustTransact(t, x, people)
		r := w.read()
		basis := r.DB().BasisT()

		// The next owner has read the log; its start is held up.
		v := newValve(mem.OpAppend)
		v.close()
		next := w.server.Open("main", mem.Options{Hook: v.hook})
		opened := make(chan *Transactor)
		go func() { opened <- w.openOn(next, Options{StoreTimeout: time.Hour}) }()
		<-v.waiting
		late := mustSubmit(t, x, person("late", 1)) // becomes durable now, and is dead
		synctest.Wait()
		d, err := r.Sync(t.Context())
		if err != nil || d.BasisT() != basis {
			t.Errorf("t = %d, want %d as before: %v", d.BasisT(), basis, err)
		}
		v.open()
		y := <-opened
		mustTransact(t, y, person("new", 1))
		if d, err = r.Sync(t.Context()); err != nil || number(t, d, "new") != 1 || number(t, d, "late") != -1 {
			t.Errorf("after the new owner began: %v", err)
		}
		if _, err := late.Wait(t.Context()); err == nil {
			t.Error("the deposed owner's transaction was answered as committed")
		}
		l.SetHook(nil)
		closeIn(t, x, time.Hour)
		closeIn(t, y, time.Hour)
	})
}

// Readers beside owners that depose each other: what they see only ever grows, and is a prefix of the log in the end.
func TestL8_L11_AReadersValuesAreAPrefixChain(t *testing.T) {
	w := newWorld(t)
	x, _ := w.open(Options{MaxBatch: 3, Depth: 4})
	mustTransact(t, x, people)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	type seen struct {
		t uint64
		n int
	}
	all := make([][]seen, 4)
	for i := range all {
		r := w.read()
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				d, err := r.Sync(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				if n := len(all[i]); n > 0 && all[i][n-1].t > d.BasisT() {
					t.Errorf("went back from t = %d to %d", all[i][n-1].t, d.BasisT())
				}
				all[i] = append(all[i], seen{d.BasisT(), number(t, d, "a")})
			}
		})
	}
	for round := range 6 {
		for i := range 60 {
			if _, err := x.Submit(context.Background(), person("a", round*1000+i)); err != nil {
				t.Fatal(err)
			}
		}
		next, _ := w.open(Options{MaxBatch: 3, Depth: 4}) // deposes x in the middle of its work
		x = next
	}
	mustTransact(t, x, person("a", -5))
	close(stop)
	readers.Wait()
	for _, values := range all {
		for _, s := range values {
			if got := number(t, x.DB().AsOf(s.t), "a"); got != s.n {
				t.Fatalf("as of t = %d a reader saw %d; the log says %d", s.t, s.n, got)
			}
		}
	}
}

func TestL11_AReaderDoesNotGoBack(t *testing.T) {
	w := newWorld(t)
	x, l := w.open(Options{})
	mustTransact(t, x, people)
	restore := l.Backup()
	mustTransact(t, x, person("a", 1))
	r := w.read()
	if err := closeIn(t, x, time.Minute); err != nil {
		t.Fatal(err)
	}
	restore()
	y, _ := w.open(Options{}) // knows nothing of what was lost
	for i := range 3 {
		mustTransact(t, y, person(fmt.Sprint("b", i), 1))
	}
	if _, err := r.Sync(context.Background()); !errors.Is(err, log.ErrRolledBack) {
		t.Errorf("a store that went back: %v", err)
	}
	if number(t, r.DB(), "a") != 1 {
		t.Error("the value that was proven is gone")
	}
}

// hangOnce makes the first call of an op never return by itself.
func hangOnce(op mem.Op) mem.Hook {
	var done atomic.Bool
	return func(c mem.Call) mem.Fault {
		if c.Op == op && !done.Swap(true) {
			return mem.Fault{Delay: 1000 * time.Hour}
		}
		return mem.Fault{}
	}
}

func TestP10_ACallThatHangsDoesNotEndTheFollowing(t *testing.T) {
	for _, op := range []mem.Op{mem.OpRoot, mem.OpRead} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			x := w.openOn(w.handle(), Options{})
			mustTransact(t, x, people)
			l := w.handle()
			r := w.readOn(l)
			defer r.Close(t.Context())
			r.Follow(0)
			synctest.Wait()
			l.SetHook(hangOnce(op))
			mustTransact(t, x, person("a", 1))
			time.Sleep(5 * time.Minute)
			if n := number(t, r.DB(), "a"); n != 1 {
				t.Errorf("%s: a is %d, behind: %v", op, n, r.Behind())
			}
		})
	}
}

func TestP6_ASyncThatHangsHoldsNobodyElseUp(t *testing.T) {
	w := newWorld(t)
	x := w.openOn(w.handle(), Options{})
	mustTransact(t, x, people)
	v := newValve(mem.OpRoot)
	l := w.handle()
	r := w.readOn(l)
	l.SetHook(v.hook)
	v.close()
	first := make(chan struct{})
	go func() { defer close(first); r.Sync(context.Background()) }()
	<-v.waiting
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ended, stats := make(chan error, 1), make(chan struct{})
	go func() { _, err := r.Sync(ctx); ended <- err }()
	go func() { r.Stats(); close(stats) }()
	late, enough := context.WithTimeout(t.Context(), 5*time.Second)
	defer enough()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	case <-late.Done():
		t.Error("a Sync whose context has ended waits for another")
	}
	select {
	case <-stats:
	case <-late.Done():
		t.Error("Stats waits for a Sync")
	}
	v.open()
	<-first
	r.Close(t.Context())
}

type stuckClose struct {
	log.Log
	returns chan struct{}
}

func (l stuckClose) Close() error { <-l.returns; return l.Log.Close() }

func TestP10_AReadersCloseReturnsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		x := w.openOn(w.handle(), Options{})
		mustTransact(t, x, people)
		l := stuckClose{w.handle(), make(chan struct{})}
		r := w.readOn(l)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- r.Close(ctx) }()
		time.Sleep(time.Minute)
		select {
		case err := <-ended:
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v", err)
			}
		default:
			t.Error("Close waits beyond its context")
		}
		close(l.returns)
	})
}

// TestP5_AReaderKeepsLittleForSubscribers: what one Sync has read is kept for subscribers within the bounds of their window, however large the transactions are.
func TestP5_AReaderKeepsLittleForSubscribers(t *testing.T) {
	w := newWorld(t)
	x, _ := w.open(Options{})
	mustTransact(t, x, people)
	l := w.handle()
	r := w.readOn(l)
	defer r.Close(t.Context())
	for i := range 60 {
		mustTransact(t, x, person(string(make([]byte, 1<<20))+fmt.Sprint(i), 1))
	}
	most := 0
	l.SetHook(func(c mem.Call) mem.Fault {
		if c.Op == mem.OpRoot { // before anything is read, and again when all is
			n := 0
			for _, t := range r.fresh {
				n += alone(t)
			}
			most = max(most, n)
		}
		return mem.Fault{}
	})
	if _, err := r.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if most == 0 || most > 2*windowBytes+4<<20 {
		t.Errorf("%d MiB were kept for nobody", most>>20)
	}
}

// TestFollow_Storm: readers that open, follow, sync, feed and close, all at once.
func TestFollow_Storm(t *testing.T) {
	w := newWorld(t)
	x, _ := w.open(Options{MaxBatch: 3})
	mustTransact(t, x, people)
	var wait sync.WaitGroup
	for i := range 20 {
		wait.Go(func() {
			for j := range 20 {
				r, err := OpenReadOnly(context.Background(), w.server.Open("main", mem.Options{Delay: time.Duration(i%3) * 100 * time.Microsecond}))
				if err != nil {
					t.Error(err)
					return
				}
				var in sync.WaitGroup
				for k := range 4 {
					in.Go(func() {
						if k%2 == 0 {
							r.Follow(time.Millisecond)
						}
						next := uint64(1)
						for rep, err := range r.Subscribe(context.Background(), 1) {
							if err != nil {
								if !errors.Is(err, ErrClosed) {
									t.Error(err)
								}
								return
							}
							if rep.T != next {
								t.Errorf("t = %d, want %d", rep.T, next)
							}
							next++
						}
					})
				}
				in.Go(func() { r.Sync(context.Background()); _ = r.Behind(); r.Stats() })
				mustSubmit(t, x, person(fmt.Sprint(i, "-", j), j), TxOptions{Wait: true})
				if j%3 == 0 {
					runtime.Gosched()
				}
				r.Close(context.Background())
				in.Wait()
			}
		})
	}
	wait.Wait()
}

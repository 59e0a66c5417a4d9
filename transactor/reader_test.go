package transactor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/mem"
)

func (w *world) read() *Reader {
	w.t.Helper()
	r, err := OpenReadOnly(context.Background(), w.server.Open("main", mem.Options{}))
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

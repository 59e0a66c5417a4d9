package transactor

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/mem"
	"github.com/steledb/stele/tx"
)

// subscriber is what both kinds of databases offer.
type subscriber interface {
	Subscribe(ctx context.Context, from uint64) iter.Seq2[*tx.Report, error]
}

// checkFeed takes reports from s until that of transaction to, and sees that none is missing and each is itself.
func checkFeed(t *testing.T, s subscriber, from, to uint64, each func(*tx.Report)) {
	t.Helper()
	next := max(from, 1)
	for r, err := range s.Subscribe(t.Context(), from) {
		if err != nil {
			t.Errorf("behind t = %d: %v", next-1, err)
			return
		}
		if r.T != next || r.DBBefore.BasisT() != next-1 || r.DBAfter.BasisT() != next || r.Tx != datom.TxID(next) || len(r.TxData) == 0 {
			t.Errorf("t = %d between values of %d and %d, %d datoms; the next should be %d", r.T, r.DBBefore.BasisT(), r.DBAfter.BasisT(), len(r.TxData), next)
			return
		}
		for _, d := range r.TxData {
			if d.T != r.T {
				t.Errorf("report %d has a datom of %d", r.T, d.T)
			}
		}
		if each != nil {
			each(r)
		}
		if next++; r.T == to {
			return
		}
	}
	t.Errorf("the subscription ended behind t = %d", next-1)
}

// reads counts the calls that read the log.
type reads struct {
	mu sync.Mutex
	n  int
}

func (r *reads) hook(c mem.Call) mem.Fault {
	if c.Op == mem.OpRead || c.Op == mem.OpGet {
		r.mu.Lock()
		r.n++
		r.mu.Unlock()
	}
	return mem.Fault{}
}

func (r *reads) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}

// TestSubscribe_HistoryThenLiveWithoutAGap: wherever a subscriber begins, while others commit.
func TestSubscribe_HistoryThenLiveWithoutAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		x := w.openOn(w.server.Open("main", mem.Options{Delay: time.Millisecond}), Options{MaxBatch: 7})
		mustTransact(t, x, people)
		for i := range 100 {
			mustTransact(t, x, person(fmt.Sprint("old", i), i))
		}
		const last = 2 + 100 + 500
		var wait sync.WaitGroup
		for _, from := range []uint64{0, 1, 50, 102, 103, 300} {
			wait.Go(func() {
				checkFeed(t, x, from, last, func(r *tx.Report) {
					if i := int(r.T) - 103; i >= 0 {
						if before, after := number(t, r.DBBefore, fmt.Sprint("new", i)), number(t, r.DBAfter, fmt.Sprint("new", i)); before != -1 || after != i {
							t.Errorf("report %d: %d before and %d after", r.T, before, after)
						}
					}
				})
			})
		}
		for i := range 500 {
			mustSubmit(t, x, person(fmt.Sprint("new", i), i))
			if i%50 == 0 {
				time.Sleep(5 * time.Millisecond)
			}
		}
		wait.Wait()
	})
}

// TestSubscribe_LiveReportsAreNotReadFromTheLog: a subscriber that keeps up costs the store nothing.
func TestSubscribe_LiveReportsAreNotReadFromTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		x, l := w.open(Options{})
		mustTransact(t, x, people)
		var wait sync.WaitGroup
		wait.Go(func() { checkFeed(t, x, 3, 202, nil) })
		synctest.Wait()
		var n reads
		l.SetHook(n.hook)
		for i := range 200 {
			mustTransact(t, x, person("a", i))
		}
		wait.Wait()
		if n.count() > 0 {
			t.Errorf("%d reads of the log", n.count())
		}
	})
}

// TestP9_ASlowSubscriberStallsNobodyAndIsReFed: it falls out of the window, holds nothing in memory, and misses nothing.
func TestP9_ASlowSubscriberStallsNobodyAndIsReFed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		x, l := w.open(Options{MaxBatch: 1, Depth: 1})
		mustTransact(t, x, people)
		const n = 3 * windowStretches
		resume := make(chan struct{})
		var wait sync.WaitGroup
		wait.Go(func() {
			checkFeed(t, x, 3, n+2, func(r *tx.Report) {
				if r.T == 3 {
					<-resume
				}
			})
		})
		for i := range n {
			mustTransact(t, x, person("a", i))
		}
		x.feed.mu.Lock()
		if len(x.feed.window) > windowStretches || x.feed.bytes.Load() > windowBytes {
			t.Errorf("the window holds %d stretches, %d bytes", len(x.feed.window), x.feed.bytes.Load())
		}
		x.feed.mu.Unlock()
		var reads reads
		l.SetHook(reads.hook)
		close(resume)
		wait.Wait()
		if reads.count() == 0 {
			t.Error("nothing was read from the log")
		}
		x.feed.mu.Lock()
		defer x.feed.mu.Unlock()
		if x.feed.subscribers != 0 || x.feed.window != nil {
			t.Errorf("%d subscribers, %d stretches when all have gone", x.feed.subscribers, len(x.feed.window))
		}
	})
}

// TestSubscribe_LargeTransactionsDoNotFillTheWindow: it is bounded in bytes too.
func TestSubscribe_LargeTransactionsDoNotFillTheWindow(t *testing.T) {
	w := newWorld(t)
	x, _ := w.open(Options{})
	mustTransact(t, x, people)
	var wait sync.WaitGroup
	defer wait.Wait()
	wait.Go(func() { checkFeed(t, x, 1, 22, nil) })
	for i := range 20 {
		mustTransact(t, x, person(string(make([]byte, 1<<20))+fmt.Sprint(i), 1))
	}
	x.feed.mu.Lock()
	defer x.feed.mu.Unlock()
	if x.feed.bytes.Load() > windowBytes {
		t.Errorf("the window holds %d bytes", x.feed.bytes.Load())
	}
}

// TestP9_ASubscriberThatPanicsHarmsNobody: the panic is on its own goroutine, and its place is given back.
func TestP9_ASubscriberThatPanicsHarmsNobody(t *testing.T) {
	w := newWorld(t)
	x, _ := w.open(Options{})
	mustTransact(t, x, people)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		for range x.Subscribe(t.Context(), 1) {
			panic("oh")
		}
	}()
	mustTransact(t, x, person("a", 1))
	checkFeed(t, x, 1, 3, nil)
	if x.feed.subscribers != 0 {
		t.Errorf("%d subscribers", x.feed.subscribers)
	}
}

func TestSubscribe_EndsWithItsContextOrTheTransactor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		x, _ := w.open(Options{})
		mustTransact(t, x, people)
		ctx, cancel := context.WithCancel(t.Context())
		ends := make(chan error, 2)
		follow := func(ctx context.Context, want int) {
			var last error
			n := 0
			for _, err := range x.Subscribe(ctx, 1) {
				n, last = n+1, err
			}
			if n != want {
				t.Errorf("%d yields", n)
			}
			ends <- last
		}
		go follow(ctx, 3) // t = 1 and 2, and the error
		synctest.Wait()
		cancel()
		if err := <-ends; !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		go follow(t.Context(), 3)
		synctest.Wait()
		closeIn(t, x, time.Minute)
		if err := <-ends; !errors.Is(err, ErrClosed) {
			t.Errorf("closed: %v", err)
		}
		// What is in memory is no longer there to be read, and saying so is not an empty history.
		go follow(t.Context(), 1)
		if err := <-ends; !errors.Is(err, ErrClosed) {
			t.Errorf("subscribed to a closed one: %v", err)
		}
	})
}

// TestL8_AFollowerSubscribesAcrossOwners: the reports of owner after owner, some of whom were deposed with batches in flight, are those of
// the one chain.
func TestL8_AFollowerSubscribesAcrossOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		x := w.openOn(w.handle(), Options{MaxBatch: 3})
		mustTransact(t, x, people)
		r := w.readOn(w.handle())
		defer r.Close(t.Context())
		var wait sync.WaitGroup
		seen := map[datom.ID]string{} // by transaction
		const owners, each = 10, 40
		stop := make(chan struct{})
		wait.Go(func() {
			for rep, err := range r.Subscribe(t.Context(), 1) {
				if err != nil {
					t.Error(err)
					return
				}
				if want := uint64(len(seen) + 1); rep.T != want {
					t.Errorf("t = %d, not %d", rep.T, want)
				}
				seen[rep.Tx] = fmt.Sprint(rep.TxData)
				if rep.DBAfter.BasisT() != rep.T {
					t.Errorf("t = %d with a value of %d", rep.T, rep.DBAfter.BasisT())
				}
				if number(t, rep.DBAfter, "end") == 1 {
					close(stop)
					return
				}
			}
		})
		for o := range owners {
			for i := range each {
				mustSubmit(t, x, person(fmt.Sprint(o, "-", i), i))
			}
			time.Sleep(time.Millisecond)
			x = w.openOn(w.handle(), Options{MaxBatch: 3})
		}
		mustTransact(t, x, person("end", 1))
		<-stop
		wait.Wait()
		for rec, err := range x.TxRange(t.Context(), 1, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if got := seen[datom.TxID(rec.T)]; got != fmt.Sprint(rec.Datoms) {
				t.Errorf("t = %d: the follower saw %s", rec.T, got)
			}
		}
	})
}

// TestL8_FollowKeepsAReaderCurrent: without a Sync of anybody's, through an outage, until the log cannot be trusted any more.
func TestL8_FollowKeepsAReaderCurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		x := w.openOn(w.handle(), Options{})
		mustTransact(t, x, people)
		l := w.handle()
		r := w.readOn(l)
		defer r.Close(t.Context())
		r.Follow(100 * time.Millisecond)
		r.Follow(time.Hour)
		restore := l.Backup()
		mustTransact(t, x, person("a", 1))
		time.Sleep(10 * time.Second) // the lease is renewed, so the root of now is not the one of the backup
		if n := number(t, r.DB(), "a"); n != 1 || r.Behind() != nil {
			t.Errorf("a %d, behind: %v", n, r.Behind())
		}
		l.SetHook(func(mem.Call) mem.Fault { return mem.Fault{Fail: errBroken} })
		mustTransact(t, x, person("a", 2))
		time.Sleep(time.Minute)
		if n := number(t, r.DB(), "a"); n != 1 || !errors.Is(r.Behind(), errBroken) {
			t.Errorf("during an outage: a %d, behind: %v", n, r.Behind())
		}
		l.SetHook(nil)
		time.Sleep(5 * time.Second)
		if n := number(t, r.DB(), "a"); n != 2 || r.Behind() != nil {
			t.Errorf("after the outage: a %d, behind: %v", n, r.Behind())
		}
		restore()
		time.Sleep(5 * time.Second)
		if !errors.Is(r.Behind(), log.ErrRolledBack) {
			t.Errorf("behind: %v", r.Behind())
		}
		for _, err := range r.Subscribe(t.Context(), r.DB().BasisT()+1) {
			if !errors.Is(err, log.ErrRolledBack) {
				t.Errorf("Subscribe: %v", err)
			}
		}
	})
}

// TestSubscribe_AThousandSubscribers share one window.
func TestSubscribe_AThousandSubscribers(t *testing.T) {
	w := newWorld(t)
	x, _ := w.open(Options{})
	mustTransact(t, x, people)
	const n = 1000
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	counts := make([]int, n)
	for i := range n {
		wait.Go(func() {
			for r, err := range x.Subscribe(ctx, 3) {
				if err != nil {
					return
				}
				if counts[i]++; r.T == 102 {
					return
				}
			}
		})
	}
	for i := range 100 {
		mustTransact(t, x, person("a", i))
		runtime.Gosched()
	}
	wait.Wait()
	cancel()
	for i, c := range counts {
		if c != 100 {
			t.Errorf("subscriber %d got %d reports", i, c)
		}
	}
}

// closing is a store whose Close has ended everything before it returns.
type closing struct {
	log.Log
	closed, returns chan struct{}
}

func (l closing) Close() error {
	err := l.Log.Close()
	close(l.closed)
	<-l.returns
	return err
}

// A subscriber that reads the log while the store is being closed learns of the end as everybody does.
func TestSubscribe_ReadsWhileTheStoreIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := closing{w.server.Open("main", mem.Options{}), make(chan struct{}), make(chan struct{})}
		x := w.openOn(l, Options{})
		mustTransact(t, x, people)
		go closeIn(t, x, time.Minute)
		<-l.closed
		var last error
		for _, err := range x.Subscribe(t.Context(), 1) {
			last = err
		}
		if !errors.Is(last, ErrClosed) {
			t.Errorf("ended with %v", last)
		}
		close(l.returns)
		<-x.Ended()
	})
}

func TestSubscribe_FromTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		x, _ := w.open(Options{})
		mustTransact(t, x, people)
		r := w.read()
		var wait sync.WaitGroup
		for _, s := range []subscriber{x, r} {
			wait.Go(func() { checkFeed(t, s, 8, 12, nil) })
			wait.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				for r, err := range s.Subscribe(ctx, math.MaxUint64) {
					if r != nil || !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%v, %v", r, err)
					}
				}
			})
		}
		synctest.Wait()
		for i := range 10 {
			mustTransact(t, x, person("a", i))
			time.Sleep(100 * time.Millisecond)
		}
		wait.Wait()
		r.Close(t.Context())
	})
}

// TestSubscribe_BrokenOff: breaking off anywhere gives the place back, and the same sequence can be used again.
func TestSubscribe_BrokenOff(t *testing.T) {
	w := newWorld(t)
	x, _ := w.open(Options{})
	mustTransact(t, x, people)
	for i := range 20 {
		mustTransact(t, x, person("a", i))
	}
	seq := x.Subscribe(t.Context(), 1)
	for stop := range 25 {
		n := uint64(0)
		for r, err := range seq {
			if err != nil || r.T != n+1 {
				t.Fatal(r, err)
			}
			if n++; n > uint64(stop) || r.T == 22 {
				break
			}
		}
	}
	if x.feed.subscribers != 0 {
		t.Errorf("%d subscribers", x.feed.subscribers)
	}
}

func TestSubscribe_OfADeletedDatabaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		x, _ := w.open(Options{})
		mustTransact(t, x, people)
		r := w.readOn(w.handle())
		ends := make(chan error, 2)
		for _, s := range []subscriber{x, r} {
			go func() {
				var last error
				for _, err := range s.Subscribe(t.Context(), 1) {
					last = err
				}
				ends <- last
			}()
		}
		synctest.Wait()
		if err := log.Delete(t.Context(), w.handle(), log.DeleteOptions{Force: true}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		for range 2 {
			select {
			case err := <-ends:
				if !errors.Is(err, ErrDeleted) {
					t.Errorf("ended with %v", err)
				}
			default:
				t.Error("a subscriber of a deleted database waits")
			}
		}
		r.Close(t.Context())
		closeIn(t, x, time.Minute)
	})
}

// TestSubscribe_ACopysHistory: a copy has the history, and its keys go on to count (P8).
func TestSubscribe_ACopysHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		x, l := w.open(Options{MaxBatch: 3})
		mustTransact(t, x, people)
		first := keyed(t, x, "k", order(1))
		for i := range 30 {
			mustTransact(t, x, person("a", i))
		}
		other := mem.NewServer()
		if _, err := log.Copy(t.Context(), l, other.Open("copy", mem.Options{}), log.CopyOptions{}); err != nil {
			t.Fatal(err)
		}
		r, err := OpenReadOnly(t.Context(), other.Open("copy", mem.Options{}))
		if err != nil {
			t.Fatal(err)
		}
		var wait sync.WaitGroup
		wait.Go(func() { checkFeed(t, r, 1, 40, nil) })
		wait.Go(func() { checkFeed(t, r, 20, 40, nil) })
		y, err := Open(t.Context(), other.Open("copy", mem.Options{}), Options{})
		if err != nil {
			t.Fatal(err)
		}
		sameReport(t, keyed(t, y, "k", order(1)), first)
		wait.Go(func() { checkFeed(t, y, 1, 40, nil) })
		for i := range 20 {
			mustTransact(t, y, person("b", i))
		}
		wait.Wait()
		r.Close(t.Context())
		closeIn(t, y, time.Minute)
	})
}

package transactor

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/fs"
	"github.com/steledb/stele/log/mem"
	"github.com/steledb/stele/tx"
)

func TestP10_ASubscriberSurvivesACallThatHangs(t *testing.T) {
	for _, follower := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			l := w.handle()
			x := w.openOn(l, Options{})
			mustTransact(t, x, people)
			var s subscriber = x
			if follower {
				l = w.handle()
				r := w.readOn(l)
				defer r.Close(t.Context())
				r.Follow(0)
				synctest.Wait()
				s = r
			}
			l.SetHook(hangOnce(mem.OpRead))
			n := 0
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			for r, err := range s.Subscribe(ctx, 1) {
				if err != nil {
					t.Errorf("follower %t: %v", follower, err)
					break
				}
				n++
				if r.T == 2 {
					break
				}
			}
			if n != 2 {
				t.Errorf("follower %t: %d reports", follower, n)
			}
		})
	}
}

// TestP10_CloseWhileASubscriberThinks: on fs, whose Close waits for the calls under way, a subscriber who is in the middle of reading the log is not one.
func TestP10_CloseWhileASubscriberThinks(t *testing.T) {
	dir := t.TempDir()
	open := func() log.Log {
		l, err := fs.Open(context.Background(), fs.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	x, err := Open(t.Context(), open(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	mustTransact(t, x, people)
	for i := range 8 { // more than a reader proves at once
		mustTransact(t, x, person(string(make([]byte, 1<<20))+fmt.Sprint(i), i))
	}
	r, err := OpenReadOnly(t.Context(), open())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		s     subscriber
		close func(context.Context) error
	}{"reader": {r, r.Close}, "transactor": {x, x.Close}} {
		sits, goOn, gone := make(chan struct{}), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(gone)
			for range c.s.Subscribe(context.Background(), 1) {
				select {
				case <-sits:
				default:
					close(sits)
				}
				<-goOn
			}
		}()
		<-sits
		closed := make(chan error, 1)
		go func() { closed <- c.close(context.Background()) }()
		select {
		case err := <-closed:
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%s: Close waits for a subscriber that sits on a report", name)
		}
		close(goOn)
		<-gone
	}
}

func TestSubscribe_InTheLogHeedsItsContext(t *testing.T) {
	w := newWorld(t)
	x, _ := w.open(Options{})
	mustTransact(t, x, people)
	for i := range 50 {
		mustTransact(t, x, person("a", i))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	for _, err := range x.Subscribe(ctx, 1) {
		if err == nil {
			n++
		}
		cancel()
	}
	if n != 1 {
		t.Errorf("%d reports, all but one after the context had ended", n)
	}
}

func TestP5_ASlowSubscriberHoldsNoStretch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		v := newValve(mem.OpVerify)
		l := w.server.Open("main", mem.Options{Hook: v.hook})
		x := w.openOn(l, Options{MaxBatch: 100, Depth: 1})
		mustTransact(t, x, people)
		resume := make(chan struct{})
		var wait sync.WaitGroup
		const last = 2 + 1 + 100 + windowStretches + 10
		wait.Go(func() {
			checkFeed(t, x, 3, last, func(r *tx.Report) {
				if r.T == 4 {
					<-resume
				}
			})
		})
		synctest.Wait()
		v.close()
		f := mustSubmit(t, x, person("first", 1))
		<-v.waiting
		for i := range 100 {
			mustSubmit(t, x, person(fmt.Sprint("b", i), i))
		}
		synctest.Wait()
		v.open()
		f.Wait(t.Context())
		synctest.Wait()
		x.feed.mu.Lock()
		s := x.feed.window[len(x.feed.window)-1]
		if len(s.txs) < 50 {
			t.Fatalf("a stretch of %d", len(s.txs))
		}
		ptr := weak.Make(s.txs[len(s.txs)-1])
		s = stretch{}
		x.feed.mu.Unlock()
		for i := range windowStretches + 10 {
			mustTransact(t, x, person("z", i))
		}
		synctest.Wait()
		for range 5 {
			runtime.GC()
		}
		if ptr.Value() != nil {
			t.Error("a subscriber that takes nothing keeps transactions that left the window long ago")
		}
		close(resume)
		wait.Wait()
	})
}

func TestP9_TenThousandWhoTakeNothing(t *testing.T) {
	w := newWorld(t)
	x, _ := w.open(Options{})
	mustTransact(t, x, people)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var took, wait sync.WaitGroup
	const n = 10000
	took.Add(n)
	goOn := make(chan struct{})
	for range n {
		wait.Go(func() {
			first := true
			for range x.Subscribe(ctx, 3) {
				if first {
					first = false
					took.Done()
				}
				<-goOn
			}
		})
	}
	mustTransact(t, x, person("a", 0))
	took.Wait()
	began := time.Now()
	for i := range 2000 {
		mustTransact(t, x, person("a", i))
	}
	t.Logf("2000 transactions beside 10000 who sleep: %v; window %d", time.Since(began), x.feed.bytes.Load())
	cancel()
	close(goOn)
	wait.Wait()
}

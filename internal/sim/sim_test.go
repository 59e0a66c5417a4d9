package sim

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"
)

var (
	seeds    = flag.Int("sim.seeds", 0, "how many seeds TestSimulation runs; 0: as many as make test should")
	seed     = flag.Uint64("sim.seed", 0, "the first of them; 0: 1, or, with -sim.forever, one that the clock gives")
	verbose  = flag.Bool("sim.v", false, "print the transcript of every run as it goes")
	forever  = flag.Bool("sim.forever", false, "run new seeds until one fails")
	all      = flag.Bool("sim.all", false, "count the failures instead of ending with the first")
	tell     = flag.Bool("sim.tell", false, "print each seed before it is run")
	patience = flag.Int("sim.patience", 120, "how many seconds one run may take, by the real clock")
)

// tellEvery is how often -sim.forever says how far it is.
const tellEvery = 10 * time.Second

// TestSimulation runs the simulation for many seeds.
func TestSimulation(t *testing.T) {
	n, first := *seeds, max(*seed, 1)
	switch {
	case *forever:
		n = 1 << 62
		if *seed == 0 {
			first = uint64(time.Now().Unix()) << 20
		}
	case n == 0 && (testing.Short() || raced):
		n = 200
	case n == 0:
		n = 3000
	}
	defer alone()()
	began, told := time.Now(), time.Now()
	var sum counts
	failures := 0
	defer func() {
		if failures > 0 {
			t.Errorf("%d seeds failed", failures)
		}
	}()
	for i := range n {
		s := first + uint64(i)
		if *tell {
			fmt.Printf("seed %d\n", s)
		}
		r := play(t, s)
		sum.add(r.counts)
		if *all && len(r.wrong) > 0 {
			failures++
			fmt.Printf("seed %d: %.150s\n", s, r.wrong[0])
		} else if len(r.wrong) > 0 {
			t.Fatalf("seed %d, the transcript of this run:\n%s\nseed %d:\n%s\n\n%s", s, r.transcript(), s, strings.Join(r.wrong, "\n"), again(s))
		}
		if *forever && time.Since(told) > tellEvery {
			told = time.Now()
			fmt.Printf("%d seeds without a failure, from %d on, in %v\n", i+1, first, time.Since(began).Round(time.Second))
		}
	}
	t.Logf("%d seeds in %v: %+v", n, time.Since(began).Round(time.Millisecond), sum)
}

func again(seed uint64) string {
	return fmt.Sprintf("go test ./internal/sim -run TestSimulation -sim.seeds 1 -sim.seed %d -sim.v", seed)
}

// alone makes the process run one goroutine at a time, without the collector's in between, so that a seed says all. It returns what undoes that.
func alone() func() {
	procs := runtime.GOMAXPROCS(1)
	percent := debug.SetGCPercent(-1)
	return func() {
		debug.SetGCPercent(percent)
		runtime.GOMAXPROCS(procs)
	}
}

// result is what came of a run.
type result struct {
	trace []string
	wrong []string
	counts
}

// counts tell whether the runs were worth it.
type counts struct {
	committed, repeated, refused, mismatched, failed, unknown, lost, busy, epochs, reads, reports, calls int
}

func (c *counts) add(o counts) {
	c.committed += o.committed
	c.repeated += o.repeated
	c.refused += o.refused
	c.mismatched += o.mismatched
	c.failed += o.failed
	c.unknown += o.unknown
	c.lost += o.lost
	c.busy += o.busy
	c.epochs += o.epochs
	c.reads += o.reads
	c.reports += o.reports
	c.calls += o.calls
}

func (r *result) transcript() string { return strings.Join(r.trace, "\n") }

// play makes one run.
func play(t *testing.T, seed uint64) (r *result) {
	var w *world
	defer func() {
		if p := recover(); p != nil { // goroutines that never end, most likely
			buf := make([]byte, 1<<20)
			buf = buf[:runtime.Stack(buf, true)]
			r = &result{wrong: []string{fmt.Sprintf("%v\n%s", p, buf)}}
			if w != nil {
				w.write()
				r.trace = w.trace
			}
		}
		collect()
	}()
	over := make(chan struct{})
	defer close(over)
	go func() {
		for range *patience { // a stopped process does not grow old
			select {
			case <-over:
				return
			case <-time.After(time.Second):
			}
		}
		buf := make([]byte, 1<<20)
		buf = buf[:runtime.Stack(buf, true)]
		fmt.Printf("seed %d does not come to rest; the transcript so far:\n%s\n%s\n%s\n", seed, strings.Join(w.trace, "\n"), buf, again(seed))
		os.Exit(1)
	}()
	synctest.Test(t, func(t *testing.T) {
		cryptotest.SetGlobalRandom(t, seed)
		w = newWorld(t, seed)
		w.run()
		w.took = time.Since(w.began)
	})
	w.write()
	if len(w.wrong) == 0 && !w.linearizable() {
		const what = "what was done to the registers is not linearizable"
		w.wrong = append(w.wrong, what)
		w.line(w.took, "WRONG  %s", what)
		for _, o := range w.history {
			w.line(w.took, "%+v from %d to %d: %+v", o.Input, o.Call, o.Return, o.Output)
		}
	}
	return &result{trace: w.trace, wrong: w.wrong, counts: w.count()}
}

// collect collects what the runs so far have left, if it is much.
func collect() {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapAlloc > 200<<20 {
		runtime.GC()
	}
}

// TestReplay: a seed says what happens, down to the line of the transcript. What Go decides by itself stays: which of several ready cases a select takes, the
// order of timers that end at one time and of a map's keys; so a few transcripts differ.
func TestReplay(t *testing.T) {
	if raced {
		t.Skip("the race detector shuffles goroutines")
	}
	defer alone()()
	differ := 0
	const n = 100
	for s := range uint64(n) {
		first, second := play(t, s+1), play(t, s+1)
		if first.transcript() != second.transcript() {
			differ++
		}
	}
	t.Logf("%d of %d seeds had another transcript the second time", differ, n)
	if differ > n/4 {
		t.Errorf("%d of %d seeds had another transcript the second time", differ, n)
	}
}

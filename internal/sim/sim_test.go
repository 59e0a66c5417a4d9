//go:build unix

package sim

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"
)

var (
	seeds   = flag.Int("sim.seeds", 0, "how many seeds are run; 0: as many as make test should")
	seed    = flag.Uint64("sim.seed", 0, "the first of them; 0: 1, or, with -sim.forever, one that the clock gives")
	verbose = flag.Bool("sim.v", false, "print the transcript of every run as it goes")
	forever = flag.Bool("sim.forever", false, "run new seeds until one fails")
	all     = flag.Bool("sim.all", false, "count the failures instead of ending with the first")
)

// simulationSeeds is how many seeds TestSimulation runs.
const simulationSeeds = 2000

// tellEvery is how often -sim.forever says how far it is.
const tellEvery = 10 * time.Second

// series is the seeds to run: n of them, unless the flags say otherwise.
func series(n int) (first uint64, _ int) {
	first = max(*seed, 1)
	switch {
	case *forever:
		n = 1 << 62
		if *seed == 0 {
			first = uint64(time.Now().Unix()) << 20
		}
	case *seeds > 0:
		n = *seeds
	}
	return first, n
}

// TestSimulation runs the simulation for many seeds, each of which replays exactly.
func TestSimulation(t *testing.T) {
	if raced {
		t.Skip("the race detector does not see into the machine that the runs are on; it sees TestNative")
	}
	n := simulationSeeds
	if testing.Short() {
		n = 100
	}
	first, n := series(n)
	e := newEngine(t)
	began, told := time.Now(), time.Now()
	var sum counts
	ran, failures := 0, 0
	e.each(first, n, func(r run) (more bool) {
		ran++
		sum.add(r.counts)
		if r.failed && *all {
			failures++
			fmt.Printf("seed %d: %s\n", r.seed, r.sign())
		} else if r.failed {
			t.Errorf("seed %d, the transcript of this run:\n%s\nIt runs again, just so, with:\n\tgo test ./internal/sim -run 'TestSimulation$' -sim.seeds 1 -sim.seed %d -sim.v", r.seed, r.transcript, r.seed)
			return false
		}
		if *forever && time.Since(told) > tellEvery {
			told = time.Now()
			fmt.Printf("%d seeds without a failure, from %d on, in %v\n", ran-failures, first, time.Since(began).Round(time.Second))
		}
		return true
	})
	if failures > 0 {
		t.Errorf("%d of %d seeds failed", failures, ran)
	}
	t.Logf("%d seeds in %v: %+v", ran, time.Since(began).Round(time.Millisecond), sum)
}

// TestReplay: a seed says what happens, down to the last byte of the transcript, also to a build of its own.
func TestReplay(t *testing.T) {
	if raced {
		t.Skip("see TestSimulation")
	}
	const n = 100
	first := map[uint64]string{}
	newEngine(t).each(1, n, func(r run) bool { first[r.seed] = r.transcript; return true })
	newEngine(t).each(1, n, func(r run) bool {
		if first[r.seed] != r.transcript {
			t.Errorf("seed %d has another transcript the second time", r.seed)
		}
		return true
	})
	if len(first) != n || first[1] == first[2] {
		t.Errorf("%d transcripts, the first two of which are equal: %t", len(first), first[1] == first[2])
	}
}

// TestNative makes some runs in this process, on all processors: where the race detector sees them, and Go's scheduler does as it likes, so that a seed
// is not the whole story.
func TestNative(t *testing.T) {
	n := 500
	if testing.Short() || raced {
		n = 100
	}
	first, n := series(n)
	began := time.Now()
	var sum counts
	failures := 0
	for i := range n {
		seed := first + uint64(i)
		wrong, c := native(t, seed)
		sum.add(c)
		if len(wrong) == 0 {
			continue
		}
		failures++
		if t.Errorf("seed %d: %s", seed, wrong[0]); !*all {
			break
		}
	}
	t.Logf("%d failures of %d seeds in %v: %+v", failures, n, time.Since(began).Round(time.Millisecond), sum)
}

// native makes one run in this process, and prints its transcript if it is wanted, or the run fails or panics.
func native(t *testing.T, seed uint64) (wrong []string, c counts) {
	var out bytes.Buffer
	ended := false
	defer func() {
		if *verbose || !ended || len(wrong) > 0 && !*all {
			os.Stdout.Write(out.Bytes())
		}
	}()
	wrong, c = play(t, seed, &out)
	ended = true
	return wrong, c
}

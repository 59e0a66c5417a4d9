package sim

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

var table = flag.String("sim.table", "", "a Markdown file into which TestSeededBugs writes its table, between the marks that are there")

// mutation is one line of the protocol broken on purpose (package internal/mutant).
type mutation struct {
	name string // as the code says it to mutant.Is
	what string
}

// mutations are those that the simulation alone must notice. What it cannot notice, since none of its stores loses or damages what it made durable, is
// left to the tests of the packages: cover-nothing, forget-installed, forget-roots, ignore-damage, open-above and their like.
var mutations = []mutation{
	{"skip-fence", "a batch is answered without a Verify"},
	{"fence-first", "the Verify begins before the append"},
	{"out-of-order", "a batch is answered ahead of those in front of it"},
	{"verify-later", "a later batch's Verify counts for an earlier one that was not durable when it began"},
	{"start-unfenced", "an owner answers before its own start is fenced"},
	{"two-starts", "an epoch whose start has an unknown outcome is begun again"},
	{"resolve-by-t", "a deposed owner takes the t of its object in the new owner's log for its object"},
	{"landed-unseen", "what was sent counts as landed"},
	{"refuse-early", "a refusal is answered before what it was judged against is fenced"},
	{"repeat-early", "a resubmission is answered before what it was judged against is fenced"},
	{"key-unstaged", "an idempotency key is looked up in the installed value, not in the stage"},
	{"refusals-hide", "a batch of refusals hides what landed behind it"},
	{"fail-everybody", "what is behind a failed append fails with it"},
	{"forget-stage", "a batch is judged without those in flight"},
	{"show-staged", "DB shows a batch when it is closed"},
	{"schema-in-company", "a schema change shares its batch"},
	{"sync-unfenced", "a deposed owner answers Sync from its own value"},
	{"same-claim", "a new epoch keeps the old claim"},
	{"trust-conflict", "a conflict of the root is taken for success"},
	{"renew-blindly", "a renewal that failed overwrites whatever root is there"},
	{"release-any", "Close releases whoever's lease is in the root"},
	{"any-start", "the chain is followed over whatever starts are there, cut off by t"},
	{"anchor-newest", "a reader anchors at the newest start that is there"},
	{"no-reread", "a reader trusts what it read without reading the root again"},
	{"ignore-gap", "a batch behind a gap is taken"},
	{"feed-skips", "a subscriber that has fallen behind goes on with what is in memory"},
	{"fs-skip-sync", "fs: no fdatasync"},
	{"fs-retry-sync", "fs: a failed fdatasync is tried again"},
	{"fs-mark-first", "fs: the sync mark is written before the sync"},
	{"fs-skip-dir-sync", "fs: a rename is not synced"},
	{"fs-no-rewrite", "fs: what is adopted is synced, but not written again"},
	{"fs-show-unmarked", "fs: a reader sees what no mark covers"},
}

// mutationSeeds is how many seeds each mutation is given.
const mutationSeeds = 5000

// TestSeededBugs breaks one line after the other, and the simulation must notice each, within so many seeds.
func TestSeededBugs(t *testing.T) {
	if testing.Short() || raced {
		t.Skip("builds and runs a test binary many times")
	}
	bin := filepath.Join(t.TempDir(), "sim.test")
	if out, err := exec.Command("go", "test", "-c", "-tags", "mutate", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("building with -tags mutate: %v\n%s", err, out)
	}
	found := make([]int, len(mutations))
	how := make([]string, len(mutations))
	todo := make(chan int)
	var work sync.WaitGroup
	for range 2 {
		work.Go(func() {
			for i := range todo {
				found[i], how[i] = catch(t, bin, mutations[i].name)
			}
		})
	}
	began := time.Now()
	for i := range mutations {
		todo <- i
	}
	close(todo)
	work.Wait()
	var rows strings.Builder
	for i, m := range mutations {
		if found[i] == 0 {
			t.Errorf("%s: %s: no seed of %d notices", m.name, m.what, mutationSeeds)
		}
		fmt.Fprintf(&rows, "| `%s` | %s | %d | %s |\n", m.name, m.what, found[i], how[i])
	}
	t.Logf("in %v:\n%s", time.Since(began).Round(time.Second), &rows)
	if *table != "" && !t.Failed() {
		if err := writeTable(*table, rows.String()); err != nil {
			t.Error(err)
		}
	}
}

var (
	seedLine  = regexp.MustCompile(`(?m)^seed (\d+)$`)
	wrongLine = regexp.MustCompile(`(?m)^ *[\d.]+s  WRONG  (.*)$`)
)

// catch runs the simulation with one mutation until it fails, and returns after how many seeds it did, and how; 0: it did not.
func catch(t *testing.T, bin, name string) (seeds int, how string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, "-test.run", "^TestSimulation$", "-test.timeout", "9m", "-sim.tell", "-sim.patience", "20", "-sim.seeds", strconv.Itoa(mutationSeeds))
	cmd.Env = append(os.Environ(), "STELE_MUTANT="+name)
	b, err := cmd.CombinedOutput()
	out := string(b)
	if err == nil {
		return 0, ""
	}
	last := seedLine.FindAllStringSubmatch(out, -1)
	if len(last) == 0 {
		t.Errorf("%s: %v\n%s", name, err, out)
		return 0, ""
	}
	seeds, _ = strconv.Atoi(last[len(last)-1][1])
	switch w := wrongLine.FindStringSubmatch(out); {
	case w != nil:
		how, _, _ = strings.Cut(w[1], ": ")
		if len(how) < 30 {
			how = w[1]
		}
		if r := []rune(how); len(r) > 90 {
			how = string(r[:90]) + "…"
		}
		how = strings.ReplaceAll(how, "|", "\\|")
	case strings.Contains(out, "panic:"):
		how = "a panic"
	default:
		how = "it does not come to rest"
	}
	return seeds, how
}

// writeTable puts rows between the marks of a file.
func writeTable(path, rows string) error {
	const from, to = "<!-- mutations -->\n", "<!-- end -->\n"
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	head, rest, ok := strings.Cut(string(b), from)
	_, tail, ok2 := strings.Cut(rest, to)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no place for the table", path)
	}
	return os.WriteFile(path, []byte(head+from+"| mutation | what is broken | seeds until caught | first sign |\n|---|---|---|---|\n"+rows+to+tail), 0o644)
}

//go:build unix

package sim

import (
	"flag"
	"fmt"
	"os"
	"strings"
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
	{"older-unproven", "a reader whose root has moved hands out what is of older epochs"},
	{"ignore-gap", "a batch behind a gap is taken"},
	{"feed-skips", "a subscriber that has fallen behind goes on with what is in memory"},
	{"fs-skip-sync", "fs: no fdatasync"},
	{"fs-retry-sync", "fs: a failed fdatasync is tried again"},
	{"fs-mark-first", "fs: the sync mark is written before the sync"},
	{"fs-skip-dir-sync", "fs: a rename is not synced"},
	{"fs-no-rewrite", "fs: what is adopted is synced, but not written again"},
	{"fs-go-on", "fs: a failed write does not end the use of the handle"},
	{"fs-show-unmarked", "fs: a reader sees what no mark covers"},
}

// mutationSeeds is how many seeds each mutation is given: as many as make test runs without any.
const mutationSeeds = simulationSeeds

// TestSeededBugs breaks one line after the other, and the simulation must notice each, within so many seeds.
func TestSeededBugs(t *testing.T) {
	if testing.Short() || raced {
		t.Skip("makes thousands of runs")
	}
	e := newEngine(t, "mutate")
	began := time.Now()
	var rows strings.Builder
	for _, m := range mutations {
		e.env = map[string]string{"STELE_MUTANT": m.name}
		caught := run{}
		e.each(1, mutationSeeds, func(r run) bool {
			if r.failed {
				caught = r
			}
			return !r.failed
		})
		if !caught.failed {
			t.Errorf("%s: %s: no seed of %d notices", m.name, m.what, mutationSeeds)
		}
		fmt.Fprintf(&rows, "| `%s` | %s | %d | %s |\n", m.name, m.what, caught.seed, cell(caught.sign()))
	}
	t.Logf("in %v:\n%s", time.Since(began).Round(time.Second), &rows)
	if *table != "" && !t.Failed() {
		if err := writeTable(*table, rows.String()); err != nil {
			t.Error(err)
		}
	}
}

// cell is text for a table, cut short.
func cell(text string) string {
	if short, _, ok := strings.Cut(text, ": "); ok && len(short) >= 30 {
		text = short
	}
	if r := []rune(text); len(r) > 90 {
		text = string(r[:90]) + "…"
	}
	return strings.ReplaceAll(text, "|", "\\|")
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

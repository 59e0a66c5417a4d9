package log_test

import (
	"testing"

	"github.com/steledb/stele/internal/mutant/mutanttest"
)

// TestMutations breaks the rules one by one and sees a test of the rule fail.
func TestMutations(t *testing.T) {
	mutanttest.Run(t, []mutanttest.Mutation{
		{Name: "ignore-gap", What: "a batch behind a gap is taken", Run: "TestL6"},
		{Name: "ignore-gap", What: "a batch behind a gap is taken, in random worlds", Run: "TestRandomWorlds"},
		{Name: "anchor-newest", What: "a reader anchors at the newest start that is there, in random worlds", Run: "TestRandomWorlds"},
		{Name: "no-reread", What: "a reader trusts without reading the root again, in random worlds", Run: "TestRandomWorlds"},
		{Name: "ignore-damage", What: "a gap below fenced ends the chain quietly", Run: "TestL6"},
		{Name: "skip-hash", What: "previous is not compared", Run: "TestL10"},
		{Name: "anchor-newest", What: "a reader anchors at the newest start that is there", Run: "TestL5"},
		{Name: "no-reread", What: "a reader trusts without reading the root again", Run: "TestL8"},
		{Name: "older-unproven", What: "a reader whose root moved on trusts what it read of older epochs", Run: "TestL8"},
		{Name: "ignore-sealed", What: "the sealed position is not read again after the log", Run: "TestL4|TestL8"},
		{Name: "forget-roots", What: "an older root is taken as it is", Run: "TestL11"},
		{Name: "any-claim", What: "fenced counts under the claim of a dead epoch", Run: "TestL6"},
		{Name: "lost-start", What: "batches whose epoch has no start are dead like any others", Run: "TestL6"},
		{Name: "open-above", What: "an opener does not look for objects above the root's epoch", Run: "TestL11"},
		{Name: "forget-installed", What: "nobody looks whether what was installed is still there", Run: "TestL11"},
		{Name: "fence-all", What: "every object of the chain counts as fenced", Run: "TestL10"},
	})
}

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
		{Name: "copy-root-first", What: "a copy's root comes before its start", Run: "TestCopy_InterruptedAnywhere"},
		{Name: "copy-keeps-instance", What: "a copy takes its source's instance id", Run: "TestCopy$"},
		{Name: "copy-low-epoch", What: "a copy's epoch is above its objects' only", Run: "TestCopy_EpochAboveAllSeen"},
		{Name: "copy-removes-unknown", What: "a copy whose root may still come is taken away", Run: "TestCopy_RemovesWhatItWrote"},
		{Name: "copy-waits-not", What: "a source without a start is copied as if nothing were there", Run: "TestCopy_WaitsForAStart"},
		{Name: "copy-endless", What: "a copy follows an owner for as long as it appends", Run: "TestCopy_EndsBesideAFastOwner"},
		{Name: "create-unsettled", What: "a create whose answer was lost takes its own root for another's", Run: "TestCreate_SettlesLostAnswers"},
		{Name: "delete-owned", What: "a database is deleted under an owner with a lease", Run: "TestDelete_HeedsALease"},
		{Name: "anchor-newest", What: "a reader anchors at the newest start that is there, in every order of landing", Run: "TestOrders"},
		{Name: "fence-all", What: "every object of the chain counts as fenced", Run: "TestL10"},
	})
}

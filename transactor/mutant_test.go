package transactor

import (
	"testing"

	"github.com/steledb/stele/internal/mutant/mutanttest"
)

// Each line of the pipeline that keeps an invariant is broken once, and the named tests must notice.
func TestMutants(t *testing.T) {
	mutanttest.Run(t, []mutanttest.Mutation{
		{Name: "skip-fence", What: "answers without a Verify", Run: "TestL7|TestP3"},
		{Name: "fence-first", What: "the Verify begins before the append", Run: "TestL7"},
		{Name: "out-of-order", What: "a batch is answered before the ones in front of it", Run: "TestP3"},
		{Name: "refuse-early", What: "a refusal is answered before what it was judged against is fenced", Run: "TestP3"},
		{Name: "repeat-early", What: "a resubmission is answered before what it was judged against is fenced", Run: "TestP8_Many"},
		{Name: "show-staged", What: "DB() shows a batch when it is closed", Run: "TestP3"},
		{Name: "forget-stage", What: "a batch is judged without the ones in flight", Run: "TestP2"},
		{Name: "no-cap", What: "batches take any number of transactions", Run: "TestP4"},
		{Name: "no-bound", What: "the queue takes any number of transactions", Run: "TestP5_AFull"},
		{Name: "no-budget", What: "the memory budget is not looked at", Run: "TestP5_PastTheBudget"},
		{Name: "count-no-batches", What: "batches in flight are not accounted for", Run: "TestP5_TheQueueAnd"},
		{Name: "reserve-nothing", What: "what was admitted has nothing reserved for what it becomes", Run: "TestP5_TheQueueAnd"},
		{Name: "outgrow", What: "a transaction may become any amount more than it said at admission", Run: "TestP5_WhatGrows"},
		{Name: "keep-values", What: "the subscribers' window keeps the value of every batch alive", Run: "TestP5_Subscribers"},
		{Name: "cancel-the-epoch", What: "one caller's context ends everybody's work", Run: "TestP6"},
		{Name: "schema-in-company", What: "a schema change shares its batch", Run: "TestSchemaChanges"},
		{Name: "start-unfenced", What: "answers before the own start is fenced", Run: "TestP7"},
		{Name: "landed-unseen", What: "an object that was sent is taken for one that landed", Run: "TestP7"},
		{Name: "refusals-hide", What: "a batch of refusals hides what landed behind it", Run: "TestP7"},
		{Name: "cover-nothing", What: "a fence does not look for what was acknowledged last", Run: "TestL7"},
		{Name: "fail-everybody", What: "what is behind a failed append fails with it", Run: "TestP7"},
		{Name: "same-claim", What: "a new epoch keeps the old claim", Run: "TestL3"},
		{Name: "no-deadline", What: "calls to the store may take for ever", Run: "TestP10"},
		{Name: "ignore-lease", What: "a standby takes over without looking at the lease", Run: "TestStandbys|TestNoWait"},
		{Name: "renew-never", What: "the lease is not renewed", Run: "TestOpen_WaitsAsLong|TestStandbys"},
		{Name: "renew-late", What: "the lease is renewed only once the log has been read", Run: "TestLease_Neither"},
		{Name: "keep-lease", What: "Close does not release the lease", Run: "TestClose_ReleasesTheLease"},
		{Name: "lost-renewal", What: "a renewal whose answer was lost is taken for another owner's", Run: "TestLease_Renewals"},
		// The random worlds find these by themselves.
		{Name: "skip-fence", What: "answers without a Verify", Run: "RandomWorlds"},
		{Name: "fence-first", What: "the Verify begins before the append", Run: "RandomWorlds"},
		{Name: "out-of-order", What: "a batch is answered before the ones in front of it", Run: "RandomWorlds"},
		{Name: "show-staged", What: "DB() shows a batch when it is closed", Run: "RandomWorlds"},
		{Name: "refusals-hide", What: "a batch of refusals hides what landed behind it", Run: "RandomWorlds"},
	})
}

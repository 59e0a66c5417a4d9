package fs

import "github.com/steledb/stele/internal/mutant"

// mutation names a rule that a test breaks, to see that another test notices (mutation_test.go). Outside of tests it is none.
type mutation int

const (
	_                mutation = iota
	mutMarkFirst              // the mark is written before the sync
	mutSkipSync               // no fdatasync
	mutRetrySync              // a failed fdatasync is tried again
	mutSkipDirSync            // no sync of the directory after a rename
	mutBelowMarkTorn          // damage below a mark counts as torn
	mutNoRewrite              // what is adopted is synced, but not written again
	mutLookOnce               // what an owner has written again counts as it was read before
	mutGoOn                   // a failure does not end the use of the handle
	mutFinalUnsynced          // the next file gets its name before this one's final mark is durable
	mutShowUnmarked           // a reader sees what no mark covers
	mutPathUnchecked          // the lock's file need not be the one at its path
)

// mutated is the rule that is broken from the outside, in a build that can be (package mutant).
func mutated() mutation {
	switch {
	case mutant.Is("fs-mark-first"):
		return mutMarkFirst
	case mutant.Is("fs-skip-sync"):
		return mutSkipSync
	case mutant.Is("fs-retry-sync"):
		return mutRetrySync
	case mutant.Is("fs-skip-dir-sync"):
		return mutSkipDirSync
	case mutant.Is("fs-no-rewrite"):
		return mutNoRewrite
	case mutant.Is("fs-look-once"):
		return mutLookOnce
	case mutant.Is("fs-go-on"):
		return mutGoOn
	case mutant.Is("fs-show-unmarked"):
		return mutShowUnmarked
	}
	return 0
}

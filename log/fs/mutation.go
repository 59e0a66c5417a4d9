package fs

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
	mutGoOn                   // a failure does not end the use of the handle
	mutFinalUnsynced          // the next file gets its name before this one's final mark is durable
	mutShowUnmarked           // a reader sees what no mark covers
	mutPathUnchecked          // the lock's file need not be the one at its path
)

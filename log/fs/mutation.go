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
)

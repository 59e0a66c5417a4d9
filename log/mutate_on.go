//go:build mutate

package log

// broken is the rule that a test of the tests breaks now.
var broken mutation

func mutant(m mutation) bool { return m == broken }

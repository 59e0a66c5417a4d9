//go:build !mutate

package log

// mutant reports whether a rule is broken on purpose, to see a test fail. It is, only in a build with the tag mutate.
func mutant(mutation) bool { return false }

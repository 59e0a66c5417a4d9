//go:build !mutate

package mutant

// Is reports whether the mutation of this name is on: never, in this build.
func Is(string) bool { return false }

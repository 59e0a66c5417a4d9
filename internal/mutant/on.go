//go:build mutate

package mutant

import "os"

var name = os.Getenv("STELE_MUTANT")

// Is reports whether the mutation of this name is on.
func Is(mutation string) bool { return mutation == name }

//go:build wasip1

package sim

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"testing"
)

// TestSeed makes the run that the environment names, for the tests of host_test.go: the transcript goes to the standard output, and what was
// counted is its last line but the verdict.
func TestSeed(t *testing.T) {
	seed, err := strconv.ParseUint(os.Getenv(seedVar), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	wrong, sum := play(t, seed, os.Stdout)
	b, err := json.Marshal(sum)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("%s%s\n", countsMark, b)
	for _, what := range wrong {
		t.Error(what)
	}
}

// Package mutanttest runs a package's own tests against each of its mutations.
package mutanttest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Mutation is one line broken on purpose and the tests that must notice.
type Mutation struct {
	Name string // as the code says it to mutant.Is
	What string // what is broken, for people
	Run  string // -run pattern of tests, at least one of which must fail
}

// Run builds the tests of the package in the current directory with the tag "mutate", sees that the named tests pass as
// they are, and that for every mutation at least one of its tests fails. It prints the table.
func Run(t *testing.T, table []Mutation) {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "mutants.test")
	if out, err := exec.Command("go", "test", "-c", "-tags", "mutate", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("building the tests with -tags mutate: %v\n%s", err, out)
	}
	run := func(name, pattern string) (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, bin, "-test.run", pattern, "-test.failfast", "-test.timeout", "90s", "-test.count", "1", "-test.v")
		cmd.Env = append(os.Environ(), "STELE_MUTANT="+name)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	checked := make(map[string]bool)
	for _, m := range table {
		t.Run(m.Name+"/"+m.Run, func(t *testing.T) {
			if !checked[m.Run] {
				checked[m.Run] = true
				out, err := run("", m.Run)
				if err != nil {
					t.Fatalf("the tests %s fail without any mutation: %v\n%s", m.Run, err, out)
				}
				if !strings.Contains(out, "--- PASS") {
					t.Fatalf("no test matches %s", m.Run)
				}
			}
			out, err := run(m.Name, m.Run)
			var exit *exec.ExitError
			if err == nil {
				t.Fatalf("%s: no test of %s notices", m.What, m.Run)
			}
			if !errors.As(err, &exit) {
				t.Fatalf("running the tests: %v", err)
			}
			t.Logf("%s: caught by %s", m.What, caughtBy(out))
		})
	}
}

func caughtBy(out string) string {
	for line := range strings.Lines(out) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "--- FAIL: "); ok {
			return strings.TrimSpace(name)
		}
	}
	return "a crash or the deadline"
}

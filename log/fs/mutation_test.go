package fs_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/steledb/stele/log/fs"
)

// TestMutations breaks one rule after the other and expects the tests above to notice.
func TestMutations(t *testing.T) {
	quiet := func(string, ...any) {}
	crash := func(m fs.Mutation) error { return crashEverywhere(quiet, m, 12) }
	eio := func(m fs.Mutation) error { return failEverywhere(quiet, m, syscall.EIO, 8) }
	vanish := func(m fs.Mutation) error { return vanishing(quiet, m, 4) }
	for _, c := range []struct {
		name  string
		rule  fs.Mutation
		tests map[string]func(fs.Mutation) error // each of them must fail
	}{
		{"the mark is written before the sync", fs.MutMarkFirst, map[string]func(fs.Mutation) error{"crash": crash}},
		{"no fdatasync", fs.MutSkipSync, map[string]func(fs.Mutation) error{"crash": crash}},
		{"a failed fdatasync is tried again", fs.MutRetrySync, map[string]func(fs.Mutation) error{"EIO": eio}},
		{"no sync of the directory after a rename", fs.MutSkipDirSync, map[string]func(fs.Mutation) error{"crash": crash}},
		{"damage below a mark counts as torn", fs.MutBelowMarkTorn, map[string]func(fs.Mutation) error{"L10": flipEveryByte}},
		{"what is adopted is not written again", fs.MutNoRewrite, map[string]func(fs.Mutation) error{"EIO": eio, "page cache": vanish}},
		{"what an owner has written again counts as it was read before", fs.MutLookOnce, map[string]func(fs.Mutation) error{"page cache": vanish}},
		{"the next file gets its name before the last mark of this one is durable", fs.MutFinalUnsynced, map[string]func(fs.Mutation) error{"crash": crash}},
		{"a reader sees what no mark covers", fs.MutShowUnmarked, map[string]func(fs.Mutation) error{"reader": seesUnsynced}},
		{"the lock's file need not be the one at its path", fs.MutPathUnchecked, map[string]func(fs.Mutation) error{"lock": replaceLock}},
		{"a failure does not end the handle", fs.MutGoOn, map[string]func(fs.Mutation) error{"fail-stop": goesOn}},
	} {
		for name, test := range c.tests {
			t.Run(fmt.Sprintf("%s/%s", c.name, name), func(t *testing.T) {
				err := test(c.rule)
				if err == nil {
					t.Fatal("no test notices")
				}
				t.Log(err)
			})
		}
	}
}

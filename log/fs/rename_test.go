package fs_test

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/steledb/stele/log/fs"
	"github.com/steledb/stele/log/fs/crashfs"
)

// A loss of power may leave a file under both names of a rename that was not synced. What is written to the old name afterwards, as the next file
// on its way or as room that is kept, must not change the file at the new one.
func TestL1_L10_PowerLossLeavesBothNamesOfARename(t *testing.T) {
	run := func(full bool, crashAt int) *world {
		w := newWorld(fs.Options{RollSize: 2 << 10, Prealloc: 1 << 10}, 0)
		made := 0
		w.m.Hook(func(c crashfs.Call, path string) {
			name := filepath.Base(path)
			if name == "ROOT" && c.Op == "rename" {
				made++
			}
			if full && made > 0 && c.Op == "allocate" && (name == "ROOT.next" || name == "next") {
				w.m.FailAt(len(w.m.Calls()), syscall.ENOSPC, crashfs.Random(1))
			}
		})
		w.m.CrashAt(crashAt)
		if _, failure := w.workload(); failure != nil {
			t.Fatal(failure)
		}
		return w
	}
	renames := 0
	for _, full := range []bool{false, true} {
		calls := run(full, -1).m.Calls()
		for _, c := range calls {
			if c.Op != "rename" {
				continue
			}
			renames++
			w := run(full, c.N)
			crashfs.Each(64, uint64(c.N), func(choose crashfs.Choose) bool { // both names among what may be left
				after := w.after(choose)
				for range 2 {
					if err, failure := after.session(after.m.Process(), 12, true); err != nil || failure != nil {
						t.Errorf("power lost at call %s, disk full: %t: %v %v", c, full, err, failure)
						return false
					}
				}
				return true
			})
		}
	}
	if renames < 10 {
		t.Errorf("only %d renames", renames)
	}
}

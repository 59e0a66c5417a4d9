package fs_test

import (
	"syscall"
	"testing"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/fs"
	"github.com/steledb/stele/log/fs/crashfs"
)

// A handle that takes no more writes still reads everything that was acknowledged, whichever call it was that failed.
func TestL1_AFailedHandleReads(t *testing.T) {
	const batches = 12
	for k := 0; ; k++ {
		m := crashfs.New()
		l, err := fs.Open(ctx, fs.Options{Dir: "/data", RollSize: 2 << 10, Prealloc: 1 << 10, FS: m.Process()})
		if err != nil {
			t.Fatal(err)
		}
		o, err := own(ctx, l)
		if err != nil {
			t.Fatal(err)
		}
		failing := len(m.Calls()) + k
		m.FailAt(failing, syscall.EIO, func(int) int { return 0 })
		var acked []*log.Object
		for range batches {
			obj, err := o.batch(300)
			if err != nil {
				t.Fatal(err)
			}
			if l.Append(ctx, o.root.Instance, obj) != nil {
				break
			}
			acked = append(acked, obj)
		}
		for _, obj := range acked {
			got, err := l.Get(ctx, o.root.Instance, obj.Key())
			if err != nil || got.Hash() != obj.Hash() {
				t.Fatalf("call %s failed: reading %s, which was acknowledged: %v", m.Calls()[failing], obj.Key(), err)
			}
		}
		l.Close()
		if len(m.Calls()) <= failing { // nothing failed any more
			if k < 40 {
				t.Errorf("only %d calls to fail", k)
			}
			return
		}
		l.Close()
	}
}

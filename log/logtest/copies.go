package logtest

import (
	"maps"
	"slices"
	"testing"

	"github.com/steledb/stele/log"
)

// Copies copies a log between every two of the backends, also from each to itself, and replays it: the copy has the same transactions under the
// same chain hashes, its lineage, and blobs; readers need no owner; and an owner can go on with it.
func Copies(t *testing.T, backends ...Backend) {
	for _, from := range backends {
		t.Run("from "+from.Name, func(t *testing.T) {
			s := &suite{T: t, b: from, open: from.New(t), ctx: t.Context()}
			src := s.history()
			for _, b := range backends {
				t.Run("to "+b.Name, func(t *testing.T) {
					to := &suite{T: t, b: b, open: b.New(t), ctx: t.Context()}
					to.copyFrom(src)
				})
			}
		})
	}
}

// history writes a log as a life leaves it: several owners, some of whom died with objects in flight, a sealed beginning that is deleted, a snapshot; and
// releases it.
func (s *suite) history() log.Log {
	l := s.handle()
	for term := range 4 {
		o := s.own(l)
		objs := []*log.Object{o.batch(3), o.batch(1), o.next(log.KindBatch, transactions(o.head.LastT+1, 300, "many")), o.batch(2)}
		o.append(objs...)
		s.must(o.Verify(s.ctx, o.check(keysOf(objs)...)), "verify")
		o.fenced = o.head.LastT
		o.batch(1)           // never lands,
		o.append(o.batch(1)) // and so this is dead
		if term == 1 {
			for name, b := range historyBlobs {
				s.must(l.PutBlob(s.ctx, o.root.Instance, name, []byte(b)), "put blob %s", name)
			}
			sealed := objs[1]
			o.swap(func(r *log.Root) {
				r.Sealed = log.Sealed{Epoch: sealed.Epoch, FirstT: sealed.FirstT, LastT: sealed.LastT(), Hash: sealed.Hash()}
				r.Chunks, r.Snapshot, r.Collect = "2-chunks", "2-snapshot", 2
			})
			s.must(l.Delete(s.ctx, o.root.Instance, sealed.Key()), "delete what is sealed")
		}
		o.release()
	}
	return l
}

var historyBlobs = map[string]string{"2-chunks": "a list of chunks", "2-chunk": "a chunk", "2-snapshot": "a snapshot"}

// copyFrom copies src to an empty place and looks at what is there.
func (s *suite) copyFrom(src log.Log) {
	s.Helper()
	objects, bytes := 0, int64(0)
	root, err := log.Copy(s.ctx, src, s.handle(), log.CopyOptions{
		Progress: func(n int, b int64) { objects, bytes = n, b },
		Names: func(name string, _ []byte) ([]string, error) {
			if name == "2-chunks" {
				return []string{"2-chunk"}, nil
			}
			return nil, nil
		},
	})
	s.must(err, "copy")
	s.Logf("%d objects and blobs, %d bytes, from %s to %s", objects, bytes, src.Info().Location, s.handle().Info().Location)
	for _, name := range slices.Sorted(maps.Keys(historyBlobs)) {
		b, err := s.handle().GetBlob(s.ctx, root.Instance, name)
		s.must(err, "get blob %s", name)
		if string(b) != historyBlobs[name] {
			s.Fatalf("blob %s is %q", name, b)
		}
	}
	s.isCopy(s, root, src)
}

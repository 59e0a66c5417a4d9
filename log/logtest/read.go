package logtest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/log"
)

var readCases = []testCase{
	{"Read_OrderAndRange", readRange},
	{"Read_TenThousandObjects", readMany},
	{"Read_NeverBlocksAnAppend", readWhileAppending},
	{"Read_NeverMissesWhatItHasShown", readMonotone},
	{"Delete_RemovesNothingElse", deleteRange},
	{"Delete_Everything", deleteAll},
	{"Blob_WriteOnce", blobs},
}

// epochs writes a log of three epochs with gaps between t, and returns its objects in key order.
func epochs(s *suite, l log.Log) (inst log.ID, objs []*log.Object) {
	for range 3 {
		o := s.own(l)
		o.append(o.batch(3), o.batch(1), o.batch(2))
		o.release()
		inst = o.root.Instance
	}
	objs = s.objects(s.ctx, l, inst, log.Key{})
	if len(objs) != 12 {
		s.Fatalf("%d objects", len(objs))
	}
	return inst, objs
}

func readRange(s *suite) {
	l := s.handle()
	inst, objs := epochs(s, l)
	var bounds []log.Key
	for _, o := range objs {
		k := o.Key()
		bounds = append(bounds, k, log.Key{Epoch: k.Epoch, FirstT: k.FirstT + 1}) // also between two keys
	}
	bounds = append(bounds, log.Key{}, log.Key{Epoch: 1<<64 - 1}, log.MaxKey, log.Key{Epoch: 2, FirstT: 1<<64 - 1})
	for _, l := range []log.Log{l, s.handle()} {
		for _, after := range bounds {
			var want []*log.Object
			for _, o := range objs {
				if o.Key().Compare(after) > 0 {
					want = append(want, o)
				}
			}
			if got := s.keys(s.ctx, l, inst, after); !slices.Equal(got, keysOf(want)) {
				s.Fatalf("listed %v behind %s, want %v", got, after, keysOf(want))
			}
			if got := s.objects(s.ctx, l, inst, after); !slices.EqualFunc(got, want, sameObject) {
				s.Fatalf("read %v behind %s, want %v", keysOf(got), after, keysOf(want))
			}
		}
		for _, o := range objs {
			got, err := l.Get(s.ctx, inst, o.Key())
			s.must(err, "get %s", o.Key())
			if !sameObject(got, o) {
				s.Fatalf("got %s for %s", got.Key(), o.Key())
			}
			k := log.Key{Epoch: o.Epoch, FirstT: o.Key().FirstT + 1000}
			_, err = l.Get(s.ctx, inst, k)
			s.wants(err, log.ErrNotFound, "get %s", k)
		}
		n := 0
		for range l.Read(s.ctx, inst, log.Key{}) {
			if n++; n == 4 {
				break
			}
		}
		for range l.List(s.ctx, inst, log.Key{}) {
			if n++; n == 8 {
				break
			}
		}
		// A sequence may be run again.
		seq := l.List(s.ctx, inst, log.Key{})
		for range 2 {
			n = 0
			for range seq {
				n++
			}
			if n != len(objs) {
				s.Fatalf("%d keys", n)
			}
		}
	}
}

// readMany has a quarter of the objects in short runs.
func readMany(s *suite) {
	n := 10_000
	if testing.Short() {
		n = 2501
	}
	l := s.handle()
	o := s.own(l)
	objs := o.batches(n)
	began := time.Now()
	work := make(chan *log.Object)
	var wg sync.WaitGroup
	var failed sync.Once
	for range 64 {
		wg.Go(func() {
			for obj := range work {
				if err := l.Append(s.ctx, o.root.Instance, obj); err != nil {
					failed.Do(func() { s.Errorf("append %s: %v", obj.Key(), err) })
				}
			}
		})
	}
	for _, obj := range objs {
		work <- obj
	}
	close(work)
	wg.Wait()
	wrote := time.Since(began)
	began = time.Now()
	other := s.handle()
	// The keys from the beginning and from the middle, and objects of several pages.
	for _, l := range []log.Log{l, other} {
		if got := s.keys(s.ctx, l, o.root.Instance, log.StartKey(1)); !slices.Equal(got, keysOf(objs)) {
			s.Fatalf("listed %d keys, or others than were appended", len(got))
		}
	}
	if got := s.keys(s.ctx, l, o.root.Instance, objs[n/2-1].Key()); !slices.Equal(got, keysOf(objs[n/2:])) {
		s.Fatalf("listed %d keys from the middle on, or others than were appended", len(got))
	}
	if got := s.objects(s.ctx, other, o.root.Instance, objs[n-2501].Key()); !slices.EqualFunc(got, objs[n-2500:], sameObject) {
		s.Fatalf("read %d objects, or others than were appended", len(got))
	}
	if got := s.objects(s.ctx, l, o.root.Instance, objs[n-3].Key()); !slices.EqualFunc(got, objs[n-2:], sameObject) {
		s.Fatalf("the end of the log is %v", keysOf(got))
	}
	s.Logf("appended in %v, listed three times, and a quarter of it read, in %v", wrote, time.Since(began))
}

func readWhileAppending(s *suite) {
	l := s.handle()
	o := s.own(l)
	o.append(o.batches(20)...)
	for _, r := range []log.Log{l, s.handle()} {
		var got []*log.Object
		for obj, err := range r.Read(s.ctx, o.root.Instance, log.StartKey(1)) {
			s.must(err, "read")
			o.append(o.batch(1)) // would wait for ever if the reading held anything
			if got = append(got, obj); len(got) == 10 {
				break
			}
		}
		n := 0
		for _, err := range r.List(s.ctx, o.root.Instance, log.Key{}) {
			s.must(err, "list")
			o.append(o.batch(1))
			if n++; n == 10 {
				break
			}
		}
	}
}

// readMonotone appends in one goroutine, from several flushes at once and out of order, while others read again and again: whatever one
// reading has shown is in every later one, and what was appended before a reading began is in it.
func readMonotone(s *suite) {
	l := s.handle()
	o := s.own(l)
	objs := o.batches(400)
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	var mu sync.Mutex
	appended := map[log.Key]bool{}
	var readers sync.WaitGroup
	for i := range 4 {
		r := l
		if i%2 == 1 {
			r = s.handle()
		}
		readers.Go(func() {
			for last := false; !last; {
				last = ctx.Err() != nil
				mu.Lock()
				before := make([]log.Key, 0, len(appended))
				for k := range appended {
					before = append(before, k)
				}
				mu.Unlock()
				seen := map[log.Key]bool{}
				prev := log.Key{}
				for k, err := range r.List(s.ctx, o.root.Instance, log.Key{}) {
					if err != nil {
						s.Errorf("list: %v", err)
						return
					}
					if k.Compare(prev) <= 0 {
						s.Errorf("%s behind %s", k, prev)
						return
					}
					seen[k], prev = true, k
				}
				for _, k := range before {
					if !seen[k] {
						s.Errorf("%s had been appended or shown, and a later reading lacks it", k)
						return
					}
				}
				mu.Lock()
				for k := range seen {
					appended[k] = true
				}
				mu.Unlock()
			}
		})
	}
	for part := range slices.Chunk(objs, 20) {
		errs := inParallel(len(part), func(i int) error {
			err := l.Append(s.ctx, o.root.Instance, part[i])
			if err == nil {
				mu.Lock()
				appended[part[i].Key()] = true
				mu.Unlock()
			}
			return err
		})
		for _, err := range errs {
			if err != nil {
				s.Errorf("append: %v", err)
			}
		}
	}
	cancel()
	readers.Wait()
}

func deleteRange(s *suite) {
	l := s.handle()
	inst, objs := epochs(s, l)
	for _, i := range []int{0, 5, 5, 8} {
		upTo := objs[i].Key()
		s.must(l.Delete(s.ctx, inst, upTo), "delete up to %s", upTo)
		for _, l := range []log.Log{l, s.handle()} {
			if got := s.objects(s.ctx, l, inst, upTo); !slices.EqualFunc(got, objs[i+1:], sameObject) {
				s.Fatalf("behind %s are %v", upTo, keysOf(got))
			}
			for _, o := range objs[i+1:] {
				_, err := l.Get(s.ctx, inst, o.Key())
				s.must(err, "get %s", o.Key())
			}
		}
	}
	s.must(l.Delete(s.ctx, log.NewID(), objs[0].Key()), "delete from an instance that is not there")
}

func deleteAll(s *suite) {
	l := s.handle()
	inst, objs := epochs(s, l)
	s.must(l.PutBlob(s.ctx, inst, "1-blob", []byte("x")), "put a blob")
	for range 2 {
		s.must(l.Delete(s.ctx, inst, log.MaxKey), "delete everything")
		for _, l := range []log.Log{l, s.handle()} {
			if keys := s.keys(s.ctx, l, inst, log.Key{}); len(keys) > 0 {
				s.Fatalf("%v are still there", keys)
			}
			_, err := l.Get(s.ctx, inst, objs[11].Key())
			s.wants(err, log.ErrNotFound, "get what was deleted")
			_, err = l.GetBlob(s.ctx, inst, "1-blob")
			s.wants(err, log.ErrNotFound, "get a blob that was deleted")
		}
	}
	if _, err := l.Root(s.ctx); err != nil {
		s.Fatalf("the root went with the objects: %v", err)
	}
}

func blobs(s *suite) {
	l, m := s.handle(), s.handle()
	inst := log.NewID()
	large := make([]byte, 1<<20)
	for i := range large {
		large[i] = byte(i * i >> 8)
	}
	for name, b := range map[string][]byte{"1-a": []byte("a blob"), "1-b": {}, "2-large": large} {
		_, err := l.GetBlob(s.ctx, inst, name)
		s.wants(err, log.ErrNotFound, "get blob %s", name)
		mine := slices.Clone(b)
		for range 2 {
			s.must(l.PutBlob(s.ctx, inst, name, mine), "put blob %s", name)
		}
		if !slices.Equal(mine, b) {
			s.Fatalf("putting blob %s changed the caller's bytes", name)
		}
		for i := range mine {
			mine[i] = 0 // what was put is the store's own copy
		}
		for _, l := range []log.Log{l, m} {
			got, err := l.GetBlob(s.ctx, inst, name)
			s.must(err, "get blob %s", name)
			if !slices.Equal(got, b) {
				s.Fatalf("blob %s came back as %d other bytes", name, len(got))
			}
		}
		_, err = l.GetBlob(s.ctx, log.NewID(), name)
		s.wants(err, log.ErrNotFound, "get blob %s of another instance", name)
	}
	errs := inParallel(8, func(int) error { return l.PutBlob(s.ctx, inst, "3-race", large) })
	for _, err := range errs {
		s.must(err, "put a blob that others put")
	}
}

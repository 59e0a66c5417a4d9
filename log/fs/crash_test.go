package fs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/fs"
	"github.com/steledb/stele/log/fs/crashfs"
)

// world is what the tests know for certain while a machine crashes and comes up again.
type world struct {
	m       *crashfs.Machine
	options fs.Options
	mut     fs.Mutation

	acked map[log.Key]log.Hash // appends that returned nil
	acks  uint64               // all t up to here were acknowledged
	root  uint64               // the highest version of a root whose swap returned nil
	shown map[log.Key]log.Hash // what a reader has seen
}

func newWorld(o fs.Options, mut fs.Mutation) *world {
	o.Dir = "/data/store"
	return &world{m: crashfs.New(), options: o, mut: mut, acked: map[log.Key]log.Hash{}, shown: map[log.Key]log.Hash{}}
}

// after is the world once its machine has crashed.
func (w *world) after(choose crashfs.Choose) *world {
	c := *w
	c.m = w.m.Crash(choose)
	c.acked, c.shown = clone(w.acked), clone(w.shown)
	return &c
}

func clone[K comparable, V any](m map[K]V) map[K]V {
	c := make(map[K]V, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}

func (w *world) open(p fs.FS) (*fs.Log, error) {
	o := w.options
	o.FS = p
	l, err := fs.Open(context.Background(), o)
	if err == nil {
		l.Break(w.mut)
	}
	return l, err
}

var ctx = context.Background()

// session opens the database as an owner, checks that everything is there that must be, and commits n objects. A returned
// failure is one of the package; err one of the machine.
func (w *world) session(p fs.FS, n int, close bool) (err error, failure error) {
	l, err := w.open(p)
	if err != nil {
		return err, nil
	}
	defer func() {
		if cerr := l.Close(); close && err == nil {
			err = cerr
		}
	}()
	before, err := chainOf2(ctx, w, l)
	if err != nil {
		return w.judge("a reader", err)
	}
	o, err := acquire(ctx, l)
	if o.root != nil && err == nil {
		w.root = o.root.Version
	}
	if err != nil {
		return w.judge("acquire", err)
	}
	chain, err := o.chain(ctx)
	if err != nil {
		return w.judge("reading the log", err)
	}
	if failure := w.check(o.root.Instance, l, chain, before); failure != nil {
		return nil, failure
	}
	if err := o.recover(ctx); err != nil {
		return w.judge("recover", err)
	}
	w.acked[o.head.Key] = o.head.Hash
	for i := range n {
		obj, err := o.batch(i % 5 * 170)
		if err != nil {
			return nil, err
		}
		if err := l.Append(ctx, o.root.Instance, obj); err != nil {
			return w.judge("append", err)
		}
		w.acked[obj.Key()] = obj.Hash()
		w.acks, o.fenced = obj.LastT(), obj.LastT()
	}
	return nil, nil
}

// judge tells the machine's errors from those that must not be.
func (w *world) judge(doing string, err error) (error, error) {
	if w.m.Off() || errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, crashfs.ErrOff) {
		return fmt.Errorf("%s: %w", doing, err), nil
	}
	return nil, fmt.Errorf("%s: %w", doing, err)
}

// chainOf2 is what a reader sees of the log: what it has seen must stay.
func chainOf2(ctx context.Context, w *world, l *fs.Log) ([]*log.Object, error) {
	root, err := l.Root(ctx)
	if errors.Is(err, log.ErrNoRoot) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var objs []*log.Object
	for obj, err := range l.Read(ctx, root.Instance, log.Key{}) {
		if err != nil {
			return nil, err
		}
		objs = append(objs, obj)
		w.shown[obj.Key()] = obj.Hash()
	}
	return objs, nil
}

// check looks for what was acknowledged and what was shown.
func (w *world) check(inst log.ID, l *fs.Log, chain, before []*log.Object) error {
	root, err := l.Root(ctx)
	if err != nil {
		return err
	}
	if root.Version < w.root {
		return fmt.Errorf("the root is of version %d; version %d was durable", root.Version, w.root)
	}
	there := map[log.Key]log.Hash{}
	for obj, err := range l.Read(ctx, inst, log.Key{}) {
		if err != nil {
			return err
		}
		there[obj.Key()] = obj.Hash()
	}
	for k, h := range w.acked {
		if there[k] != h {
			return fmt.Errorf("append %s returned nil, and the object is gone", k)
		}
	}
	for k, h := range w.shown {
		if there[k] != h {
			return fmt.Errorf("object %s was shown to a reader, and is gone", k)
		}
	}
	var lastT uint64
	if len(chain) > 0 {
		lastT = chain[len(chain)-1].LastT()
	}
	if lastT < w.acks {
		return fmt.Errorf("the chain ends at t %d, t %d was acknowledged", lastT, w.acks)
	}
	return nil
}

// workload is three sessions: one that is closed, one that is killed, one more.
func (w *world) workload() (err, failure error) {
	p := w.m.Process()
	if err, failure = w.session(p, 9, true); err != nil || failure != nil {
		return err, failure
	}
	if err, failure = w.session(p, 5, true); err != nil || failure != nil {
		return err, failure
	}
	l, err := w.open(p)
	if err != nil {
		return err, nil
	}
	defer l.Close()
	o, err := own(ctx, l) // killed while it owns
	if err != nil {
		return w.judge("own", err)
	}
	w.acked[o.head.Key], w.root = o.head.Hash, o.root.Version
	for range 3 {
		if err := o.commit(ctx, 300); err != nil {
			return w.judge("commit", err)
		}
		w.acked[o.head.Key], w.acks = o.head.Hash, o.lastT
	}
	p.Kill(nil)
	return w.session(w.m.Process(), 4, true)
}

// small makes rolls and allocations frequent.
var small = fs.Options{RollSize: 2200, Prealloc: 1024}

func TestL1_L2_CrashAtEveryCall(t *testing.T) {
	if err := crashEverywhere(t.Logf, 0, 12); err != nil {
		t.Fatal(err)
	}
}

// crashEverywhere runs the workload and crashes at every call in turn. What is left is then opened, with a crash at one of the calls of that
// recovery, and opened again. Some subsets of the unsynced are tried for each.
func crashEverywhere(logf func(string, ...any), mut fs.Mutation, subsets int) error {
	states := 0
	for k := 0; ; k++ {
		w := newWorld(small, mut)
		w.m.CrashAt(k)
		err, failure := w.workload()
		if failure != nil {
			return fmt.Errorf("call %d: %w", k, failure)
		}
		if err == nil {
			logf("%d calls, %d states of the disk", k, states)
			return nil
		}
		call := last(w.m.Calls())
		n := 0
		crashfs.Each(subsets, uint64(k)*1000, func(choose crashfs.Choose) bool {
			n++
			states++
			again := w.after(choose)
			again.m.CrashAt((k*7 + n*5) % 40) // in the middle of the recovery
			if _, failure = again.session(again.m.Process(), 2, true); failure != nil {
				failure = fmt.Errorf("crash at call %s, subset %d: %w", call, n, failure)
				return false
			}
			twice := again.after(crashfs.Random(uint64(k*100 + n)))
			var err error
			if err, failure = twice.session(twice.m.Process(), 2, true); err != nil {
				failure = err
			}
			if failure == nil {
				_, failure = twice.session(twice.m.Process(), 0, true)
			}
			if failure != nil {
				failure = fmt.Errorf("crash at call %s, subset %d, crash in the recovery: %w", call, n, failure)
			}
			return failure == nil
		})
		if failure != nil {
			return failure
		}
	}
}

func last[E any](s []E) E { return s[len(s)-1] }

func TestFailStop_FailEveryCallOnce(t *testing.T) {
	for _, errno := range []error{syscall.EIO, syscall.ENOSPC} {
		t.Run(errno.Error(), func(t *testing.T) {
			if err := failEverywhere(t.Logf, 0, errno, 4); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// failEverywhere runs the workload and fails every call in turn. Another process then goes on, on a page cache that may have dropped what is
// clean; at last the machine crashes.
func failEverywhere(logf func(string, ...any), mut fs.Mutation, errno error, subsets int) error {
	for k := 0; ; k++ {
		done := false
		for n := range subsets {
			w := newWorld(small, mut)
			seed := uint64(k*100 + n)
			w.m.FailAt(k, errno, crashfs.Random(seed))
			err, failure := w.workload()
			calls := w.m.Calls()
			if len(calls) <= k {
				done = true
				break
			}
			doing := fmt.Sprintf("call %s failed (%v), subset %d", calls[k], err, n)
			if failure != nil {
				return fmt.Errorf("%s: %w", doing, failure)
			}
			evict := crashfs.Random(seed + 1)
			if n%2 == 0 {
				evict = nil
			}
			w.m.Process().Kill(evict)
			if err, failure := w.session(w.m.Process(), 2, true); err != nil || failure != nil {
				return fmt.Errorf("%s, then another process: %w", doing, errors.Join(err, failure))
			}
			w = w.after(crashfs.Random(seed + 2))
			if err, failure := w.session(w.m.Process(), 2, true); err != nil || failure != nil {
				return fmt.Errorf("%s, then another process, then a crash: %w", doing, errors.Join(err, failure))
			}
		}
		if done {
			logf("%d calls", k)
			return nil
		}
	}
}

// Several appends are in flight at once, and land in any order; an answer is given when all before it have landed.
func TestL6_CrashOfAPipeline(t *testing.T) {
	const depth, n = 4, 24
	for k := 0; ; k++ {
		w := newWorld(small, 0)
		l, err := w.open(w.m.Process())
		if err != nil {
			t.Fatal(err)
		}
		o, err := own(ctx, l)
		if err != nil {
			t.Fatal(err)
		}
		w.acked[o.head.Key], w.root = o.head.Hash, o.root.Version
		w.m.CrashAt(len(w.m.Calls()) + k)
		type sent struct {
			obj    *log.Object
			result chan error
		}
		results := make(chan sent, depth)
		go func() {
			defer close(results)
			for i := range n {
				obj, err := o.batch(i % 7 * 100)
				if err != nil {
					t.Error(err)
					return
				}
				s := sent{obj, make(chan error, 1)}
				results <- s
				go func() { s.result <- l.Append(ctx, o.root.Instance, obj) }()
			}
		}()
		stopped := false
		for s := range results {
			err := <-s.result
			stopped = stopped || err != nil
			if err == nil && !stopped {
				w.acked[s.obj.Key()] = s.obj.Hash()
				w.acks = s.obj.LastT()
			} else if err != nil && !w.m.Off() {
				t.Fatal(err)
			}
		}
		l.Close()
		if !w.m.Off() {
			t.Logf("%d calls", k)
			return
		}
		crashfs.Each(8, uint64(k), func(choose crashfs.Choose) bool {
			again := w.after(choose)
			err, failure := again.session(again.m.Process(), 1, true)
			if err := errors.Join(err, failure); err != nil {
				t.Fatalf("crash at call %s: %v", last(w.m.Calls()), err)
			}
			return true
		})
	}
}

// Sealing moves the root, then files go, lowest first. A crash in between leaves a log without a gap.
func TestL4_CrashOfADelete(t *testing.T) {
	for k := 0; ; k++ {
		w := newWorld(small, 0)
		l, err := w.open(w.m.Process())
		if err != nil {
			t.Fatal(err)
		}
		o, err := own(ctx, l)
		if err != nil {
			t.Fatal(err)
		}
		mustCommit(t, o, 20, 300)
		chain, err := o.chain(ctx)
		if err != nil {
			t.Fatal(err)
		}
		sealed := chain[15]
		root := o.root.Next()
		root.Sealed = log.Sealed{Epoch: sealed.Epoch, FirstT: sealed.FirstT, LastT: sealed.LastT(), Hash: sealed.Hash()}
		if err := l.CompareAndSwap(ctx, o.root, root); err != nil {
			t.Fatal(err)
		}
		w.m.CrashAt(len(w.m.Calls()) + k)
		err = errors.Join(l.Delete(ctx, root.Instance, sealed.Key()), l.Close())
		done := !w.m.Off()
		if done && err != nil {
			t.Fatal(err)
		}
		crashfs.Each(32, uint64(k), func(choose crashfs.Choose) bool {
			again := w.after(choose)
			l, err := again.open(again.m.Process())
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			a, err := own(ctx, l)
			if err != nil || a.lastT != o.lastT {
				t.Fatalf("crash at call %s of a Delete: at t %d of %d: %v", last(w.m.Calls()), a.lastT, o.lastT, err)
			}
			return true
		})
		if done {
			if k < 10 {
				t.Fatalf("only %d calls", k)
			}
			return
		}
	}
}

// A blob whose Put returned is there after a crash; any other is whole or not there.
func TestCrashOfABlob(t *testing.T) {
	for k := 0; ; k++ {
		w := newWorld(small, 0)
		l, err := w.open(w.m.Process())
		if err != nil {
			t.Fatal(err)
		}
		inst := log.NewID()
		blobs := map[string][]byte{"1-a": make([]byte, 3000), "1-b": []byte("b"), "2-c": {}}
		put := map[string]bool{}
		w.m.CrashAt(k)
		for name, b := range blobs {
			for i := range b {
				b[i] = byte(i)
			}
			put[name] = l.PutBlob(ctx, inst, name, b) == nil
		}
		l.Close()
		done := !w.m.Off()
		crashfs.Each(32, uint64(k), func(choose crashfs.Choose) bool {
			again := w.after(choose)
			l, err := again.open(again.m.Process())
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			for name, b := range blobs {
				got, err := l.GetBlob(ctx, inst, name)
				if err == nil && !slices.Equal(got, b) || err != nil && (put[name] || !errors.Is(err, log.ErrNotFound)) {
					t.Fatalf("crash at call %s: blob %s, put: %v, has %d bytes, %v", last(w.m.Calls()), name, put[name], len(got), err)
				}
				if err := l.PutBlob(ctx, inst, name, b); err != nil {
					t.Fatal(err)
				}
			}
			return true
		})
		if done {
			return
		}
	}
}

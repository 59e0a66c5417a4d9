package fs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/fs"
	"github.com/steledb/stele/log/fs/crashfs"
)

// seesUnsynced looks with other handles at the log right before each sync, and between the sync and the mark: what the flush under way
// writes must not be seen.
func seesUnsynced(mut fs.Mutation) error {
	w := newWorld(small, mut)
	l, err := w.open(w.m.Process())
	if err != nil {
		return err
	}
	defer l.Close()
	o, err := own(ctx, l)
	if err != nil {
		return err
	}
	r, err := w.open(w.m.Process())
	if err != nil {
		return err
	}
	defer r.Close()
	var seen error
	looks := 0
	w.m.Hook(func(c crashfs.Call, path string) {
		if !strings.HasSuffix(path, ".log") {
			return
		}
		looks++
		for k, err := range r.List(ctx, o.root.Instance, log.Key{}) {
			if err != nil || k.FirstT > o.fenced {
				seen = fmt.Errorf("before %s of %s a reader sees %s, %v; t %d is acknowledged", c.Op, path, k, err, o.fenced)
			}
		}
	})
	for range 20 {
		if err := o.commit(ctx, 200); err != nil {
			return err
		}
		if seen != nil {
			return seen
		}
	}
	if looks < 60 {
		return fmt.Errorf("%d looks", looks)
	}
	n := 0
	for _, err := range r.List(ctx, o.root.Instance, log.Key{}) {
		if err != nil {
			return err
		}
		n++
	}
	if n != 21 {
		return fmt.Errorf("%d objects", n)
	}
	return nil
}

func TestL8_ReaderSeesNothingUnsynced(t *testing.T) {
	if err := seesUnsynced(0); err != nil {
		t.Fatal(err)
	}
}

// A reader never writes, syncs or repairs.
func TestL10_ReadersNeverWrite(t *testing.T) {
	s := specimenOf(t)
	name := last(s.files)
	for _, m := range []*crashfs.Machine{
		s.base.Crash(newest),
		s.with(name, s.bytes[name][:len(s.bytes[name])-200]),
		s.with(name, append(slices.Clone(s.bytes[name]), "garbage"...)),
		crashfs.New(),
	} {
		l, err := fs.Open(ctx, fs.Options{Dir: "/store", FS: m.Process()})
		if err != nil {
			t.Fatal(err)
		}
		root, err := l.Root(ctx)
		if err != nil && !errors.Is(err, log.ErrNoRoot) {
			t.Fatal(err)
		}
		if err == nil {
			if _, err := chainOf(ctx, l, root.Instance); err != nil {
				t.Fatal(err)
			}
			if err := l.Verify(ctx, log.Check{Instance: root.Instance, Epoch: root.Epoch, Claim: root.Claim}); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if calls := m.Calls(); len(calls) > 0 {
			t.Fatalf("a reader made %v", calls)
		}
	}
}

// One flush is one write and one fdatasync, whatever is queued; and a mark.
func TestGroupCommit(t *testing.T) {
	w := newWorld(fs.Options{}, 0)
	l, err := w.open(w.m.Process())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o, err := own(ctx, l)
	if err != nil {
		t.Fatal(err)
	}
	const n = 100
	objs := make([]*log.Object, n)
	for i := range objs {
		if objs[i], err = o.batch(50); err != nil {
			t.Fatal(err)
		}
	}
	// The first flush is held up in its sync until all the others are queued.
	syncing, queued := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w.m.Hook(func(c crashfs.Call, path string) {
		if c.Op == "fdatasync" {
			once.Do(func() { close(syncing); <-queued })
		}
	})
	before := len(w.m.Calls())
	var wg sync.WaitGroup
	appendOne := func(i int) {
		defer wg.Done()
		if err := l.Append(ctx, o.root.Instance, objs[i]); err != nil {
			t.Error(err)
		}
	}
	wg.Add(1)
	go appendOne(0)
	<-syncing
	for i := 1; i < n; i++ {
		wg.Add(1)
		go appendOne(i)
	}
	for l.Queued(o.root.Instance) < n-1 {
		runtime.Gosched()
	}
	close(queued)
	wg.Wait()
	var ops []string
	for _, c := range w.m.Calls()[before:] {
		ops = append(ops, c.Op)
	}
	want := []string{"write", "fdatasync", "write", "write", "fdatasync", "write"}
	if !slices.Equal(ops, want) {
		t.Fatalf("%d appends made the calls %v, not %v", n, ops, want)
	}
	seen, err := chainOf(ctx, l, o.root.Instance)
	if err != nil || len(seen) != n+1 {
		t.Fatalf("%d objects, %v", len(seen), err)
	}
}

// An append whose context ends while it is queued has not been written, and is not; one whose flush is under way is unknown.
func TestAppend_ContextEnds(t *testing.T) {
	w := newWorld(fs.Options{}, 0)
	l, err := w.open(w.m.Process())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o, err := own(ctx, l)
	if err != nil {
		t.Fatal(err)
	}
	a, err1 := o.batch(10)
	b, err2 := o.batch(10)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	syncing, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w.m.Hook(func(c crashfs.Call, path string) {
		if c.Op == "fdatasync" {
			once.Do(func() { close(syncing); <-goOn })
		}
	})
	ctxA, cancelA := context.WithCancel(ctx)
	errA := make(chan error)
	go func() { errA <- l.Append(ctxA, o.root.Instance, a) }()
	<-syncing
	ctxB, cancelB := context.WithCancel(ctx)
	errB := make(chan error)
	go func() { errB <- l.Append(ctxB, o.root.Instance, b) }()
	for l.Queued(o.root.Instance) < 1 {
		runtime.Gosched()
	}
	cancelB()
	if err := <-errB; log.OutcomeOf(err) != log.NotWritten || !errors.Is(err, context.Canceled) {
		t.Fatalf("queued: %v, outcome %s", err, log.OutcomeOf(err))
	}
	cancelA()
	if err := <-errA; log.OutcomeOf(err) != log.Unknown || !errors.Is(err, context.Canceled) {
		t.Fatalf("in a flush: %v, outcome %s", err, log.OutcomeOf(err))
	}
	close(goOn)
	if err := l.Append(ctx, o.root.Instance, a); err != nil { // it has landed, or lands
		t.Fatal(err)
	}
	if _, err := l.Get(ctx, o.root.Instance, b.Key()); !errors.Is(err, log.ErrNotFound) {
		t.Fatalf("what was not written is there: %v", err)
	}
}

// A full disk: an append says "not written", the handle goes on; the epoch can end and a new one begin; and once there is room
// again everything goes on.
func TestFullDisk(t *testing.T) {
	w := newWorld(fs.Options{Prealloc: 4096}, 0)
	p := w.m.Process()
	l, err := w.open(p)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { l.Close() }()
	o, err := own(ctx, l)
	if err != nil {
		t.Fatal(err)
	}
	w.m.Room(0)
	full := func() error {
		for {
			head, t := o.head, o.lastT
			if err := o.commit(ctx, 1000); err != nil {
				o.head, o.lastT = head, t
				return err
			}
		}
	}
	if err := full(); log.OutcomeOf(err) != log.NotWritten || !errors.Is(err, syscall.ENOSPC) || errors.Is(err, log.ErrFailed) {
		t.Fatalf("on a full disk: %v, outcome %s", err, log.OutcomeOf(err))
	}
	if err := l.PutBlob(ctx, o.root.Instance, "blob", make([]byte, 10_000)); log.OutcomeOf(err) != log.NotWritten || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("a blob on a full disk: %v", err)
	}
	nextEpoch := func() error {
		old := o.root
		o.root = old.Acquire(log.NewID(), "test")
		if err := l.CompareAndSwap(ctx, old, o.root); err != nil {
			return fmt.Errorf("the root: %w", err)
		}
		if err := o.recover(ctx); err != nil {
			return fmt.Errorf("the start: %w", err)
		}
		return nil
	}
	if err := nextEpoch(); err != nil {
		t.Fatalf("a new epoch on a full disk: %v", err)
	}
	if err := full(); log.OutcomeOf(err) != log.NotWritten || errors.Is(err, log.ErrFailed) {
		t.Fatalf("in the next epoch: %v, outcome %s", err, log.OutcomeOf(err))
	}
	w.m.Room(1 << 20)
	if err := o.commit(ctx, 1000); err != nil {
		t.Fatalf("once there is room: %v", err)
	}
	if err := nextEpoch(); err != nil {
		t.Fatal(err)
	}
	acked := o.lastT

	// Another process finds the room that was kept, too.
	w.m.Room(0)
	p.Kill(nil)
	l.Close()
	if l, err = w.open(w.m.Process()); err != nil {
		t.Fatal(err)
	}
	if o, err = own(ctx, l); err != nil || o.lastT != acked {
		t.Fatalf("opened on a full disk, at t %d of %d: %v", o.lastT, acked, err)
	}
}

// Files of another kind in the directory are nobody's business; two epochs' files are told apart by their names.
func TestNames(t *testing.T) {
	for _, c := range []struct {
		seq   uint32
		epoch uint64
	}{{1, 1}, {0xffffffff, 0xffffffffffffffff}, {16, 255}} {
		name := fs.FileName(c.seq, c.epoch)
		if seq, epoch, ok := fs.ParseFileName(name); !ok || seq != c.seq || epoch != c.epoch || len(name) != 29 {
			t.Fatalf("%s is %d, %d, %v", name, seq, epoch, ok)
		}
	}
	for _, name := range []string{"", "next", "00000001-0000000000000001.LOG", "00000001-000000000000000A.log", "0000001-00000000000000001.log", "+0000001-0000000000000001.log"} {
		if _, _, ok := fs.ParseFileName(name); ok {
			t.Fatalf("%q is a name", name)
		}
	}
	for name, ok := range map[string]bool{
		"main": true, "0": true, "a.b-c_d": true, strings.Repeat("a", 63): true,
		"": false, "A": false, ".a": false, "-": false, "a/b": false, "..": false, "ä": false, strings.Repeat("a", 64): false,
	} {
		if err := log.CheckName(name); (err == nil) != ok {
			t.Fatalf("%q: %v", name, err)
		}
	}
}

// What does not keep its promises is refused, or reported.
func TestDurable(t *testing.T) {
	for magic, name := range map[int64]string{0x01021994: "tmpfs", 0x858458f6: "ramfs", 0x6969: "NFS", 0x65735546: "FUSE", 0xff534d42: "SMB"} {
		m := crashfs.New()
		m.Magic(magic)
		if _, err := fs.Open(ctx, fs.Options{Dir: "/store", FS: m.Process()}); err == nil || !strings.Contains(err.Error(), name) {
			t.Fatalf("on %s: %v", name, err)
		}
		l, err := fs.Open(ctx, fs.Options{Dir: "/store", FS: m.Process(), AllowNonLocal: true})
		if err != nil {
			t.Fatal(err)
		}
		if i := l.Info(); i.Durable || i.Durability != "none" {
			t.Fatalf("on %s: %+v", name, i)
		}
		l.Close()
	}
	m := crashfs.New()
	m.Magic(0x794c7630) // a container's overlay
	l, err := fs.Open(ctx, fs.Options{Dir: "/store", FS: m.Process()})
	if err != nil {
		t.Fatal(err)
	}
	if i := l.Info(); !i.Durable || i.Durability != "fdatasync" || i.Backend != "fs" || !i.FailStop || i.Location != "/store/main" {
		t.Fatalf("%+v", i)
	}
	l.Close()
	if ok, name, err := fs.Durable("/dev/shm/none/of/it"); err != nil || ok && name == "tmpfs" {
		t.Fatalf("%v, %s, %v", ok, name, err)
	}
	if ok, _, err := fs.Durable(diskDir(t)); err != nil || !ok {
		t.Fatal(ok, err)
	}
}

func TestOpen_Options(t *testing.T) {
	_, err := fs.Open(ctx, fs.Options{Name: "No", RollSize: 1, Prealloc: -1})
	for _, part := range []string{"no directory", `"No"`, "RollSize", "Prealloc"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Fatalf("%v does not say what is wrong with %s", err, part)
		}
	}
}

// Objects of many bytes roll, and come back.
func TestLargeObjects(t *testing.T) {
	dir := diskDir(t)
	l := openDir(t, fs.Options{Dir: dir, RollSize: 1 << 20})
	o := mustOwn(t, l)
	sizes := []int{0, 1 << 20, 17, 3 << 20, 1, 100_000}
	for _, n := range sizes {
		mustCommit(t, o, 1, n)
	}
	r := openDir(t, fs.Options{Dir: dir})
	seen, err := chainOf(t.Context(), r, o.root.Instance)
	if err != nil || len(seen) != len(sizes)+1 {
		t.Fatalf("%d objects, %v", len(seen), err)
	}
	for i, n := range sizes {
		if b := seen[i+1].Bytes(); bytes.Count(b, []byte("x")) < n {
			t.Fatalf("object %d has %d bytes", i, len(b))
		}
	}
}

// The same key twice in one flush: the first decides, also when it fails.
func TestAppend_TwiceInOneFlush(t *testing.T) {
	for _, fails := range []bool{false, true} {
		w := newWorld(fs.Options{}, 0)
		l, err := w.open(w.m.Process())
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		o, err := own(ctx, l)
		if err != nil {
			t.Fatal(err)
		}
		first, err1 := o.batch(1)
		head, lastT := o.head, o.lastT
		a, err2 := o.batch(10)
		o.head, o.lastT = head, lastT
		b, err3 := o.batch(20)
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatal(err)
		}
		syncing, goOn := make(chan struct{}), make(chan struct{})
		var once sync.Once
		w.m.Hook(func(c crashfs.Call, path string) {
			if c.Op == "fdatasync" {
				once.Do(func() { close(syncing); <-goOn })
			}
		})
		if fails {
			w.m.FailAt(len(w.m.Calls())+4, syscall.EIO, crashfs.Random(1)) // write, fdatasync, mark; write, fdatasync
		}
		send := func(obj *log.Object) chan error {
			queued := l.Queued(o.root.Instance)
			c := make(chan error, 1)
			go func() { c <- l.Append(ctx, o.root.Instance, obj) }()
			for obj != first && l.Queued(o.root.Instance) == queued {
				runtime.Gosched()
			}
			return c
		}
		results := []chan error{send(first)}
		<-syncing
		for _, obj := range []*log.Object{a, a, b} {
			results = append(results, send(obj))
		}
		close(goOn)
		var outcomes []string
		for _, c := range results {
			if err := <-c; err == nil {
				outcomes = append(outcomes, "nil")
			} else {
				outcomes = append(outcomes, log.OutcomeOf(err).String())
			}
		}
		want := []string{"nil", "nil", "nil", "rejected"}
		if fails {
			want = []string{"nil", "unknown", "unknown", "not written"}
		}
		if !slices.Equal(outcomes, want) {
			t.Fatalf("failing: %v: %q, not %q", fails, outcomes, want)
		}
	}
}

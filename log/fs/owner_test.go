package fs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/fs"
)

// owner writes a log as a transactor does, one object after the other.
type owner struct {
	*fs.Log
	root   *log.Root
	head   log.Pos
	lastT  uint64
	fenced uint64
	unlock func() error

	repairs []string
}

// own takes the lock and an epoch, reads the log, adopts it and writes a start.
func own(ctx context.Context, l *fs.Log) (*owner, error) {
	o, err := acquire(ctx, l)
	if err != nil {
		return o, err
	}
	if err := o.recover(ctx); err != nil {
		return o, err
	}
	return o, nil
}

// acquire takes the lock and an epoch.
func acquire(ctx context.Context, l *fs.Log) (*owner, error) {
	o := &owner{Log: l}
	var err error
	if o.unlock, err = l.Lock(ctx, false); err != nil {
		return o, err
	}
	old, err := l.Root(ctx)
	if errors.Is(err, log.ErrNoRoot) {
		old = log.NewRoot()
		err = l.CompareAndSwap(ctx, nil, old)
	}
	if err != nil {
		return o, err
	}
	o.root = old.Acquire(log.NewID(), "test")
	return o, l.CompareAndSwap(ctx, old, o.root)
}

// recover reads the log as package log does, adopts it, and writes the epoch's start.
func (o *owner) recover(ctx context.Context) error {
	found, err := log.Recover(ctx, o.Log, o.root, log.Head{}, func(*log.Object) error { return nil })
	if err != nil {
		return err
	}
	o.head, o.lastT, o.fenced = found.Head.Pos, found.Head.LastT, found.Head.Fenced
	if o.repairs, err = o.Adopt(ctx, o.root.Instance, o.head, found.Unfenced); err != nil {
		return err
	}
	start, err := log.Encode(o.header(log.KindStart), nil, false)
	if err != nil {
		return err
	}
	if err := o.Append(ctx, o.root.Instance, start); err != nil {
		return err
	}
	o.head, o.fenced = start.Pos(), o.lastT
	return nil
}

// chain is the log of this instance: back from the newest start, forward while batches link.
func (o *owner) chain(ctx context.Context) ([]*log.Object, error) {
	return chainOf(ctx, o.Log, o.root.Instance)
}

func chainOf(ctx context.Context, l log.Log, inst log.ID) ([]*log.Object, error) {
	objs := map[log.Key]*log.Object{}
	var newest *log.Object
	for obj, err := range l.Read(ctx, inst, log.Key{}) {
		if err != nil {
			return nil, err
		}
		objs[obj.Key()] = obj
		if obj.Kind == log.KindStart {
			newest = obj
		}
	}
	if newest == nil {
		return nil, nil
	}
	var chain []*log.Object
	for obj := newest; ; {
		chain = append([]*log.Object{obj}, chain...)
		if obj.Prev == (log.Pos{}) {
			break
		}
		prev := objs[obj.Prev.Key]
		if prev == nil || prev.Hash() != obj.Prev.Hash {
			return nil, &log.CorruptError{Key: obj.Prev.Key, Reason: "missing on the chain"}
		}
		obj = prev
	}
	for {
		last := chain[len(chain)-1]
		next := objs[log.Key{Epoch: newest.Epoch, FirstT: last.LastT() + 1}]
		if next == nil || next.Prev != last.Pos() {
			break
		}
		chain = append(chain, next)
	}
	for _, obj := range objs {
		if last := chain[len(chain)-1]; obj.Fenced > last.LastT() {
			return nil, &log.CorruptError{Key: last.Key(), Reason: fmt.Sprintf("t %d was acknowledged", obj.Fenced)}
		}
	}
	return chain, nil
}

func (o *owner) header(k log.Kind) log.Header {
	return log.Header{Lineage: o.root.Lineage, Claim: o.root.Claim, Epoch: o.root.Epoch, Kind: k, FirstT: o.lastT + 1, Prev: o.head, Fenced: o.fenced}
}

// batch makes the next object: one transaction, with a text of size bytes.
func (o *owner) batch(size int) (*log.Object, error) { return o.many(1, size, false) }

// many makes the next object, of n transactions.
func (o *owner) many(n, size int, compress bool) (*log.Object, error) {
	txs := make([]*datom.Tx, n)
	for i := range txs {
		t := o.lastT + 1 + uint64(i)
		instant := 1_700_000_000_000 + int64(t)
		txs[i] = &datom.Tx{T: t, Instant: instant, Next: datom.NextIDs{Part: 10, Seq: 5000 + t}, Datoms: []datom.Datom{
			{E: datom.TxID(t), A: 50, V: datom.InstantMilli(instant), T: t, Added: true},
			{E: datom.MakeID(datom.PartUser, 5000+t), A: 2100, V: datom.String(strings.Repeat("x", size)), T: t, Added: true},
		}}
	}
	obj, err := log.Encode(o.header(log.KindBatch), txs, compress)
	if err == nil {
		o.head, o.lastT = obj.Pos(), obj.LastT()
	}
	return obj, err
}

// commit appends the next object and acknowledges it.
func (o *owner) commit(ctx context.Context, size int) error {
	obj, err := o.batch(size)
	if err != nil {
		return err
	}
	if err := o.Append(ctx, o.root.Instance, obj); err != nil {
		return err
	}
	o.fenced = o.lastT
	return nil
}

func openDir(t testing.TB, o fs.Options) *fs.Log {
	t.Helper()
	l, err := fs.Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func mustOwn(t testing.TB, l *fs.Log) *owner {
	t.Helper()
	o, err := own(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func mustCommit(t testing.TB, o *owner, n, size int) {
	t.Helper()
	for range n {
		if err := o.commit(t.Context(), size); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReopenAndRoll(t *testing.T) {
	dir := diskDir(t)
	var acked uint64
	for round := range 4 {
		l := openDir(t, fs.Options{Dir: dir, RollSize: 4 << 10, Prealloc: 1})
		o := mustOwn(t, l)
		if o.lastT != acked || len(o.repairs) != 0 {
			t.Fatalf("round %d: found t %d, %d were acknowledged; repairs %q", round, o.lastT, acked, o.repairs)
		}
		mustCommit(t, o, 50, 200)
		acked = o.lastT

		r := openDir(t, fs.Options{Dir: dir})
		seen, err := chainOf(t.Context(), r, o.root.Instance)
		if err != nil || seen[len(seen)-1].LastT() != acked {
			t.Fatalf("a reader sees %d objects and not t %d: %v", len(seen), acked, err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestContractRead_FilesLeaveMemoryWhileOthersRead: what a call has loaded is not taken from it by others, who load other files and let that one go.
func TestContractRead_FilesLeaveMemoryWhileOthersRead(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	l := openDir(t, fs.Options{Dir: dir, RollSize: 4 << 10, Prealloc: 1})
	o, err := own(ctx, l)
	if err != nil {
		t.Fatal(err)
	}
	var keys []log.Key
	for range 60 { // on some fifteen files
		if err := o.commit(ctx, 1<<10); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, o.head.Key)
	}
	reader := openDir(t, fs.Options{Dir: dir})
	var wait sync.WaitGroup
	for g := range 8 {
		wait.Go(func() {
			for i := range 300 {
				k := keys[(g*7+i*11)%len(keys)]
				if _, err := reader.Get(ctx, o.root.Instance, k); err != nil {
					t.Errorf("%v: %v", k, err)
					return
				}
				n := 0
				for range reader.List(ctx, o.root.Instance, keys[len(keys)-30]) {
					n++
				}
				if n < 29 {
					t.Errorf("%d of 29 keys are listed", n)
					return
				}
			}
		})
	}
	wait.Wait()
}

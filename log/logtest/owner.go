package logtest

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/log"
)

// handle opens a handle that is closed when the case ends.
func (s *suite) handle() log.Log {
	s.Helper()
	l := s.open()
	s.Cleanup(func() { _ = l.Close() })
	return l
}

func (s *suite) must(err error, doing string, args ...any) {
	s.Helper()
	if err != nil {
		s.Fatalf("%s: %v", fmt.Sprintf(doing, args...), err)
	}
}

// wants fails unless err is target.
func (s *suite) wants(err, target error, doing string, args ...any) {
	s.Helper()
	if !errors.Is(err, target) {
		s.Fatalf("%s: %v; want %v", fmt.Sprintf(doing, args...), err, target)
	}
}

// owner writes a log as an owner does.
type owner struct {
	*suite
	log.Log
	root   *log.Root
	head   log.Head
	fenced uint64
	unlock func() error
	chain  []*log.Object // as it read and wrote it
}

// acquire locks the store through a handle, creates the root if there is none, and takes the next epoch. release gives the lock back.
func (s *suite) acquire(l log.Log) (*owner, error) {
	unlock, err := l.Lock(s.ctx, true)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	o := &owner{suite: s, Log: l, unlock: unlock}
	s.Cleanup(func() {
		if o.unlock != nil {
			_ = o.unlock()
		}
	})
	old, err := l.Root(s.ctx)
	if errors.Is(err, log.ErrNoRoot) {
		old = log.NewRoot()
		err = l.CompareAndSwap(s.ctx, nil, old)
	}
	if err != nil {
		return nil, fmt.Errorf("the root to begin with: %w", err)
	}
	o.root = old.Acquire(log.NewID(), "logtest")
	if err := l.CompareAndSwap(s.ctx, old, o.root); err != nil {
		return nil, fmt.Errorf("take epoch %d: %w", o.root.Epoch, err)
	}
	return o, nil
}

// takeOver is acquire, the recovery, and a start that is durable and verified.
func (s *suite) takeOver(l log.Log) (*owner, error) {
	o, err := s.acquire(l)
	if err != nil {
		return nil, err
	}
	found, err := log.Recover(s.ctx, l, o.root, log.Head{}, func(obj *log.Object) error { o.chain = append(o.chain, obj); return nil })
	if err != nil {
		return o, fmt.Errorf("recover: %w", err)
	}
	o.head = found.Head
	if _, err := l.Adopt(s.ctx, o.root.Instance, found.Head.Pos, found.Unfenced); err != nil {
		return o, fmt.Errorf("adopt: %w", err)
	}
	start := o.next(log.KindStart, nil)
	if err, verr := l.AppendVerify(s.ctx, start, o.check()); err != nil || verr != nil {
		return o, fmt.Errorf("start: %w", errors.Join(err, verr))
	}
	o.chain = append(o.chain, start)
	return o, nil
}

// own is takeOver where it must succeed.
func (s *suite) own(l log.Log) *owner {
	s.Helper()
	o, err := s.takeOver(l)
	s.must(err, "take over")
	return o
}

func (o *owner) release() {
	o.Helper()
	unlock := o.unlock
	o.unlock = nil
	o.must(unlock(), "unlock")
}

// next makes the next object and moves on: it is the head of the one after.
func (o *owner) next(kind log.Kind, txs []*datom.Tx) *log.Object {
	o.Helper()
	obj, err := log.Encode(log.Header{Lineage: o.root.Lineage, Claim: o.root.Claim, Epoch: o.root.Epoch, Kind: kind,
		FirstT: o.head.LastT + 1, Prev: o.head.Pos, Fenced: o.fenced}, txs, o.Info().Compress)
	o.must(err, "encode a %s", kind)
	o.head = log.Head{Pos: obj.Pos(), LastT: obj.LastT(), Claim: obj.Claim}
	return obj
}

// batch makes the next batch, of n transactions.
func (o *owner) batch(n int) *log.Object {
	o.Helper()
	return o.next(log.KindBatch, transactions(o.head.LastT+1, n, "a"))
}

// batches makes the next n batches, of one transaction each.
func (o *owner) batches(n int) []*log.Object {
	o.Helper()
	var out []*log.Object
	for range n {
		out = append(out, o.batch(1))
	}
	return out
}

// other is an object with the same key as obj and other bytes.
func (o *owner) other(obj *log.Object, text string) *log.Object {
	o.Helper()
	c, err := log.Encode(obj.Header, transactions(obj.FirstT, int(obj.Count), text), false)
	o.must(err, "encode a batch")
	return c
}

// append appends objects in this order.
func (o *owner) append(objs ...*log.Object) {
	o.Helper()
	for _, obj := range objs {
		o.must(o.Append(o.ctx, o.root.Instance, obj), "append %s", obj.Key())
	}
}

func (o *owner) check(keys ...log.Key) log.Check {
	return log.Check{Instance: o.root.Instance, Epoch: o.root.Epoch, Claim: o.root.Claim, Keys: keys}
}

// swap changes the root.
func (o *owner) swap(change func(*log.Root)) {
	o.Helper()
	old, err := o.Root(o.ctx)
	o.must(err, "read the root")
	next := old.Next()
	change(next)
	o.must(o.CompareAndSwap(o.ctx, old, next), "swap the root")
	o.root = next
}

// objects reads all objects behind after.
func (s *suite) objects(ctx context.Context, l log.Log, inst log.ID, after log.Key) (out []*log.Object) {
	s.Helper()
	for o, err := range l.Read(ctx, inst, after) {
		s.must(err, "read behind %s", after)
		out = append(out, o)
	}
	return out
}

// keys lists all keys behind after.
func (s *suite) keys(ctx context.Context, l log.Log, inst log.ID, after log.Key) (out []log.Key) {
	s.Helper()
	for k, err := range l.List(ctx, inst, after) {
		s.must(err, "list behind %s", after)
		out = append(out, k)
	}
	return out
}

func keysOf(objs []*log.Object) (out []log.Key) {
	for _, o := range objs {
		out = append(out, o.Key())
	}
	return out
}

// transactions makes n transactions from t on, with two facts each.
func transactions(t uint64, n int, text string) []*datom.Tx {
	txs := make([]*datom.Tx, n)
	for i := range txs {
		t := t + uint64(i)
		instant := 1_700_000_000_000 + int64(t)
		txs[i] = &datom.Tx{T: t, Instant: instant, Next: datom.NextIDs{Part: 10, Seq: 5000 + t}, Datoms: []datom.Datom{
			{E: datom.TxID(t), A: 50, V: datom.InstantMilli(instant), T: t, Added: true},
			{E: datom.MakeID(datom.PartUser, 5000+t), A: 2100, V: datom.String(fmt.Sprintf("%s fact of transaction %d", text, t)), T: t, Added: true},
		}}
	}
	return txs
}

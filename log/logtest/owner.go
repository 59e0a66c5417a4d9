package logtest

import (
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

// owner writes a log as an owner does, as far as a store can tell.
type owner struct {
	*suite
	log.Log
	root   *log.Root
	head   log.Pos
	lastT  uint64
	fenced uint64
	unlock func() error
}

// own locks the store through a handle, creates the root if there is none, takes the next epoch, and writes its start behind head.
// release gives the lock back.
func (s *suite) own(l log.Log, head log.Pos, lastT uint64) *owner {
	s.Helper()
	o := s.acquire(l)
	o.head, o.lastT = head, lastT
	_, err := l.Adopt(s.ctx, o.root.Instance, head, nil)
	s.must(err, "Adopt at %s", head)
	start := o.start()
	s.must(l.Append(s.ctx, o.root.Instance, start), "Append %s", start.Key())
	o.head = start.Pos()
	return o
}

// acquire is own without the start.
func (s *suite) acquire(l log.Log) *owner {
	s.Helper()
	unlock, err := l.Lock(s.ctx, true)
	s.must(err, "Lock")
	o := &owner{suite: s, Log: l, unlock: unlock}
	s.Cleanup(func() {
		if o.unlock != nil {
			_ = o.unlock()
		}
	})
	old, err := l.Root(s.ctx)
	if err != nil {
		old = log.NewRoot()
		s.must(l.CompareAndSwap(s.ctx, nil, old), "create the root")
	}
	o.root = old.Acquire(log.NewID(), "logtest")
	s.must(l.CompareAndSwap(s.ctx, old, o.root), "take epoch %d", o.root.Epoch)
	return o
}

func (o *owner) release() {
	o.Helper()
	unlock := o.unlock
	o.unlock = nil
	o.must(unlock(), "unlock")
}

func (o *owner) header(k log.Kind) log.Header {
	return log.Header{Lineage: o.root.Lineage, Claim: o.root.Claim, Epoch: o.root.Epoch, Kind: k, FirstT: o.lastT + 1, Prev: o.head, Fenced: o.fenced}
}

func (o *owner) start() *log.Object {
	o.Helper()
	obj, err := log.Encode(o.header(log.KindStart), nil, false)
	o.must(err, "encode a start")
	return obj
}

// batch makes the next object, of n transactions, and moves on: it is the head of the next one.
func (o *owner) batch(n int) *log.Object {
	o.Helper()
	obj, err := log.Encode(o.header(log.KindBatch), transactions(o.lastT+1, n, ""), false)
	o.must(err, "encode a batch")
	o.head, o.lastT = obj.Pos(), o.lastT+uint64(n)
	return obj
}

// other is an object with the same key as obj and other bytes.
func (o *owner) other(obj *log.Object) *log.Object {
	o.Helper()
	h := obj.Header
	c, err := log.Encode(h, transactions(h.FirstT, int(h.Count), "other"), false)
	o.must(err, "encode a batch")
	return c
}

func (o *owner) append(objs ...*log.Object) {
	o.Helper()
	for _, obj := range objs {
		o.must(o.Append(o.ctx, o.root.Instance, obj), "Append %s", obj.Key())
	}
}

func (o *owner) check(keys ...log.Key) log.Check {
	return log.Check{Instance: o.root.Instance, Epoch: o.root.Epoch, Claim: o.root.Claim, Keys: keys}
}

// transactions makes n transactions from t on, with a fact each.
func transactions(t uint64, n int, text string) []*datom.Tx {
	txs := make([]*datom.Tx, n)
	for i := range txs {
		t := t + uint64(i)
		instant := 1_700_000_000_000 + int64(t)
		txs[i] = &datom.Tx{T: t, Instant: instant, Next: datom.NextIDs{Part: 10, Seq: 5000 + t}, Datoms: []datom.Datom{
			{E: datom.TxID(t), A: 50, V: datom.InstantMilli(instant), T: t, Added: true},
			{E: datom.MakeID(datom.PartUser, 5000+t), A: 2100, V: datom.String(fmt.Sprintf("%s fact %d", text, t)), T: t, Added: true},
		}}
	}
	return txs
}

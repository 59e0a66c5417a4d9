package log_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/mem"
)

// world is one database in memory, and the processes that use it. What a process writes is made and landed in two steps, so that a
// test decides when, and whether, it lands.
type world struct {
	testing.TB
	ctx    context.Context
	server *mem.Server
	l      *mem.Log // the world's own handle, without faults
	names  map[log.Hash]string
}

func newWorld(t testing.TB) *world {
	w := &world{TB: t, ctx: context.Background(), server: mem.NewServer(), names: map[log.Hash]string{}}
	w.l = w.handle()
	w.check(w.l.CompareAndSwap(w.ctx, nil, log.NewRoot()))
	return w
}

func (w *world) handle() *mem.Log { return w.server.Open("main", mem.Options{}) }

func (w *world) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) root() *log.Root {
	w.Helper()
	r, err := w.l.Root(w.ctx)
	w.check(err)
	return r
}

// land makes objects durable.
func (w *world) land(objects ...*log.Object) {
	w.Helper()
	for _, o := range objects {
		w.check(w.l.Append(w.ctx, w.root().Instance, o))
	}
}

func (w *world) lose(o *log.Object) {
	w.Helper()
	if !w.l.Remove(w.root().Instance, o.Key()) {
		w.Fatalf("%s is not there", w.name(o))
	}
}

// seal moves the sealed position to o, and deletes what lies below if asked.
func (w *world) seal(o *log.Object, remove bool) {
	w.Helper()
	old := w.root()
	next := old.Next()
	next.Sealed = log.Sealed{Epoch: o.Epoch, FirstT: o.Key().FirstT, LastT: o.LastT(), Hash: o.Hash()}
	w.check(w.l.CompareAndSwap(w.ctx, old, next))
	if remove {
		w.check(w.l.Delete(w.ctx, old.Instance, o.Key()))
	}
}

// name is what a test calls an object: 3.0 the start of epoch 3, 3.2 its second batch.
func (w *world) name(o *log.Object) string {
	if n, ok := w.names[o.Hash()]; ok {
		return n
	}
	return o.Pos().String()
}

// show names the objects of a chain.
func (w *world) show(chain []*log.Object) string {
	s := ""
	for _, o := range chain {
		s += w.name(o) + " "
	}
	return s
}

// owner is one term of ownership.
type owner struct {
	*world
	l       *mem.Log
	root    *log.Root // as its CAS wrote it
	head    log.Head  // what it would build the next object on
	fenced  uint64
	batches int
	found   *log.Recovery
	read    []*log.Object
}

// take is the CAS that takes the next epoch.
func (w *world) take() *owner {
	w.Helper()
	old := w.root()
	p := &owner{world: w, l: w.handle(), root: old.Acquire(log.NewID(), "test")}
	w.check(p.l.CompareAndSwap(w.ctx, old, p.root))
	return p
}

// skip lets owners come and go that never write a start.
func (w *world) skip(epochs int) {
	for range epochs {
		w.take()
	}
}

func (p *owner) try(from log.Head) error {
	p.read = nil
	r, err := log.Recover(p.ctx, p.l, p.root, from, func(o *log.Object) error { p.read = append(p.read, o); return nil })
	if err == nil {
		p.found, p.head = r, r.Head
	}
	return err
}

// recover reads the log.
func (p *owner) recover() *owner {
	p.Helper()
	p.check(p.try(log.Head{}))
	return p
}

func (p *owner) make(kind log.Kind, txs []*datom.Tx, name string) *log.Object {
	p.Helper()
	o, err := log.Encode(log.Header{Lineage: p.root.Lineage, Claim: p.root.Claim, Epoch: p.root.Epoch, Kind: kind,
		FirstT: p.head.LastT + 1, Count: uint32(len(txs)), Prev: p.head.Pos, Fenced: p.fenced}, txs, false)
	p.check(err)
	p.head = log.Head{Pos: o.Pos(), LastT: o.LastT(), Claim: o.Claim}
	p.names[o.Hash()] = name
	return o
}

// start makes its start; it does not land it.
func (p *owner) start() *log.Object {
	p.Helper()
	return p.make(log.KindStart, nil, fmt.Sprintf("%d.0", p.root.Epoch))
}

// batch makes its next batch, of n transactions; it does not land it.
func (p *owner) batch(n int) *log.Object {
	p.Helper()
	p.batches++
	var txs []*datom.Tx
	for i := range uint64(n) {
		t := p.head.LastT + 1 + i
		txs = append(txs, &datom.Tx{T: t, Instant: int64(t), Datoms: []datom.Datom{
			{E: datom.TxID(t), A: 50, V: datom.String(fmt.Sprintf("written in epoch %d", p.root.Epoch)), T: t, Added: true}}})
	}
	return p.make(log.KindBatch, txs, fmt.Sprintf("%d.%d", p.root.Epoch, p.batches))
}

// ack is what a successful Verify lets the owner acknowledge: everything up to its last transaction.
func (p *owner) ack() {
	p.Helper()
	p.check(p.l.Verify(p.ctx, log.Check{Instance: p.root.Instance, Epoch: p.root.Epoch, Claim: p.root.Claim}))
	p.fenced = p.head.LastT
}

// open is take, recover and a landed start.
func (w *world) open() *owner {
	w.Helper()
	p := w.take().recover()
	w.land(p.start())
	p.ack()
	return p
}

func (p *owner) wants(chain string) {
	p.Helper()
	if got := p.show(p.read); got != chain {
		p.Fatalf("epoch %d found %s, want %s", p.root.Epoch, got, chain)
	}
}

// reader is a log.Reader and what it was handed.
type reader struct {
	*world
	l      *mem.Log
	r      *log.Reader
	got    []*log.Object
	status log.Status
}

func (w *world) reader(o log.ReaderOptions) *reader {
	r := &reader{world: w, l: w.handle()}
	r.r = log.NewReader(r.l, o)
	return r
}

func (r *reader) try() (err error) {
	r.status, err = r.r.Sync(r.ctx, func(o *log.Object) error { r.got = append(r.got, o); return nil })
	return err
}

func (r *reader) sync() {
	r.Helper()
	r.check(r.try())
}

func (r *reader) wants(chain string) {
	r.Helper()
	if got := r.show(r.got); got != chain {
		r.Fatalf("the reader was handed %s, want %s", got, chain)
	}
}

// on runs f once, when the handle makes its n-th call of an operation, before the call has its effect.
func on(l *mem.Log, op mem.Op, n int, f func()) {
	l.SetHook(func(c mem.Call) mem.Fault {
		if c.Op == op {
			if n--; n == 0 {
				f()
			}
		}
		return mem.Fault{}
	})
}

// wantError fails unless err is target.
func wantError(t testing.TB, err, target error, doing string) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("%s: %v, want %v", doing, err, target)
	}
}

// blind is a store whose listings lack an object that Get finds.
type blind struct {
	log.Log
	hidden []log.Key
}

func (b *blind) Read(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[*log.Object, error] {
	return func(yield func(*log.Object, error) bool) {
		for o, err := range b.Log.Read(ctx, inst, after) {
			if err == nil && slices.Contains(b.hidden, o.Key()) {
				continue
			}
			if !yield(o, err) {
				return
			}
		}
	}
}

// slowRoot is a store whose answer to Root is long on its way.
type slowRoot struct {
	log.Log
	read, release chan struct{}
}

func (s *slowRoot) Root(ctx context.Context) (*log.Root, error) {
	r, err := s.Log.Root(ctx)
	close(s.read)
	<-s.release
	return r, err
}

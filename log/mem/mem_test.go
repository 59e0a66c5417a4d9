package mem_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/logtest"
	"github.com/steledb/stele/log/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	logtest.Run(t, logtest.Backend{
		Name: "mem",
		New: func(t *testing.T) func() log.Log {
			s := mem.NewServer()
			return func() log.Log { return s.Open("main", mem.Options{}) }
		},
	})
}

// setup is a database of one epoch, and makes objects for it.
type setup struct {
	*testing.T
	ctx    context.Context
	server *mem.Server
	l      *mem.Log
	root   *log.Root
	head   log.Head
}

func newSetup(t *testing.T, o mem.Options) *setup {
	s := &setup{T: t, ctx: t.Context(), server: mem.NewServer()}
	s.l = s.server.Open("main", o)
	old := log.NewRoot()
	s.must(s.l.CompareAndSwap(s.ctx, nil, old))
	s.root = old.Acquire(log.NewID(), "test")
	s.must(s.l.CompareAndSwap(s.ctx, old, s.root))
	s.must(s.l.Append(s.ctx, s.root.Instance, s.next(log.KindStart)))
	return s
}

func (s *setup) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *setup) next(k log.Kind) *log.Object {
	s.Helper()
	t := s.head.LastT + 1
	var txs []*datom.Tx
	if k == log.KindBatch {
		txs = []*datom.Tx{{T: t, Instant: int64(t)}}
	}
	o, err := log.Encode(log.Header{Lineage: s.root.Lineage, Claim: s.root.Claim, Epoch: s.root.Epoch, Kind: k, FirstT: t, Prev: s.head.Pos}, txs, false)
	s.must(err)
	s.head = log.Head{Pos: o.Pos(), LastT: o.LastT()}
	return o
}

// there reports whether the object is in the store, as another process sees it.
func (s *setup) there(o *log.Object) bool {
	s.Helper()
	_, err := s.server.Open("main", mem.Options{}).Get(s.ctx, s.root.Instance, o.Key())
	if err != nil && !errors.Is(err, log.ErrNotFound) {
		s.Fatal(err)
	}
	return err == nil
}

func TestServerKeepsNamesApart(t *testing.T) {
	s := newSetup(t, mem.Options{})
	if _, err := s.server.Open("other", mem.Options{}).Root(s.ctx); !errors.Is(err, log.ErrNoRoot) {
		t.Fatal(err)
	}
	s.must(s.l.Close())
	if r, err := s.server.Open("main", mem.Options{}).Root(s.ctx); err != nil || *r != *s.root {
		t.Fatalf("reopened: %+v, %v", r, err)
	}
	if _, err := mem.NewServer().Open("main", mem.Options{}).Root(s.ctx); !errors.Is(err, log.ErrNoRoot) {
		t.Fatal(err)
	}
}

func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const d = 2 * time.Millisecond
		s := newSetup(t, mem.Options{Delay: d})
		o := s.next(log.KindBatch)
		c := log.Check{Instance: s.root.Instance, Epoch: 1, Claim: s.root.Claim}
		for _, call := range []struct {
			name string
			want time.Duration
			do   func() error
		}{
			{"Append", d, func() error { return s.l.Append(s.ctx, s.root.Instance, o) }},
			{"AppendVerify", 2 * d, func() error { a, v := s.l.AppendVerify(s.ctx, o, c); return errors.Join(a, v) }},
			{"Verify", d, func() error { return s.l.Verify(s.ctx, c) }},
			{"Root", d, func() error { _, err := s.l.Root(s.ctx); return err }},
			{"Get", d, func() error { _, err := s.l.Get(s.ctx, s.root.Instance, o.Key()); return err }},
		} {
			begun := time.Now()
			s.must(call.do())
			if took := time.Since(begun); took != call.want {
				t.Errorf("%s took %s, want %s", call.name, took, call.want)
			}
		}
		// A context that ends first ends the call, and nothing was written.
		ctx, cancel := context.WithTimeout(s.ctx, d/2)
		defer cancel()
		late := s.next(log.KindBatch)
		begun := time.Now()
		err := s.l.Append(ctx, s.root.Instance, late)
		if !errors.Is(err, context.DeadlineExceeded) || log.OutcomeOf(err) != log.NotWritten || time.Since(begun) != d/2 {
			t.Errorf("after %s: %v, outcome %s", time.Since(begun), err, log.OutcomeOf(err))
		}
		synctest.Wait()
		if s.there(late) {
			t.Error("it was written nevertheless")
		}
		// So does closing the handle.
		result := make(chan error)
		go func() { result <- s.l.Append(s.ctx, s.root.Instance, late) }()
		synctest.Wait()
		s.must(s.l.Close())
		if err := <-result; !errors.Is(err, log.ErrClosed) {
			t.Error(err)
		}
	})
}

// fail gives the handle's next calls these faults, one each.
func (s *setup) fail(faults ...mem.Fault) {
	s.l.SetHook(func(mem.Call) mem.Fault {
		if len(faults) == 0 {
			return mem.Fault{}
		}
		f := faults[0]
		faults = faults[1:]
		return f
	})
}

func TestFaultFail(t *testing.T) {
	s := newSetup(t, mem.Options{})
	boom := errors.New("boom")
	o := s.next(log.KindBatch)
	for _, want := range []log.Outcome{log.Unknown, log.NotWritten, log.Rejected} {
		s.fail(mem.Fault{Fail: log.WithOutcome(want, boom)})
		err := s.l.Append(s.ctx, s.root.Instance, o)
		if !errors.Is(err, boom) || log.OutcomeOf(err) != want || s.there(o) {
			t.Fatalf("%v, outcome %s, there: %t", err, log.OutcomeOf(err), s.there(o))
		}
	}
	s.must(s.l.Append(s.ctx, s.root.Instance, o))
}

func TestFaultLose(t *testing.T) {
	s := newSetup(t, mem.Options{})
	boom := errors.New("boom")
	o := s.next(log.KindBatch)
	s.fail(mem.Fault{Lose: boom}, mem.Fault{Lose: boom})
	if err := s.l.Append(s.ctx, s.root.Instance, o); !errors.Is(err, boom) || log.OutcomeOf(err) != log.Unknown || !s.there(o) {
		t.Fatalf("%v, there: %t", err, s.there(o))
	}
	next := s.root.Next()
	if err := s.l.CompareAndSwap(s.ctx, s.root, next); !errors.Is(err, boom) {
		t.Fatal(err)
	}
	if r, err := s.l.Root(s.ctx); err != nil || *r != *next {
		t.Fatalf("%+v, %v", r, err)
	}
}

func TestFaultHold(t *testing.T) {
	s := newSetup(t, mem.Options{})
	var first, second mem.Held
	a, b := s.next(log.KindBatch), s.next(log.KindBatch)
	s.fail(mem.Fault{Hold: &first}, mem.Fault{Hold: &second})
	for _, o := range []*log.Object{a, b} {
		if err := s.l.Append(s.ctx, s.root.Instance, o); err == nil || log.OutcomeOf(err) != log.Unknown || s.there(o) {
			t.Fatalf("%v, there: %t", err, s.there(o))
		}
	}
	s.must(s.l.Close())
	s.must(second.Land())
	if s.there(a) || !s.there(b) {
		t.Fatal("the wrong one landed")
	}
	s.must(first.Land())
	if !s.there(a) {
		t.Fatal("it did not land")
	}
	if err := first.Land(); err == nil {
		t.Fatal("it landed twice")
	}
}

func TestFaultTwice(t *testing.T) {
	s := newSetup(t, mem.Options{})
	s.fail(mem.Fault{Twice: true}, mem.Fault{Twice: true})
	s.must(s.l.Append(s.ctx, s.root.Instance, s.next(log.KindBatch)))
	next := s.root.Next()
	if err := s.l.CompareAndSwap(s.ctx, s.root, next); !errors.Is(err, log.ErrConflict) {
		t.Fatalf("the second delivery of a swap: %v", err)
	}
	if r, err := s.l.Root(s.ctx); err != nil || *r != *next {
		t.Fatalf("%+v, %v", r, err)
	}
}

func TestFaultDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, mem.Options{})
		s.fail(mem.Fault{Delay: time.Second})
		begun := time.Now()
		s.must(s.l.Append(s.ctx, s.root.Instance, s.next(log.KindBatch)))
		if time.Since(begun) != time.Second {
			t.Fatal(time.Since(begun))
		}
	})
}

func TestHookSeesEveryCall(t *testing.T) {
	s := newSetup(t, mem.Options{})
	var seen []mem.Op
	var seq uint64
	s.l.SetHook(func(c mem.Call) mem.Fault {
		if seen = append(seen, c.Op); seq > 0 && c.Seq != seq+1 {
			t.Errorf("call %d behind %d", c.Seq, seq)
		}
		seq = c.Seq
		return mem.Fault{}
	})
	o := s.next(log.KindBatch)
	a, v := s.l.AppendVerify(s.ctx, o, log.Check{Instance: s.root.Instance, Epoch: 1, Claim: s.root.Claim})
	s.must(errors.Join(a, v))
	for range s.l.Read(s.ctx, s.root.Instance, log.Key{}) {
	}
	for range s.l.List(s.ctx, s.root.Instance, log.Key{}) {
	}
	want := []mem.Op{mem.OpAppend, mem.OpVerify, mem.OpRead, mem.OpList}
	for i, op := range want {
		if i >= len(seen) || seen[i] != op {
			t.Fatalf("seen %v, want %v", seen, want)
		}
	}
}

// A frozen handle stands still, before and behind the effects of its calls; others do not.
func TestFreeze(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, mem.Options{})
		pending, waiting, given := s.next(log.KindBatch), s.next(log.KindBatch), s.next(log.KindBatch)
		other := s.server.Open("main", mem.Options{})
		results := make(chan error, 2)
		// This one is on its way when the freeze comes.
		s.l.SetHook(func(c mem.Call) mem.Fault {
			s.l.SetHook(nil)
			return mem.Fault{Delay: time.Second}
		})
		go func() { results <- s.l.Append(s.ctx, s.root.Instance, pending) }()
		synctest.Wait()
		s.l.Freeze()
		s.l.Freeze()
		go func() { results <- s.l.Append(s.ctx, s.root.Instance, waiting) }()
		ctx, cancel := context.WithTimeout(s.ctx, 2*time.Second)
		defer cancel()
		err := s.l.Append(ctx, s.root.Instance, given)
		if !errors.Is(err, context.DeadlineExceeded) || log.OutcomeOf(err) != log.Unknown {
			t.Fatalf("%v, outcome %s", err, log.OutcomeOf(err))
		}
		for _, o := range []*log.Object{pending, waiting, given} {
			if s.there(o) {
				t.Fatalf("%s landed while the handle was frozen", o.Key())
			}
		}
		s.must(other.Verify(s.ctx, log.Check{Instance: s.root.Instance, Epoch: 1, Claim: s.root.Claim}))
		if len(results) > 0 {
			t.Fatal("a call of a frozen handle returned")
		}
		s.l.Thaw()
		s.l.Thaw()
		for range 2 {
			s.must(<-results)
		}
		for _, o := range []*log.Object{pending, waiting, given} {
			if !s.there(o) {
				t.Fatalf("%s did not land", o.Key())
			}
		}
		s.must(s.l.Verify(s.ctx, log.Check{Instance: s.root.Instance, Epoch: 1, Claim: s.root.Claim}))
	})
}

func TestDamage(t *testing.T) {
	s := newSetup(t, mem.Options{})
	o := s.next(log.KindBatch)
	restore := s.l.Backup()
	s.must(s.l.Append(s.ctx, s.root.Instance, o))
	c := log.Check{Instance: s.root.Instance, Epoch: 1, Claim: s.root.Claim, Keys: []log.Key{o.Key()}}
	s.must(s.l.Verify(s.ctx, c))
	if !s.l.Remove(s.root.Instance, o.Key()) || s.l.Remove(s.root.Instance, o.Key()) {
		t.Fatal("remove")
	}
	if err := s.l.Verify(s.ctx, c); !errors.Is(err, log.ErrRolledBack) {
		t.Fatal(err)
	}
	s.l.Replace(s.root.Instance, o)
	s.must(s.l.Verify(s.ctx, c))
	restore()
	if s.there(o) {
		t.Fatal("restored, and it is there")
	}
}

func BenchmarkAppend(b *testing.B) {
	l := mem.NewServer().Open("main", mem.Options{})
	inst, lineage, claim := log.NewID(), log.NewID(), log.NewID()
	prev := log.Pos{Key: log.StartKey(1), Hash: log.Hash{1}}
	var objs []*log.Object
	for i := range uint64(1 << 16) {
		t := i + 1
		o, err := log.Encode(log.Header{Lineage: lineage, Claim: claim, Epoch: 1, Kind: log.KindBatch, FirstT: t, Prev: prev}, []*datom.Tx{{T: t}}, false)
		if err != nil {
			b.Fatal(err)
		}
		prev = o.Pos()
		objs = append(objs, o)
	}
	ctx := b.Context()
	i := 0
	for b.Loop() {
		if i == len(objs) {
			if err := l.Delete(ctx, inst, log.MaxKey); err != nil {
				b.Fatal(err)
			}
			i = 0
		}
		if err := l.Append(ctx, inst, objs[i]); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

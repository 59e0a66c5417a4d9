package logtest

import (
	"context"
	"fmt"
	"slices"

	"github.com/steledb/stele/log"
)

var appendCases = []testCase{
	{"Append_IsIdempotent", appendIdempotent},
	{"Append_OneOfSixteenWins", appendRace},
	{"Append_TheSameSixteenTimes", appendSameRace},
	{"Append_InAnyOrder", appendAnyOrder},
	{"Append_ConcurrentlyToDepth", appendDepth},
	{"Append_ShownAtOnceEverywhere", appendLinearizable},
	{"Append_KeepsInstancesApart", appendInstances},
	{"Append_LargeAndCompressed", appendLarge},
	{"AppendVerify_InThisOrder", appendVerify},
	{"Verify_Verdicts", verifyVerdicts},
	{"Verify_SealedKeysMayBeGone", verifySealed},
}

func appendIdempotent(s *suite) {
	l := s.handle()
	o := s.own(l)
	a, b := o.batch(2), o.batch(1)
	o.append(a, a, b, a, b)
	decoded, err := log.Decode(slices.Clone(a.Bytes()))
	s.must(err, "decode")
	o.append(decoded) // the same bytes, elsewhere in memory
	err = o.Append(s.ctx, o.root.Instance, o.other(a, "another"))
	s.wants(err, log.ErrConflict, "another object at the same key")
	if out := log.OutcomeOf(err); out != log.Rejected {
		s.Fatalf("a conflict's outcome is %q", out)
	}
	got, err := o.Get(s.ctx, o.root.Instance, a.Key())
	s.must(err, "get")
	if got.Hash() != a.Hash() {
		s.Fatal("the first object was changed")
	}
	if n := len(s.keys(s.ctx, l, o.root.Instance, log.Key{})); n != 3 {
		s.Fatalf("%d objects", n)
	}
}

// appenders are handles that may append at once.
func (o *owner) appenders(n int) []log.Log {
	o.Helper()
	out := make([]log.Log, n)
	for i := range out {
		if out[i] = o.Log; !o.b.OneWriter {
			out[i] = o.handle()
		}
	}
	return out
}

func appendRace(s *suite) {
	o := s.own(s.handle())
	handles := o.appenders(16)
	for range 8 {
		objs := make([]*log.Object, len(handles))
		next := o.batch(1)
		for i := range objs {
			objs[i] = o.other(next, fmt.Sprintf("racer %d", i))
		}
		won := s.oneWinner(inParallel(len(objs), func(i int) error { return handles[i].Append(s.ctx, o.root.Instance, objs[i]) }))
		got, err := s.handle().Get(s.ctx, o.root.Instance, next.Key())
		s.must(err, "get")
		if got.Hash() != objs[won].Hash() {
			s.Fatal("what is there is not the winner's")
		}
		o.head = log.Head{Pos: got.Pos(), LastT: got.LastT()}
	}
}

func appendSameRace(s *suite) {
	o := s.own(s.handle())
	handles := o.appenders(16)
	for range 4 {
		obj := o.batch(1)
		for _, err := range inParallel(len(handles), func(i int) error { return handles[i].Append(s.ctx, o.root.Instance, obj) }) {
			s.must(err, "append the same object as others do")
		}
	}
}

func appendAnyOrder(s *suite) {
	l := s.handle()
	o := s.own(l)
	objs := o.batches(7)
	for _, i := range []int{6, 2, 4, 0, 5, 1, 3} {
		o.append(objs[i])
	}
	want := append([]log.Key{log.StartKey(1)}, keysOf(objs)...)
	for _, l := range []log.Log{l, s.handle()} {
		if got := s.keys(s.ctx, l, o.root.Instance, log.Key{}); !slices.Equal(got, want) {
			s.Fatalf("listed %v, want %v", got, want)
		}
		if got := keysOf(s.objects(s.ctx, l, o.root.Instance, log.Key{})); !slices.Equal(got, want) {
			s.Fatalf("read %v, want %v", got, want)
		}
	}
}

func appendDepth(s *suite) {
	l := s.handle()
	o := s.own(l)
	objs := o.batches(max(64, 2*l.Info().Depth))
	for _, err := range inParallel(len(objs), func(i int) error { return l.Append(s.ctx, o.root.Instance, objs[i]) }) {
		s.must(err, "append")
	}
	if got := s.objects(s.ctx, s.handle(), o.root.Instance, log.StartKey(1)); !slices.EqualFunc(got, objs, sameObject) {
		s.Fatalf("%d objects are not the %d that were appended", len(got), len(objs))
	}
}

func sameObject(a, b *log.Object) bool { return a.Hash() == b.Hash() }

func appendLinearizable(s *suite) {
	o, b := s.own(s.handle()), s.handle()
	for range 20 {
		obj := o.batch(1)
		_, err := b.Get(s.ctx, o.root.Instance, obj.Key())
		s.wants(err, log.ErrNotFound, "get before the append")
		o.append(obj)
		for _, l := range []log.Log{o.Log, b} {
			got, err := l.Get(s.ctx, o.root.Instance, obj.Key())
			s.must(err, "get after the append")
			if !sameObject(got, obj) || got.Key() != obj.Key() {
				s.Fatalf("got %s", got.Key())
			}
			before := log.Key{Epoch: obj.Epoch, FirstT: obj.FirstT - 1}
			if keys := s.keys(s.ctx, l, o.root.Instance, before); !slices.Equal(keys, []log.Key{obj.Key()}) {
				s.Fatalf("a listing after the append has %v behind %s", keys, before)
			}
			if objs := s.objects(s.ctx, l, o.root.Instance, before); len(objs) != 1 || !sameObject(objs[0], obj) {
				s.Fatalf("a read after the append has %v behind %s", keysOf(objs), before)
			}
			s.must(l.Verify(s.ctx, o.check(obj.Key())), "verify after the append")
		}
	}
}

func appendInstances(s *suite) {
	l := s.handle()
	o := s.own(l)
	obj := o.batch(1)
	o.append(obj)
	elsewhere := log.NewID()
	_, err := l.Get(s.ctx, elsewhere, obj.Key())
	s.wants(err, log.ErrNotFound, "get from another instance")
	if keys := s.keys(s.ctx, l, elsewhere, log.Key{}); len(keys) > 0 {
		s.Fatalf("another instance has %v", keys)
	}
	if objs := s.objects(s.ctx, l, elsewhere, log.Key{}); len(objs) > 0 {
		s.Fatalf("another instance has %v", keysOf(objs))
	}
	copied := o.other(obj, "of another life")
	s.must(l.Append(s.ctx, elsewhere, copied), "append the key to another instance")
	for inst, want := range map[log.ID]*log.Object{o.root.Instance: obj, elsewhere: copied} {
		got, err := l.Get(s.ctx, inst, obj.Key())
		s.must(err, "get")
		if !sameObject(got, want) {
			s.Fatal("two instances meet")
		}
	}
	s.must(l.Delete(s.ctx, elsewhere, log.MaxKey), "delete another instance")
	if _, err := l.Get(s.ctx, o.root.Instance, obj.Key()); err != nil {
		s.Fatalf("deleting one instance took from another: %v", err)
	}
}

func appendLarge(s *suite) {
	l := s.handle()
	o := s.own(l)
	for _, compress := range []bool{false, true} {
		txs := transactions(o.head.LastT+1, 2000, string(make([]byte, 2000)))
		obj, err := log.Encode(log.Header{Lineage: o.root.Lineage, Claim: o.root.Claim, Epoch: o.root.Epoch, Kind: log.KindBatch,
			FirstT: o.head.LastT + 1, Prev: o.head.Pos}, txs, compress)
		s.must(err, "encode")
		o.append(obj)
		o.head = log.Head{Pos: obj.Pos(), LastT: obj.LastT()}
		got, err := s.handle().Get(s.ctx, o.root.Instance, obj.Key())
		s.must(err, "get")
		if !slices.Equal(got.Bytes(), obj.Bytes()) {
			s.Fatalf("%d bytes came back as %d others", obj.Size(), got.Size())
		}
		read, err := got.AppendTxs(nil)
		s.must(err, "decode")
		if len(read) != len(txs) {
			s.Fatalf("%d transactions", len(read))
		}
	}
}

func appendVerify(s *suite) {
	l := s.handle()
	o := s.own(l)
	a := o.batch(1)
	for range 2 {
		if aerr, verr := l.AppendVerify(s.ctx, a, o.check(a.Key())); aerr != nil || verr != nil {
			s.Fatalf("append: %v, verify: %v", aerr, verr)
		}
	}
	aerr, _ := l.AppendVerify(s.ctx, o.other(a, "another"), o.check())
	s.wants(aerr, log.ErrConflict, "append another object at the same key")
	if out := log.OutcomeOf(aerr); out != log.Rejected {
		s.Fatalf("a conflict's outcome is %q", out)
	}
	// Somebody takes the next epoch: the object lands all the same, and the Verify behind it says so.
	before := o.check()
	o.swap(func(r *log.Root) { *r = *o.root.Acquire(log.NewID(), "another") })
	b := o.batchUnder(before)
	aerr, verr := l.AppendVerify(s.ctx, b, before)
	s.must(aerr, "append")
	s.wants(verr, log.ErrNotOwner, "verify behind it")
	if _, err := l.Get(s.ctx, o.root.Instance, b.Key()); err != nil {
		s.Fatalf("the object is not there: %v", err)
	}
}

// batchUnder is the next batch of an owner whose epoch is c's.
func (o *owner) batchUnder(c log.Check) *log.Object {
	o.Helper()
	obj, err := log.Encode(log.Header{Lineage: o.root.Lineage, Claim: c.Claim, Epoch: c.Epoch, Kind: log.KindBatch,
		FirstT: o.head.LastT + 1, Prev: o.head.Pos}, transactions(o.head.LastT+1, 1, "late"), false)
	o.must(err, "encode")
	return obj
}

func verifyVerdicts(s *suite) {
	l := s.handle()
	s.wants(l.Verify(s.ctx, log.Check{Instance: log.NewID(), Epoch: 1, Claim: log.NewID()}), log.ErrNotOwner, "verify without a root")
	o := s.own(l)
	a := o.batch(1)
	o.append(a)
	s.must(l.Verify(s.ctx, o.check()), "verify")
	s.must(l.Verify(s.ctx, o.check(log.StartKey(1), a.Key())), "verify with keys")
	for what, change := range map[string]func(*log.Check){
		"another instance": func(c *log.Check) { c.Instance = log.NewID() },
		"an older epoch":   func(c *log.Check) { c.Epoch-- },
		"a later epoch":    func(c *log.Check) { c.Epoch++ },
		"another claim":    func(c *log.Check) { c.Claim = log.NewID() },
	} {
		c := o.check(a.Key())
		change(&c)
		err := s.handle().Verify(s.ctx, c)
		s.wants(err, log.ErrNotOwner, "verify for %s", what)
		if out := log.OutcomeOf(err); out != log.Rejected {
			s.Fatalf("not the owner is %q", out)
		}
	}
	// A lease that is renewed is no change of ownership.
	c := o.check(a.Key())
	o.swap(func(r *log.Root) { r.LeaseCounter++ })
	s.must(l.Verify(s.ctx, c), "verify after the lease was renewed")
	ended, cancel := context.WithCancel(s.ctx)
	cancel()
	err := l.Verify(ended, c)
	s.wants(err, context.Canceled, "verify with a context that has ended")
}

func verifySealed(s *suite) {
	l := s.handle()
	o := s.own(l)
	objs := o.batches(3)
	o.append(objs...)
	sealed := objs[1]
	o.swap(func(r *log.Root) {
		r.Sealed = log.Sealed{Epoch: sealed.Epoch, FirstT: sealed.FirstT, LastT: sealed.LastT(), Hash: sealed.Hash()}
	})
	s.must(l.Delete(s.ctx, o.root.Instance, sealed.Key()), "delete what is sealed")
	s.must(l.Verify(s.ctx, o.check(log.StartKey(1), objs[0].Key(), objs[1].Key(), objs[2].Key())), "verify keys that are sealed")
	if got := s.objects(s.ctx, l, o.root.Instance, sealed.Key()); len(got) != 1 || !sameObject(got[0], objs[2]) {
		s.Fatalf("behind the sealed position are %v", keysOf(got))
	}
}

package logtest

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/steledb/stele/log"
)

var chainCases = []testCase{
	{"Chain_L8_ReaderBesideTakeovers", readerBesideTakeovers},
	{"Chain_L5_ZombiesOfEveryEpoch", zombies},
	{"Chain_L3_FrozenWriterWakes", frozenWriter},
	{"Chain_L5_EveryOrderOfLanding", ordersOfLanding},
	{"Chain_ReopenedIsTheSame", reopened},
}

// readerBesideTakeovers lets owners follow each other, each dying with objects in flight, while readers read all the time: what a reader
// is handed is always a prefix of the log that the last owner finds.
func readerBesideTakeovers(s *suite) {
	const readers, terms, batches = 3, 6, 12
	done := make(chan struct{})
	got := make([][]*log.Object, readers)
	ready := s.own(s.handle())
	ready.release()
	var wg sync.WaitGroup
	for i := range readers {
		r := log.NewReader(s.handle(), log.ReaderOptions{Buffer: 1000})
		wg.Go(func() {
			for last := false; !last; {
				select {
				case <-done:
					last = true
				default:
				}
				if _, err := r.Sync(s.ctx, func(o *log.Object) error { got[i] = append(got[i], o); return nil }); err != nil {
					s.Errorf("reader %d: %v", i, err)
					return
				}
			}
		})
	}
	var acked []*log.Object
	run := func() error {
		defer close(done)
		for range terms {
			o, err := s.takeOver(s.handle())
			if err != nil {
				return err
			}
			objs := o.batches(batches)
			for _, i := range []int{1, 0, 2, 4, 3, 5, 7, 8} { // 6 and what lies behind 8 never land
				if err := o.Append(s.ctx, o.root.Instance, objs[i]); err != nil {
					return err
				}
			}
			if err := o.Verify(s.ctx, o.check(keysOf(objs[:6])...)); err != nil {
				return err
			}
			acked = append(acked, objs[:6]...)
			o.release()
		}
		o, err := s.takeOver(s.handle())
		if err != nil {
			return err
		}
		for _, obj := range acked {
			if !slices.ContainsFunc(o.chain, func(o *log.Object) bool { return sameObject(o, obj) }) {
				return fmt.Errorf("%s was acknowledged, and the last owner has %v", obj.Key(), keysOf(o.chain))
			}
		}
		acked = o.chain
		return nil
	}
	err := run()
	wg.Wait()
	s.must(err, "owners")
	for i := range got {
		if !slices.EqualFunc(got[i], acked, sameObject) {
			s.Fatalf("reader %d was handed %v, and the log is %v", i, keysOf(got[i]), keysOf(acked))
		}
	}
}

// zombies: every owner that was deposed goes on writing. Where the store lets only one handle write there are none.
func zombies(s *suite) {
	var deposed []*owner
	for range 4 {
		o := s.own(s.handle())
		o.append(o.batch(1), o.batch(2))
		deposed = append(deposed, o)
		if s.b.OneWriter {
			late := o.batch(1)
			o.release()
			if err := o.Append(s.ctx, o.root.Instance, late); err == nil || log.OutcomeOf(err) == log.Unknown {
				s.Fatalf("who gave the lock back may still write: %v", err)
			}
		}
		if !s.b.OneWriter {
			for _, z := range deposed[:len(deposed)-1] {
				aerr, verr := z.AppendVerify(s.ctx, z.batch(1), z.check())
				s.must(aerr, "a deposed owner's append")
				s.wants(verr, log.ErrNotOwner, "a deposed owner's verify")
			}
		}
	}
	if s.b.OneWriter {
		deposed = nil
	}
	for _, z := range deposed {
		_ = z.unlock()
	}
	o := s.own(s.handle())
	want := []string{}
	for e := 1; e <= 4; e++ {
		want = append(want, fmt.Sprintf("%d start", e), fmt.Sprintf("%d batch", e), fmt.Sprintf("%d batch", e))
	}
	want = append(want, "5 start")
	var have []string
	for _, obj := range o.chain {
		have = append(have, fmt.Sprintf("%d %s", obj.Epoch, obj.Kind))
	}
	if !slices.Equal(have, want) {
		s.Fatalf("the log is %v, want %v", have, want)
	}
}

func reopened(s *suite) {
	var chain []*log.Object
	for i := range 4 {
		l := s.open()
		o, err := s.takeOver(l)
		s.must(err, "open %d", i)
		if !slices.EqualFunc(o.chain[:len(chain)], chain, sameObject) || len(o.chain) != len(chain)+1 {
			s.Fatalf("found %v, want %v", keysOf(o.chain), keysOf(chain))
		}
		objs := o.batches(5)
		o.append(objs...)
		chain = append(o.chain, objs...)
		// Without giving the lock back: closing does that.
		s.must(l.Close(), "close")
		o.unlock = nil
		if err := l.Append(s.ctx, o.root.Instance, objs[0]); !errors.Is(err, log.ErrClosed) {
			s.Fatalf("append to a closed handle: %v", err)
		}
	}
}

// frozenWriter: an owner stops in the middle of its work; two others take over, one after the other; then it wakes and goes on as if nothing
// had happened. Nothing of what it writes now is ever seen, and the log tells it which of its open batches landed.
func frozenWriter(s *suite) {
	a := s.own(s.handle())
	acked := a.batches(2)
	a.append(acked...)
	s.must(a.Verify(s.ctx, a.check(keysOf(acked)...)), "verify")
	proven := a.head
	a.fenced = a.head.LastT
	open := a.batches(5)
	a.append(open[0], open[2]) // 1 is on its way when it stops; 3 and 4 were not sent
	if s.b.OneWriter {
		a.release() // there, who is stopped keeps the lock: only its death brings others
	}
	reader := log.NewReader(s.handle(), log.ReaderOptions{})
	var seen []*log.Object
	follow := func() {
		s.Helper()
		_, err := reader.Sync(s.ctx, func(o *log.Object) error { seen = append(seen, o); return nil })
		s.must(err, "read")
	}
	follow()
	want := append(slices.Clone(a.chain), append(acked, open[0])...)
	for range 2 {
		o := s.own(s.handle())
		if !slices.EqualFunc(o.chain[:len(o.chain)-1], want, sameObject) {
			s.Fatalf("epoch %d found %v, want %v", o.root.Epoch, keysOf(o.chain), keysOf(want))
		}
		next := o.batch(2)
		o.append(next)
		s.must(o.Verify(s.ctx, o.check(next.Key())), "verify")
		want = append(o.chain, next)
		o.release()
	}
	for _, obj := range open { // it wakes
		err, verr := a.AppendVerify(s.ctx, obj, a.check())
		switch {
		case s.b.OneWriter && (err == nil || log.OutcomeOf(err) == log.Unknown):
			s.Fatalf("who lost the lock may still write: %v", err)
		case !s.b.OneWriter:
			s.must(err, "append, late")
			s.wants(verr, log.ErrNotOwner, "verify, deposed")
		}
	}
	s.wants(a.Verify(s.ctx, a.check(keysOf(acked)...)), log.ErrNotOwner, "verify, deposed")
	renewed := a.root.Next()
	renewed.LeaseCounter++
	s.wants(a.CompareAndSwap(s.ctx, a.root, renewed), log.ErrConflict, "renew a lease that is lost")
	_, err := log.Recover(s.ctx, a, a.root, proven, func(*log.Object) error { return nil })
	s.wants(err, log.ErrNotOwner, "recover, deposed")
	// The fate of its open batches, from what it had proven on.
	landed := map[log.Hash]bool{}
	_, err = log.NewReader(a, log.ReaderOptions{From: proven, Instance: a.root.Instance}).Sync(s.ctx, func(o *log.Object) error {
		landed[o.Hash()] = true
		return nil
	})
	s.must(err, "read on from what was proven")
	for i, obj := range open {
		if landed[obj.Hash()] != (i == 0) {
			s.Fatalf("open batch %d landed: %t", i, landed[obj.Hash()])
		}
	}
	follow()
	if o := s.own(s.handle()); !slices.EqualFunc(o.chain[:len(o.chain)-1], want, sameObject) || !slices.EqualFunc(seen, want, sameObject) {
		s.Fatalf("the next owner finds %v, a reader was handed %v, want %v", keysOf(o.chain), keysOf(seen), keysOf(want))
	}
}

package logtest

import (
	"context"
	"slices"

	"github.com/steledb/stele/log"
)

var ownerCases = []testCase{
	{"Lock_GuardsOwnership", lockGuards},
	{"Lock_WaitsUntilItIsGivenBack", lockWaits},
	{"Lock_EndsWithTheHandle", lockEndsWithHandle},
	{"Adopt_ThenGoOn", adopt},
}

func lockGuards(s *suite) {
	a, b := s.handle(), s.handle()
	unlock, err := a.Lock(s.ctx, false)
	s.must(err, "lock")
	second, err := b.Lock(s.ctx, false)
	switch {
	case s.b.OneWriter:
		s.wants(err, log.ErrOwned, "lock what is locked")
		ended, cancel := context.WithCancel(s.ctx)
		cancel()
		if _, err = b.Lock(ended, true); err == nil {
			s.Fatal("a lock that was waited for came although another holds it")
		}
	case err != nil:
		s.Fatalf("a store without a guard refuses: %v", err)
	default:
		s.must(second(), "unlock")
	}
	s.must(unlock(), "unlock")
	unlock, err = b.Lock(s.ctx, false)
	s.must(err, "lock what was given back")
	s.must(unlock(), "unlock")
}

func lockWaits(s *suite) {
	a, b := s.handle(), s.handle()
	unlock, err := a.Lock(s.ctx, true)
	s.must(err, "lock")
	waiting := make(chan struct{})
	got := make(chan error, 1)
	go func() {
		close(waiting)
		unlock, err := b.Lock(s.ctx, true)
		if err == nil {
			err = unlock()
		}
		got <- err
	}()
	<-waiting
	s.must(unlock(), "unlock")
	s.must(<-got, "lock, after waiting")
}

func lockEndsWithHandle(s *suite) {
	a, b := s.handle(), s.handle()
	_, err := a.Lock(s.ctx, true)
	s.must(err, "lock")
	s.must(a.Close(), "close")
	unlock, err := b.Lock(s.ctx, false)
	s.must(err, "lock after the holder was closed")
	s.must(unlock(), "unlock")
}

// adopt: an owner dies with objects in flight behind a gap; the next ones build on what they find, whatever a store repairs.
func adopt(s *suite) {
	l := s.handle()
	o := s.own(l)
	objs := o.batches(3)
	o.append(objs...)
	o.fenced = o.head.LastT
	o.batch(1) // is never sent
	behind := o.batches(2)
	o.append(behind...)
	chain := append(o.chain, objs...)
	o.release()
	for range 3 {
		p := s.own(s.handle())
		if !slices.EqualFunc(p.chain[:len(p.chain)-1], chain, sameObject) {
			s.Fatalf("epoch %d found %v, want %v", p.root.Epoch, keysOf(p.chain), keysOf(chain))
		}
		obj := p.batch(1)
		p.append(obj)
		chain = append(p.chain, obj)
		p.release()
		s.must(p.Close(), "close")
	}
	// An owner that adopts and then dies before its start is no different.
	p, err := s.acquire(l)
	s.must(err, "take the next epoch")
	found, err := log.Recover(s.ctx, l, p.root, log.Head{}, func(*log.Object) error { return nil })
	s.must(err, "recover")
	for range 2 {
		_, err = l.Adopt(s.ctx, p.root.Instance, found.Head.Pos, found.Unfenced)
		s.must(err, "adopt")
	}
	p.release()
	q := s.own(l)
	if !slices.EqualFunc(q.chain[:len(q.chain)-1], chain, sameObject) {
		s.Fatalf("epoch %d found %v, want %v", q.root.Epoch, keysOf(q.chain), keysOf(chain))
	}
}

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
	{"Chain_CopiedByteForByte", copied},
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

// copied: objects copied byte for byte form the same log, under a root with an instance of its own.
func copied(s *suite) {
	src := s.handle()
	for range 3 {
		o := s.own(src)
		o.append(o.batch(2), o.batch(1))
		o.release()
	}
	to := &suite{T: s.T, b: s.b, open: s.b.New(s.T), ctx: s.ctx}
	dst := to.handle()
	unlock, err := dst.Lock(s.ctx, true)
	s.must(err, "lock the copy")
	var head log.Head
	inst := log.NewID()
	st, err := log.NewReader(src, log.ReaderOptions{}).Sync(s.ctx, func(o *log.Object) error {
		c, err := log.Decode(slices.Clone(o.Bytes()))
		if err != nil {
			return err
		}
		if head, err = head.Follow(o); err != nil {
			return err
		}
		return dst.Append(s.ctx, inst, c)
	})
	s.must(err, "copy")
	root := &log.Root{Version: 1, Format: st.Root.Format, Lineage: st.Root.Lineage, Instance: inst, Epoch: st.Root.Epoch + 1, Claim: log.NewID()}
	start, err := log.Encode(log.Header{Lineage: root.Lineage, Claim: root.Claim, Epoch: root.Epoch, Kind: log.KindStart,
		FirstT: head.LastT + 1, Prev: head.Pos}, nil, false)
	s.must(err, "encode the copy's start")
	s.must(dst.Append(s.ctx, inst, start), "append the copy's start")
	s.must(dst.CompareAndSwap(s.ctx, nil, root), "create the copy's root")
	s.must(unlock(), "unlock")
	want := append(s.objects(s.ctx, src, st.Root.Instance, log.Key{}), start)
	var got []*log.Object
	_, err = log.NewReader(to.handle(), log.ReaderOptions{}).Sync(s.ctx, func(o *log.Object) error { got = append(got, o); return nil })
	s.must(err, "read the copy")
	if !slices.EqualFunc(got, want, sameObject) {
		s.Fatalf("the copy is %v, want %v", keysOf(got), keysOf(want))
	}
	o := to.own(dst)
	if !slices.EqualFunc(o.chain[:len(o.chain)-1], want, sameObject) {
		s.Fatalf("the copy's owner finds %v, want %v", keysOf(o.chain), keysOf(want))
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

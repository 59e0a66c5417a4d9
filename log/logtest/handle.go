package logtest

import (
	"context"
	"errors"
	"sync"

	"github.com/steledb/stele/log"
)

var handleCases = []testCase{
	{"Info_SaysWhatItIs", info},
	{"Context_EveryMethodReturns", contexts},
	{"Context_EndsWhileAppending", contextEndsWhileAppending},
	{"Context_EndsWhileReading", contextEndsWhileReading},
	{"Close_LaterCallsFail", closed},
	{"Close_EndsCallsUnderWay", closeEndsCalls},
}

func info(s *suite) {
	l := s.handle()
	i := l.Info()
	if i.Backend == "" || i.Location == "" || i.Durability == "" || i.Depth < 1 {
		s.Fatalf("%+v leaves something out", i)
	}
	o := s.own(l)
	o.append(o.batch(1))
	if again := l.Info(); again != i {
		s.Fatalf("%+v became %+v", i, again)
	}
}

// call is a method of log.Log, called on a database with an owner.
type call struct {
	name string
	do   func(ctx context.Context, l log.Log) error
}

// calls are all methods that speak with the store. What they write is obj and a root that changes nothing but its version.
func (o *owner) calls(obj *log.Object) []call {
	inst := o.root.Instance
	return []call{
		{"Root", func(ctx context.Context, l log.Log) error { _, err := l.Root(ctx); return err }},
		{"RootAge", func(ctx context.Context, l log.Log) error { _, _, err := l.RootAge(ctx); return err }},
		{"CompareAndSwap", func(ctx context.Context, l log.Log) error { return l.CompareAndSwap(ctx, o.root, o.root.Next()) }},
		{"Append", func(ctx context.Context, l log.Log) error { return l.Append(ctx, inst, obj) }},
		{"AppendVerify", func(ctx context.Context, l log.Log) error {
			aerr, verr := l.AppendVerify(ctx, obj, o.check())
			return errors.Join(aerr, verr)
		}},
		{"Verify", func(ctx context.Context, l log.Log) error { return l.Verify(ctx, o.check()) }},
		{"Get", func(ctx context.Context, l log.Log) error { _, err := l.Get(ctx, inst, log.StartKey(1)); return err }},
		{"List", func(ctx context.Context, l log.Log) error {
			for _, err := range l.List(ctx, inst, log.Key{}) {
				if err != nil {
					return err
				}
			}
			return nil
		}},
		{"Read", func(ctx context.Context, l log.Log) error {
			for _, err := range l.Read(ctx, inst, log.Key{}) {
				if err != nil {
					return err
				}
			}
			return nil
		}},
		{"Adopt", func(ctx context.Context, l log.Log) error {
			_, err := l.Adopt(ctx, inst, o.head.Pos, nil)
			return err
		}},
		{"PutBlob", func(ctx context.Context, l log.Log) error { return l.PutBlob(ctx, inst, "1-x", []byte("x")) }},
		{"GetBlob", func(ctx context.Context, l log.Log) error {
			_, err := l.GetBlob(ctx, inst, "1-there")
			return err
		}},
		{"Delete", func(ctx context.Context, l log.Log) error { return l.Delete(ctx, inst, log.Key{}) }},
		{"Lock", func(ctx context.Context, l log.Log) error {
			unlock, err := l.Lock(ctx, true)
			if err == nil {
				err = unlock()
			}
			return err
		}},
	}
}

func contexts(s *suite) {
	l := s.handle()
	o := s.own(l)
	s.must(l.PutBlob(s.ctx, o.root.Instance, "1-there", []byte("x")), "put a blob")
	ended, cancel := context.WithCancel(s.ctx)
	cancel()
	obj := o.batch(1)
	for _, c := range o.calls(obj) {
		if err := c.do(ended, l); !errors.Is(err, context.Canceled) {
			s.Fatalf("%s with a context that has ended: %v", c.name, err)
		}
	}
	// None of them did harm: the handle works, and what may have been written can be written again.
	for _, c := range o.calls(obj) {
		if c.name == "Lock" && s.b.OneWriter {
			continue // it is held
		}
		if err := c.do(s.ctx, l); err != nil && !(c.name == "CompareAndSwap" && errors.Is(err, log.ErrConflict)) {
			s.Fatalf("%s afterwards: %v", c.name, err)
		}
	}
}

// contextEndsWhileAppending ends contexts at every moment of an append; afterwards the same bytes can be appended and are there.
func contextEndsWhileAppending(s *suite) {
	l := s.handle()
	o := s.own(l)
	for range 50 {
		obj := o.batch(1)
		ctx, cancel := context.WithCancel(s.ctx)
		var wg sync.WaitGroup
		wg.Go(cancel)
		err := l.Append(ctx, o.root.Instance, obj)
		wg.Wait()
		if err != nil && !errors.Is(err, context.Canceled) {
			s.Fatalf("append: %v", err)
		}
		if err != nil && log.OutcomeOf(err) == log.Rejected {
			s.Fatalf("an append that was given up is rejected for ever: %v", err)
		}
		o.append(obj)
		got, err := l.Get(s.ctx, o.root.Instance, obj.Key())
		s.must(err, "get")
		if !sameObject(got, obj) {
			s.Fatal("another object is there")
		}
	}
}

// contextEndsWhileReading: what was read already may still come; then an error, and nothing behind it.
func contextEndsWhileReading(s *suite) {
	l := s.handle()
	o := s.own(l)
	objs := o.batches(100)
	for _, err := range inParallel(len(objs), func(i int) error { return l.Append(s.ctx, o.root.Instance, objs[i]) }) {
		s.must(err, "append")
	}
	read := func(what string, reading func(ctx context.Context, each func(error) bool)) {
		s.Helper()
		ctx, cancel := context.WithCancel(s.ctx)
		defer cancel()
		n, failed := 0, false
		reading(ctx, func(err error) bool {
			n++
			switch {
			case failed:
				s.Fatalf("%s goes on behind an error", what)
			case err != nil && !errors.Is(err, context.Canceled):
				s.Fatalf("%s whose context ended: %v", what, err)
			}
			failed = err != nil
			cancel()
			return true
		})
		if !failed && n != len(objs)+1 {
			s.Fatalf("%s ended behind %d of %d objects as if there were no more", what, n, len(objs)+1)
		}
	}
	read("a reading", func(ctx context.Context, each func(error) bool) {
		for _, err := range l.Read(ctx, o.root.Instance, log.Key{}) {
			if !each(err) {
				return
			}
		}
	})
	read("a listing", func(ctx context.Context, each func(error) bool) {
		for _, err := range l.List(ctx, o.root.Instance, log.Key{}) {
			if !each(err) {
				return
			}
		}
	})
}

func closed(s *suite) {
	l := s.open()
	o := s.own(l)
	o.unlock = nil
	for range 2 {
		s.must(l.Close(), "close")
	}
	for _, c := range o.calls(o.batch(1)) {
		if err := c.do(s.ctx, l); !errors.Is(err, log.ErrClosed) {
			s.Fatalf("%s on a closed handle: %v", c.name, err)
		}
	}
	if _, err := s.handle().Root(s.ctx); err != nil {
		s.Fatalf("another handle suffers: %v", err)
	}
}

// closeEndsCalls closes a handle on which much is going on: every call returns, with ErrClosed or as if nothing had happened, and what was
// durable stays.
func closeEndsCalls(s *suite) {
	l := s.open()
	o := s.own(l)
	o.unlock = nil
	objs := o.batches(200)
	begun := make(chan struct{}, len(objs))
	results := make(chan []error)
	go func() {
		results <- inParallel(len(objs), func(i int) error {
			begun <- struct{}{}
			err := l.Append(s.ctx, o.root.Instance, objs[i])
			if i%10 == 0 {
				for range l.Read(s.ctx, o.root.Instance, log.Key{}) {
				}
			}
			return err
		})
	}()
	for range len(objs) / 2 {
		<-begun
	}
	s.must(l.Close(), "close")
	for range len(objs) / 2 {
		<-begun
	}
	errs := <-results
	r := s.handle()
	for i, err := range errs {
		if err != nil && !errors.Is(err, log.ErrClosed) {
			s.Fatalf("append while the handle was closed: %v", err)
		}
		if err == nil {
			_, err := r.Get(s.ctx, o.root.Instance, objs[i].Key())
			s.must(err, "get what was durable before the handle was closed")
		}
	}
}

package sim

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/transactor"
	"github.com/steledb/stele/tx"
)

// reader is a database opened read-only in a process of its own.
type reader struct {
	name    string
	h       *handle
	cancel  context.CancelFunc
	basis   uint64
	follows bool

	// Guarded by w.mu.
	r    *transactor.Reader
	busy bool // a call is under way
	gone bool
}

// source is what can be subscribed to.
type source interface {
	Subscribe(ctx context.Context, from uint64) iter.Seq2[*tx.Report, error]
}

// subscriber takes the reports from some t on, as fast as the scheduler lets it.
type subscriber struct {
	name   string
	p      *proc   // whose transactor it listens to, or
	r      *reader // whose reader
	cancel context.CancelFunc
	turns  chan struct{} // one for each report that it takes while it is slow
	free   bool          // it is not slow any more; guarded by w.mu

	// Guarded by w.mu.
	from, next uint64
	over       bool
	err        error
}

// readerEvent lets a reader or a subscriber do something.
func (w *world) readerEvent() {
	switch w.pick([]int{2, 6, 1, 1, 2, 5}) {
	case 0:
		if living := some(w, w.readers, func(r *reader) bool { return !r.gone }); living == nil || w.one(6) && len(w.readers) < 5 {
			w.openReader()
		}
	case 1:
		if r := some(w, w.readers, w.idle); r != nil && r.follows {
			w.lookAtReader(r)
		} else if r != nil {
			w.syncReader(r)
		}
	case 2:
		if r := some(w, w.readers, w.idle); r != nil && !r.follows {
			r.follows = true
			w.say("%s  follows from now on", r.name)
			r.r.Follow(1 + w.upTo(time.Second))
		}
	case 3:
		if r := some(w, w.readers, w.idle); r != nil {
			w.say("%s  is closed", r.name)
			w.drop(r)
		}
	case 4:
		if len(w.subs) >= 6 {
			return
		}
		if r := some(w, w.readers, w.idle); r != nil && w.one(2) {
			r.follows = true
			w.subscribe(r.r, nil, r, false)
		} else if p := some(w, w.procs, w.working); p != nil {
			w.subscribe(p.x, p, nil, false)
		}
	case 5:
		if s := some(w, w.subs, func(s *subscriber) bool { return !s.over }); s != nil {
			if n := w.rng.IntN(12); n == 0 {
				w.say("%s  is slow no longer", s.name)
				s.release(-1)
			} else {
				s.release(n)
			}
		}
	}
}

// idle reports whether r is open and does nothing.
func (w *world) idle(r *reader) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return r.r != nil && !r.gone && !r.busy
}

func (w *world) openReader() {
	r := &reader{name: fmt.Sprintf("r%d", len(w.readers)+1)}
	r.h, _ = w.open(r.name)
	w.readers = append(w.readers, r)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	r.cancel = cancel
	w.say("%s  opens", r.name)
	go func() {
		x, err := transactor.OpenReadOnly(ctx, r.h)
		cancel()
		w.healthy(r.name, err)
		w.mu.Lock()
		gone := r.gone
		if err != nil {
			r.gone = true
		} else {
			r.r = x
		}
		w.note("%s  is open: %v", r.name, err)
		w.mu.Unlock()
		switch {
		case err != nil:
		case gone:
			x.Close(ended())
		default:
			w.look(r.name, x.DB())
		}
	}()
}

// syncReader lets a reader read what is new. It must have everything that was acknowledged before, unless a new owner has not begun.
func (w *world) syncReader(r *reader) {
	root, began := w.now()
	w.mu.Lock()
	r.busy = true
	acked := w.acked
	w.note("%s  syncs", r.name)
	w.mu.Unlock()
	wait := 1 + w.upTo(5*time.Second)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		d, err := r.r.Sync(ctx)
		if err == nil {
			w.look(r.name, d)
			if now, _ := w.now(); d.BasisT() < acked && began && now.Epoch == root.Epoch {
				w.fail("%s: Sync shows t = %d, and %d was acknowledged before it began (L8)", r.name, d.BasisT(), acked)
			}
		}
		w.mu.Lock()
		r.busy = false
		gone := r.gone
		if err == nil {
			w.note("%s  shows t = %d", r.name, d.BasisT())
		} else {
			w.note("%s  the sync ends: %v", r.name, err)
		}
		w.mu.Unlock()
		if err != nil && !gone {
			w.healthy(r.name, err)
		}
	}()
}

// now is the root as it is, and whether its epoch has its start.
func (w *world) now() (root *log.Root, began bool) {
	if w.knobs.fs {
		return &log.Root{}, false
	}
	l := w.server.Open("main", memOptions)
	root, err := l.Root(context.Background())
	if err != nil {
		return &log.Root{}, false
	}
	_, err = l.Get(context.Background(), root.Instance, log.StartKey(root.Epoch))
	return root, err == nil
}

func (w *world) lookAtReader(r *reader) {
	d := r.r.DB()
	t := d.BasisT()
	if t < r.basis {
		w.fail("%s went back from t = %d to %d", r.name, r.basis, t)
	}
	r.basis = t
	w.look(r.name, d)
	w.look(r.name+" of the past", d.AsOf(1+w.rng.Uint64N(t)))
	if err := r.r.Behind(); err != nil {
		w.healthy(r.name, err)
	}
}

// drop ends a reader.
func (w *world) drop(r *reader) {
	w.mu.Lock()
	r.gone, r.h.dead = true, true
	x := r.r
	w.mu.Unlock()
	r.cancel()
	r.h.closing.Do(func() { close(r.h.closed) })
	if x != nil {
		go x.Close(ended())
	}
}

// subscribe starts a subscriber.
func (w *world) subscribe(src source, p *proc, r *reader, slow bool) *subscriber {
	name := fmt.Sprintf("s%d", len(w.subs)+1)
	ctx, cancel := context.WithCancel(callerContext(name))
	s := &subscriber{name: name, p: p, r: r, cancel: cancel, turns: make(chan struct{}, 1<<16)}
	from := uint64(0)
	if w.one(2) {
		w.mu.Lock()
		from = w.rng.Uint64N(w.acked + 5)
		w.mu.Unlock()
	}
	s.from, s.next = from, max(from, 1)
	w.subs = append(w.subs, s)
	where := ""
	if p != nil {
		where = p.name
	} else {
		where = r.name
	}
	w.say("%s  subscribes to %s from t = %d on", s.name, where, from)
	if !slow && w.one(3) {
		s.release(-1)
	}
	go func() {
		var last error
		for report, err := range src.Subscribe(ctx, from) {
			if last = err; err != nil {
				continue
			}
			w.take(s, report)
			<-s.turns
		}
		w.mu.Lock()
		s.over, s.err = true, last
		gone := r != nil && r.gone
		w.note("%s  is over: %v", s.name, last)
		w.mu.Unlock()
		if (p == nil || !w.deaf(p)) && !gone {
			w.healthy(s.name, last)
		}
	}()
	return s
}

// release lets a slow subscriber take n reports more; -1: as many as there are.
func (s *subscriber) release(n int) {
	if s.free {
		return
	}
	if n < 0 {
		s.free = true
		close(s.turns)
		return
	}
	for range n {
		s.turns <- struct{}{}
	}
}

// take looks at a report: it must be the next one.
func (w *world) take(s *subscriber, r *tx.Report) {
	if r.T != s.next {
		w.fail("%s got t = %d, and t = %d was due", s.name, r.T, s.next)
	}
	if before, after := r.DBBefore.BasisT(), r.DBAfter.BasisT(); before != r.T-1 || after != r.T {
		w.fail("%s got t = %d between values at %d and %d", s.name, r.T, before, after)
	}
	w.seeTx(r.T, r.TxData, s.name)
	w.lookAtEnds(s.name, r)
	w.mu.Lock()
	s.next = r.T + 1
	w.note("%s  gets t = %d", s.name, r.T)
	w.mu.Unlock()
}

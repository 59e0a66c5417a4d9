package sim

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/fs"
	"github.com/steledb/stele/log/fs/crashfs"
	"github.com/steledb/stele/log/mem"
	"github.com/steledb/stele/transactor"
)

// proc is a process that owns the database, or wants to.
type proc struct {
	name   string
	h      *handle
	disk   *crashfs.Process // on fs
	cancel context.CancelFunc
	basis  uint64 // what it has shown

	// Guarded by w.mu.
	x       *transactor.Transactor // once it is open
	err     error                  // why it did not open
	dead    bool                   // it was killed: nobody hears what it says
	stopped bool
	stops   int
	closing bool
}

type manner int

const (
	waits     manner = iota // for the lease
	takesOver               // deposes whoever is there
	looks                   // and gives up if somebody is there
)

// open makes a handle on the store.
func (w *world) open(name string) (*handle, *crashfs.Process) {
	h := &handle{w: w, name: name, priority: w.rng.IntN(1000), closed: make(chan struct{}), sent: map[log.ID]bool{}}
	if !w.knobs.fs {
		h.inner, h.queue = w.server.Open("main", mem.Options{}), true
		return h, nil
	}
	disk := w.disk.Process()
	l, err := fs.Open(context.Background(), fs.Options{Dir: "/data", RollSize: 8 << 10, Prealloc: 4 << 10, FS: disk})
	if err != nil {
		w.fail("%s: opening the directory: %v", name, err)
		l = nil
	}
	h.inner = l
	return h, disk
}

// spawn starts a process.
func (w *world) spawn(how manner) *proc {
	p := &proc{name: fmt.Sprintf("p%d", len(w.procs)+1)}
	p.h, p.disk = w.open(p.name)
	w.procs = append(w.procs, p)
	opt := w.knobs.opt
	opt.Owner, opt.TakeOver, opt.NoWait = p.name, how == takesOver && !w.knobs.fs, how == looks
	patience := time.Minute
	if w.one(4) {
		patience = 1 + w.upTo(10*time.Second)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	p.cancel = cancel
	w.mu.Lock()
	acked := w.acked
	w.note("%s  opens (%s)", p.name, [...]string{"waits for the lease", "takes over", "looks"}[how])
	w.mu.Unlock()
	go func() {
		x, err := transactor.Open(ctx, p.h, opt)
		cancel()
		w.mu.Lock()
		dead := p.dead
		if p.x, p.err = x, err; !dead {
			w.note("%s  is open: %v", p.name, err)
		}
		w.mu.Unlock()
		switch {
		case dead && x != nil:
			x.Close(ended())
		case dead:
		case err != nil:
			w.healthy(p.name, err)
		default:
			if t := x.DB().BasisT(); t < acked {
				w.fail("%s opened at t = %d, and %d was acknowledged before (L1)", p.name, t, acked)
			}
			w.look(p.name, x.DB())
		}
	}()
	return p
}

// ended is a context that has ended.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// healthy fails if err says that the store lost or damaged something, which none of these stores does.
func (w *world) healthy(who string, err error) {
	if errors.Is(err, log.ErrRolledBack) || errors.Is(err, log.ErrCorrupt) || errors.Is(err, log.ErrDeleted) {
		w.fail("%s says: %v", who, err)
	}
}

// working reports whether p is open and can be talked to.
func (w *world) working(p *proc) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.x == nil || p.dead || p.stopped || p.closing {
		return false
	}
	select {
	case <-p.x.Ended():
		return false
	default:
		return true
	}
}

// lives reports whether p may still do something.
func (w *world) lives(p *proc) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case p.dead, p.err != nil:
		return false
	case p.x == nil:
		return true
	}
	select {
	case <-p.x.Ended():
		return false
	default:
		return true
	}
}

// some picks one of those of which ok is true; nil if there is none. The newest are picked more often.
func some[T any](w *world, all []*T, ok func(*T) bool) *T {
	var fit []*T
	for _, x := range all {
		if ok(x) {
			fit = append(fit, x)
		}
	}
	if len(fit) == 0 {
		return nil
	}
	return fit[max(w.rng.IntN(len(fit)), w.rng.IntN(len(fit)))]
}

// processEvent does something to a process.
func (w *world) processEvent() {
	living := 0
	for _, p := range w.procs {
		if w.lives(p) {
			living++
		}
	}
	if living < w.knobs.procs && (living == 0 || w.one(2)) {
		if w.knobs.duel {
			w.spawn(takesOver)
		} else {
			w.spawn(manner(w.pick([]int{5, 4, 1})))
		}
		return
	}
	p := some(w, w.procs, w.lives)
	if p == nil {
		return
	}
	if w.knobs.fs {
		w.diskEvent(p)
		return
	}
	weights := []int{2, 4, 2}
	if w.knobs.duel {
		weights = []int{2, 8, 0}
	}
	switch w.pick(weights) {
	case 0:
		w.kill(p)
	case 1:
		if p.stopped {
			w.wake(p)
		} else {
			w.stop(p)
		}
	case 2:
		if !p.stopped {
			w.close(p, time.Duration(1+w.rng.IntN(20))*500*time.Millisecond)
		}
	}
}

// stop stops a process, as a signal does: nothing that it sends goes out, and nothing comes in.
func (w *world) stop(p *proc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.stopped, p.h.gate = true, make(chan struct{})
	p.stops++
	w.note("%s  is stopped", p.name)
}

// wake lets it go on.
func (w *world) wake(p *proc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !p.stopped {
		return
	}
	w.note("%s  goes on", p.name)
	close(p.h.gate)
	p.stopped, p.h.gate = false, nil
}

// kill ends a process. What it has sent may arrive or not.
func (w *world) kill(p *proc) {
	w.say("%s  is killed", p.name)
	if p.disk != nil {
		choose := crashfs.Random(w.rng.Uint64())
		if w.one(2) {
			choose = nil // the page cache drops nothing
		}
		p.disk.Kill(choose)
	}
	w.die(p)
	w.mu.Lock()
	var calls []*call
	for _, c := range w.calls {
		if c.h == p.h && !c.limbo {
			calls = append(calls, c)
		}
	}
	for _, c := range calls {
		w.forget(c)
		if c.write && !c.landed && c.h.queue {
			w.calls = append(w.calls, &call{n: c.n, h: c.h, what: c.what, write: true, sends: c.sends, starts: c.starts, effect: c.effect, limbo: true})
		}
	}
	w.mu.Unlock()
}

// die lets a process end without a trace: it does nothing more, and nobody hears it.
func (w *world) die(p *proc) {
	w.mu.Lock()
	p.dead, p.h.dead = true, true
	x := p.x
	w.mu.Unlock()
	p.cancel()
	p.h.closing.Do(func() { close(p.h.closed) })
	w.wake(p)
	if x != nil {
		go x.Close(ended())
	}
}

// close closes a process, which takes no longer than it may (P10).
func (w *world) close(p *proc, within time.Duration) {
	w.mu.Lock()
	if p.x == nil {
		w.mu.Unlock()
		w.say("%s  gives up opening", p.name)
		p.cancel()
		return
	}
	p.closing = true
	stops := p.stops
	w.note("%s  closes, within %v", p.name, within)
	w.mu.Unlock()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		began := time.Now()
		err := p.x.Close(ctx)
		took := time.Since(began)
		w.mu.Lock()
		defer w.mu.Unlock()
		if p.dead {
			return
		}
		w.note("%s  has closed: %v", p.name, err)
		if p.stops == stops && !p.stopped && took > within+2*w.knobs.opt.StoreTimeout {
			w.failed("%s took %v to close within %v (P10)", p.name, took, within)
		}
	}()
}

// Of fs.

// diskEvent does something to a machine, its disk, or p, which runs on it.
func (w *world) diskEvent(p *proc) {
	calls := len(w.disk.Calls())
	choose := crashfs.Random(w.rng.Uint64())
	switch w.pick([]int{3, 3, 3, 2, 2}) {
	case 0:
		n := w.rng.IntN(12)
		w.say("disk  the power goes in %d calls", n)
		w.disk.CrashAt(calls + n)
	case 1:
		n := w.rng.IntN(12)
		err := []error{syscall.EIO, syscall.ENOSPC}[w.rng.IntN(2)]
		w.say("disk  a call fails in %d calls: %v", n, err)
		w.disk.FailAt(calls+n, err, choose)
		w.failing = calls + n
	case 2:
		w.kill(p)
	case 3:
		w.close(p, time.Duration(1+w.rng.IntN(20))*500*time.Millisecond)
	case 4:
		w.say("disk  the page cache drops what a failed sync has left")
		w.disk.Process().Kill(choose)
	}
}

// lookAtDisk sees whether the machine has lost its power, and lets it come up again. What a failed call has left behind is looked at at once.
func (w *world) lookAtDisk() {
	if w.failing > 0 && len(w.disk.Calls()) > w.failing {
		w.failing = 0
		for _, r := range w.readers {
			if w.idle(r) && !r.follows {
				w.syncReader(r)
				w.drain(80, func(o *call) bool { return o.h == r.h })
			}
		}
	}
	if !w.disk.Off() {
		return
	}
	w.say("disk  the power is gone")
	for _, p := range w.procs {
		w.die(p)
	}
	for _, r := range w.readers {
		w.drop(r)
	}
	w.mu.Lock()
	w.calls = nil
	w.mu.Unlock()
	w.rest()
	w.disk, w.failing = w.disk.Crash(crashfs.Random(w.rng.Uint64())), 0
}

// mend lets nothing fail any more.
func (w *world) mend() {
	if !w.knobs.fs {
		return
	}
	w.lookAtDisk()
	w.disk.CrashAt(-1)
	w.disk.FailAt(-1, nil, nil)
}

// The end.

// serveWithin is how long it may take until somebody serves once nothing goes wrong: a lease, and what is waited for behind calls that had
// failed before.
const serveWithin = 3 * time.Minute

// serveAgain sees that somebody serves, in bounded time, and starts another process if all have gone.
func (w *world) serveAgain() {
	if w.isWrong() {
		return
	}
	began := time.Now()
	for time.Since(began) < serveWithin {
		w.rest()
		living := false
		for _, p := range w.procs {
			living = living || w.lives(p) && !p.closing
			if !w.working(p) || p.closing {
				continue
			}
			if w.probe(p) {
				return
			}
		}
		if !living {
			w.spawn(waits)
		}
		w.sleep(500 * time.Millisecond)
	}
	w.fail("nobody serves %v after the faults have ended", serveWithin)
}

// burst commits more than subscribers may have in memory while one of them takes nothing, in some of the runs.
func (w *world) burst() {
	p := some(w, w.procs, w.working)
	if p == nil || !w.one(12) || w.isWrong() {
		return
	}
	s := w.subscribe(p.x, p, nil, true)
	w.rest()
	for range 300 {
		o := w.insert(p)
		if o == nil {
			return
		}
		<-o.done
	}
	s.release(-1)
}

// probe reports whether p commits.
func (w *world) probe(p *proc) bool {
	o := w.insert(p)
	if o == nil {
		return false
	}
	select {
	case <-o.done:
	case <-time.After(time.Minute):
		w.fail("%s is not answered a minute after the faults have ended", o)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return o.err == nil && o.t > 0
}

// answers waits until everybody who waits for something has it.
func (w *world) answers() {
	for range 300 {
		w.rest()
		open := 0
		for _, o := range w.ops {
			select {
			case <-o.done:
			default:
				open++
			}
		}
		if open == 0 {
			return
		}
		w.sleep(time.Second)
	}
	for _, o := range w.ops {
		select {
		case <-o.done:
		default:
			w.fail("%s was never answered", o)
		}
	}
}

// bury ends everything that still runs.
func (w *world) bury() {
	w.setQuiet(true)
	for _, s := range w.subs {
		s.cancel()
		s.release(-1)
	}
	for _, p := range w.procs {
		w.die(p)
	}
	for _, r := range w.readers {
		w.drop(r)
	}
	w.rest()
	w.sleep(time.Minute)
}

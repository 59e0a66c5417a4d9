package mem

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/log"
)

// Op names a call of log.Log.
type Op uint8

const (
	OpRoot Op = iota + 1
	OpCompareAndSwap
	OpAppend
	OpVerify
	OpGet
	OpList // once for each page
	OpRead // once for each page
	OpPutBlob
	OpGetBlob
	OpDelete
)

func (op Op) String() string {
	names := [...]string{"?", "Root", "CompareAndSwap", "Append", "Verify", "Get", "List", "Read", "PutBlob", "GetBlob", "Delete"}
	if int(op) < len(names) {
		return names[op]
	}
	return names[0]
}

// writes reports whether the call changes the store, so that it may land although nobody waits for it any more.
func (op Op) writes() bool {
	return op == OpCompareAndSwap || op == OpAppend || op == OpPutBlob || op == OpDelete
}

// Call is one call on a handle, as its hook sees it. AppendVerify is seen as an Append and a Verify.
type Call struct {
	Op     Op
	Seq    uint64      // counts this handle's calls from 1
	Key    log.Key     // of Append, Get and Delete; where a page of List or Read begins
	Object *log.Object // of Append
	Root   *log.Root   // of CompareAndSwap: the new one; not to be changed
	Check  log.Check   // of Verify
	Name   string      // of a blob
}

// Fault is what goes wrong with a call. The zero Fault is nothing.
type Fault struct {
	// Delay is waited before anything else, beside the handle's own delay.
	Delay time.Duration
	// Fail is returned as it is, and nothing is done. Without an outcome (log.WithOutcome) it says unknown, as a timeout does.
	Fail error
	// Hold catches the request on its way: the call returns Lose (or a lost reply) at once, and has its effect when Held.Land is
	// called, if ever, also after the handle is closed.
	Hold *Held
	// Twice delivers the request twice; the answer is the second one's.
	Twice bool
	// Lose is returned although the call has had its effect: its reply was lost.
	Lose error
}

// Hook decides what goes wrong with a call. It is called without a lock held, by the goroutine that makes the call, once the
// handle's delay has passed; it may block.
type Hook func(Call) Fault

// Held is a request that was caught on its way. It may be landed once.
type Held struct {
	mu     sync.Mutex
	effect func() error
}

// Land gives the request its effect now and returns the answer that nobody waits for. It returns an error if nothing is held.
func (h *Held) Land() error {
	h.mu.Lock()
	effect := h.effect
	h.effect = nil
	h.mu.Unlock()
	if effect == nil {
		return errors.New("nothing is held")
	}
	return effect()
}

// faults is a handle's fault injection.
type faults struct {
	hook  atomic.Pointer[Hook]
	seq   atomic.Uint64
	gate  atomic.Pointer[chan struct{}] // nil: not frozen
	mu    sync.Mutex                    // of stuck and of the gate's changes
	stuck []func() error
}

// SetHook replaces the hook; nil removes it.
func (f *faults) SetHook(h Hook) {
	if h == nil {
		f.hook.Store(nil)
		return
	}
	f.hook.Store(&h)
}

// Freeze stops the handle, as a stop signal stops a process: calls that have not had their effect wait before it, those
// that have wait before they return, until Thaw. A write whose context ends while it waits returns with an unknown outcome, and has
// its effect at Thaw.
func (f *faults) Freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gate.Load() == nil {
		gate := make(chan struct{})
		f.gate.Store(&gate)
	}
}

// Thaw lets a frozen handle go on: first what was given up while it was frozen, in order, then everybody who waits.
func (f *faults) Thaw() {
	f.mu.Lock()
	defer f.mu.Unlock()
	gate := f.gate.Load()
	if gate == nil {
		return
	}
	for _, effect := range f.stuck {
		_ = effect() // nobody waits for the answer
	}
	f.stuck = nil
	f.gate.Store(nil)
	close(*gate)
}

func (l *Log) inject(ctx context.Context, c Call, effect func() error) error {
	var fault Fault
	c.Seq = l.seq.Add(1)
	if hook := l.hook.Load(); hook != nil {
		fault = (*hook)(c)
	}
	if fault.Delay > 0 {
		if err := l.wait(ctx, fault.Delay); err != nil {
			return err
		}
	}
	if fault.Fail != nil {
		return fault.Fail
	}
	if fault.Hold != nil {
		fault.Hold.mu.Lock()
		fault.Hold.effect = effect
		fault.Hold.mu.Unlock()
		if fault.Lose == nil {
			fault.Lose = errLost
		}
		return fault.Lose
	}
	if err := l.thawed(ctx, c, effect); err != nil {
		return err
	}
	err := effect()
	if fault.Twice {
		err = effect()
	}
	if thaw := l.thawed(ctx, c, nil); thaw != nil {
		return thaw
	}
	if fault.Lose != nil {
		return fault.Lose
	}
	return err
}

// thawed waits while the handle is frozen. pending is what the call would still do.
func (l *Log) thawed(ctx context.Context, c Call, pending func() error) error {
	for {
		gate := l.gate.Load()
		if gate == nil {
			return nil
		}
		var cause error
		select {
		case <-*gate:
			continue
		case <-ctx.Done():
			cause = ctx.Err()
		case <-l.closed:
			cause = log.ErrClosed
		}
		if pending != nil && c.Op.writes() {
			l.mu.Lock()
			if l.gate.Load() == gate {
				l.stuck = append(l.stuck, pending)
			}
			l.mu.Unlock()
		}
		return cause
	}
}

// Remove makes an object disappear, as a store does that loses what it made durable. It reports whether it was there.
func (l *Log) Remove(inst log.ID, k log.Key) bool {
	l.db.mu.Lock()
	defer l.db.mu.Unlock()
	s := l.db.shelf(inst)
	i, found := s.find(k)
	if found {
		s.objects = slices.Delete(slices.Clone(s.objects), i, i+1)
	}
	return found
}

// RemoveBlob makes a blob disappear, as a collector does. It reports whether it was there.
func (l *Log) RemoveBlob(inst log.ID, name string) bool {
	l.db.mu.Lock()
	defer l.db.mu.Unlock()
	blobs := l.db.shelf(inst).blobs
	_, found := blobs[name]
	delete(blobs, name)
	return found
}

// Instances counts the instances of which the database holds anything, be they the root's or not.
func (l *Log) Instances() (n int) {
	l.db.mu.RLock()
	defer l.db.mu.RUnlock()
	for _, s := range l.db.shelves {
		if len(s.objects)+len(s.blobs) > 0 {
			n++
		}
	}
	return n
}

// Replace puts o at its key whatever is there, as a store does that returns other bytes than it was given.
func (l *Log) Replace(inst log.ID, o *log.Object) {
	l.db.mu.Lock()
	defer l.db.mu.Unlock()
	s := l.db.shelf(inst)
	i, found := s.find(o.Key())
	s.objects = slices.Clone(s.objects)
	if found {
		s.objects[i] = o
	} else {
		s.objects = slices.Insert(s.objects, i, o)
	}
}

// Backup takes a copy of the database; restore puts it back, as an operator does, or an asynchronous failover.
func (l *Log) Backup() (restore func()) {
	l.db.mu.Lock()
	defer l.db.mu.Unlock()
	root := l.db.root
	saved := map[log.ID][]*log.Object{}
	for id, s := range l.db.shelves {
		saved[id] = slices.Clone(s.objects)
	}
	return func() {
		l.db.mu.Lock()
		defer l.db.mu.Unlock()
		l.db.root = root
		for id, s := range l.db.shelves {
			s.objects = slices.Clone(saved[id])
		}
	}
}

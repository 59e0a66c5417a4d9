package sim

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/steledb/stele/log"
)

// handle is a process's handle on the store. Every call is two messages, a request and an answer, each of which is on its way until the scheduler
// delivers it. While the world is quiet, calls are made at once.
type handle struct {
	w        *world
	name     string
	inner    log.Log
	priority int  // of the scheduler
	queue    bool // writes may have their effect when nobody waits for them any more (mem); else the caller makes them itself (fs)

	closing sync.Once
	closed  chan struct{}

	// Guarded by w.mu.
	gate chan struct{}   // not nil: the process is stopped until it is closed
	dead bool            // the process is no more: its calls do nothing
	sent map[log.ID]bool // claims
}

// caller is the key of a context's value that says for whom a call is made.
type caller struct{}

func callerContext(who string) context.Context {
	return context.WithValue(context.Background(), caller{}, who)
}

// taking marks the context of a call that would take an epoch.
type taking struct{}

// call is one call on its way.
type call struct {
	n      int
	h      *handle
	what   string
	write  bool
	sends  bool // it appends
	starts bool // a start
	takes  bool // it takes an epoch
	seen   bool // by challenge
	effect func() error

	answer chan answer
	landed bool  // its effect has happened, and err is the answer on its way
	err    error // the answer
	hung   bool  // nothing happens to it until somebody gives up
	limbo  bool  // nobody waits for it
	done   bool  // it is not on its way any more
}

// answer is what the scheduler has decided for a call.
type answer struct {
	run  bool  // the caller is to make it, and to return err if that is not nil
	err  error // the answer
	note string
}

var (
	errBroken = errors.New("the network broke")
	errLost   = errors.New("the answer was lost")
)

// hold waits while the process is stopped.
func (h *handle) hold() {
	for {
		h.w.mu.Lock()
		gate := h.gate
		h.w.mu.Unlock()
		if gate == nil {
			return
		}
		<-gate
	}
}

// do makes one call.
func (h *handle) do(ctx context.Context, write bool, effect func() error, what string, args ...any) error {
	w := h.w
	h.hold()
	if err := h.usable(ctx); err != nil {
		return err
	}
	w.mu.Lock()
	if w.quiet {
		w.mu.Unlock()
		return effect()
	}
	if who, ok := ctx.Value(caller{}).(string); ok {
		what += " for " + who
	}
	w.sent++
	what = fmt.Sprintf(what, args...)
	sends := strings.HasPrefix(what, "Append")
	c := &call{n: w.sent, h: h, what: what, sends: sends, starts: sends && strings.Contains(what, "start behind"), takes: ctx.Value(taking{}) != nil, write: write, effect: effect, answer: make(chan answer, 1)}
	w.calls = append(w.calls, c)
	w.note("%s  → #%d %s", h.name, c.n, c.what)
	w.mu.Unlock()
	select {
	case a := <-c.answer:
		return h.answered(c, a)
	case <-ctx.Done():
	case <-h.closed:
	}
	h.hold() // a stopped process does not look at its clock
	select {
	case a := <-c.answer:
		return h.answered(c, a)
	default:
	}
	cause := ctx.Err()
	if cause == nil {
		cause = log.ErrClosed
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.limbo = true; !write || c.landed || !h.queue {
		w.forget(c)
	}
	w.note("%s  #%d %s: given up: %v", h.name, c.n, c.what, cause)
	return cause
}

// answered is what a call returns once the scheduler has decided.
func (h *handle) answered(c *call, a answer) error {
	if !a.run {
		return a.err
	}
	err := c.effect()
	h.w.say("%s  ← #%d %s: %s%v", h.name, c.n, c.what, a.note, err)
	if a.err != nil {
		return a.err
	}
	return err
}

func (h *handle) usable(ctx context.Context) error {
	h.w.mu.Lock()
	dead := h.dead
	h.w.mu.Unlock()
	select {
	case <-h.closed:
		dead = true
	default:
	}
	if dead {
		return log.WithOutcome(log.NotWritten, log.ErrClosed)
	}
	if err := ctx.Err(); err != nil {
		return log.WithOutcome(log.NotWritten, err)
	}
	return nil
}

func (h *handle) Info() log.Info { return h.inner.Info() }

// context is that of a call's effect: one on the way is not called back because nobody waits for it.
func (h *handle) context(ctx context.Context) context.Context {
	if h.queue {
		return context.Background()
	}
	return ctx
}

func (h *handle) Root(ctx context.Context) (r *log.Root, err error) {
	err = h.do(ctx, false, func() (err error) { r, err = h.inner.Root(h.context(ctx)); return err }, "Root")
	return r, err
}

func (h *handle) RootAge(ctx context.Context) (r *log.Root, age time.Duration, err error) {
	err = h.do(ctx, false, func() (err error) { r, age, err = h.inner.RootAge(h.context(ctx)); return err }, "RootAge")
	return r, age, err
}

func (h *handle) CompareAndSwap(ctx context.Context, old, next *log.Root) error {
	h.w.mu.Lock()
	if old == nil || next.Epoch > old.Epoch {
		h.sent[next.Claim] = true
		ctx = context.WithValue(ctx, taking{}, true)
	}
	h.w.mu.Unlock()
	return h.do(ctx, true, func() error {
		err := h.inner.CompareAndSwap(h.context(ctx), old, next)
		if err == nil && old != nil {
			h.w.swapped(h, old, next)
		}
		return err
	}, "CompareAndSwap v%d epoch %d lease %d/%v", next.Version, next.Epoch, next.LeaseCounter, next.Lease)
}

func (h *handle) Append(ctx context.Context, inst log.ID, o *log.Object) error {
	return h.do(ctx, true, func() error { return h.inner.Append(h.context(ctx), inst, o) }, "Append %s", name(o))
}

func (h *handle) Verify(ctx context.Context, c log.Check) error {
	var keys []string
	for _, k := range c.Keys {
		keys = append(keys, keyName(k))
	}
	return h.do(ctx, false, func() error { return h.inner.Verify(h.context(ctx), c) }, "Verify epoch %d with %s", c.Epoch, strings.Join(keys, " "))
}

func (h *handle) AppendVerify(ctx context.Context, o *log.Object, c log.Check) (appendErr, verifyErr error) {
	if appendErr = h.Append(ctx, c.Instance, o); appendErr != nil {
		return appendErr, nil
	}
	return nil, h.Verify(ctx, c)
}

func (h *handle) Get(ctx context.Context, inst log.ID, k log.Key) (o *log.Object, err error) {
	err = h.do(ctx, false, func() (err error) { o, err = h.inner.Get(h.context(ctx), inst, k); return err }, "Get %s", keyName(k))
	return o, err
}

func (h *handle) List(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[log.Key, error] {
	return pages(ctx, h, after, "List", func(after log.Key) iter.Seq2[log.Key, error] {
		return h.inner.List(h.context(ctx), inst, after)
	}, func(k log.Key) log.Key { return k })
}

func (h *handle) Read(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[*log.Object, error] {
	return pages(ctx, h, after, "Read", func(after log.Key) iter.Seq2[*log.Object, error] {
		return h.inner.Read(h.context(ctx), inst, after)
	}, (*log.Object).Key)
}

// pages yields what seq does, in calls of a few entries each.
func pages[T any](ctx context.Context, h *handle, after log.Key, what string, seq func(log.Key) iter.Seq2[T, error], key func(T) log.Key) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for after := after; ; {
			var page []T
			err := h.do(ctx, false, func() error {
				page = nil
				for x, err := range seq(after) {
					if err != nil {
						return err
					}
					if page = append(page, x); len(page) == h.w.knobs.page {
						break
					}
				}
				return nil
			}, "%s after %s", what, keyName(after))
			if err == nil {
				for _, x := range page {
					if after = key(x); !yield(x, nil) {
						return
					}
				}
				err = ctx.Err()
			}
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			if len(page) < h.w.knobs.page {
				return
			}
		}
	}
}

func (h *handle) Lock(ctx context.Context, wait bool) (unlock func() error, err error) {
	if err := h.usable(ctx); err != nil {
		return nil, err
	}
	return h.inner.Lock(ctx, wait)
}

func (h *handle) Adopt(ctx context.Context, inst log.ID, head log.Pos, unfenced []*log.Object) (repairs []string, err error) {
	h.hold()
	if err := h.usable(ctx); err != nil {
		return nil, err
	}
	return h.inner.Adopt(ctx, inst, head, unfenced)
}

func (h *handle) PutBlob(ctx context.Context, inst log.ID, name string, b []byte) error {
	return h.do(ctx, true, func() error { return h.inner.PutBlob(h.context(ctx), inst, name, b) }, "PutBlob %s", name)
}

func (h *handle) GetBlob(ctx context.Context, inst log.ID, name string) (b []byte, err error) {
	err = h.do(ctx, false, func() (err error) { b, err = h.inner.GetBlob(h.context(ctx), inst, name); return err }, "GetBlob %s", name)
	return b, err
}

func (h *handle) Delete(ctx context.Context, inst log.ID, upTo log.Key) error {
	return h.do(ctx, true, func() error { return h.inner.Delete(h.context(ctx), inst, upTo) }, "Delete up to %s", keyName(upTo))
}

func (h *handle) Close() error {
	h.hold()
	h.closing.Do(func() { close(h.closed) })
	if h.queue {
		return nil // what is on its way is not called back
	}
	return h.inner.Close()
}

// keyName is what a transcript calls an object: epoch 3's start is 3.0, its batch that begins with t = 17 is 3.17.
func keyName(k log.Key) string {
	if k == (log.Key{}) {
		return "nothing"
	}
	return fmt.Sprintf("%d.%d", k.Epoch, k.FirstT)
}

func name(o *log.Object) string {
	if o.Kind == log.KindStart {
		return fmt.Sprintf("%s (start behind %s)", keyName(o.Key()), keyName(o.Prev.Key))
	}
	return fmt.Sprintf("%s (t %d–%d behind %s)", keyName(o.Key()), o.FirstT, o.LastT(), keyName(o.Prev.Key))
}

// faults that a call may meet.
type fault int

const (
	faultNone   fault = iota
	faultBefore       // an error, and nothing happens
	faultAfter        // an error, and it has happened
	faultLate         // an error, and it happens later, if ever
	faultTwice        // it happens, and a second time later, if ever
	faultSlow         // it happens, and the answer takes its time
	faultHang         // nothing happens until the caller gives up, and later perhaps
	numFaults
)

// serve decides what becomes of a call.
func (w *world) serve(c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.landed {
		if w.goesWrong(faultAfter) {
			w.reply(c, errLost, "the answer is lost: ")
		} else {
			w.reply(c, c.err, "")
		}
		return
	}
	if c.h.gate != nil { // the process is stopped, and its request arrives
		w.land(c)
		w.note("store  #%d %s: %v", c.n, c.what, c.err)
		return
	}
	f := fault(w.rng.IntN(int(numFaults)))
	if w.knobs.duel && c.write && w.one(3) {
		f = faultLate
	}
	if !w.goesWrong(f) || !c.write && (f == faultLate || f == faultTwice) {
		f = faultNone
		if w.rng.IntN(6) == 0 {
			f = faultSlow
		}
	}
	if !c.h.queue { // the caller has to make it
		switch f {
		case faultBefore, faultLate:
			w.reply(c, log.WithOutcome(log.NotWritten, errBroken), "")
		case faultAfter:
			w.forget(c)
			c.answer <- answer{run: true, err: errLost, note: "the answer is lost: "}
		case faultHang:
			c.hung = true
		default:
			w.forget(c)
			c.answer <- answer{run: true}
		}
		return
	}
	switch f {
	case faultBefore:
		err := errBroken
		if w.rng.IntN(2) == 0 {
			err = log.WithOutcome(log.NotWritten, errBroken)
		}
		w.reply(c, err, "")
	case faultAfter:
		w.land(c)
		w.reply(c, errLost, "the answer is lost: ")
	case faultLate:
		w.reply(c, errBroken, "")
		if c.write {
			w.calls = append(w.calls, &call{n: c.n, h: c.h, what: c.what, write: true, sends: c.sends, starts: c.starts, effect: c.effect, limbo: true})
		}
	case faultTwice:
		w.land(c)
		w.reply(c, c.err, "")
		if c.write {
			w.calls = append(w.calls, &call{n: c.n, h: c.h, what: c.what, write: true, sends: c.sends, starts: c.starts, effect: c.effect, limbo: true})
		}
	case faultSlow:
		w.land(c)
		w.note("store  #%d %s: %v", c.n, c.what, c.err)
	case faultHang:
		c.hung = true
	default:
		w.land(c)
		w.reply(c, c.err, "")
	}
}

// goesWrong decides whether a fault of this kind happens.
func (w *world) goesWrong(f fault) bool {
	return w.rng.IntN(100) < w.knobs.level && w.knobs.faults[f]
}

// land gives a request its effect.
func (w *world) land(c *call) {
	w.mu.Unlock()
	err := c.effect()
	w.mu.Lock()
	c.landed, c.err = true, err
}

// reply delivers an answer.
func (w *world) reply(c *call, err error, note string) {
	w.forget(c)
	w.note("%s  ← #%d %s: %s%v", c.h.name, c.n, c.what, note, err)
	c.answer <- answer{err: err}
}

// movable reports whether the scheduler may do anything with c.
func (c *call) movable() bool {
	return !c.limbo && !c.hung && (c.h.gate == nil || !c.landed && c.h.queue)
}

// arrive lets a request arrive for which nobody waits, or loses it.
func (w *world) arrive(c *call, lost bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.forget(c); lost {
		w.note("store  #%d %s is lost", c.n, c.what)
		return
	}
	w.land(c)
	w.note("store  #%d %s arrives late: %v", c.n, c.what, c.err)
}

// forget takes a call out of those on their way.
func (w *world) forget(c *call) {
	c.done = true
	for i, o := range w.calls {
		if o == c {
			w.calls = append(w.calls[:i], w.calls[i+1:]...)
			return
		}
	}
}

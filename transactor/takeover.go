package transactor

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
	"github.com/steledb/stele/internal/mutant"
	"github.com/steledb/stele/log"
)

// acquire takes a new epoch by one root CAS that raises it and writes a fresh claim (L3). There is one code path: opening,
// opening again after a crash, and taking over from oneself (P7) all come through here. from says which root is to be replaced, each time
// anew, and refuses one that must not be taken over. From the CAS on the lease is renewed.
func (x *Transactor) acquire(ctx context.Context, from func(context.Context) (*log.Root, error)) (*log.Root, error) {
	for {
		root, err := from(ctx)
		if err != nil {
			return nil, err
		}
		next := root.Acquire(log.NewID(), x.opt.Owner)
		next.Endpoint, next.Lease = x.opt.Endpoint, x.lease()
		if mutant.Is("same-claim") && root.Epoch > 0 {
			next.Claim = root.Claim
		}
		x.tenure.sends(next)
		swapErr := x.retry(ctx, func(ctx context.Context) error { return x.log.CompareAndSwap(ctx, root, next) })
		if swapErr == nil || mutant.Is("trust-conflict") && errors.Is(swapErr, log.ErrConflict) {
			x.hold(next)
			return next, nil
		}
		// The answer may be lost and the CAS have happened: the root says so by its claim. What is not there has not happened yet.
		var now *log.Root
		err = x.retry(ctx, func(ctx context.Context) (err error) { now, err = x.witness.Root(ctx, apart{x.log}); return err })
		switch {
		case err != nil:
			return nil, err
		case now.Owned(next.Instance, next.Epoch, next.Claim):
			x.hold(now)
			return now, nil
		case !errors.Is(swapErr, log.ErrConflict):
			return nil, fmt.Errorf("taking epoch %d: %w", next.Epoch, swapErr)
		}
		// Somebody else changed the root: look again.
	}
}

// begin makes the epoch of root work: recovery from what is proven already, adoption, and the own start, durable and
// fenced (L4). Until then nothing that was read is more than a guess. each is called for every object of the chain behind
// x.installed, in order.
func (x *Transactor) begin(ctx context.Context, root *log.Root, each func(*log.Object) error) (head log.Head, err error) {
	watched, alive, stop := x.watch(ctx)
	defer stop()
	found, err := log.Recover(watched, lively{x.log, alive}, root, x.installed, each)
	if err != nil {
		return head, fmt.Errorf("reading the log: %w", timedOut(watched, err))
	}
	alive()
	repairs, err := x.log.Adopt(watched, root.Instance, found.Head.Pos, found.Unfenced)
	if err != nil {
		return head, fmt.Errorf("adopting the log: %w", timedOut(watched, err))
	}
	for _, r := range repairs {
		x.opt.Logger.Warn("repaired the log", "store", x.info.Location, "repair", r)
	}
	start, err := log.Encode(x.header(root, log.KindStart, found.Head), nil, false)
	if err != nil {
		return head, err
	}
	if mutant.Is("start-unfenced") {
		if err := x.log.Append(ctx, root.Instance, start); err != nil {
			return head, err
		}
		return found.Head.Follow(start)
	}
	if err := x.put(ctx, start, checkOf(root)); err != nil {
		return head, fmt.Errorf("starting epoch %d: %w", root.Epoch, err)
	}
	return found.Head.Follow(start)
}

// put makes one object durable and fences it, in turn with everything else.
func (x *Transactor) put(ctx context.Context, o *log.Object, c log.Check) error {
	if err := x.retry(ctx, func(ctx context.Context) error { return x.log.Append(ctx, c.Instance, o) }); err != nil {
		return err
	}
	c = x.covering(c)
	c.Keys = append(c.Keys, o.Key())
	return x.retry(ctx, x.verify(c))
}

// covering is the check c that asserts as well that the newest object installed is still there: a store that lost it went back (L11).
func (x *Transactor) covering(c log.Check) log.Check {
	c.Keys = nil
	if k := x.newest.Load(); k != nil && !mutant.Is("cover-nothing") {
		c.Keys = append(make([]log.Key, 0, 2), *k)
	}
	return c
}

// install notes how far the chain reaches that value is made from.
func (x *Transactor) install(head log.Head) {
	x.installed = head
	x.newest.Store(&head.Key)
}

// watch is the deadline of work that takes long and makes progress (P10): the context ends once alive has not been called for
// StoreTimeout.
func (x *Transactor) watch(parent context.Context) (ctx context.Context, alive, stop func()) {
	ctx, v := newVigil(parent, x.opt.StoreTimeout)
	return ctx, v.alive, v.stop
}

// vigil is the deadline of work that takes long and makes progress (P10): its context ends once alive has not been called for so long.
type vigil struct {
	timer    *time.Timer
	patience time.Duration
	cancel   context.CancelCauseFunc
}

func newVigil(parent context.Context, patience time.Duration) (context.Context, *vigil) {
	ctx, cancel := context.WithCancelCause(parent)
	return ctx, &vigil{time.AfterFunc(patience, func() { cancel(errStoreTimeout) }), patience, cancel}
}

func (v *vigil) alive() { v.timer.Reset(v.patience) }

// rest stops the clock until alive is called: it is not the store that is waited for.
func (v *vigil) rest() { v.timer.Stop() }

func (v *vigil) stop() {
	v.timer.Stop()
	v.cancel(nil)
}

// lively is a log that tells of everything that it reads.
type lively struct {
	log.Log
	alive func()
}

func (l lively) Root(ctx context.Context) (*log.Root, error) {
	defer l.alive()
	return l.Log.Root(ctx)
}

func (l lively) Get(ctx context.Context, inst log.ID, k log.Key) (*log.Object, error) {
	defer l.alive()
	return l.Log.Get(ctx, inst, k)
}

func (l lively) List(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[log.Key, error] {
	return telling(l.Log.List(ctx, inst, after), l.alive)
}

func (l lively) Read(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[*log.Object, error] {
	return telling(l.Log.Read(ctx, inst, after), l.alive)
}

func telling[T any](seq iter.Seq2[T, error], alive func()) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for v, err := range seq {
			if alive(); !yield(v, err) {
				return
			}
		}
	}
}

// verify is one fence.
func (x *Transactor) verify(c log.Check) func(context.Context) error {
	return func(ctx context.Context) error {
		x.stats.fences.Add(1)
		return x.log.Verify(ctx, c)
	}
}

// outcome is what a takeover comes to: the next epoch and what it has to judge, or the cause to end for, and what is then still to be answered.
type outcome struct {
	epoch *epoch
	left  []*batch
	rest  []*Future
	cause error
}

// takeOverInTime is takeOver, which once Close is out of time is waited for no longer than StoreTimeout, whatever the store does: it may not even
// return when a call's context ends (P10).
func (x *Transactor) takeOverInTime(e *epoch, left []*batch, rest []*Future, cause error) outcome {
	done := make(chan outcome, 1)
	var decided atomic.Bool // by the takeover, which answers from then on and does not call the store again, or by giving it up
	decide := func() bool { return decided.CompareAndSwap(false, true) }
	go func() {
		var o outcome
		o.epoch, o.left, o.rest, o.cause = x.takeOver(e, left, rest, cause, decide)
		done <- o
	}()
	select {
	case o := <-done:
		return o
	case <-x.ctx.Done():
	}
	patience := time.NewTimer(x.opt.StoreTimeout)
	defer patience.Stop()
	select {
	case o := <-done:
		return o
	case <-patience.C:
	}
	if !decide() {
		return <-done
	}
	return outcome{left: left, rest: rest, cause: context.Cause(x.ctx)}
}

// takeOver ends a failed epoch by taking the next one from oneself (P7), and answers: what has landed is committed, what
// was sent in the lowest object that did not land gets its error, everything behind it is judged again, in its order.
// An error ends the transactor; left and rest are then what is still to be answered. Nobody is answered unless decide says so.
func (x *Transactor) takeOver(e *epoch, left []*batch, rest []*Future, cause error, decide func() bool) (*epoch, []*batch, []*Future, error) {
	x.opt.Logger.Warn("the epoch has failed; taking the next one", "store", x.info.Location, "epoch", e.root.Epoch, "cause", cause)
	x.stats.takeovers.Add(1)
	err := cause
	var outage time.Time // since when the store has been out of reach
	var begun *log.Root  // the epoch that was tried last
	for try := 0; ; try++ {
		switch {
		case x.ctx.Err() != nil:
			return nil, left, rest, context.Cause(x.ctx)
		case mustEnd(err):
			return nil, left, rest, err
		case try+x.barren > 0 && pause(x.ctx, backoff(max(try, x.barren))) != nil:
			continue
		}
		own := func(ctx context.Context) (root *log.Root, err error) {
			err = x.retry(ctx, func(ctx context.Context) (err error) { root, err = x.ownRoot(ctx, e.root.Instance); return err })
			return root, err
		}
		full := x.barren >= x.opt.MaxEpochs // one more start, to learn what has landed, and no more
		tooMany := func() error {
			return fmt.Errorf("%d epochs in a row ended without a batch that became durable and was fenced: %w", x.opt.MaxEpochs, cause)
		}
		var root *log.Root
		if begun != nil && mutant.Is("two-starts") {
			root, err = begun, nil
		} else {
			root, err = x.acquire(x.ctx, own)
		}
		switch {
		case errors.Is(err, ErrDeposed):
			left, rest = x.deposed(e, left, rest, err, decide)
			return nil, left, rest, err
		case errors.Is(err, ErrDeleted):
			return nil, left, rest, err
		case full && err != nil:
			return nil, left, rest, tooMany()
		case err != nil && outage.IsZero():
			outage = time.Now()
			continue
		case err != nil && time.Since(outage) > x.opt.MaxOutage:
			return nil, left, rest, fmt.Errorf("the store has been out of reach for %v: %w", x.opt.MaxOutage, err)
		case err != nil:
			continue
		}
		outage, begun = time.Time{}, root
		x.barren++
		landed := make(map[log.Hash]bool)
		var head log.Head
		head, err = x.begin(x.ctx, root, func(o *log.Object) error {
			landed[o.Hash()] = o.Kind == log.KindBatch
			return nil
		})
		switch {
		case err != nil && full && !mustEnd(err) && !errors.Is(err, log.ErrNotOwner):
			return nil, left, rest, tooMany()
		case err != nil:
			cause = err
			continue
		}
		if !decide() {
			return nil, left, rest, context.Cause(x.ctx)
		}
		x.account.forget() // before answers make room for those who wait
		left = x.deliverLanded(left, landed)
		if at := x.DB().BasisT(); at != head.LastT {
			return nil, left, rest, fmt.Errorf("%w: the log reaches t = %d, and what this owner wrote of it t = %d", log.ErrRolledBack, head.LastT, at)
		}
		e.stage.Reset(x.DB())
		x.account.staged(e.stage)
		again, err := x.settle(left, rest)
		if err != nil {
			return nil, left, rest, err
		}
		if full && x.barren > 0 {
			return nil, nil, again, tooMany()
		}
		x.install(head)
		next := x.newEpoch(root, head, x.DB(), e.stage)
		x.enter(next)
		return next, nil, again, nil
	}
}

// mustEnd reports whether an epoch that failed so is the last: the store went back or is damaged (L11), or its handle is used up (fs).
func mustEnd(err error) bool {
	return errors.Is(err, ErrFunctionStuck) || errors.Is(err, log.ErrRolledBack) || errors.Is(err, log.ErrCorrupt) || errors.Is(err, log.ErrFailed) || errors.Is(err, log.ErrClosed)
}

// deliverLanded installs and answers the batches whose objects are on the chain, which is now fenced, and returns those that are not.
// Batches link to one another, so the ones that landed come first; refusals between them were judged against exactly the
// chain before the next that landed, and are answered as well.
func (x *Transactor) deliverLanded(left []*batch, landed map[log.Hash]bool) []*batch {
	n := 0
	for i, b := range left {
		if b.obj != nil && (landed[b.obj.Hash()] || mutant.Is("landed-unseen") && b.sent) {
			n = i + 1
		} else if mutant.Is("refusals-hide") {
			break
		}
	}
	for _, b := range left[:n] {
		x.deliver(b)
	}
	return left[n:]
}

// settle answers the transactions of the lowest object that did not land, if it was its append that failed, and returns all that are to be
// judged again. What is not on the fenced chain is dead, however late it lands.
func (x *Transactor) settle(left []*batch, rest []*Future) (again []*Future, err error) {
	lowest := true
	for _, b := range left {
		var lost error
		if lowest && len(b.txs) > 0 {
			lowest = false
			lost = b.encodeErr
			if b.sent && b.over { // what ended later was given up: that has not failed, and may have landed behind the reading
				if lost = b.appendErr; lost == nil {
					return nil, fmt.Errorf("%w: object %s was durable and is not in the log", log.ErrRolledBack, b.obj.Pos())
				}
			}
		}
		for _, f := range b.judged {
			if lost != nil && f.judged == staged || mutant.Is("fail-everybody") {
				x.fail(f, &CommitError{Err: lost})
			} else {
				again = append(again, f)
			}
		}
	}
	again = append(again, rest...)
	if mutant.Is("refuse-early") || mutant.Is("out-of-order") {
		again = slices.DeleteFunc(again, (*Future).answered)
	}
	for _, f := range again {
		f.judged, f.prep, f.refusal = pending, nil, nil
	}
	return again, nil
}

// fail answers a transaction that is certainly not in the log.
func (x *Transactor) fail(f *Future, err error) {
	x.queue.answered(f.share)
	x.stats.lost()
	f.answer(nil, err)
}

// deposed answers, from the new owner's chain, what was sent before it took over: what is on it is committed, the rest is not
// and never will be. It returns what could not be learned, because the store is out of reach or the new owner's epoch has
// no start yet.
func (x *Transactor) deposed(e *epoch, left []*batch, rest []*Future, cause error, decide func() bool) ([]*batch, []*Future) {
	ctx, cancel := context.WithTimeoutCause(x.ctx, x.opt.StoreTimeout, errStoreTimeout)
	defer cancel()
	landed := make(map[log.Hash]bool)
	r := log.NewReader(x.log, log.ReaderOptions{From: x.installed, Instance: e.root.Instance, Witness: x.witness, Buffer: 64 << 10})
	for try := 0; ; try++ {
		st, err := r.Sync(ctx, func(o *log.Object) error {
			for _, b := range left {
				if mutant.Is("resolve-by-t") && b.obj != nil && o.Kind == log.KindBatch && b.obj.FirstT == o.FirstT {
					landed[b.obj.Hash()] = true
				}
			}
			if o.Epoch > e.root.Epoch && !mutant.Is("resolve-by-t") {
				return errEnough // what landed of this owner's objects lies before the next one's start
			}
			landed[o.Hash()] = o.Kind == log.KindBatch
			return nil
		})
		if errors.Is(err, errEnough) || err == nil && !st.Waiting {
			break
		}
		if err != nil && mustEnd(err) || pause(ctx, backoff(try)) != nil {
			x.opt.Logger.Warn("the fate of open transactions could not be learned from the new owner's log", "store", x.info.Location, "cause", err)
			return left, rest
		}
	}
	if !decide() {
		return left, rest
	}
	for _, b := range x.deliverLanded(left, landed) {
		for _, f := range b.judged {
			if b.sent && f.judged == staged {
				x.fail(f, &CommitError{Err: cause})
			} else {
				rest = append(rest, f)
			}
		}
	}
	return nil, rest
}

// enter makes e the epoch at work.
func (x *Transactor) enter(e *epoch) {
	old := x.term.Swap(&term{check: e.check, fail: e.fail, wait: e.stage.Wait, over: make(chan struct{})})
	if old != nil {
		close(old.over)
	}
}

// replay applies a log to a value, many objects at a time.
type replay struct {
	stage  *db.Stage
	txs    []*datom.Tx
	datoms int // since the last snapshot
	bytes  int
}

// replayChunk and replayBytes are how many datoms, and bytes of them, go into one snapshot during recovery, which is what bounds its memory.
const (
	replayChunk = 1 << 16
	replayBytes = 8 << 20
)

// object applies one object whole: nothing of it if it does not decode.
func (r *replay) object(o *log.Object) (err error) {
	if r.txs, err = o.AppendTxs(r.txs[:0]); err != nil {
		return err
	}
	for _, t := range r.txs {
		r.stage.Apply(t)
		r.datoms += len(t.Datoms)
	}
	r.bytes += o.PayloadSize()
	if r.datoms >= replayChunk || r.bytes >= replayBytes {
		r.stage.Snapshot()
		r.datoms, r.bytes = 0, 0
	}
	return nil
}

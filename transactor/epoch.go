package transactor

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/db"
	"github.com/steledb/stele/internal/mutant"
	"github.com/steledb/stele/log"
	"github.com/steledb/stele/tx"
)

// epoch is one term of ownership at work: it begins with a start that is durable and fenced, and ends when everything is
// drained or with its first failure.
type epoch struct {
	x     *Transactor
	root  *log.Root // as this epoch's CAS wrote it
	check log.Check // what each of its fences asserts

	// Of the preparing goroutine.
	stage *db.Stage
	prep  tx.Preparer
	env   tx.Env
	last  db.DB // the value at the end of the batch that was dispatched last
	todo  []*Future
	next  int           // the first of todo that is not judged yet
	chain chan log.Head // will say what the next object follows

	flights *flights

	ctx    context.Context // of the flights
	cancel context.CancelFunc
	failed chan struct{} // closed at the first failure
	once   sync.Once
	cause  error
}

func (x *Transactor) newEpoch(root *log.Root, head log.Head, value db.DB, stage *db.Stage) *epoch {
	ctx, cancel := context.WithCancel(x.ctx)
	x.account.staged(stage)
	chain := make(chan log.Head, 1)
	chain <- head
	return &epoch{
		ctx:     ctx,
		cancel:  cancel,
		x:       x,
		root:    root,
		check:   checkOf(root),
		stage:   stage,
		env:     x.env(x.ctx),
		last:    value,
		chain:   chain,
		flights: newFlights(x.opt.Depth, x.opt.MaxInFlightBytes, &x.account),
		failed:  make(chan struct{}),
	}
}

func checkOf(r *log.Root) log.Check {
	return log.Check{Instance: r.Instance, Epoch: r.Epoch, Claim: r.Claim}
}

// header is that of the next object that the owner named by root writes behind head.
func (x *Transactor) header(root *log.Root, kind log.Kind, head log.Head) log.Header {
	return log.Header{
		Format: root.Format, Lineage: root.Lineage, Claim: root.Claim, Epoch: root.Epoch, Kind: kind,
		FirstT: head.LastT + 1, Prev: head.Pos, Fenced: x.fenced.Load(),
	}
}

// fail ends the epoch; the first cause counts.
func (e *epoch) fail(cause error) {
	e.once.Do(func() {
		e.cause = cause
		close(e.failed)
	})
}

func (e *epoch) hasFailed() bool {
	select {
	case <-e.failed:
		return true
	default:
		return false
	}
}

// serve works until the queue is closed and drained (nil) or the epoch fails. Then it returns the batches that were
// judged and not installed, in order, and what is still to be judged.
func (e *epoch) serve(todo []*Future) (left []*batch, rest []*Future, cause error) {
	e.todo = todo
	outOfTime := func() { e.fail(context.Cause(e.x.ctx)) } // whatever the store still does, nobody waits for it
	stop := context.AfterFunc(e.x.ctx, outOfTime)
	tail := e.prepare()
	left = e.flights.drain(e.x.ctx)
	if stop(); len(left) > 0 && e.x.ctx.Err() != nil {
		outOfTime() // if it is not yet noted: the context ends before what it sets off begins
	}
	<-e.chain // whatever still flies has its object, or never will
	for _, b := range left {
		b.over = isClosed(b.done)
	}
	e.cancel() // what is still in flight decides nothing any more
	if tail != nil {
		rest = append(rest, tail.judged...)
	}
	rest = append(rest, e.todo[e.next:]...)
	if e.hasFailed() {
		cause = e.cause
	}
	return left, rest, cause
}

// prepare is the serial section. It judges what the queue holds, one after the other, against the stage, and closes
// batches as P4 says. It returns the batch that it had begun when the epoch failed, or nil.
func (e *epoch) prepare() *batch {
	x := e.x
	b := newBatch(e.last, x.opt.MaxBatch)
	for {
		if e.next < len(e.todo) {
			if e.hasFailed() {
				return b
			}
			if b = e.judge(b); b == nil {
				return nil
			}
			continue
		}
		clear(e.todo) // what was answered keeps no value alive
		e.todo, e.next = x.queue.take(e.todo[:0]), 0
		if len(e.todo) > 0 {
			continue
		}
		if len(b.judged) == 0 {
			if x.queue.drained() {
				return nil
			}
			select {
			case <-x.queue.wake:
			case <-e.failed:
				return b
			}
			continue
		}
		free, inFlight := e.flights.free(b.size)
		switch {
		case !free:
			select {
			case <-x.queue.wake:
			case <-e.flights.freed:
			case <-e.failed:
				return b
			}
		case e.gather(b, inFlight):
		default:
			e.dispatch(b)
			b = newBatch(e.last, x.opt.MaxBatch)
		}
	}
}

// gather gives those who are about to submit, because they were answered just now or wait for a processor, the time to do it, so
// that many callers are not shredded into tiny objects. It reports whether it has waited: false says that b has had its time. It lets others run, and
// again for as long as that brings more, but no longer than about a flush: in an idle process that takes no time. While flushes that
// are worth a timer are in flight it sleeps instead, once, a small fraction of one.
func (e *epoch) gather(b *batch, inFlight int) bool {
	flush := e.x.stats.recentFlush()
	nap := flush / gatherFraction
	sleep := inFlight > 0 && nap >= shortestNap
	switch {
	case b.gathered == 0:
		b.patience = time.Now().Add(min(flush, longestGather))
	case sleep, b.gathered == len(b.judged), time.Now().After(b.patience):
		return false
	}
	b.gathered = len(b.judged)
	if !sleep {
		runtime.Gosched()
		return true
	}
	t := time.NewTimer(nap)
	defer t.Stop()
	select {
	case <-t.C:
	case <-e.flights.freed:
	case <-e.failed:
	}
	return true
}

const (
	gatherFraction = 16
	shortestNap    = 50 * time.Microsecond // below it a timer costs more than it brings
	longestGather  = time.Millisecond
)

// judge prepares the next transaction into b and returns the batch to go on with: b, or a new one if b was closed; nil if
// the epoch failed meanwhile.
func (e *epoch) judge(b *batch) *batch {
	f := e.todo[e.next]
	size := 0
	f.prep, f.refusal = e.verdict(f)
	switch {
	case errors.Is(f.refusal, tx.ErrStuck):
		e.fail(because(ErrFunctionStuck, f.refusal))
		return b
	case f.refusal == nil && f.prep.Original == 0:
		if size = sizeOf(&f.prep.Tx); size > maxTransaction {
			f.refusal = tooLarge(size)
		} else {
			f.refusal = e.outgrown(f, size)
		}
	}
	if f.refusal != nil || f.prep.Original != 0 {
		e.next++
		f.judged = repeated
		if f.refusal != nil {
			f.judged = refused
		}
		switch {
		case mutant.Is("refuse-early") && f.judged == refused && !f.answered():
			f.answer(nil, f.refusal)
		case mutant.Is("repeat-early") && f.judged == repeated:
			e.x.repeat(f)
		}
		b.add(f)
		if len(b.judged) < e.x.opt.MaxBatch {
			return b
		}
		return e.closeBatch(b)
	}
	t := &f.prep.Tx
	alone := f.prep.Schema && !mutant.Is("schema-in-company")
	if len(b.txs) > 0 && (alone || b.size+size > e.x.opt.MaxBatchBytes) {
		// What was judged holds for the next batch as well: the stage is the same.
		if b = e.closeBatch(b); b == nil {
			return nil
		}
	}
	e.next++
	f.judged = staged
	e.stage.Apply(t)
	b.add(f)
	b.txs = append(b.txs, t)
	b.size += size
	b.memory += asJudged(t)
	if alone || len(b.judged) >= e.x.opt.MaxBatch && !mutant.Is("no-cap") || b.size >= e.x.opt.MaxBatchBytes {
		return e.closeBatch(b)
	}
	return b
}

// outgrown is the refusal of a transaction that becomes so much more than it said at admission that the budget has no room for it.
func (e *epoch) outgrown(f *Future, size int) error {
	growth := becoming(size)
	if f.prep.Schema {
		growth += indexing(e.stage, &f.prep.Tx)
	}
	if growth <= f.growth || mutant.Is("outgrow") {
		return nil
	}
	if err := e.x.queue.grow(f, growth); err != nil {
		return e.x.notAdmitted(err)
	}
	return nil
}

// verdict judges f against the stage: a delta, or a refusal.
func (e *epoch) verdict(f *Future) (*tx.Prepared, error) {
	if p := f.after; p != nil {
		switch {
		case p.answered():
			if p.err != nil && !errors.As(p.err, new(*RepeatError)) {
				return nil, behind(p.err)
			}
		case p.judged == refused:
			return nil, behind(p.refusal)
		}
	}
	e.env.Now = e.x.opt.Clock().UnixMilli()
	e.env.Facts = e.x.queue.facts(f)
	p, err := e.prep.Prepare(e.stage, f.req, &e.env)
	if err != nil && errors.Is(err, tx.ErrFacts) {
		return nil, e.x.notAdmitted(e.x.queue.tooMany(e.env.Facts))
	}
	if mutant.Is("key-unstaged") && err == nil && p.Original > e.x.DB().BasisT() {
		return nil, &tx.Error{Kind: tx.UniqueConflict, Msg: "what the key's attribute says once a lookup has missed it"}
	}
	return p, err
}

// behind is the refusal of a transaction whose predecessor ended with err.
func behind(err error) error {
	if errors.Is(err, ErrUnknownOutcome) {
		return err
	}
	return because(ErrPredecessorRefused, err)
}

// closeBatch waits for a free flush and dispatches b; nil if the epoch failed meanwhile.
func (e *epoch) closeBatch(b *batch) *batch {
	for {
		if ok, _ := e.flights.free(b.size); ok {
			e.dispatch(b)
			return newBatch(e.last, e.x.opt.MaxBatch)
		}
		select {
		case <-e.flights.freed:
		case <-e.failed:
			e.todo = append(b.judged, e.todo[e.next:]...)
			e.next = 0
			return nil
		}
	}
}

// dispatch closes b and lets it fly. The head of the chain goes from flight to flight, so that objects are made in order, and beside the preparing of what
// follows.
func (e *epoch) dispatch(b *batch) {
	if len(b.txs) > 0 {
		e.last = e.stage.Snapshot()
		b.after = e.last
		b.replaced = e.x.account.staged(e.stage)
		if mutant.Is("show-staged") {
			e.x.value.Store(&b.after)
		}
		if mutant.Is("forget-stage") {
			e.stage.Reset(e.x.DB())
		}
	}
	b.closed = time.Now()
	e.flights.began(b)
	e.x.work.Add(1)
	behind, next := e.chain, make(chan log.Head, 1)
	e.chain = next
	go func() {
		defer e.x.work.Done()
		next <- e.encode(b, <-behind)
		if e.fly(b); mutant.Is("out-of-order") && b.failure() == nil {
			e.x.deliver(b)
			e.flights.ended(b, func(*batch) {})
			return
		}
		e.flights.ended(b, e.x.deliver)
	}()
}

// encode makes b's object, none for refusals alone, and returns the head for the next one, which holds this one's hash.
func (e *epoch) encode(b *batch, head log.Head) log.Head {
	if len(b.txs) == 0 || e.hasFailed() {
		return head
	}
	obj, err := log.Encode(e.x.header(e.root, log.KindBatch, head), b.txs, e.x.info.Compress)
	if err == nil {
		b.head, err = head.Follow(obj)
	}
	if err != nil {
		b.encodeErr = err
		e.fail(err)
		return head
	}
	b.obj, b.sent = obj, true
	return b.head
}

// fly makes b's object durable and fences it: a Verify that began after the object was durable.
func (e *epoch) fly(b *batch) {
	x := e.x
	if b.obj == nil && (len(b.txs) > 0 || e.hasFailed()) {
		b.verifyErr = errNotSent
		return
	}
	check := x.covering(e.check)
	verified := false
	if b.obj != nil {
		check.Keys = append(check.Keys, b.obj.Key())
		b.appendErr = x.retry(e.ctx, func(ctx context.Context) error {
			appendErr, verifyErr := e.appendVerify(ctx, b.obj, check)
			b.maybe = b.maybe || appendErr == nil || log.OutcomeOf(appendErr) == log.Unknown
			b.verifyErr, verified = verifyErr, appendErr == nil && verifyErr == nil
			return appendErr
		})
	}
	if b.appendErr == nil && !verified && !final(b.verifyErr) {
		b.verifyErr = x.retry(e.ctx, x.verify(check))
	}
	b.verified = time.Now()
	if err := b.failure(); err != nil {
		e.fail(err)
	}
}

func (e *epoch) appendVerify(ctx context.Context, o *log.Object, c log.Check) (appendErr, verifyErr error) {
	switch {
	case mutant.Is("skip-fence"):
		return e.x.log.Append(ctx, c.Instance, o), nil
	case mutant.Is("fence-first"):
		verifyErr = e.x.log.Verify(ctx, e.check)
		return e.x.log.Append(ctx, c.Instance, o), verifyErr
	}
	appendErr, verifyErr = e.x.log.AppendVerify(ctx, o, c)
	if appendErr == nil {
		e.x.stats.fences.Add(1)
	}
	return appendErr, verifyErr
}

func (b *batch) failure() error {
	if b.appendErr != nil {
		return b.appendErr
	}
	return b.verifyErr
}

// fenced reports whether b's flight is over and has succeeded.
func (b *batch) fenced() bool { return isClosed(b.done) && b.failure() == nil }

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// deliver installs the value after b and answers everybody in it. b is durable and fenced, and so is all before it.
func (x *Transactor) deliver(b *batch) {
	x.barren = 0
	if n := len(b.txs); n > 0 {
		x.value.Store(&b.after)
		x.fenced.Store(b.txs[n-1].T)
		x.install(b.head)
		x.marks.passed(b.head)
		x.feed.publish(b.txs, b.before, b.after)
	}
	var answers share
	for _, f := range b.judged {
		if f.judged != repeated { // which count until they are answered (P5)
			answers = answers.plus(f.share)
		}
	}
	x.stats.delivered(b, len(b.judged)-answers.count)
	x.queue.answered(answers)
	before, n := b.before, len(b.txs)
	for _, f := range b.judged {
		switch f.judged {
		case refused:
			if !mutant.Is("refuse-early") {
				f.answer(nil, f.refusal)
			}
			continue
		case repeated:
			x.repeat(f)
			continue
		}
		n--
		after := b.after
		if n > 0 {
			after = b.after.WithBasis(f.prep.Tx.T)
		}
		f.answer(f.prep.Report(before, after), nil)
		before = after
	}
}

// verdicts are the errors that no retry changes.
var verdicts = []error{
	log.ErrNotOwner, log.ErrRolledBack, log.ErrConflict, log.ErrCorrupt, log.ErrClosed, log.ErrFailed, log.ErrNoRoot, log.ErrDeleted,
	log.ErrOwned, ErrDeposed,
}

// final reports whether err is a verdict, which no retry changes.
func final(err error) bool {
	return err != nil && log.OutcomeOf(err) == log.Rejected ||
		slices.ContainsFunc(verdicts, func(v error) bool { return errors.Is(err, v) })
}

// retry calls the store until it answers, at most 1 + Options.Retries times, each with a deadline (P10), backing off
// between. Every retry of an append sends the same bytes, so that an unknown outcome becomes a known one.
func (x *Transactor) retry(ctx context.Context, call func(context.Context) error) (err error) {
	for try := 0; ; try++ {
		err = x.once(ctx, call)
		if err == nil || final(err) || try >= x.opt.Retries || ctx.Err() != nil {
			return err
		}
		if pause(ctx, backoff(try)) != nil {
			return err
		}
	}
}

// once calls the store with a deadline.
func (x *Transactor) once(ctx context.Context, call func(context.Context) error) error {
	if mutant.Is("no-deadline") {
		return call(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, x.opt.StoreTimeout, errStoreTimeout)
	defer cancel()
	return timedOut(ctx, call(ctx))
}

// timedOut says of an error that StoreTimeout is behind it, and not a deadline of the caller's.
func timedOut(ctx context.Context, err error) error {
	if err == nil || context.Cause(ctx) != errStoreTimeout {
		return err
	}
	return log.WithOutcome(log.OutcomeOf(err), fmt.Errorf("%w: %v", errStoreTimeout, err))
}

// errNotSent is the failure of a batch that an earlier one's kept from being sent.
var errNotSent = errors.New("not sent")

var errStoreTimeout = errors.New("the store did not answer within StoreTimeout")

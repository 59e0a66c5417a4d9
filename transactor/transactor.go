package transactor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
	"github.com/steledb/stele/internal/mutant"
	"github.com/steledb/stele/log"
	"github.com/steledb/stele/tx"
)

// Transactor owns one database: it takes transactions from any number of goroutines, orders them, makes them durable and
// answers them. Open makes one, Close ends it. All methods may be called concurrently.
type Transactor struct {
	opt   Options
	log   log.Log
	info  log.Info
	queue *queue
	stats *recorder

	account account

	value  atomic.Pointer[db.DB]   // what DB shows: installed, so durable and fenced
	fenced atomic.Uint64           // the last t that was acknowledged
	term   atomic.Pointer[term]    // the epoch at work
	newest atomic.Pointer[log.Key] // of the objects installed
	marks  marks                   // places on the chain
	tenure tenure                  // claims and the lease
	feed   feed                    // for subscribers

	// Of the run loop and what works for it.
	installed log.Head     // the object up to which value reaches
	barren    int          // epochs in a row without a batch that was durable and fenced
	unlock    func() error // gives back the store's own lock
	witness   *log.Witness // what of the store's history was seen (L11)

	ctx    context.Context // of the store calls; ends when Close runs out of time
	cancel context.CancelCauseFunc
	work   sync.WaitGroup // flights and repeats

	repeating chan struct{} // a token for each report of an original that is being read
	reported  chan struct{} // a token: one was read since somebody looked

	ended  chan struct{} // everybody is answered and the store is closed
	endErr error         // why, if not by Close
}

// term is what Sync needs to know of an epoch.
type term struct {
	check log.Check
	fail  func(error)
	wait  func()        // until nothing is merged in the background
	over  chan struct{} // closed when another term has begun
}

// Transact submits data and waits for the outcome: the report of the committed transaction, or a *tx.Error that says why
// the database refused it, or one of this package's errors. If ctx ends first, the error is a *PendingError, and the
// transaction goes on (P6).
func (x *Transactor) Transact(ctx context.Context, data tx.Data, opts ...TxOptions) (*tx.Report, error) {
	f, err := x.Submit(ctx, data, opts...)
	if err != nil {
		return nil, err
	}
	return f.Wait(ctx)
}

// Submit admits data and returns its future at once, so that one goroutine can keep thousands in flight. Transactions are
// ordered as they were admitted. An error means that nothing was admitted: ErrBusy, ErrClosed, a *tx.Error for data that
// no database could take, or the context's own. At most one TxOptions is used. data must not be changed until the answer.
func (x *Transactor) Submit(ctx context.Context, data tx.Data, opts ...TxOptions) (*Future, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	f := &Future{x: x, born: time.Now(), done: make(chan struct{})}
	var opt TxOptions
	if len(opts) > 0 {
		opt = opts[0]
	}
	if f.after = opt.After; opt.Key != "" {
		data = tx.WithKey(data, opt.Key)
	}
	if err := x.queue.full(opt.Wait); err != nil && !x.repeats(opt.Key, err) { // before anything is done for it: a refusal is cheap
		return nil, x.notAdmitted(err)
	}
	if f.after != nil && f.after.x != x {
		return nil, errors.New("TxOptions.After names a transaction of another transactor")
	}
	req, err := tx.Compile(x.value.Load().Schema(), data, x.opt.Limits)
	if err != nil {
		return nil, err
	}
	f.req = req
	f.share = share{count: 1, bytes: req.Size(), memory: f.asSubmitted(), growth: becoming(req.Size())}
	if f.bytes > x.opt.QueueBytes {
		return nil, &tx.Error{Kind: tx.LimitExceeded, Msg: fmt.Sprintf("the transaction takes about %d bytes, and the whole queue at most %d: split it, or raise Options.QueueBytes", f.bytes, x.opt.QueueBytes)}
	}
	enter := x.queue.admit
	if opt.Wait {
		enter = func(f *Future) error { return x.queue.await(ctx, f) }
	}
	if err = enter(f); x.repeats(opt.Key, err) {
		f.memory, f.growth = 0, 0
		err = enter(f)
	}
	if err != nil {
		return nil, x.notAdmitted(err)
	}
	return f, nil
}

// repeats reports whether what the memory budget refuses is a resubmission of what has been committed under its key: it will commit nothing, and is
// how its caller learns that. The queue bounds it all the same.
func (x *Transactor) repeats(key string, refused error) bool {
	if _, over := refused.(*MemoryError); !over || key == "" {
		return false
	}
	_, found := x.DB().Lookup(db.AttrTxKey, datom.String(key))
	return found
}

// notAdmitted counts a refusal of the queue, and says of one that passes when to come back: when about a quarter of the queue will have been
// answered, by the pace of the recent flushes.
func (x *Transactor) notAdmitted(err error) error {
	flushes := 1 + float64(x.opt.QueueTransactions)/4/float64(x.opt.MaxBatch)/float64(x.opt.Depth)
	after := time.Duration(min(max(float64(x.stats.recentFlush())*flushes, float64(time.Millisecond)), float64(time.Minute)))
	if err == ErrBusy {
		x.stats.busy.Add(1)
		return &BusyError{After: after}
	}
	if m, ok := err.(*MemoryError); ok {
		x.stats.overBudget.Add(1)
		if m.passing {
			m.After = after
		}
	}
	return err
}

// With applies data to the present value without committing anything: speculation. It chains through tx.With on the report's DBAfter.
func (x *Transactor) With(ctx context.Context, data tx.Data) (*tx.Report, error) {
	env := x.env(ctx)
	return tx.WithEnv(x.DB(), data, x.opt.Limits, &env)
}

// DB is the present value: everything acknowledged by this transactor, and nothing that is not durable and fenced (P3). It never waits.
func (x *Transactor) DB() db.DB { return *x.value.Load() }

// Sync fences and returns a value at least as new as everything that anybody had acknowledged before the call. It fails
// with ErrDeposed if another owner has taken over.
func (x *Transactor) Sync(ctx context.Context) (db.DB, error) {
	for {
		t := x.term.Load()
		err := x.retry(ctx, x.verify(x.covering(t.check)))
		if mutant.Is("sync-unfenced") {
			err = nil
		}
		switch {
		case err == nil:
			return x.DB(), nil
		case !final(err):
			return db.DB{}, fmt.Errorf("sync: %w", err)
		}
		// Either this transactor is taking over from itself, or somebody else has.
		t.fail(err)
		select {
		case <-t.over:
		case <-x.ended:
			return db.DB{}, because(ErrClosed, x.endErr)
		case <-ctx.Done():
			return db.DB{}, context.Cause(ctx)
		}
	}
}

// Info describes the store.
func (x *Transactor) Info() log.Info { return x.info }

// Ended is closed once the transactor has ended, by Close or by itself; Err then says why.
func (x *Transactor) Ended() <-chan struct{} { return x.ended }

// Err is why the transactor ended by itself; nil while it works and after a Close that was in time.
func (x *Transactor) Err() error {
	if !isClosed(x.ended) {
		return nil
	}
	return x.endErr
}

// Close admits nothing more, drains what was admitted, gives the database back and closes the store. If ctx ends first, it
// stops waiting for the store: what was sent is answered with ErrUnknownOutcome, what never was with ErrClosed. It always
// returns, and the error is nil if everything was drained. Further calls wait for the first.
func (x *Transactor) Close(ctx context.Context) error {
	x.queue.close(ErrClosed)
	select {
	case <-x.ended:
	case <-ctx.Done():
		x.cancel(fmt.Errorf("closing: %w", context.Cause(ctx)))
		<-x.ended
	}
	return x.endErr
}

// run serves epoch after epoch until the transactor ends.
func (x *Transactor) run(e *epoch) {
	var todo []*Future
	for {
		left, rest, cause := e.serve(todo)
		if cause == nil {
			x.end(nil, nil, nil)
			return
		}
		next := x.takeOverInTime(e, left, rest, cause)
		if next.cause != nil {
			x.end(next.left, next.rest, next.cause)
			return
		}
		e, todo = next.epoch, next.rest
	}
}

// end answers everybody and closes the store.
func (x *Transactor) end(left []*batch, rest []*Future, cause error) {
	if cause != nil {
		x.opt.Logger.Error("the transactor has ended", "store", x.info.Location, "cause", cause)
	}
	x.queue.close(because(ErrClosed, cause))
	for _, b := range left {
		unknown := b.sent && (!isClosed(b.done) || b.maybe)
		for _, f := range b.judged {
			x.abandon(f, unknown && f.judged == staged, cause)
		}
	}
	for _, f := range rest {
		x.abandon(f, false, cause)
	}
	for _, f := range x.queue.take(nil) {
		x.abandon(f, false, cause)
	}
	closed := make(chan error, 1)
	go func() { closed <- x.release(cause) }()
	patience := time.NewTimer(x.opt.StoreTimeout)
	defer patience.Stop()
	for waiting := true; waiting; {
		select {
		case <-x.reported: // there may be many more reports to read
			patience.Reset(x.opt.StoreTimeout)
			continue
		case err := <-closed:
			x.endErr = errors.Join(cause, err)
		case <-patience.C: // the store goes on by itself, if it ever does
			go x.tenure.quit() // the lease must not
			x.endErr = errors.Join(cause, fmt.Errorf("closing the store: %w", errStoreTimeout))
		}
		waiting = false
	}
	x.cancel(because(ErrClosed, cause))
	close(x.ended)
}

// release gives the database back, once nothing works on it any more: the lease, the lock, the store. Close may cut the first short.
func (x *Transactor) release(cause error) error {
	x.work.Wait()
	x.vacate(x.ctx, cause)
	x.cancel(because(ErrClosed, cause))
	x.term.Load().wait()
	return errors.Join(x.unlock(), x.log.Close())
}

// abandon answers a transaction that the transactor ends without. That a repetition is not in the log nobody can say: what it repeats was committed, or sent.
func (x *Transactor) abandon(f *Future, sent bool, cause error) {
	if f.answered() {
		return
	}
	x.queue.answered(f.share)
	switch p := f.after; {
	case sent, f.judged == repeated, p != nil && p.answered() && errors.Is(p.err, ErrUnknownOutcome):
		f.answer(nil, because(ErrUnknownOutcome, cause))
	default:
		f.answer(nil, because(ErrClosed, cause))
	}
}

// backoff is how long to wait before retry number try: 10 ms, doubling up to 1 s, half of it at random. The clock's nanoseconds are random enough to keep
// callers apart, and in virtual time a run repeats itself.
func backoff(try int) time.Duration {
	d := min(10*time.Millisecond<<min(try, 10), time.Second)
	r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), uint64(try)))
	return d/2 + time.Duration(r.Int64N(int64(d/2)))
}

// pause waits, or returns the context's error.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

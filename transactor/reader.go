package transactor

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
	"github.com/steledb/stele/log"
	"github.com/steledb/stele/tx"
)

// Reader is a database opened read-only: it takes no lease, deposes nobody, and shows what is proven to be in the log of every
// owner to come (L8). All methods may be called concurrently.
type Reader struct {
	log      log.Log
	info     log.Info
	witness  *log.Witness
	instance atomic.Pointer[log.ID]
	value    atomic.Pointer[db.DB]
	marks    marks
	feed     feed
	closed   atomic.Bool

	following sync.Once
	ctx       context.Context // of the following
	cancel    context.CancelFunc
	ended     chan struct{} // nothing follows any more
	why       error         // what ended it, or nil
	behind    atomic.Pointer[error]

	patience time.Duration // with the store

	reading    chan struct{} // holds a token of the Sync at work, which owns what follows
	reader     *log.Reader
	vigil      *vigil
	replay     *replay
	fresh      []*datom.Tx // read by this Sync, as many of the newest as subscribers may want
	freshBytes int         // of them

	mu     sync.Mutex // of counts
	counts ReaderStats
}

// ReaderStats counts what a reader has done since it was opened.
type ReaderStats struct {
	Syncs        uint64 // that succeeded
	Objects      uint64 // read and proven
	Transactions uint64 // in them
}

// OpenReadOnly opens the database behind l for reading, at what is proven now. If nothing is proven yet, because its first owner
// is only just beginning, it waits until ctx ends. ErrNoDatabase: there is none. l belongs to the reader from the call on: it is closed
// by Close, or before OpenReadOnly returns an error. ctx bounds the opening only.
func OpenReadOnly(ctx context.Context, l log.Log) (*Reader, error) {
	r := &Reader{
		log: l, info: l.Info(), witness: new(log.Witness), replay: &replay{stage: db.NewStage(db.Empty())}, ended: make(chan struct{}),
		patience: Defaults().StoreTimeout, reading: make(chan struct{}, 1),
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.reader = log.NewReader(lively{l, func() { r.vigil.alive() }}, log.ReaderOptions{Witness: r.witness})
	empty := db.Empty()
	r.value.Store(&empty)
	for try := 0; ; try++ {
		d, err := r.Sync(ctx)
		if err == nil && d.BasisT() == 0 {
			err = pause(ctx, backoff(try))
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("opening %s read-only: %w", r.info.Location, err), r.Close(context.WithoutCancel(ctx)))
		}
		if d.BasisT() > 0 {
			return r, nil
		}
	}
}

// DB is the value as of the last Sync. It never waits.
func (r *Reader) DB() db.DB { return *r.value.Load() }

// Sync reads the root and what is new in the log, and returns a value that holds everything acknowledged before the call — unless
// a new owner has taken over and not yet begun: then the value is what was proven before. The value is never older than one returned
// before. log.ErrRolledBack and log.ErrCorrupt are lasting; DB goes on to show what was proven. A store that does not answer for 10 s is an error too.
func (r *Reader) Sync(ctx context.Context) (db.DB, error) {
	select {
	case r.reading <- struct{}{}:
		defer func() { <-r.reading }()
	case <-ctx.Done():
		return db.DB{}, context.Cause(ctx)
	}
	if r.closed.Load() {
		return db.DB{}, ErrClosed
	}
	ctx, r.vigil = newVigil(ctx, r.patience)
	defer r.vigil.stop()
	st, err := r.reader.Sync(ctx, func(o *log.Object) error {
		if err := r.replay.object(o); err != nil {
			return err
		}
		r.freshen()
		r.marks.passed(log.HeadOf(o))
		r.count(ReaderStats{Objects: 1, Transactions: uint64(o.Count)})
		return nil
	})
	before, value := r.DB(), r.replay.stage.Snapshot() // what was handed out is proven, also before an error
	r.value.Store(&value)
	r.feed.publish(r.fresh, before, value)
	r.fresh, r.freshBytes = nil, 0
	if err != nil {
		return db.DB{}, timedOut(ctx, err)
	}
	r.instance.Store(&st.Root.Instance)
	r.count(ReaderStats{Syncs: 1})
	return value, nil
}

// freshen keeps the transactions of the object read last for subscribers, and no more than they may have in memory.
func (r *Reader) freshen() {
	r.fresh = append(r.fresh, r.replay.txs...)
	for _, t := range r.replay.txs {
		r.freshBytes += alone(t)
	}
	if len(r.fresh) <= 2*maxFresh && r.freshBytes <= 2*windowBytes {
		return
	}
	n := 0
	for ; n < len(r.fresh)-1 && (len(r.fresh)-n > maxFresh || r.freshBytes > windowBytes); n++ {
		r.freshBytes -= alone(r.fresh[n])
	}
	r.fresh = append([]*datom.Tx(nil), r.fresh[n:]...)
}

func (r *Reader) count(more ReaderStats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Syncs += more.Syncs
	r.counts.Objects += more.Objects
	r.counts.Transactions += more.Transactions
}

// maxFresh is how many transactions of one Sync are kept for subscribers; who wants more reads the log.
const maxFresh = 4096

// followEvery is how often a reader that follows looks at the store, unless told otherwise.
const followEvery = 250 * time.Millisecond

// Follow keeps DB current from now on, by a Sync every so often (0: 250 ms) in the background, until Close. Behind says what is wrong if the store
// is out of reach; it is tried again for ever. Only what cannot get better ends the following: log.ErrCorrupt, log.ErrRolledBack, ErrDeleted. Following
// twice is following once.
func (r *Reader) Follow(every time.Duration) {
	if every <= 0 {
		every = followEvery
	}
	r.following.Do(func() { go r.follow(every) })
}

func (r *Reader) follow(every time.Duration) {
	defer close(r.ended)
	for failures := 0; ; {
		_, err := r.Sync(r.ctx)
		switch {
		case r.ctx.Err() != nil:
			return
		case err == nil:
			failures = 0
			r.behind.Store(nil)
		case mustEnd(err), errors.Is(err, ErrDeleted):
			r.why = err
			r.behind.Store(&err)
			return
		default:
			r.behind.Store(&err)
			failures++
		}
		if pause(r.ctx, max(every, backoff(failures))) != nil {
			return
		}
	}
}

// Behind is why the last Sync of a reader that follows failed; nil if it did not, or if the reader does not follow.
func (r *Reader) Behind() error {
	if err := r.behind.Load(); err != nil {
		return *err
	}
	return nil
}

// Subscribe is [Transactor.Subscribe] for a reader, which follows from now on: the reports of what every owner commits, in whatever process.
func (r *Reader) Subscribe(ctx context.Context, from uint64) iter.Seq2[*tx.Report, error] {
	r.Follow(0)
	return r.feed.subscribe(ctx, r, from, r.ended, func() error { return r.why })
}

// Info describes the store.
func (r *Reader) Info() log.Info { return r.info }

// Stats counts what was read since the reader was opened.
func (r *Reader) Stats() ReaderStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts
}

// Close ends the reader and closes the store. Values that it has shown stay good. It always returns: if ctx ends first, or the store does not answer for
// 10 s, with an error that says so, and the store goes on closing by itself. A second Close does nothing.
func (r *Reader) Close(ctx context.Context) error {
	if r.closed.Swap(true) {
		return nil
	}
	r.cancel()
	r.following.Do(func() { close(r.ended) })
	closed := make(chan error, 1)
	go func() {
		err := r.log.Close()
		<-r.ended
		r.reading <- struct{}{} // a Sync under way has ended
		r.replay.stage.Wait()
		<-r.reading
		closed <- err
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, r.patience, errStoreTimeout)
	defer cancel()
	select {
	case err := <-closed:
		return err
	case <-ctx.Done():
		return fmt.Errorf("closing %s: %w", r.info.Location, context.Cause(ctx))
	}
}

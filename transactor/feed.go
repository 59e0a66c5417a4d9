package transactor

import (
	"context"
	"errors"
	"iter"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
	"github.com/steledb/stele/internal/mutant"
	"github.com/steledb/stele/log"
	"github.com/steledb/stele/tx"
)

// feed hands committed transactions to subscribers. It keeps the newest in memory, in a bounded window; whoever is behind the window reads the log. A
// subscriber pulls, on its own goroutine: a slow one holds the report that it looks at and, while it reads the log, what is read ahead, and what it does is
// nobody else's business (P9).
type feed struct {
	mu          sync.Mutex
	subscribers int
	window      []stretch     // one behind the other, without a gap
	bytes       atomic.Int64  // of it
	last        uint64        // t of the newest transaction that was published
	more        chan struct{} // closed when something was published; nil: nobody waits
}

// stretch is some transactions in a row and the values around them.
type stretch struct {
	txs           []*datom.Tx
	before, after db.DB
	bytes         int
}

func (s *stretch) first() uint64 { return s.txs[0].T }
func (s *stretch) last() uint64  { return s.txs[len(s.txs)-1].T }

// The window: what the subscribers of one database may hold in memory together, beside what they are looking at.
const (
	windowStretches = 256
	windowBytes     = 8 << 20
)

// publish takes transactions that have just been committed, of which after is the value behind the last. It never waits for a subscriber.
func (f *feed) publish(txs []*datom.Tx, before, after db.DB) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(txs) == 0 {
		return
	}
	f.last = txs[len(txs)-1].T
	if f.subscribers == 0 {
		return
	}
	if n := len(f.window); n > 0 && f.window[n-1].last() != txs[0].T-1 {
		f.clear() // a reader that had too much to catch up with
	}
	if before.BasisT() != txs[0].T-1 {
		before = after.WithBasis(txs[0].T - 1)
	}
	s := stretch{txs: txs, before: before, after: after}
	for _, t := range txs {
		s.bytes += alone(t)
	}
	if !mutant.Is("keep-values") {
		f.renew(after)
	}
	f.window = append(f.window, s)
	bytes := f.bytes.Load() + int64(s.bytes)
	drop := 0
	for drop < len(f.window) && (len(f.window)-drop > windowStretches || bytes > windowBytes) {
		bytes -= int64(f.window[drop].bytes)
		drop++
	}
	f.bytes.Store(bytes)
	clear(f.window[:drop])
	f.window = f.window[drop:]
	f.wake()
}

// renew has the window hold views of the newest value in the place of values that are like them but for what came later, so that it does not keep the
// indexes of each.
func (f *feed) renew(newest db.DB) {
	for i := range f.window {
		s := &f.window[i]
		if s.after.Schema() == newest.Schema() {
			s.after = newest.WithBasis(s.last())
		}
		if s.before.Schema() == newest.Schema() {
			s.before = newest.WithBasis(s.first() - 1)
		}
	}
}

func (f *feed) clear() {
	f.window = nil
	f.bytes.Store(0)
}

// wake lets everybody who waits look again.
func (f *feed) wake() {
	if f.more != nil {
		close(f.more)
		f.more = nil
	}
}

func (f *feed) join() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.subscribers++
}

func (f *feed) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.subscribers--; f.subscribers == 0 {
		f.clear()
	}
}

// begin says that the transactions up to last were committed before anybody could subscribe.
func (f *feed) begin(last uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = last
}

// at is the report of transaction t, if it is in the window; last is the newest transaction that was published. more is closed once there is more. It is one
// report, and not all that the window has: a subscriber that takes nothing more would keep them, long after they left the window.
func (f *feed) at(t uint64) (r *tx.Report, last uint64, more <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.more == nil {
		f.more = make(chan struct{})
	}
	if mutant.Is("feed-skips") && len(f.window) > 0 && f.window[0].first() > t {
		t = f.window[0].first()
	}
	i := sort.Search(len(f.window), func(i int) bool { return f.window[i].last() >= t })
	if i == len(f.window) || f.window[i].first() > t {
		return nil, f.last, f.more
	}
	s := &f.window[i]
	before, after := s.before, s.after
	if t > s.first() {
		before = after.WithBasis(t - 1)
	}
	if t < s.last() {
		after = after.WithBasis(t)
	}
	return reportOf(s.txs[t-s.first()], before, after), f.last, f.more
}

// source is what a subscription reads.
type source interface {
	DB() db.DB
	TxRange(ctx context.Context, from, to uint64) iter.Seq2[*datom.Tx, error]
}

// subscribe yields the reports of all transactions from t = from on, first from the log, then as they are committed, without a gap. ended is
// closed when there will be no more, and why says why.
func (f *feed) subscribe(ctx context.Context, src source, from uint64, ended chan struct{}, why func() error) iter.Seq2[*tx.Report, error] {
	return func(yield func(*tx.Report, error) bool) {
		f.join()
		defer f.leave()
		next := max(from, 1)
		for failures := 0; ; {
			r, last, more := f.at(next)
			if r != nil {
				if ctx.Err() != nil {
					yield(nil, context.Cause(ctx))
					return
				}
				next = r.T + 1
				if !yield(r, nil) {
					return
				}
				continue
			}
			if next <= last {
				var failed error
				for t, err := range src.TxRange(ctx, next, last+1) {
					if err != nil {
						failed = err
						break
					}
					if ctx.Err() != nil {
						break
					}
					d := src.DB() // not the one from before: it would be kept from being forgotten
					if !yield(reportOf(t, d.WithBasis(t.T-1), d.WithBasis(t.T)), nil) {
						return
					}
					next, failures = t.T+1, 0
				}
				switch {
				case ctx.Err() != nil:
					yield(nil, context.Cause(ctx))
					return
				case failed != nil && isClosed(ended):
					yield(nil, because(ErrClosed, why()))
					return
				case errors.Is(failed, log.ErrClosed): // by who is about to say why
					yield(nil, because(ErrClosed, failed))
					return
				case failed != nil && mustEnd(failed):
					yield(nil, failed)
					return
				case failed != nil:
					_ = pause(ctx, backoff(failures)) // the store is out of reach: go on where it ended
					failures++
				}
				continue
			}
			select {
			case <-more:
			case <-ctx.Done():
				yield(nil, context.Cause(ctx))
				return
			case <-ended:
				if _, last, _ := f.at(next); next > last {
					yield(nil, because(ErrClosed, why()))
					return
				}
			}
		}
	}
}

func reportOf(t *datom.Tx, before, after db.DB) *tx.Report {
	return &tx.Report{DBBefore: before, DBAfter: after, T: t.T, Tx: datom.TxID(t.T), TxData: t.Datoms}
}

// Subscribe yields the report of every committed transaction from t = from on (0 or 1: all), each once, in order, without a gap: those in the log first,
// then each as it is committed, until ctx ends or the transactor does, which is the last error. Breaking off ends it as well. Any number of
// subscribers may be at work; each pulls at its own pace, on its own goroutine, and one that has fallen behind reads the log. Reports from the log
// hold views of the present value, with its schema; Tempids are the submitter's alone.
//
// A store out of reach is waited for; log.ErrCorrupt and log.ErrRolledBack are errors.
func (x *Transactor) Subscribe(ctx context.Context, from uint64) iter.Seq2[*tx.Report, error] {
	return x.feed.subscribe(ctx, x, from, x.ended, func() error { return x.endErr })
}

package transactor

import (
	"context"
	"time"

	"github.com/steledb/stele/internal/mutant"
	"github.com/steledb/stele/tx"
)

// TxOptions are the options of one transaction.
type TxOptions struct {
	// Key is an idempotency key (P8), at most 1024 bytes: a request that was committed under it before, by whatever owner, commits nothing now and
	// has the original's report, with Repeated set. Another request under the same key is refused (tx.ErrIdempotencyMismatch). "" is none. It is the same
	// as the fact :stele.tx/key of "datomic.tx" among the forms.
	Key string
	// After names an earlier submission to the same transactor. If that one ends in anything but a commit, this one commits
	// nothing and ends with ErrPredecessorRefused (ErrUnknownOutcome behind an unknown one). So a stream of transactions can
	// be pipelined and still stops exactly at its first refusal.
	After *Future
	// Wait waits for room in a full queue, as long as Submit's or Transact's context lasts, instead of failing with ErrBusy. Those who wait are
	// admitted in the order in which they came, ahead of everybody who does not.
	Wait bool
}

// Future is a submitted transaction's outcome to come. Any number of goroutines may wait for it.
type Future struct {
	x     *Transactor
	req   *tx.Request
	after *Future
	share // of the queue
	born  time.Time

	// Of the preparing goroutine, then of the installing one.
	judged  verdict
	prep    *tx.Prepared
	refusal error

	done   chan struct{}
	report *tx.Report
	err    error
}

type verdict uint8

const (
	pending  verdict = iota // not judged in this epoch
	staged                  // part of a batch
	refused                 // judged, and not answered yet
	repeated                // judged: an earlier transaction has its key
)

// Done is closed once the outcome is known.
func (f *Future) Done() <-chan struct{} { return f.done }

// Wait returns the report of the committed transaction, or why it was not committed. If ctx ends first, the error is a
// *PendingError, and the transaction goes on.
func (f *Future) Wait(ctx context.Context) (*tx.Report, error) {
	select {
	case <-f.done:
		return f.report, f.err
	default:
	}
	select {
	case <-f.done:
		return f.report, f.err
	case <-ctx.Done():
		if mutant.Is("cancel-the-epoch") {
			f.x.term.Load().fail(ctx.Err())
			f.x.cancel(ctx.Err())
		}
		return nil, &PendingError{Future: f, Err: context.Cause(ctx)}
	}
}

// answer ends the future. It is called once.
func (f *Future) answer(r *tx.Report, err error) {
	f.report, f.err = r, err
	f.req, f.prep, f.after = nil, nil, nil
	close(f.done)
}

func (f *Future) answered() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

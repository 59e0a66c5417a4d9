package transactor

import (
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/log"
)

var (
	// ErrBusy: the queue is full. Nothing was admitted; try again a little later, a *BusyError says when, or use TxOptions.Wait.
	ErrBusy = errors.New("the transaction queue is full")
	// ErrClosed: the transactor was closed, or closed itself (the cause is wrapped). The transaction was never sent to the store and
	// is not in the log; what was submitted before under its idempotency key may be.
	ErrClosed = errors.New("the transactor is closed; open the database again")
	// ErrUnknownOutcome: the transaction, or what was submitted before under its idempotency key, was sent to the store, and whether it is in the
	// log could not be learned in time.
	ErrUnknownOutcome = errors.New("the outcome of the transaction is not known: it may be in the log or not; open the database again and, if the " +
		"transaction has an idempotency key (TxOptions.Key), submit it again under the same key, or else look for what it asserts")
	// ErrPredecessorRefused: the transaction that TxOptions.After names did not commit, so this one committed nothing. It wraps the
	// predecessor's error.
	ErrPredecessorRefused = errors.New("the transaction before this one did not commit")
	// ErrDeposed: another owner has taken the database.
	ErrDeposed = errors.New("another owner has taken over the database; open it again to compete for it")
	// ErrFunctionStuck: a transaction function or predicate did not return although its context had ended. It wraps tx.ErrStuck.
	ErrFunctionStuck = errors.New("a transaction function did not return and blocked everybody; it must heed its context")
	// ErrOwned: somebody else owns the database, and Options.NoWait was set or the wait ended.
	ErrOwned = log.ErrOwned
	// ErrNoDatabase: there is no such database, and Options.MustExist was set, or it was opened read-only.
	ErrNoDatabase = log.ErrNoRoot
	// ErrDeleted: the database was deleted.
	ErrDeleted = log.ErrDeleted
)

// BusyError is why a transaction was not admitted: the queue is full, and is likely to have room again in about After. It wraps ErrBusy.
type BusyError struct{ After time.Duration }

func (e *BusyError) Error() string { return fmt.Sprintf("%v; try again in about %v", ErrBusy, e.After) }
func (e *BusyError) Unwrap() error { return ErrBusy }

// OwnedError says who owns the database, and how much is left of the lease that they may still renew. It wraps ErrOwned and, if a wait ended, why.
type OwnedError struct {
	Owner    string
	Endpoint string // where the owner says it can be reached, or ""
	Left     time.Duration
	Err      error
}

func (e *OwnedError) Error() string {
	s := fmt.Sprintf("%v: %s", ErrOwned, e.Owner)
	if e.Endpoint != "" {
		s += " at " + e.Endpoint
	}
	s += fmt.Sprintf(" holds a lease for another %v unless renewed", e.Left.Round(time.Millisecond))
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *OwnedError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrOwned}
	}
	return []error{ErrOwned, e.Err}
}

// PendingError is what Transact and Future.Wait return when the caller's context ends before the answer. It stops the
// wait, not the transaction: the outcome is still to come, through Future. It wraps the context's error.
type PendingError struct {
	Future *Future
	Err    error
}

func (e *PendingError) Error() string {
	return fmt.Sprintf("%v while the transaction is under way; its future still gets the outcome", e.Err)
}
func (e *PendingError) Unwrap() error { return e.Err }

// CommitError is the answer to the transactions whose object the store refused or failed to write, once it is certain that
// they are not in the log. They may be submitted again.
type CommitError struct{ Err error }

func (e *CommitError) Error() string {
	return "the transaction was not committed, since the log could not be written; it may be submitted again: " + e.Err.Error()
}
func (e *CommitError) Unwrap() error { return e.Err }

// RepeatError is the answer to a transaction that had been committed before under its idempotency key, as transaction T, but whose report could not be
// read from the log.
type RepeatError struct {
	T   uint64
	Err error
}

func (e *RepeatError) Error() string {
	return fmt.Sprintf("the transaction had been committed before, as t = %d; its report could not be read from the log: %v", e.T, e.Err)
}
func (e *RepeatError) Unwrap() error { return e.Err }

// because wraps a sentinel together with its cause.
func because(sentinel, cause error) error {
	if cause == nil || errors.Is(cause, sentinel) {
		if cause != nil {
			return cause
		}
		return sentinel
	}
	return fmt.Errorf("%w: %w", sentinel, cause)
}

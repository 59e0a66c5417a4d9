package transactor

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/log"
	"github.com/steledb/stele/tx"
)

// Options are a transactor's settings. The zero value of each field means its default; see [Defaults].
type Options struct {
	// MaxBatch is how many transactions one log object takes at most. Default 256.
	MaxBatch int
	// MaxBatchBytes is how many uncompressed bytes it takes at most; a single larger transaction goes alone. Default 4 MiB.
	MaxBatchBytes int
	// Depth is how many flushes may be in flight. Default: what the backend advertises.
	Depth int
	// MaxInFlightBytes bounds the bytes of all flushes in flight; a batch is also sent if nothing is in flight. Default 64 MiB.
	MaxInFlightBytes int

	// QueueTransactions and QueueBytes bound what is admitted and not yet answered; beyond them Submit and Transact fail with
	// ErrBusy. Defaults 16384 and 256 MiB.
	QueueTransactions int
	QueueBytes        int

	// MemoryBudget bounds, in bytes, what the transactor keeps alive: the newest database value, which grows with everything that was ever
	// committed, the queue, batches, and what a merge of indexes takes beside. Beyond it Submit and Transact fail with ErrMemoryBudget, and
	// reads go on. docs/memory.md says what it leaves out, and how much to give a process. Default 0: none, so that the process grows until it is
	// killed; a server should have one, of less than half of the memory that it may use.
	MemoryBudget int

	// StoreTimeout is the deadline of one call to the store. Default 10 s.
	StoreTimeout time.Duration
	// Retries is how often a call to the store that may be tried again is. Default 3; negative: never.
	Retries int
	// MaxEpochs is how many epochs in a row may end without a batch that became durable and was fenced, before the transactor closes. Default 5.
	MaxEpochs int
	// MaxOutage is how long the store may be out of reach before the transactor closes. Default 10 min.
	MaxOutage time.Duration

	// MustExist refuses to create a missing database (ErrNoDatabase).
	MustExist bool
	// NoWait fails with ErrOwned at once where another owner holds the database, instead of waiting until Open's context ends. Where the store has no
	// clock (S3), only waiting tells that a lease has run out, so that NoWait fails as long as the last owner has not released it.
	NoWait bool
	// TakeOver deposes whoever owns the database, without waiting for its lease. What it has acknowledged is kept, and it learns that it was deposed
	// at its next commit. Where the store has a lock (fs), the lock decides, and TakeOver is as NoWait.
	TakeOver bool
	// Lease is how long a standby waits for a sign of life of this owner before it takes over; it is renewed every third of it. It is a
	// matter of availability, never of safety. Stores with a lock (fs) have none. Default 10 s; at least 10 ms.
	Lease time.Duration

	// Owner names this process in the root record, for people, and Endpoint says where it can be reached, if anywhere. At most
	// log.MaxRootText bytes each. Default: host name and process id; none.
	Owner    string
	Endpoint string
	// Functions are the transaction functions, by the keyword that calls them, and Predicates what schema names. They must not
	// be changed after Open.
	Functions  map[datom.Keyword]tx.Func
	Predicates Predicates
	// FunctionTimeout bounds one call of a function or predicate: its context ends then, and the transaction is refused. One that
	// goes on all the same for a second closes the transactor with ErrFunctionStuck. Default 5 s.
	FunctionTimeout time.Duration
	// Limits bound a transaction. Default: tx.DefaultLimits.
	Limits tx.Limits
	// Clock is the transactor's clock, for :db/txInstant. Default time.Now. Nothing else depends on it.
	Clock func() time.Time
	// Logger takes what an operator should know. Default: slog.Default().
	Logger *slog.Logger
}

// Predicates are Go functions by the symbols that :db.attr/preds and :db.entity/preds name them by.
type Predicates struct {
	Attr   map[datom.Symbol]tx.AttrPred
	Entity map[datom.Symbol]tx.EntityPred
}

// Defaults are the options that stand for zero fields. Depth is the backend's.
func Defaults() Options {
	return Options{
		MaxBatch:          256,
		MaxBatchBytes:     4 << 20,
		MaxInFlightBytes:  64 << 20,
		QueueTransactions: 16384,
		QueueBytes:        256 << 20,
		StoreTimeout:      10 * time.Second,
		Retries:           3,
		MaxEpochs:         5,
		MaxOutage:         10 * time.Minute,
		Lease:             log.DefaultLease,
		FunctionTimeout:   5 * time.Second,
		Limits:            tx.DefaultLimits,
	}
}

// Validate returns every problem of the options at once.
func (o Options) Validate() error {
	var errs []error
	atLeast := func(name string, n, least int) {
		if n < least {
			errs = append(errs, fmt.Errorf("%s is %d; it must be at least %d, or 0 for the default", name, n, least))
		}
	}
	atLeast("MaxBatch", o.MaxBatch, 0)
	atLeast("MaxBatchBytes", o.MaxBatchBytes, 0)
	atLeast("Depth", o.Depth, 0)
	atLeast("MaxInFlightBytes", o.MaxInFlightBytes, 0)
	atLeast("QueueTransactions", o.QueueTransactions, 0)
	atLeast("QueueBytes", o.QueueBytes, 0)
	atLeast("MemoryBudget", o.MemoryBudget, 0)
	atLeast("MaxEpochs", o.MaxEpochs, 0)
	if o.MaxBatchBytes > maxTransaction {
		errs = append(errs, fmt.Errorf("MaxBatchBytes is %d; a log object takes at most %d", o.MaxBatchBytes, maxTransaction))
	}
	if o.MaxBatch > log.MaxCount {
		errs = append(errs, fmt.Errorf("MaxBatch is %d; a log object takes at most %d transactions", o.MaxBatch, log.MaxCount))
	}
	positive := func(name string, d time.Duration) {
		if d < 0 {
			errs = append(errs, fmt.Errorf("%s is %v; it must be positive, or 0 for the default", name, d))
		}
	}
	positive("StoreTimeout", o.StoreTimeout)
	positive("MaxOutage", o.MaxOutage)
	positive("FunctionTimeout", o.FunctionTimeout)
	if o.Lease != 0 && o.Lease < shortestLease {
		errs = append(errs, fmt.Errorf("%s is %v; it must be at least %v, or 0 for the default", "Lease", o.Lease, shortestLease))
	}
	for _, s := range []struct{ name, text string }{{"Owner", o.Owner}, {"Endpoint", o.Endpoint}} {
		if len(s.text) > log.MaxRootText {
			errs = append(errs, fmt.Errorf("%s has %d bytes; at most %d", s.name, len(s.text), log.MaxRootText))
		}
	}
	return errors.Join(errs...)
}

// shortestLease keeps the renewing from being all that a store does.
const shortestLease = 10 * time.Millisecond

// withDefaults fills the zero fields.
func (o Options) withDefaults(depth int) Options {
	d := Defaults()
	set := func(v *int, def int) {
		if *v == 0 {
			*v = def
		}
	}
	set(&o.MaxBatch, d.MaxBatch)
	set(&o.MaxBatchBytes, d.MaxBatchBytes)
	set(&o.Depth, max(depth, 1))
	set(&o.MaxInFlightBytes, d.MaxInFlightBytes)
	set(&o.QueueTransactions, d.QueueTransactions)
	set(&o.QueueBytes, d.QueueBytes)
	set(&o.Retries, d.Retries)
	set(&o.MaxEpochs, d.MaxEpochs)
	o.Retries = max(o.Retries, 0)
	o.StoreTimeout = cmp.Or(o.StoreTimeout, d.StoreTimeout)
	o.MaxOutage = cmp.Or(o.MaxOutage, d.MaxOutage)
	o.Lease = cmp.Or(o.Lease, d.Lease)
	o.FunctionTimeout = cmp.Or(o.FunctionTimeout, d.FunctionTimeout)
	if o.Limits == (tx.Limits{}) {
		o.Limits = d.Limits
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Owner == "" {
		host, _ := os.Hostname()
		o.Owner = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	return o
}

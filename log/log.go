package log

import (
	"context"
	"errors"
	"iter"
	"time"
)

// Log is one named database's place in a store: its root record, its objects and its blobs. It is the contract that every
// backend implements (protocol.md §2); log/logtest holds a test for each sentence.
//
// All methods may be called concurrently. A Log is linearizable: a Root, List, Read, Get or Verify that begins after an
// Append or CompareAndSwap returned — anywhere, in any process — shows it, and what one read has shown, no later one
// misses, unless it was sealed.
//
// Objects, keys and roots that are passed in are not changed and may be kept; what is returned belongs to the caller but
// its bytes must not be changed.
//
// Every method returns once ctx ends, or soon after. An error that says nothing else is one about the store being out of
// reach; [OutcomeOf] says of every error of Append and CompareAndSwap whether something may have been written.
type Log interface {
	// Info describes the store. It does not change while the Log is open.
	Info() Info

	// Root reads the root record now. ErrNoRoot: there is none. A tombstone is returned like any root.
	Root(ctx context.Context) (*Root, error)

	// RootAge is Root, and how long ago that root was written, by the store's own clock: a standby judges by it whether the owner's lease
	// has run out, and nothing else depends on it (L9). Where the store has no clock that everybody sees alike the age is negative, and a
	// standby judges by how long it has itself seen claim and lease counter unchanged. Like CompareAndSwap, which
	// renews leases, it does not wait behind appends or long reads.
	RootAge(ctx context.Context) (root *Root, age time.Duration, err error)

	// CompareAndSwap replaces the root old, which was read before, by next, or creates it if old is nil. next.Version must
	// be old.Version+1 (1 for a create). Nil only once the new root is durable. ErrConflict: the root in the store is not old, and
	// next was not written; it is the caller's to read the root and look whether an earlier try has landed.
	CompareAndSwap(ctx context.Context, old, next *Root) error

	// Append writes one object. It is create-only and idempotent: nil only once the object is durable; if the key exists with
	// the same chain hash the append has already happened, and nil is returned only once that is known to be durable.
	// ErrConflict: the key exists with another hash. Appends of one owner may run concurrently, up to Info().Depth, and may
	// become durable in any order.
	Append(ctx context.Context, inst ID, o *Object) error

	// Verify reads the root now. Nil: the root is that of c.Instance, c.Epoch and c.Claim, and every key in c.Keys — all of them
	// known to be durable when the call began — is there, or sealed. ErrNotOwner: there is no root, or it is a tombstone,
	// or of another instance, epoch or claim; not an error to retry. ErrRolledBack: a key is gone and is not sealed. A backend that
	// cannot lose what it made durable need not look at the keys. Any other error: the verdict is not known.
	Verify(ctx context.Context, c Check) error

	// AppendVerify is an Append and, if that returned nil, a Verify that begins once the object is durable. appendErr is what
	// Append returned; verifyErr what Verify did, and is meaningless if appendErr is not nil. One round trip where the store
	// allows it.
	AppendVerify(ctx context.Context, o *Object, c Check) (appendErr, verifyErr error)

	// Get reads one object by its key. ErrNotFound: it is not there. It never blocks an Append.
	Get(ctx context.Context, inst ID, k Key) (*Object, error)

	// List yields the keys that are there behind after, in order, without reading the objects. Read yields the objects
	// themselves, several prefetched. Memory is bounded and cost follows the range; neither ever blocks an Append. An error ends
	// the iteration. An object that does not decode is yielded as a *CorruptError with its key, and ends it too.
	List(ctx context.Context, inst ID, after Key) iter.Seq2[Key, error]
	Read(ctx context.Context, inst ID, after Key) iter.Seq2[*Object, error]

	// Lock takes the store's own guard of ownership, where it has one (fs: flock), for as long as the owner lives; unlock
	// gives it back. With wait it waits until ctx ends. ErrOwned: another owner holds it. Where the store has no such guard it does nothing:
	// what proves ownership is the root.
	Lock(ctx context.Context, wait bool) (unlock func() error, err error)

	// Adopt is called by an owner, inside its Lock and after the CAS that gave it its epoch, before it writes its start:
	// head is the position that it is about to build on and unfenced are the objects of the chain that no later object marks as
	// fenced, in order. When it returns nil they are durable, whatever a crash before did to them, and what was torn behind
	// head is repaired. The repairs are reported, for a log line; most stores have none.
	Adopt(ctx context.Context, inst ID, head Pos, unfenced []*Object) (repairs []string, err error)

	// PutBlob writes a write-once blob and returns nil once it is durable; writing the same name again is no error; b is not kept.
	// GetBlob reads it; ErrNotFound.
	PutBlob(ctx context.Context, inst ID, name string, b []byte) error
	GetBlob(ctx context.Context, inst ID, name string) ([]byte, error)

	// Delete removes objects up to and including the key upTo, of this instance: what lies at or below a sealed position. MaxKey
	// removes everything, blobs too, once the root is a tombstone. Below MaxKey a store may keep some of what could go (fs removes whole files
	// only); it never removes anything else. It may stop anywhere and be called again.
	Delete(ctx context.Context, inst ID, upTo Key) error

	// Close releases what the handle holds. Calls under way end; later ones fail with ErrClosed. Closing again does nothing.
	Close() error
}

// Info describes a store.
type Info struct {
	Backend string // "fs", "mem", "pg", "s3"
	// Location is where the database is, for log lines: no secrets.
	Location string
	// Durability says in words what a nil from Append promises ("fdatasync", "none", …).
	Durability string
	// Durable is false where a crash of the machine loses what was acknowledged.
	Durable bool
	// Depth is how many Appends of one owner are best kept in flight.
	Depth int
	// Guarded: Lock is a guard that the operating system keeps for as long as the owner lives, so there is no lease (fs).
	Guarded bool
	// FailStop: a failed write or sync ends the use of this handle, so an epoch that failed is not followed by another (fs).
	FailStop bool
	// Compress says whether payloads are worth compressing before they are sent to this store.
	Compress bool
}

// Check is what a Verify asserts.
type Check struct {
	Instance ID
	Epoch    uint64
	Claim    ID
	Keys     []Key
}

var (
	// ErrNoRoot: there is no database of this name.
	ErrNoRoot = errors.New("no such database")
	// ErrExists: there is a database of this name already.
	ErrExists = errors.New("the database exists")
	// ErrDeleted: the root is a tombstone.
	ErrDeleted = errors.New("the database was deleted")
	// ErrNotFound: the object or blob is not there.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the key exists with other bytes, or the root is not the one expected.
	ErrConflict = errors.New("conflict")
	// ErrNotOwner: the root names another instance, epoch or claim, or there is none.
	ErrNotOwner = errors.New("not the owner")
	// ErrOwned: somebody else owns the database.
	ErrOwned = errors.New("the database is owned by another process")
	// ErrRolledBack: the store lost something that was durable, or went back to an earlier state (L11).
	ErrRolledBack = errors.New("the store went back to an earlier state")
	// ErrCorrupt is wrapped by every *CorruptError.
	ErrCorrupt = errors.New("the log is damaged")
	// ErrClosed: the handle was closed.
	ErrClosed = errors.New("closed")
	// ErrFailed: an earlier write or sync of this handle failed; it takes no more (fs, fail-stop).
	ErrFailed = errors.New("an earlier write failed; this handle takes no more")
)

// Outcome says what became of a write that returned an error.
type Outcome int

const (
	// Unknown: it may have been written, or be written later. It is what an error without an outcome means.
	Unknown Outcome = iota
	// NotWritten: nothing happened; it may be tried again.
	NotWritten
	// Rejected: nothing was written, and would not be by another try.
	Rejected
)

func (o Outcome) String() string { return [...]string{"unknown", "not written", "rejected"}[o] }

type outcomeError struct {
	outcome Outcome
	err     error
}

func (e *outcomeError) Error() string { return e.err.Error() + " (" + e.outcome.String() + ")" }
func (e *outcomeError) Unwrap() error { return e.err }

// WithOutcome marks an error with what became of the write.
func WithOutcome(o Outcome, err error) error { return &outcomeError{o, err} }

// OutcomeOf says what became of the write that returned err. ErrConflict, ErrExists and ErrNotOwner are Rejected.
func OutcomeOf(err error) Outcome {
	var oe *outcomeError
	switch {
	case errors.As(err, &oe):
		return oe.outcome
	case errors.Is(err, ErrConflict), errors.Is(err, ErrExists), errors.Is(err, ErrNotOwner):
		return Rejected
	default:
		return Unknown
	}
}

// CorruptError says where the log is damaged. It wraps ErrCorrupt and, if there is one, the cause.
type CorruptError struct {
	Location string // store and database; for fs the file and the offset in it
	Key      Key    // the object, if it is known
	Reason   string
	Err      error
}

func (e *CorruptError) Error() string {
	s := ErrCorrupt.Error()
	if e.Location != "" {
		s += ": " + e.Location
	}
	if e.Key != (Key{}) {
		s += ": object " + e.Key.String()
	}
	s += ": " + e.Reason
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *CorruptError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrCorrupt}
	}
	return []error{ErrCorrupt, e.Err}
}

// DefaultLease is the lease's length where nobody says otherwise.
const DefaultLease = 10 * time.Second

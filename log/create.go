package log

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/internal/mutant"
)

// Create makes a database that was not there, or that was deleted, and returns its root: of epoch 0, so that the first to open it owns it.
// Over a tombstone it is a new database with ids of its own, and what may be left of the old one is removed first. An answer that was lost
// is settled by the instance id: a nil error says that the database is of this call's making.
//
// Errors: ErrExists. Whatever else the store returns; if [OutcomeOf] then says Unknown, the database may appear later.
func Create(ctx context.Context, l Log) (*Root, error) {
	old, err := vacate(ctx, l)
	if err != nil {
		return nil, fmt.Errorf("cannot create the database in %s: %w", l.Info().Location, err)
	}
	next := NewRoot()
	if old != nil {
		next = old.Recreate()
	}
	root, err := plant(ctx, l, old, next)
	if err != nil {
		return nil, fmt.Errorf("cannot create the database in %s: %w", l.Info().Location, err)
	}
	return root, nil
}

// vacate reads the root in whose place a database may be created: nil, there is none, or a tombstone, of whose database nothing is left. Once
// the tombstone is replaced nobody knows that instance any more, so this is the last moment to remove it.
func vacate(ctx context.Context, l Log) (old *Root, err error) {
	err = retry(ctx, func() error { old, err = l.Root(ctx); return err })
	switch {
	case errors.Is(err, ErrNoRoot):
		return nil, nil
	case err == nil && !old.Deleted:
		return nil, ErrExists
	case err == nil:
		err = retry(ctx, func() error { return l.Delete(ctx, old.Instance, MaxKey) })
	}
	if err != nil {
		return nil, WithOutcome(NotWritten, err)
	}
	return old, nil
}

// plant makes next the root in place of old, which is what vacate returned. Whether that has happened is told by next's instance id, which
// nobody else has; if it has not, the same root is sent again. The root returned is next, or what its owners have made of it since. An
// error's outcome is Unknown if next may still become the root.
func plant(ctx context.Context, l Log, old, next *Root) (*Root, error) {
	unknown := false
	for try := 0; ; try++ {
		err := l.CompareAndSwap(ctx, old, next)
		if err == nil {
			return next, nil
		}
		unknown = unknown || OutcomeOf(err) == Unknown
		now, readErr := l.Root(ctx)
		switch {
		case readErr == nil && now.Instance == next.Instance && !mutant.Is("create-unsettled"):
			return now, nil
		case readErr == nil && (old == nil || *now != *old):
			// Another root is there, and old will never be again.
			if now.Deleted {
				return nil, fmt.Errorf("%w: it was created and deleted by somebody else meanwhile", ErrConflict)
			}
			return nil, ErrExists
		case OutcomeOf(err) == Rejected && !unknown:
			return nil, err
		case try == retries || lasting(err) || ctx.Err() != nil || pause(ctx, try) != nil:
			if unknown {
				return nil, WithOutcome(Unknown, err)
			}
			return nil, err
		}
	}
}

// DeleteOptions say what Delete may do. The zero value is the careful one.
type DeleteOptions struct {
	// Force deletes a database whose owner has not released its lease: it is deposed, and what it had not acknowledged is lost. It does
	// not help against the guard of a store that has one (fs).
	Force bool
}

// Delete deletes the database: its root becomes a tombstone, which stays, so that its owner and its readers learn of it, and then objects and
// blobs go. It may stop anywhere and be called again: of a database that is deleted it removes what is left.
//
// Errors: ErrNoRoot. ErrOwned: somebody owns the database, that is, holds the store's guard, or has a lease which was not released and
// is not known to have run out; nothing was done. Whatever else the store returns: the database may be deleted, and something of it be left.
func Delete(ctx context.Context, l Log, o DeleteOptions) error {
	if err := deleteDatabase(ctx, l, o); err != nil {
		return fmt.Errorf("cannot delete the database in %s: %w", l.Info().Location, err)
	}
	return nil
}

func deleteDatabase(ctx context.Context, l Log, o DeleteOptions) (err error) {
	var root *Root
	var age time.Duration
	read := func() error {
		return retry(ctx, func() error { root, age, err = l.RootAge(ctx); return err })
	}
	if err := read(); err != nil {
		return err // a Lock would have made something
	}
	inst := root.Instance // what may follow it under the same name is not meant
	if !root.Deleted {
		unlock, err := l.Lock(ctx, false)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, unlock()) }()
	}
	for try := 0; ; {
		tried := *root
		if err := read(); err != nil {
			return err
		}
		if root.Deleted || root.Instance != inst {
			break // by us, if an answer was lost, or by others
		}
		if !o.Force && !l.Info().Guarded && root.Lease > 0 && (age < 0 || age < root.Lease) && !mutant.Is("delete-owned") {
			return fmt.Errorf("%w: %q, in epoch %d, did not release its lease of %s; if it is gone, force is needed", ErrOwned, root.Owner, root.Epoch, root.Lease)
		}
		err := l.CompareAndSwap(ctx, root, root.Tombstone())
		if err == nil {
			break
		}
		// A conflict is a root that moved, as by the renewal of a lease: judge that one.
		if *root != tried {
			try = 0
		}
		if !errors.Is(err, ErrConflict) && lasting(err) || try == retries || ctx.Err() != nil || pause(ctx, try) != nil {
			return err
		}
		try++
	}
	return retry(ctx, func() error { return l.Delete(ctx, inst, MaxKey) })
}

// retries is how often a call is made again that failed, but not for good.
const retries = 6

// retry calls f until it succeeds, fails for good, or has failed too often.
func retry(ctx context.Context, f func() error) error {
	for try := 0; ; try++ {
		err := f()
		if err == nil || try == retries || lasting(err) || ctx.Err() != nil || pause(ctx, try) != nil {
			return err
		}
	}
}

// lasting reports whether an error would come again.
func lasting(err error) bool {
	for _, e := range []error{ErrNoRoot, ErrDeleted, ErrNotFound, ErrOwned, ErrRolledBack, ErrCorrupt, ErrClosed, ErrFailed, ErrSealed} {
		if errors.Is(err, e) {
			return true
		}
	}
	return OutcomeOf(err) == Rejected
}

// pause waits before the next try, longer each time, or until ctx ends.
func pause(ctx context.Context, try int) error {
	t := time.NewTimer(20 * time.Millisecond << try)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

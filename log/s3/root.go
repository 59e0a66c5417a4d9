package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/steledb/stele/log"
)

// rootCache remembers the root that was read or written last, and its ETag. The contract names the root that is to be replaced by its
// value, S3 by its ETag. That a newer root is in the store does no harm: the ETag does not match then.
type rootCache struct {
	mu   sync.Mutex
	body []byte
	etag string
}

func (c *rootCache) keep(body []byte, etag string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.body, c.etag = body, etag
}

func (c *rootCache) etagOf(body []byte) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.etag, c.etag != "" && bytes.Equal(c.body, body)
}

// rootBytes reads the root as it is stored. ErrNoRoot: there is none.
func (l *Log) rootBytes(ctx context.Context, st store) (body []byte, etag string, err error) {
	body, etag, err = get(ctx, st, l.rootKey(), log.MaxRoot)
	switch {
	case err == nil:
		l.root.keep(body, etag)
		return body, etag, nil
	case errors.Is(err, errTooLarge):
		return nil, "", &log.CorruptError{Location: l.where, Reason: fmt.Sprintf("the root record is larger than %d bytes", log.MaxRoot)}
	case kindOf(err) == missing:
		return nil, "", log.ErrNoRoot
	default:
		return nil, "", err
	}
}

func (l *Log) readRoot(ctx context.Context, st store) (*log.Root, error) {
	body, _, err := l.rootBytes(ctx, st)
	if err != nil {
		return nil, err
	}
	return l.decodeRoot(body)
}

func (l *Log) decodeRoot(body []byte) (*log.Root, error) {
	r, err := log.DecodeRoot(body)
	if ce := (*log.CorruptError)(nil); errors.As(err, &ce) {
		ce.Location = l.where
	}
	return r, err
}

// Root reads the root record.
func (l *Log) Root(ctx context.Context) (*log.Root, error) {
	ctx, end, err := l.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	return l.readRoot(ctx, l.control)
}

// RootAge is Root. The age is negative: S3 has no clock that everybody sees alike.
func (l *Log) RootAge(ctx context.Context) (root *log.Root, age time.Duration, err error) {
	if root, err = l.Root(ctx); err != nil {
		return nil, 0, err
	}
	return root, -1, nil
}

// Verify reads the root. It does not look at the keys: what S3 has answered it does not lose.
func (l *Log) Verify(ctx context.Context, c log.Check) error {
	ctx, end, err := l.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	return l.verify(ctx, c)
}

func (l *Log) verify(ctx context.Context, c log.Check) error {
	r, err := l.readRoot(ctx, l.data)
	switch {
	case errors.Is(err, log.ErrNoRoot):
		return fmt.Errorf("%w: %w", log.ErrNotOwner, err)
	case err != nil:
		return err
	case !r.Owned(c.Instance, c.Epoch, c.Claim):
		return log.ErrNotOwner
	}
	return nil
}

// CompareAndSwap replaces the root if it is old.
func (l *Log) CompareAndSwap(ctx context.Context, old, next *log.Root) error {
	want, have := uint64(1), []byte(nil)
	if old != nil {
		want = old.Version + 1
		var err error
		if have, err = log.EncodeRoot(old); err != nil {
			return log.WithOutcome(log.Rejected, err)
		}
	}
	if next.Version != want {
		return log.WithOutcome(log.Rejected, fmt.Errorf("the new root's version is %d, not %d", next.Version, want))
	}
	body, err := log.EncodeRoot(next)
	if err != nil {
		return log.WithOutcome(log.Rejected, err)
	}
	ctx, end, err := l.beginWrite(ctx)
	if err != nil {
		return err
	}
	defer end()
	return l.swap(ctx, have, body, next.Version)
}

var (
	errNotOld  = fmt.Errorf("%w: the root is another", log.ErrConflict)
	errGone    = fmt.Errorf("%w: there is no root: %w", log.ErrConflict, log.ErrNoRoot)
	errMovedOn = errors.New("an answer was lost, and the root has been changed since: whether this change was among those is not known")
)

// swap writes body where the root is have, or where there is none if have is nil. version is body's.
//
// A put whose answer was lost may land as long as the root is have, and the same bytes under the same condition do no harm then. So the root is
// read, and: it is body, and this is the change; it is have, and the bytes are sent again; it is of body's version, and somebody else
// was first; it is of a later one, and nobody can tell. Without a lost answer a root that is not have is a conflict, also if it is body:
// then another call wrote it.
func (l *Log) swap(ctx context.Context, have, body []byte, version uint64) error {
	when := absent
	if have != nil {
		etag, err := l.etagOf(ctx, have)
		if err != nil {
			return err
		}
		when = condition(etag)
	}
	sum, maybe := log.Hash(sha256.Sum256(body)), false
	for try := 0; ; try++ {
		etag, err := l.control.put(ctx, l.rootKey(), body, sum, when)
		if err == nil {
			l.root.keep(body, etag)
			return nil
		}
		k := kindOf(err)
		maybe = maybe || k == lost
		if k == lost || k == unmet || k == missing {
			now, etag, rerr := l.rootBytes(ctx, l.control)
			switch {
			case errors.Is(rerr, log.ErrNoRoot) && have != nil:
				return errGone
			case errors.Is(rerr, log.ErrNoRoot):
				k = again
			case rerr != nil && k == unmet && !maybe:
				return errNotOld
			case rerr != nil:
				return log.WithOutcome(log.Unknown, fmt.Errorf("%w; and then: %w", err, rerr))
			case bytes.Equal(now, body) && maybe:
				return nil
			case have != nil && bytes.Equal(now, have):
				when, k = condition(etag), again
			default:
				return l.lostRace(now, version, maybe)
			}
		}
		if !k.retriable() || try+1 == tries || pause(ctx, try) != nil {
			return log.WithOutcome(outcomeOf(k, maybe), err)
		}
	}
}

// lostRace is the error of a swap that finds the root now.
func (l *Log) lostRace(now []byte, version uint64, maybe bool) error {
	if !maybe {
		return errNotOld
	}
	r, err := l.decodeRoot(now)
	switch {
	case err != nil:
		return log.WithOutcome(log.Unknown, err)
	case r.Version > version:
		return log.WithOutcome(log.Unknown, errMovedOn)
	}
	return errNotOld
}

// outcomeOf is the outcome of a write whose last try failed as k; maybe: an earlier one may have been written.
func outcomeOf(k kind, maybe bool) log.Outcome {
	if maybe {
		return log.Unknown
	}
	return k.outcome()
}

// etagOf is the ETag of the root if it is have. Its errors say that nothing was written.
func (l *Log) etagOf(ctx context.Context, have []byte) (string, error) {
	if etag, ok := l.root.etagOf(have); ok {
		return etag, nil
	}
	now, etag, err := l.rootBytes(ctx, l.control)
	switch {
	case errors.Is(err, log.ErrNoRoot):
		return "", errGone
	case err != nil:
		return "", log.WithOutcome(log.NotWritten, err)
	case !bytes.Equal(now, have):
		return "", errNotOld
	}
	return etag, nil
}

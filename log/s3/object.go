package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"

	"github.com/steledb/stele/log"
)

// Append writes one object.
func (l *Log) Append(ctx context.Context, inst log.ID, o *log.Object) error {
	ctx, end, err := l.beginWrite(ctx)
	if err != nil {
		return err
	}
	defer end()
	return l.append(ctx, inst, o)
}

func (l *Log) append(ctx context.Context, inst log.ID, o *log.Object) error {
	key := l.key(inst, o.Key())
	return l.create(ctx, key, o.Bytes(), o.Hash(), func(kind) (bool, error) {
		// The chain hash is the SHA-256 of these bytes: they are the same, or they are not.
		b, _, err := get(ctx, l.data, key, o.Size())
		switch {
		case errors.Is(err, errTooLarge), err == nil && !bytes.Equal(b, o.Bytes()):
			return true, fmt.Errorf("object %s: %w", o.Key(), log.ErrConflict)
		case kindOf(err) == missing && err != nil:
			return false, nil
		}
		return true, err
	})
}

// create writes body at key unless something is there. look, asked after a put that failed as k, says what that is: found, and nil if
// it is body.
//
// A put that was refused because something is there, and one without an answer, are settled by looking. If nothing is found the same
// bytes are sent again; what a lost put may still write is the same bytes too.
func (l *Log) create(ctx context.Context, key string, body []byte, sum log.Hash, look func(k kind) (found bool, err error)) error {
	maybe := false
	for try := 0; ; try++ {
		_, err := l.data.put(ctx, key, body, sum, absent)
		if err == nil {
			return nil
		}
		k := kindOf(err)
		maybe = maybe || k == lost
		if k == lost || k == unmet {
			found, lerr := look(k)
			switch {
			case found && lerr == nil, errors.Is(lerr, log.ErrConflict):
				return lerr
			case lerr != nil:
				return log.WithOutcome(log.Unknown, fmt.Errorf("%w; and then: %w", err, lerr))
			}
			if k == unmet {
				k = again // it was there, and is not any more
			}
		}
		if !k.retriable() || try+1 == tries || pause(ctx, try) != nil {
			return log.WithOutcome(outcomeOf(k, maybe), err)
		}
	}
}

// AppendVerify is Append and then Verify: two round trips, for the fence must begin once the object is durable (L7).
func (l *Log) AppendVerify(ctx context.Context, o *log.Object, c log.Check) (appendErr, verifyErr error) {
	ctx, end, err := l.beginWrite(ctx)
	if err != nil {
		return err, nil
	}
	defer end()
	if err := l.append(ctx, c.Instance, o); err != nil {
		return err, nil
	}
	return nil, l.verify(ctx, c)
}

// Get reads one object.
func (l *Log) Get(ctx context.Context, inst log.ID, k log.Key) (*log.Object, error) {
	ctx, end, err := l.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	return l.object(ctx, inst, k)
}

func (l *Log) object(ctx context.Context, inst log.ID, k log.Key) (*log.Object, error) {
	b, _, err := get(ctx, l.data, l.key(inst, k), log.MaxObject)
	switch {
	case errors.Is(err, errTooLarge):
		return nil, &log.CorruptError{Location: l.where, Key: k, Reason: fmt.Sprintf("it is larger than %d bytes", log.MaxObject)}
	case err != nil && kindOf(err) == missing:
		return nil, fmt.Errorf("object %s: %w", k, log.ErrNotFound)
	case err != nil:
		return nil, err
	}
	o, err := log.Decode(b)
	if ce := (*log.CorruptError)(nil); errors.As(err, &ce) {
		ce.Location, ce.Key = l.where, k
	}
	if err != nil {
		return nil, err
	}
	if o.Key() != k {
		return nil, &log.CorruptError{Location: l.where, Key: k, Reason: fmt.Sprintf("what is stored there is object %s", o.Key())}
	}
	return o, nil
}

// PutBlob writes a blob, unless there is one of its name.
func (l *Log) PutBlob(ctx context.Context, inst log.ID, name string, b []byte) error {
	if err := log.CheckBlobName(name); err != nil {
		return log.WithOutcome(log.Rejected, err)
	}
	if len(b) > maxBlob {
		return log.WithOutcome(log.Rejected, fmt.Errorf("blob %s has %d bytes, more than %d", name, len(b), maxBlob))
	}
	ctx, end, err := l.beginWrite(ctx)
	if err != nil {
		return err
	}
	defer end()
	// A name stands for its content: what is there is this blob. Whether a lost put has written it, the next one says.
	return l.create(ctx, l.blobKeys(inst)+name, b, sha256.Sum256(b), func(k kind) (bool, error) { return k == unmet, nil })
}

// maxBlob bounds a blob, in bytes: one more is still an int everywhere.
const maxBlob = math.MaxInt32 - 1

// GetBlob reads a blob.
func (l *Log) GetBlob(ctx context.Context, inst log.ID, name string) ([]byte, error) {
	if err := log.CheckBlobName(name); err != nil {
		return nil, fmt.Errorf("%w: %w", log.ErrNotFound, err)
	}
	ctx, end, err := l.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	b, _, err := get(ctx, l.data, l.blobKeys(inst)+name, maxBlob)
	switch {
	case errors.Is(err, errTooLarge):
		return nil, &log.CorruptError{Location: l.where, Reason: fmt.Sprintf("blob %s is larger than %d bytes", name, maxBlob)}
	case err != nil && kindOf(err) == missing:
		return nil, fmt.Errorf("blob %s: %w", name, log.ErrNotFound)
	}
	return b, err
}

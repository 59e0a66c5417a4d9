package pg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/log"
)

// Root reads the root record.
func (l *Log) Root(ctx context.Context) (*log.Root, error) {
	r, _, err := l.readRoot(ctx, l.others)
	return r, err
}

// RootAge reads the root record and its age by the server's clock, on the connection of the lease.
func (l *Log) RootAge(ctx context.Context) (*log.Root, time.Duration, error) {
	return l.readRoot(ctx, l.lease)
}

func (l *Log) readRoot(ctx context.Context, p *pool) (_ *log.Root, age time.Duration, err error) {
	if err := l.enter(ctx); err != nil {
		return nil, 0, err
	}
	defer l.calls.Done()
	var b []byte
	r := &request{stmt: readRoot, params: [][]byte{l.name}, row: func(row [][]byte) error {
		if err := onPrimary(row); err != nil || row[1] == nil {
			return err
		}
		b = bytes.Clone(row[1])
		µs, err := bigintOf(row[2])
		age = max(time.Duration(µs)*time.Microsecond, 0) // the clock was set back
		return err
	}}
	if _, err := p.do(ctx, r); err != nil && r.err == nil {
		r.err = err
	}
	switch {
	case r.err != nil:
		return nil, 0, l.readErr(ctx, "read the root", r.err)
	case b == nil:
		return nil, 0, log.ErrNoRoot
	}
	root, err := l.decodeRoot(b)
	return root, age, err
}

func (l *Log) decodeRoot(b []byte) (*log.Root, error) {
	root, err := log.DecodeRoot(b)
	var ce *log.CorruptError
	if errors.As(err, &ce) {
		ce.Location = l.info.Location
	}
	return root, err
}

// CompareAndSwap replaces the root where its bytes are those of old: an UPDATE of one row.
func (l *Log) CompareAndSwap(ctx context.Context, old, next *log.Root) error {
	if err := l.enter(ctx); err != nil {
		return err
	}
	defer l.calls.Done()
	want := uint64(1)
	if old != nil {
		want = old.Version + 1
	}
	if next.Version != want {
		return log.WithOutcome(log.Rejected, fmt.Errorf("the new root's version is %d, not %d", next.Version, want))
	}
	to, err := log.EncodeRoot(next)
	if err != nil {
		return log.WithOutcome(log.Rejected, err)
	}
	r := &request{stmt: createRoot, params: [][]byte{l.name, to}}
	if old != nil {
		from, err := log.EncodeRoot(old)
		if err != nil {
			return log.WithOutcome(log.Rejected, fmt.Errorf("the root to be replaced: %w", err))
		}
		r = &request{stmt: swapRoot, params: [][]byte{l.name, from, to}}
	}
	sent, err := l.lease.do(ctx, r)
	switch {
	case err != nil && r.err == nil:
		return l.writeErr(ctx, "swap the root", sent, err)
	case r.err != nil:
		return l.writeErr(ctx, "swap the root", sent, r.err)
	case r.affected == 0:
		return fmt.Errorf("swap the root: %w", log.ErrConflict)
	}
	return nil
}

package pg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/steledb/stele/log"
)

// insertion is the request that inserts an object, and the room for its parameters.
type insertion struct {
	request
	key  log.Key
	hash log.Hash
	room [16]byte
	args [5][]byte
}

func newInsertion(inst *log.ID, o *log.Object) (*insertion, error) {
	in := &insertion{key: o.Key(), hash: o.Hash()}
	if !storable(in.key) {
		return nil, log.WithOutcome(log.Rejected, fmt.Errorf("object %s: its epoch or its t does not fit into a bigint", in.key))
	}
	putKey(in.room[:], in.key)
	in.args = [5][]byte{inst[:], in.room[:8], in.room[8:], in.hash[:], o.Bytes()}
	in.request = request{stmt: insertObject, params: in.args[:]}
	return in, nil
}

// appended is what an Append returns whose insertion was run.
func (l *Log) appended(ctx context.Context, inst log.ID, in *insertion, sent bool) error {
	switch {
	case in.err != nil:
		return l.writeErr(ctx, "append "+in.key.String(), sent, in.err)
	case in.affected == 0:
		return fmt.Errorf("object %s: %w", in.key, log.ErrConflict)
	}
	l.recent.add(inst, in.key)
	return nil
}

// Append writes one object: one INSERT.
func (l *Log) Append(ctx context.Context, inst log.ID, o *log.Object) error {
	if err := l.enter(ctx); err != nil {
		return err
	}
	defer l.calls.Done()
	in, err := newInsertion(&inst, o)
	if err != nil {
		return err
	}
	sent, err := l.flushes.do(ctx, &in.request)
	if in.err == nil {
		in.err = err
	}
	return l.appended(ctx, inst, in, sent)
}

// AppendVerify sends the INSERT and the fence in one flush. The fence's SELECT is a transaction of its own, which the server begins
// once that of the INSERT has ended. Behind a pooler it sends them in turn: PgBouncer 1.18 takes a server for idle when the first of two
// statements has ended and the client is gone, and hands the answer to the second to whoever asks next.
func (l *Log) AppendVerify(ctx context.Context, o *log.Object, c log.Check) (appendErr, verifyErr error) {
	if l.opts.Pooler != Direct {
		if err := l.Append(ctx, c.Instance, o); err != nil {
			return err, nil
		}
		return nil, l.Verify(ctx, c)
	}
	if err := l.enter(ctx); err != nil {
		return err, nil
	}
	defer l.calls.Done()
	in, err := newInsertion(&c.Instance, o)
	if err != nil {
		return err, nil
	}
	v := l.newVerification(c)
	sent, err := l.flushes.do(ctx, &in.request, &v.request)
	if !sent && in.err == nil {
		in.err = err
	}
	if err := l.appended(ctx, c.Instance, in, sent); err != nil {
		return err, nil
	}
	return nil, l.verdict(ctx, v)
}

// Verify reads the root and looks for the keys, in one SELECT.
func (l *Log) Verify(ctx context.Context, c log.Check) error {
	if err := l.enter(ctx); err != nil {
		return err
	}
	defer l.calls.Done()
	v := l.newVerification(c)
	if _, err := l.flushes.do(ctx, &v.request); err != nil && v.err == nil {
		v.err = err
	}
	return l.verdict(ctx, v)
}

// verification is the request that is a fence, and what it found.
type verification struct {
	request
	check   log.Check
	args    [4][]byte
	root    []byte    // nil: there is none
	missing []log.Key // which are not there
}

func (l *Log) newVerification(c log.Check) *verification {
	v := &verification{check: c}
	keys := l.recent.covering(c)
	epochs, ts := newArray(len(keys)), newArray(len(keys))
	for _, k := range keys {
		if !storable(k) {
			v.missing = append(v.missing, k)
			continue
		}
		epochs, ts = epochs.add(k.Epoch), ts.add(k.FirstT)
	}
	v.args = [4][]byte{l.name, v.check.Instance[:], epochs, ts}
	v.request = request{stmt: fence, params: v.args[:], row: v.found}
	return v
}

func (v *verification) found(row [][]byte) error {
	if err := onPrimary(row); err != nil {
		return err
	}
	if v.root == nil && row[1] != nil {
		v.root = bytes.Clone(row[1])
	}
	if row[2] != nil {
		k, err := keyOf(row[2], row[3])
		if err != nil {
			return err
		}
		v.missing = append(v.missing, k)
	}
	return nil
}

// verdict judges what a fence found.
func (l *Log) verdict(ctx context.Context, v *verification) error {
	if v.err != nil {
		return l.readErr(ctx, "verify", v.err)
	}
	if v.root == nil {
		return fmt.Errorf("verify: %w: there is no root", log.ErrNotOwner)
	}
	root, err := l.decodeRoot(v.root)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	if !root.Owned(v.check.Instance, v.check.Epoch, v.check.Claim) {
		return fmt.Errorf("verify: %w", log.ErrNotOwner)
	}
	for _, k := range v.missing {
		if k.Compare(root.Sealed.Pos().Key) > 0 {
			return fmt.Errorf("verify: object %s was durable and is gone: %w (a failover to a standby that lagged, or a restore?)", k, log.ErrRolledBack)
		}
	}
	return nil
}

// storable reports whether k fits the table's columns, whose order is that of numbers below 2^63.
func storable(k log.Key) bool { return k.Epoch <= math.MaxInt64 && k.FirstT <= math.MaxInt64 }

// clamp is the greatest key that is storable and not behind k: whatever is stored stands on the same side of both.
func clamp(k log.Key) log.Key {
	if k.Epoch > math.MaxInt64 {
		return log.Key{Epoch: math.MaxInt64, FirstT: math.MaxInt64}
	}
	k.FirstT = min(k.FirstT, math.MaxInt64)
	return k
}

// onPrimary looks at the first column of every SELECT: pg_is_in_recovery().
func onPrimary(row [][]byte) error {
	switch {
	case len(row) == 0 || len(row[0]) != 1:
		return errors.New("the server's answer is not what was asked for")
	case row[0][0] != 0:
		return errNotPrimary
	}
	return nil
}

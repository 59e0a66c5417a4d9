package pg

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

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
// once that of the INSERT has ended.
func (l *Log) AppendVerify(ctx context.Context, o *log.Object, c log.Check) (appendErr, verifyErr error) {
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
	check log.Check
	keys  []log.Key // that are looked for, no two the same
	args  [4][]byte
	epoch [8]byte
	root  []byte    // nil: there is none
	found int64     // fence: how many are there
	gone  []log.Key // missing: which are not
}

// newVerification makes the quick fence, which counts, where all keys are of one epoch; and else the one that names what is missing.
func (l *Log) newVerification(c log.Check) *verification {
	v := &verification{check: c}
	oneEpoch, fit := true, true
	for _, k := range l.recent.covering(c) {
		if !slices.Contains(v.keys, k) {
			v.keys = append(v.keys, k)
		}
		oneEpoch = oneEpoch && k.Epoch == v.keys[0].Epoch
		fit = fit && storable(k)
	}
	if !oneEpoch || !fit {
		l.askWhich(v)
		return v
	}
	ts := newArray(len(v.keys))
	for _, k := range v.keys {
		ts = ts.add(k.FirstT)
	}
	if len(v.keys) > 0 {
		binary.BigEndian.PutUint64(v.epoch[:], v.keys[0].Epoch)
	}
	v.args = [4][]byte{l.name, v.check.Instance[:], v.epoch[:], ts}
	v.request = request{stmt: fence, params: v.args[:], row: func(row [][]byte) (err error) {
		if err = v.see(row); err == nil {
			v.found, err = bigintOf(row[2])
		}
		return err
	}}
	return v
}

// askWhich makes v ask which keys are missing.
func (l *Log) askWhich(v *verification) {
	v.root, v.gone = nil, nil
	epochs, ts := newArray(len(v.keys)), newArray(len(v.keys))
	for _, k := range v.keys {
		if !storable(k) {
			v.gone = append(v.gone, k)
			continue
		}
		epochs, ts = epochs.add(k.Epoch), ts.add(k.FirstT)
	}
	v.args = [4][]byte{l.name, v.check.Instance[:], epochs, ts}
	v.request = request{stmt: missing, params: v.args[:], row: func(row [][]byte) error {
		if err := v.see(row); err != nil || row[2] == nil {
			return err
		}
		k, err := keyOf(row[2], row[3])
		v.gone = append(v.gone, k)
		return err
	}}
}

// see takes what all fences begin with.
func (v *verification) see(row [][]byte) error {
	if err := onPrimary(row); err != nil {
		return err
	}
	if v.root == nil && row[1] != nil {
		v.root = bytes.Clone(row[1])
	}
	return nil
}

// verdict judges what a fence found. If keys are missing and it does not say which, it asks again.
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
	if v.stmt == fence && v.found != int64(len(v.keys)) {
		l.askWhich(v)
		if _, err := l.flushes.do(ctx, &v.request); err != nil && v.err == nil {
			v.err = err
		}
		return l.verdict(ctx, v)
	}
	for _, k := range v.gone {
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

package log

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/internal/mutant"
)

// ErrSealed: the place from which the log was to be read lies before the sealed position, or the sealed position moved past it
// meanwhile. What lies between is in chunks: read those, and begin again from the sealed position.
var ErrSealed = errors.New("the log from there on is sealed")

// Recovery is what an owner found in the log.
type Recovery struct {
	Base Head // where the reading began
	Head Head // where the chain ends: a guess, until the owner's own start is durable and verified (L4)

	// Unfenced are the objects of the chain behind Base that no later object marks as fenced, in order: what Log.Adopt is to be given.
	Unfenced []*Object

	Objects int // of the chain behind Base
	Txs     int // in them
	Dead    int // objects behind Base that are not on the chain
}

// Recover reads the log for an owner, once its CAS has committed (L4, L6, L10, L11). root is the root as that CAS wrote it: it names
// the owner's epoch and claim. from is what the caller holds already, and had proven or installed; zero: nothing, and the reading begins
// at the sealed position. Recover yields the chain's objects behind it, in order, as it reads them; memory is bounded. An error of
// yield ends it and is returned.
//
// The caller then calls Log.Adopt with what was found, appends its start behind Head, and may believe what it was yielded when that start is
// durable and a Verify begun after that has succeeded. Until then it is a guess: nothing of it may be shown, and no answer given by it. Whether an
// object that the caller had sent is in the log is told by its hash: it landed if and only if it was yielded, or lies before from.
//
// Errors: ErrNotOwner, the root names somebody else now. ErrSealed. ErrCorrupt (a CorruptError): an object of the chain is missing or
// damaged, or something that was acknowledged is (L6); nothing was dropped. ErrRolledBack: from is gone, the chain does not lead through it, or the log
// holds objects of the owner's own or a later epoch. Whatever else the store returns. After an error other than ErrCorrupt and ErrRolledBack Recover
// may be called again, from the start or from the last object yielded, if the caller still owns the database.
func Recover(ctx context.Context, l Log, root *Root, from Head, yield func(*Object) error) (*Recovery, error) {
	r := &recovery{log: l, root: root, from: from, yield: yield}
	for {
		again, err := r.try(ctx)
		if err != nil {
			return nil, err
		}
		if !again {
			return &r.Recovery, nil
		}
	}
}

// recovery is one call of Recover.
type recovery struct {
	Recovery
	log   Log
	root  *Root // as last read
	from  Head
	yield func(*Object) error
}

// try reads once. again: the sealed position moved before anything was yielded, and root is the new one.
func (r *recovery) try(ctx context.Context) (again bool, err error) {
	base, err := r.base()
	if err != nil {
		return false, err
	}
	r.Recovery = Recovery{Base: base, Head: base}
	if err := stillThere(ctx, r.log, r.root, r.from); err != nil {
		return r.settle(ctx, err)
	}
	start, top, err := newestStart(ctx, r.log, r.root.Instance, base.Key, r.root.Epoch)
	if err != nil {
		return false, err
	}
	p := stayPath(base)
	if start != (Key{}) {
		anchor, err := fetch(ctx, r.log, r.root.Instance, start, "a listing had it")
		if err == nil {
			p, err = walk(ctx, r.log, r.root, base, anchor)
		}
		if err != nil {
			return r.settle(ctx, err)
		}
	}
	s := newScan(r.log, r.root, p, base, r.take)
	if err := s.run(ctx); err != nil {
		return r.settle(ctx, err)
	}
	r.Head, r.Dead = s.head, s.dead+s.behind
	r.fence(s.fenced)

	// L4 ends with the root: had the sealed position moved, objects that the reading missed may have been deleted.
	now, err := r.reread(ctx)
	switch {
	case err != nil:
		return false, err
	case now.Sealed != r.root.Sealed && !mutant.Is("ignore-sealed"):
		return r.restart(now)
	case max(top, s.topEpoch) >= r.root.Epoch:
		return false, fmt.Errorf("%w: the log holds objects of epoch %d, and epoch %d has just begun", ErrRolledBack, max(top, s.topEpoch), r.root.Epoch)
	}
	return false, nil
}

// base is where the reading begins: from, or the sealed position.
func (r *recovery) base() (Head, error) {
	sealed := r.root.Sealed.Head()
	if r.from == (Head{}) {
		return sealed, nil
	}
	return r.from, behindSealed(r.from, sealed)
}

// behindSealed says whether the log can be read from a place that was proven earlier.
func behindSealed(from, sealed Head) error {
	switch c := from.Key.Compare(sealed.Key); {
	case c < 0:
		return fmt.Errorf("%w: up to %s; %s was asked for", ErrSealed, sealed.Pos, from.Pos)
	case c == 0 && from.Hash != sealed.Hash:
		return fmt.Errorf("%w: %s is sealed, and %s was proven", ErrRolledBack, sealed.Pos, from.Pos)
	}
	return nil
}

// take hands one object of the chain to the caller.
func (r *recovery) take(o *Object) error {
	r.fence(o.Fenced)
	r.Unfenced = append(r.Unfenced, o)
	r.Objects++
	r.Txs += int(o.Count)
	return r.yield(o)
}

// fence drops what is known to have been acknowledged from Unfenced. A start is fenced once something behind it is: its
// writer acknowledges nothing before.
func (r *recovery) fence(t uint64) {
	n := 0
	for _, o := range r.Unfenced {
		if (o.Kind == KindBatch && o.LastT() > t || o.Kind == KindStart && o.FirstT > t) && !mutant.Is("fence-all") {
			break
		}
		n++
	}
	clear(r.Unfenced[:n])
	r.Unfenced = r.Unfenced[n:]
}

func (r *recovery) reread(ctx context.Context) (*Root, error) {
	now, err := r.log.Root(ctx)
	switch {
	case errors.Is(err, ErrNoRoot):
		return nil, fmt.Errorf("%w: %w", ErrNotOwner, err)
	case err != nil:
		return nil, err
	case !now.Owned(r.root.Instance, r.root.Epoch, r.root.Claim):
		return nil, fmt.Errorf("%w: epoch %d was taken by %q", ErrNotOwner, now.Epoch, now.Owner)
	}
	return now, nil
}

// restart begins again from a sealed position that moved, if that is still possible.
func (r *recovery) restart(now *Root) (again bool, err error) {
	if r.Objects > 0 {
		return false, fmt.Errorf("%w: up to %s, while it was read", ErrSealed, now.Sealed.Pos())
	}
	r.root = now
	return true, nil
}

// settle decides by the root what an object means that is not there, or a chain that does not lead where it must.
func (r *recovery) settle(ctx context.Context, cause error) (again bool, err error) {
	if !unsettled(cause) {
		return false, cause
	}
	now, err := r.reread(ctx)
	switch {
	case err != nil:
		return false, err
	case now.Sealed != r.root.Sealed:
		return r.restart(now)
	}
	return false, verdict(cause, r.from != Head{})
}

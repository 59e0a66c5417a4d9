package log

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/steledb/stele/internal/mutant"
)

// Witness is a process's memory of the roots it has seen of one database: it never goes back (L11). The zero Witness has seen
// nothing. It may be used by any number of goroutines, and is best shared by all that read one database's root.
type Witness struct {
	mu   sync.Mutex
	seen Root // the newest; Version 0: none
}

// Root reads the root and compares it with what had been seen when the read began. ErrRolledBack: it is an older one, or there is none any
// more, or its epoch is under another claim.
func (w *Witness) Root(ctx context.Context, l Log) (*Root, error) {
	w.mu.Lock()
	seen := w.seen
	w.mu.Unlock()
	r, err := l.Root(ctx)
	switch {
	case errors.Is(err, ErrNoRoot) && seen.Version > 0:
		return nil, fmt.Errorf("%w: %w, and version %d of its root was seen", ErrRolledBack, err, seen.Version)
	case err != nil:
		return nil, err
	}
	if err := goesBack(&seen, r); err != nil && !mutant.Is("forget-roots") {
		return nil, err
	}
	w.Saw(r)
	return r, nil
}

// Saw remembers a root that the store is known to have held: one that was read elsewhere, or that a CAS of one's own wrote.
func (w *Witness) Saw(r *Root) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.Version > w.seen.Version {
		w.seen = *r
	}
}

// goesBack says why a root cannot follow the one seen before.
func goesBack(seen, now *Root) error {
	var why string
	switch {
	case seen.Version == 0:
	case now.Version < seen.Version:
		why = fmt.Sprintf("its version is %d, and version %d was seen", now.Version, seen.Version)
	case now.Version == seen.Version && *now != *seen:
		why = fmt.Sprintf("its version %d is not the one that was seen", now.Version)
	case now.Instance != seen.Instance: // another life under the same name: everything begins anew
	case seen.Deleted && !now.Deleted:
		why = "it was deleted, and is not any more"
	case now.Epoch < seen.Epoch:
		why = fmt.Sprintf("its epoch is %d, and epoch %d was seen", now.Epoch, seen.Epoch)
	case now.Epoch == seen.Epoch && now.Claim != seen.Claim:
		why = fmt.Sprintf("its epoch %d is under another claim than the one that was seen", now.Epoch)
	case now.Sealed.Pos().Key.Compare(seen.Sealed.Pos().Key) < 0:
		why = fmt.Sprintf("its sealed position is %s, and %s was seen", now.Sealed.Pos(), seen.Sealed.Pos())
	}
	if why == "" {
		return nil
	}
	return fmt.Errorf("%w: the root: %s", ErrRolledBack, why)
}

// RootToOpen reads the root for somebody who wants to take the next epoch, before its CAS (L11): a log that holds objects of an epoch above
// the root's was rolled back, and the root must be left alone, or restarting would lift it past them. Errors: ErrRolledBack, ErrNoRoot,
// ErrDeleted.
func (w *Witness) RootToOpen(ctx context.Context, l Log) (*Root, error) {
	var inst ID // whose objects were listed
	for above := uint64(0); ; {
		r, err := w.Root(ctx, l)
		switch {
		case err != nil:
			return nil, err
		case r.Deleted:
			return nil, ErrDeleted
		case r.Instance == inst && r.Epoch < above:
			return nil, fmt.Errorf("%w: the log holds objects of epoch %d, and the root's is %d", ErrRolledBack, above, r.Epoch)
		}
		inst, above = r.Instance, 0
		for k, err := range l.List(ctx, r.Instance, Key{r.Epoch, math.MaxUint64}) {
			if err != nil {
				return nil, err
			}
			above = k.Epoch
			break // one is enough, and the listing may be long
		}
		if above == 0 || mutant.Is("open-above") {
			return r, nil
		}
	}
}

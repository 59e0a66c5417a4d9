package transactor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/steledb/stele/internal/mutant"
	"github.com/steledb/stele/log"
)

// A lease says how long a standby leaves the owner named in the root alone. Safety never depends on it (L9): whoever takes
// the root early or late is fenced, and finds what was acknowledged. It is renewed from the CAS that took the epoch on, by a goroutine that does
// nothing else, so that neither a long recovery nor a slow flush loses it; a store whose Lock is a guard of its own needs none.

// tenure is a transactor's hold on the root: the claims that it has sent, and the root that it renews.
type tenure struct {
	mu     sync.Mutex
	claims map[log.ID]bool // every claim that was ever sent
	root   *log.Root       // the newest that is known to name one of them; nil: none yet
	tried  *log.Root       // that with the newest of them, which may have become the root
	stop   func()          // ends the renewing and waits for it; nil: nothing renews
}

// sends notes the claim of a root before that is sent: it is one's own from then on, however late it lands.
func (t *tenure) sends(root *log.Root) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.claims == nil {
		t.claims = make(map[log.ID]bool)
	}
	t.claims[root.Claim] = true
	t.tried = root
}

func (t *tenure) sent(claim log.ID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.claims[claim]
}

func (t *tenure) newest() *log.Root {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.root
}

func (t *tenure) saw(root *log.Root) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.root == nil || root.Version > t.root.Version {
		t.root = root
	}
}

// quit ends the renewing and returns the newest root, or one that may have become it, or nil: no claim was sent.
func (t *tenure) quit() *log.Root {
	t.mu.Lock()
	stop, root := t.stop, cmp.Or(t.root, t.tried)
	t.mu.Unlock()
	if stop != nil {
		stop()
	}
	return root
}

// lease is what this transactor writes into the root when it takes an epoch.
func (x *Transactor) lease() time.Duration {
	if x.info.Guarded {
		return 0
	}
	return x.opt.Lease
}

// hold keeps root, which names a claim of this transactor's, renewed from now on.
func (x *Transactor) hold(root *log.Root) {
	x.witness.Saw(root)
	t := &x.tenure
	t.saw(root)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stop != nil || x.lease() == 0 || mutant.Is("renew-never") || mutant.Is("renew-late") && x.term.Load() == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.stop = func() { cancel(); <-done }
	go func() {
		defer close(done)
		x.renew(ctx)
	}()
}

// renew renews the lease every third of it until ctx ends. That the database is another's now it tells the epoch at work.
func (x *Transactor) renew(ctx context.Context) {
	tick := time.NewTicker(x.opt.Lease / 3)
	defer tick.Stop()
	last, late := time.Now(), false
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		began := time.Now()
		err := x.renewOnce(ctx)
		switch {
		case err == nil:
			last, late = began, false
			x.stats.renewals.Add(1)
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrDeposed), errors.Is(err, ErrDeleted), errors.Is(err, log.ErrRolledBack):
			if now := x.term.Load(); now != nil {
				now.fail(err) // which takes its own look at the root
			}
		case !late && time.Since(last) > x.opt.Lease:
			late = true
			x.opt.Logger.Warn("the lease has run out and could not be renewed; a standby may take over", "store", x.info.Location, "cause", err)
		}
	}
}

// renewOnce raises the lease counter by one CAS on the newest root. A CAS of one's own that took an epoch meanwhile renews as well.
func (x *Transactor) renewOnce(ctx context.Context) error {
	for {
		root := x.tenure.newest()
		next := root.Next()
		next.LeaseCounter++
		err := x.soon(ctx, func(ctx context.Context) error { return x.log.CompareAndSwap(ctx, root, next) })
		if err == nil {
			x.hold(next)
			return nil
		}
		if mutant.Is("lost-renewal") {
			return fmt.Errorf("%w: %w", ErrDeposed, err)
		}
		if mutant.Is("renew-blindly") {
			if now, err := x.log.Root(ctx); err == nil {
				next.Version = now.Version + 1
				return x.log.CompareAndSwap(ctx, now, next)
			}
		}
		var now *log.Root
		readErr := x.soon(ctx, func(ctx context.Context) (err error) { now, err = x.ownRoot(ctx, root.Instance); return err })
		switch {
		case readErr != nil:
			return readErr
		case *now == *root:
			return err // it has not happened yet
		}
		x.hold(now)
		if now.Epoch > root.Epoch || now.LeaseCounter > root.LeaseCounter {
			return nil
		}
	}
}

// soon is one call to the store that must end before the next renewal is due.
func (x *Transactor) soon(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, min(x.opt.Lease/3, x.opt.StoreTimeout), errStoreTimeout)
	defer cancel()
	return timedOut(ctx, call(ctx))
}

// ownRoot reads the root, which must still name a claim that this transactor has sent: ErrDeposed or ErrDeleted if it does not.
func (x *Transactor) ownRoot(ctx context.Context, instance log.ID) (*log.Root, error) {
	root, err := x.witness.Root(ctx, apart{x.log})
	switch {
	case err != nil:
		return nil, err
	case root.Instance == instance && root.Deleted:
		return nil, ErrDeleted
	case root.Instance != instance || !x.tenure.sent(root.Claim):
		return nil, fmt.Errorf("%w: %s, in epoch %d", ErrDeposed, root.Owner, root.Epoch)
	}
	return root, nil
}

// apart is a log whose root is read as a standby reads it: not behind what others read, which may be long, and the lease would run out meanwhile.
type apart struct{ log.Log }

func (l apart) Root(ctx context.Context) (*log.Root, error) {
	root, _, err := l.RootAge(ctx)
	return root, err
}

// vacate stops renewing and releases the lease, so that whoever waits for the database need not wait for the lease to run
// out. It is only a courtesy, and takes no longer than that would. A store that went back or is damaged is left as it is, for a person to look at.
func (x *Transactor) vacate(ctx context.Context, cause error) {
	held := x.tenure.quit()
	if held == nil || x.lease() == 0 || errors.Is(cause, log.ErrRolledBack) || errors.Is(cause, log.ErrCorrupt) || mutant.Is("keep-lease") {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, min(x.opt.Lease, x.opt.StoreTimeout), errStoreTimeout)
	defer cancel()
	err := x.retry(ctx, func(ctx context.Context) error {
		root, err := x.ownRoot(ctx, held.Instance)
		if mutant.Is("release-any") {
			root, err = x.log.Root(ctx)
		}
		if err != nil || root.Lease == 0 {
			return err
		}
		next := root.Next()
		next.LeaseCounter++
		next.Lease = 0
		if err = x.log.CompareAndSwap(ctx, root, next); errors.Is(err, log.ErrConflict) {
			err = errors.New("the root changed meanwhile") // read it again
		}
		return err
	})
	if err != nil && !errors.Is(err, ErrDeposed) && !errors.Is(err, ErrDeleted) {
		x.opt.Logger.Warn("the lease could not be released; a standby waits until it has run out", "store", x.info.Location, "lease", x.opt.Lease, "cause", err)
	}
}

// vacancy waits until the database may be taken, and returns the root to take it from: nobody's, released, its lease run out, or
// one's own. Options.TakeOver takes whatever is there. Errors: those of Witness.RootToOpen, an *OwnedError.
func (x *Transactor) vacancy(ctx context.Context) (*log.Root, error) {
	var w watch
	var told log.ID      // whose lease the log says we wait for
	var outage time.Time // since when the store has been out of reach
	for {
		root, owned, err := x.look(ctx, &w)
		var wait time.Duration
		switch {
		case err == nil && owned == nil:
			return root, nil
		case err == nil && x.opt.NoWait:
			return nil, owned
		case err == nil:
			if told != root.Claim {
				told = root.Claim
				x.opt.Logger.Info("waiting for the database's owner", "store", x.info.Location, "owner", root.Owner, "endpoint", root.Endpoint, "lease left", owned.Left.Round(time.Millisecond))
			}
			outage = time.Time{}
			wait = min(owned.Left, max(shortestWatch, min(root.Lease/10, longestWatch)))
		case told.IsZero() || final(err) || ctx.Err() != nil:
			return nil, err
		default: // whoever waits already sits out what an owner would
			if outage.IsZero() {
				outage = time.Now()
				x.opt.Logger.Warn("the store is out of reach; still waiting for the database's owner", "store", x.info.Location, "cause", err)
			}
			if time.Since(outage) > x.opt.MaxOutage {
				return nil, fmt.Errorf("the store has been out of reach for %v: %w", x.opt.MaxOutage, err)
			}
			wait = longestWatch
		}
		if cause := pause(ctx, wait); cause != nil {
			if owned == nil {
				return nil, errors.Join(ErrOwned, err, cause)
			}
			owned.Err = cause
			return nil, owned
		}
	}
}

// look reads the root as a standby: to be taken, or owned.
func (x *Transactor) look(ctx context.Context, w *watch) (root *log.Root, owned *OwnedError, err error) {
	for {
		var left time.Duration
		err := x.retry(ctx, func(ctx context.Context) error {
			began := time.Now()
			now, age, err := x.log.RootAge(ctx)
			if err == nil {
				root, left = now, w.left(now, age, began)
			}
			return err
		})
		if err != nil {
			return nil, nil, err
		}
		anyway := x.info.Guarded || x.opt.TakeOver
		if !anyway && left > 0 && !x.tenure.sent(root.Claim) && !mutant.Is("ignore-lease") {
			return root, &OwnedError{Owner: root.Owner, Endpoint: root.Endpoint, Left: left}, nil
		}
		var same *log.Root
		err = x.retry(ctx, func(ctx context.Context) (err error) { same, err = x.witness.RootToOpen(ctx, x.log); return err })
		if err != nil || anyway || same.Claim == root.Claim && same.LeaseCounter == root.LeaseCounter {
			return same, nil, err
		}
	}
}

// A standby looks at the root every tenth of the lease, for it may be released early, but neither busily nor rarely.
const (
	shortestWatch = 20 * time.Millisecond
	longestWatch  = time.Second
)

// watch judges a lease as a standby: by the age of the root that the store tells, and by how long the standby itself has seen claim and
// counter unchanged, on its own monotonic clock (L9). Whichever says first that it has run out: a store's clock may be set back.
type watch struct {
	claim   log.ID
	counter uint64
	since   time.Time // when they had been seen first
}

// left is what is left of the lease in root, which was read by a call that began at began; not positive: nothing.
func (w *watch) left(root *log.Root, age time.Duration, began time.Time) time.Duration {
	if root.Deleted || root.Epoch == 0 || root.Lease == 0 {
		return 0
	}
	if w.since.IsZero() || w.claim != root.Claim || w.counter != root.LeaseCounter {
		*w = watch{claim: root.Claim, counter: root.LeaseCounter, since: time.Now()}
	}
	left := root.Lease - max(began.Sub(w.since), 0)
	if age >= 0 {
		left = min(left, root.Lease-age)
	}
	return left
}

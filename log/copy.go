package log

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/internal/mutant"
)

// CopyOptions are what a Copy can be told. The zero value is usable.
type CopyOptions struct {
	// Progress is called, by the goroutine that called Copy, each time that something has become durable: how many objects and blobs, and how many
	// bytes of both, have been written so far.
	Progress func(objects int, bytes int64)
	// Names says which blobs a blob names in turn, as a list of chunks does: they are copied before it. Nil: none.
	Names func(name string, b []byte) ([]string, error)
}

// Copy copies the database in from to the place to, where none may be, and returns the copy's root. It is a reader of from (L8): it needs no
// ownership, and an owner may go on appending meanwhile. What it copies is a proven prefix of the log, which holds everything that was
// acknowledged before the call.
//
// The copy has the same lineage and an instance id of its own. Its objects are those of from, byte for byte, so that chain hashes are the
// same; behind them stands a start of the copy's own, in an epoch above every epoch seen in from, and the root is of that epoch and
// released: readers need no owner, and an owner can open it at once. The root comes last: a Copy that is
// interrupted leaves no database, and can be called again. What it had written it then removes, if it still can.
//
// Memory: a few MiB that are read and not proven, and at most 64 MiB of objects on their way, or one larger object; one blob at a time, beside
// those that name it.
//
// Errors: ErrExists: there is a database in to; a tombstone is replaced. ErrOwned: somebody else holds the guard of to. ErrNoRoot, ErrDeleted, ErrCorrupt,
// ErrRolledBack: what is wrong with from. Whatever else a store returns; if [OutcomeOf] then says Unknown, the copy may appear later,
// complete. While the newest epoch in from has no start, which its owner writes as soon as it has read the log, Copy waits until ctx ends.
func Copy(ctx context.Context, from, to Log, o CopyOptions) (*Root, error) {
	root, err := copyDatabase(ctx, from, to, o)
	if err != nil {
		return nil, fmt.Errorf("cannot copy %s to %s: %w", from.Info().Location, to.Info().Location, err)
	}
	return root, nil
}

func copyDatabase(ctx context.Context, from, to Log, o CopyOptions) (root *Root, err error) {
	c := &copying{from: from, to: to, opts: o, depth: max(1, to.Info().Depth), done: make(chan written)}
	if _, err := c.source(ctx); err != nil {
		return nil, WithOutcome(NotWritten, err) // and nothing was made by a Lock
	}
	old, err := vacate(ctx, to)
	if err != nil {
		return nil, err
	}
	unlock, err := to.Lock(ctx, false)
	if err != nil {
		return nil, WithOutcome(NotWritten, err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	c.root = &Root{Version: 1, Instance: NewID(), Claim: NewID(), Owner: "copy"}
	if old != nil {
		c.root.Version = old.Version + 1
	}
	if err := c.content(ctx); err != nil {
		return nil, WithOutcome(NotWritten, c.remove(ctx, err))
	}
	if mutant.Is("copy-root-first") {
		if root, err = plant(ctx, to, old, c.root); err == nil {
			err = c.start(ctx)
		}
		return root, err
	}
	if err := c.start(ctx); err != nil {
		return nil, WithOutcome(NotWritten, c.remove(ctx, err))
	}
	root, err = plant(ctx, to, old, c.root)
	if err != nil && (OutcomeOf(err) != Unknown || mutant.Is("copy-removes-unknown")) {
		return nil, c.remove(ctx, err)
	}
	return root, err // if the root comes after all, what it names must be there
}

const (
	// copyBuffer is what is read before it is proven and written, in bytes.
	copyBuffer = 4 << 20
	// maxCopyBytes bounds the objects that are being written at once, unless one is larger.
	maxCopyBytes = 64 << 20
)

// copying is one call of Copy.
type copying struct {
	from, to Log
	opts     CopyOptions
	witness  Witness
	root     *Root // of the copy, as far as it is known
	head     Head  // of what was sent

	depth    int
	done     chan written // one for each object that is on its way
	inFlight int
	bytes    int   // of them
	failed   error // the first failure

	objects int // durable
	copied  int64
}

// written is what became of one object.
type written struct {
	size int
	err  error
}

// content copies blobs and objects. If what it read of the root is overtaken — the log was sealed beyond what was copied, or a blob was
// collected — it begins again from the root as it is then; what is there already it will find there.
func (c *copying) content(ctx context.Context) error {
	for {
		root, err := c.source(ctx)
		if err != nil {
			return err
		}
		if root.Format > FormatVersion {
			return fmt.Errorf("the log is written in format %d; this version of Stele knows formats up to %d", root.Format, FormatVersion)
		}
		if mutant.Is("copy-keeps-instance") {
			c.root.Instance = root.Instance
		}
		c.root.Format, c.root.Lineage = root.Format, root.Lineage
		c.root.Sealed, c.root.Chunks, c.root.Snapshot, c.root.Collect = root.Sealed, root.Chunks, root.Snapshot, root.Collect
		if err = c.blobs(ctx, root); err == nil {
			err = c.log(ctx, root)
		}
		if failed := c.drain(); failed != nil {
			err = failed
		}
		if !errors.Is(err, errMoved) && !errors.Is(err, ErrSealed) {
			return err
		}
	}
}

// source reads the root of what is copied.
func (c *copying) source(ctx context.Context) (root *Root, err error) {
	err = retry(ctx, func() error { root, err = c.witness.Root(ctx, c.from); return err })
	if err == nil && root.Deleted {
		err = ErrDeleted
	}
	return root, err
}

// blobs copies what the root names, and what that names. errMoved: one is gone, because the root has changed.
func (c *copying) blobs(ctx context.Context, root *Root) error {
	for _, name := range []string{root.Chunks, root.Snapshot} {
		if name == "" {
			continue
		}
		if err := c.blob(ctx, root, name); err != nil {
			return fmt.Errorf("blob %s: %w", name, err)
		}
	}
	return nil
}

func (c *copying) blob(ctx context.Context, root *Root, name string) error {
	var b []byte
	err := retry(ctx, func() (err error) { b, err = c.from.GetBlob(ctx, root.Instance, name); return err })
	if errors.Is(err, ErrNotFound) {
		now, rerr := c.source(ctx)
		switch {
		case rerr != nil:
			return rerr
		case now.Instance != root.Instance || now.Chunks != root.Chunks || now.Snapshot != root.Snapshot:
			return errMoved
		}
		return &CorruptError{Location: c.from.Info().Location, Reason: "it is missing", Err: err}
	}
	if err != nil {
		return err
	}
	if c.opts.Names != nil {
		names, err := c.opts.Names(name, b)
		if err != nil {
			return err
		}
		for _, n := range names {
			if err := c.blob(ctx, root, n); err != nil {
				return fmt.Errorf("blob %s: %w", n, err)
			}
		}
	}
	if err := retry(ctx, func() error { return c.to.PutBlob(ctx, c.root.Instance, name, b) }); err != nil {
		return err
	}
	c.wrote(len(b))
	return nil
}

// errEnough: everything has been copied that was there when Copy was called.
var errEnough = errors.New("enough")

// log copies the chain behind the sealed position.
func (c *copying) log(ctx context.Context, root *Root) error {
	c.head = root.Sealed.Head()
	// An owner may append as fast as this copies: what it appends from now on is not waited for.
	last := StartKey(root.Epoch)
	err := retry(ctx, func() error {
		for k, err := range c.from.List(ctx, root.Instance, last) {
			if err != nil {
				return err
			}
			last = k
		}
		return nil
	})
	if err != nil {
		return err
	}
	r := NewReader(c.from, ReaderOptions{From: c.head, Instance: root.Instance, Witness: &c.witness, Buffer: copyBuffer})
	for try := 0; ; try++ {
		n := c.objects
		st, err := r.Sync(ctx, func(o *Object) error {
			if c.head.Key.Compare(last) >= 0 && !mutant.Is("copy-endless") {
				return errEnough
			}
			return c.send(ctx, o)
		})
		if st.Root != nil && c.root.Epoch <= st.Root.Epoch {
			c.root.Epoch = st.Root.Epoch + 1
		}
		if mutant.Is("copy-low-epoch") {
			c.root.Epoch = c.head.Key.Epoch + 1
		}
		switch {
		case errors.Is(err, errEnough), err == nil && (!st.Waiting || mutant.Is("copy-waits-not")):
			return nil
		case err == nil:
			try = -1
			if err := pause(ctx, retries); err != nil {
				return fmt.Errorf("epoch %d, of %q, has no start yet: %w", st.Root.Epoch, st.Root.Owner, err)
			}
			continue
		case c.objects > n:
			try = 0
		}
		if c.failed != nil || lasting(err) || try == retries || ctx.Err() != nil || pause(ctx, try) != nil {
			return err
		}
	}
}

// send writes one object, beside those on their way. As an owner does, it writes nothing of an epoch before everything of the epochs
// before it is durable.
func (c *copying) send(ctx context.Context, o *Object) error {
	for c.inFlight > 0 && (c.inFlight == c.depth || c.bytes+o.Size() > maxCopyBytes || o.Kind == KindStart) {
		c.await()
	}
	if c.failed != nil {
		return c.failed
	}
	head, err := c.head.Follow(o)
	if err != nil {
		return &CorruptError{Key: o.Key(), Reason: "it does not link", Err: err}
	}
	c.head = head
	c.inFlight++
	c.bytes += o.Size()
	go func() {
		c.done <- written{o.Size(), retry(ctx, func() error { return c.to.Append(ctx, c.root.Instance, o) })}
	}()
	return nil
}

// await waits for one object that is on its way.
func (c *copying) await() {
	w := <-c.done
	c.inFlight--
	c.bytes -= w.size
	if w.err == nil {
		c.wrote(w.size)
	} else if c.failed == nil {
		c.failed = w.err
	}
}

// drain waits for all of them.
func (c *copying) drain() error {
	for c.inFlight > 0 {
		c.await()
	}
	return c.failed
}

func (c *copying) wrote(size int) {
	c.objects++
	c.copied += int64(size)
	if c.opts.Progress != nil {
		c.opts.Progress(c.objects, c.copied)
	}
}

// start writes the copy's own start. Everything before it is proven, and durable where it was copied to: as good as acknowledged.
func (c *copying) start(ctx context.Context) error {
	o, err := Encode(Header{Format: c.root.Format, Lineage: c.root.Lineage, Claim: c.root.Claim, Epoch: c.root.Epoch, Kind: KindStart,
		FirstT: c.head.LastT + 1, Prev: c.head.Pos, Fenced: c.head.LastT}, nil, false)
	if err != nil {
		return err
	}
	if err := retry(ctx, func() error { return c.to.Append(ctx, c.root.Instance, o) }); err != nil {
		return err
	}
	c.wrote(o.Size())
	return nil
}

// remove takes away what was written of a copy that failed.
func (c *copying) remove(ctx context.Context, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	if err := retry(ctx, func() error { return c.to.Delete(ctx, c.root.Instance, MaxKey) }); err != nil {
		return fmt.Errorf("%w (what was written of it, under instance %s, could not be removed: %v)", cause, c.root.Instance, err)
	}
	return cause
}

// removeTimeout bounds what is spent on a copy that has failed already.
const removeTimeout = 10 * time.Second

package log

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/steledb/stele/internal/mutant"
)

// ReaderOptions say where a Reader begins. The zero value is usable.
type ReaderOptions struct {
	// From is what the reader holds already and knows to be on the chain: a sealed position, a snapshot's, what an owner had installed. Zero: nothing.
	From Head
	// Instance is the instance that the log must belong to, as something that is already held does; zero: that of the first root read.
	Instance ID
	// Witness is shared with others in this process that read the root; nil: one of its own.
	Witness *Witness
	// Buffer is how many bytes of objects the reader keeps before it proves them; 0: DefaultReaderBuffer.
	Buffer int
}

// DefaultReaderBuffer is how many bytes of objects a Reader keeps, unless told otherwise, before it proves them and hands them out.
const DefaultReaderBuffer = 16 << 20

// Reader follows a log without owning it (L5, L8). What it has handed out is proven: it is in the log of every owner to come.
//
// A Sync reads the root, anchors at the start of its epoch — or stays where it is, if what it had proven lies in that epoch — walks back to what it had
// proven, and reads forward from there. Before it hands out what it read it reads the root again: only if epoch and claim are
// unchanged is the chain that it followed the log; otherwise it drops what it holds and begins anew. So the reading goes in steps, each as large as
// the buffer. That a step may end before the anchor is no gap in the proof: the walk has shown that the epoch is on the chain and where it ends, keys are
// written once, and t is dense, so what links forward from the proven position is what the chain back will come to.
type Reader struct {
	log     Log
	witness *Witness
	buffer  int

	syncing  sync.Mutex // one Sync at a time
	instance ID         // of the first root; zero: none was read

	mu     sync.Mutex // of proven, for Head; a Sync reads it freely, as nobody else writes
	proven Head
}

// NewReader is a Reader of l. It does not read yet, and does not close l.
func NewReader(l Log, o ReaderOptions) *Reader {
	r := &Reader{log: l, witness: o.Witness, buffer: o.Buffer, proven: o.From, instance: o.Instance}
	if r.witness == nil {
		r.witness = new(Witness)
	}
	if r.buffer <= 0 {
		r.buffer = DefaultReaderBuffer
	}
	return r
}

// Head is how far the reader has handed out. It never waits for a Sync.
func (r *Reader) Head() Head {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.proven
}

// Status is what a Sync found.
type Status struct {
	// Root is the root that what was handed out is proven under.
	Root *Root
	// Waiting: the root's epoch has no start yet. The reader keeps what it had proven; what was acknowledged in earlier epochs may
	// be more than that.
	Waiting bool
	// Objects is how many were handed out.
	Objects int
}

// Sync reads on from what is proven and yields the new objects of the chain, in order. When it returns without an error, and is not Waiting,
// everything has been yielded that was acknowledged before it was called. An error of yield ends it and is returned; the object that yield failed on
// counts as not handed out. Calls wait for each other.
//
// Errors: ErrNoRoot; ErrDeleted, also if the name belongs to another database now; ErrSealed; ErrCorrupt; ErrRolledBack; whatever else the
// store returns. After any but ErrDeleted, ErrCorrupt and ErrRolledBack it may be called again.
func (r *Reader) Sync(ctx context.Context, yield func(*Object) error) (Status, error) {
	r.syncing.Lock()
	defer r.syncing.Unlock()
	var st Status
	for {
		root, err := r.root(ctx)
		if err != nil {
			return st, err
		}
		if err := behindSealed(r.proven, root.Sealed.Head()); err != nil {
			return st, err
		}
		st.Root = root
		again, err := r.sync(ctx, &st, yield)
		if stop, ok := err.(*yieldError); ok {
			return st, stop.err
		}
		if err != nil || !again {
			return st, err
		}
	}
}

// root reads the root, and refuses one that the reader cannot go on from.
func (r *Reader) root(ctx context.Context) (*Root, error) {
	root, err := r.witness.Root(ctx, r.log)
	switch {
	case err != nil:
		return nil, err
	case root.Deleted:
		return nil, ErrDeleted
	case !r.instance.IsZero() && r.instance != root.Instance:
		return nil, fmt.Errorf("%w: another one has its name", ErrDeleted)
	}
	r.instance = root.Instance
	if root.Epoch < r.proven.Key.Epoch {
		return nil, fmt.Errorf("%w: the root's epoch is %d, and %s was proven", ErrRolledBack, root.Epoch, r.proven.Pos)
	}
	if root.Epoch == r.proven.Key.Epoch && !r.proven.Claim.IsZero() && root.Claim != r.proven.Claim {
		return nil, fmt.Errorf("%w: epoch %d is under another claim than %s, which was proven", ErrRolledBack, root.Epoch, r.proven.Pos)
	}
	return root, nil
}

// errMoved: the root's epoch or claim changed while the log was read.
var errMoved = errors.New("the root moved on")

// yieldError carries the caller's own error through, whatever it wraps.
type yieldError struct{ err error }

func (e *yieldError) Error() string { return e.err.Error() }

// sync reads once, under one root. again: the root moved on.
func (r *Reader) sync(ctx context.Context, st *Status, yield func(*Object) error) (again bool, err error) {
	root := st.Root
	if st.Waiting = false; root.Epoch == 0 {
		return false, nil // nobody has written yet
	}
	base := r.proven
	if base.Key.Epoch == root.Epoch {
		base.Claim = root.Claim // of a sealed position it was not known
	}
	p := stayPath(base)
	if base.Key.Epoch != root.Epoch {
		start := StartKey(root.Epoch)
		if mutant.Is("anchor-newest") {
			start, _, _ = newestStart(ctx, r.log, root.Instance, base.Key, root.Epoch+1)
		}
		anchor, err := r.log.Get(ctx, root.Instance, start)
		switch {
		case errors.Is(err, ErrNotFound):
			return r.wait(ctx, st)
		case err != nil:
			return false, err
		case anchor.Claim != root.Claim && !mutant.Is("anchor-newest"):
			return r.settle(ctx, root, fmt.Errorf("%w: the start of epoch %d is under another claim than the root", ErrRolledBack, root.Epoch))
		}
		if p, err = walk(ctx, r.log, root, base, anchor); err == nil {
			err = stillThere(ctx, r.log, root, r.proven)
		}
		if err != nil {
			return r.settle(ctx, root, err)
		}
	}
	step := &readerStep{reader: r, status: st, root: root, yield: yield}
	step.scan = newScan(r.log, root, p, base, func(o *Object) error { return step.take(ctx, o) })
	if err := step.scan.run(ctx); err != nil {
		return r.settle(ctx, root, err)
	}
	if err := step.prove(ctx); err != nil {
		return r.settle(ctx, root, err)
	}
	return false, nil
}

// wait is what is left to do while the root's epoch has no start: to see that the start is not lost, for then the wait would have no end.
func (r *Reader) wait(ctx context.Context, st *Status) (again bool, err error) {
	start := StartKey(st.Root.Epoch)
	for k, err := range r.log.List(ctx, st.Root.Instance, start) {
		switch {
		case err != nil:
			return false, err
		case k.Epoch > start.Epoch:
			return r.settle(ctx, st.Root, fmt.Errorf("%w: the log holds objects of epoch %d, and the root's is %d", ErrRolledBack, k.Epoch, start.Epoch))
		}
		if _, err := fetch(ctx, r.log, st.Root.Instance, start, fmt.Sprintf("batch %s stands behind it", k)); err != nil {
			return r.settle(ctx, st.Root, err)
		}
		return true, nil // it landed just now
	}
	st.Waiting = true
	return false, nil
}

// settle decides by the root what an error means. An object that is missing may have been sealed, or be of a chain that is no longer the log.
func (r *Reader) settle(ctx context.Context, root *Root, cause error) (again bool, err error) {
	switch {
	case errors.Is(cause, errMoved):
		return true, nil
	case !unsettled(cause) && !errors.Is(cause, ErrRolledBack):
		return false, cause
	}
	now, err := r.root(ctx)
	switch {
	case err != nil:
		return false, err
	case now.Epoch != root.Epoch || now.Claim != root.Claim || now.Sealed != root.Sealed:
		return true, nil
	case errors.Is(cause, ErrRolledBack):
		return false, cause
	}
	return false, verdict(cause, r.proven.Pos != root.Sealed.Pos())
}

// readerStep holds what was read and is not proven.
type readerStep struct {
	reader *Reader
	status *Status
	root   *Root
	scan   *scan
	yield  func(*Object) error
	held   []*Object
	bytes  int
}

func (s *readerStep) take(ctx context.Context, o *Object) error {
	s.held = append(s.held, o)
	if s.bytes += o.Size(); s.bytes < s.reader.buffer {
		return nil
	}
	return s.prove(ctx)
}

// prove reads the root again, and hands out what is held if epoch and claim are unchanged.
func (s *readerStep) prove(ctx context.Context) error {
	r := s.reader
	now := s.root
	if !mutant.Is("no-reread") {
		var err error
		if now, err = r.root(ctx); err != nil {
			return err
		}
	}
	switch {
	case now.Epoch != s.root.Epoch || now.Claim != s.root.Claim:
		if mutant.Is("older-unproven") {
			return s.handOut(func(o *Object) bool { return o.Epoch < s.root.Epoch }, errMoved)
		}
		return errMoved
	case s.scan.topEpoch > now.Epoch && !mutant.Is("anchor-newest"):
		return fmt.Errorf("%w: the log holds objects of epoch %d, and the root's is %d", ErrRolledBack, s.scan.topEpoch, now.Epoch)
	}
	// Had the sealed position moved past what was read, objects that the reading missed may have been deleted.
	if err := behindSealed(s.scan.head, now.Sealed.Head()); err != nil && !mutant.Is("ignore-sealed") {
		return err
	}
	s.status.Root = now
	return s.handOut(func(*Object) bool { return true }, nil)
}

// handOut yields what is held, as long as it is proven, and then returns err.
func (s *readerStep) handOut(proven func(*Object) bool, err error) error {
	for i, o := range s.held {
		if !proven(o) {
			break
		}
		head, err := s.reader.proven.Follow(o)
		if err != nil {
			return &CorruptError{Key: o.Key(), Reason: "it does not link", Err: err}
		}
		if err := s.yield(o); err != nil {
			return &yieldError{err}
		}
		s.reader.mu.Lock()
		s.reader.proven = head
		s.reader.mu.Unlock()
		s.held[i] = nil
		s.status.Objects++
	}
	s.held, s.bytes = s.held[:0], 0
	return err
}

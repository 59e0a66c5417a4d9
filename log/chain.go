package log

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/steledb/stele/internal/mutant"
)

// The log is a chain of objects that link back by previous (protocol.md §3, L4 to L6). What is in the store is more than
// the chain: objects that landed too late, of owners that had lost the database, and objects behind a gap. Nothing is told by
// looking at one object; whoever reads anchors at a start and follows the chain both ways:
//
//	walk   goes back from the anchor, from start to start by key, until it meets what the reader holds already (its
//	       base). It needs one Get for each epoch on the way, and yields the path: which epochs are on the chain, and where each
//	       of them ends.
//	scan   reads forward from the base, one pass in key order, object after object, and takes those that stand on the path: it knows at
//	       every moment the one key that can come next. Everything else is dead and skipped. In the anchor's own epoch it takes
//	       batches until one is missing: a gap ends the chain.
//
// Every object that is taken carries the key and the hash of the one before it, t is dense, and its claim is that of its
// epoch's start; so what a pass takes is the chain, byte for byte, or an error. An object on the path that a listing lacks
// is fetched by its key. If it is not there, the root decides: has it moved on, or sealed the object, the reading begins again;
// otherwise the log is damaged (CorruptError). A gap is damage too if something that is there proves that what is
// missing was acknowledged (L6).
//
// Owner and reader differ in three things: where they anchor (recover.go, reader.go), what makes them trust what they read, and what
// an error means to them.

// Head is a place on a chain, and what is known there.
type Head struct {
	Pos           // the newest object; zero: before the first
	LastT  uint64 // the last transaction up to there
	Claim  ID     // of that object's epoch; zero: not known
	Fenced uint64 // the highest fenced of the objects up to there, as far as they were read
}

// Head is the sealed position as a place on the chain.
func (s Sealed) Head() Head { return Head{Pos: s.Pos(), LastT: s.LastT} }

// HeadOf is the place at o, which is on the chain.
func HeadOf(o *Object) Head {
	return Head{Pos: o.Pos(), LastT: o.LastT(), Claim: o.Claim, Fenced: o.Fenced}
}

// Follow is the head once o stands behind h. An error says why o does not link to h.
func (h Head) Follow(o *Object) (Head, error) {
	switch {
	case o.Prev != h.Pos && !mutant.Is("skip-hash"):
		return h, fmt.Errorf("its previous object is %s, not %s", o.Prev, h.Pos)
	case o.FirstT != h.LastT+1:
		return h, fmt.Errorf("its first t is %d behind t %d", o.FirstT, h.LastT)
	case o.Kind == KindBatch && o.Epoch != h.Key.Epoch, o.Kind == KindStart && o.Epoch <= h.Key.Epoch:
		return h, fmt.Errorf("a %s of epoch %d behind %s", o.Kind, o.Epoch, h.Pos)
	case o.Kind == KindBatch && !h.Claim.IsZero() && o.Claim != h.Claim:
		return h, errors.New("it was written under another claim than its epoch's start")
	}
	return Head{Pos: o.Pos(), LastT: o.LastT(), Claim: o.Claim, Fenced: max(h.Fenced, o.Fenced)}, nil
}

// segment is one epoch's part of the path.
type segment struct {
	epoch uint64
	end   Pos // the last object of the epoch on the chain; zero in the anchor's own segment, which is open
}

// path is the chain from a base to an anchor: its segments, oldest first, and the claims of the starts on it.
type path struct {
	segments []segment
	claims   map[ID]bool
}

// missingError: an object on the chain is not there.
type missingError struct {
	key    Key
	reason string
}

func (e *missingError) Error() string {
	return fmt.Sprintf("object %s is missing: %s", e.key, e.reason)
}

// strayError: the chain back does not lead through the base.
type strayError struct {
	at   Pos
	base Pos
}

func (e *strayError) Error() string {
	return fmt.Sprintf("the chain back comes to %s and not to %s", e.at, e.base)
}

// goneError: what a reader had proven or installed is not in the log any more (L11).
type goneError struct {
	pos    Pos
	reason string
}

func (e *goneError) Error() string { return fmt.Sprintf("%s is gone: %s", e.pos, e.reason) }

// unsettled reports whether an error means different things, depending on what the root says now.
func unsettled(err error) bool {
	var missing *missingError
	var stray *strayError
	var gone *goneError
	return errors.As(err, &missing) || errors.As(err, &stray) || errors.As(err, &gone)
}

// verdict is what an unsettled error means if the root has not changed. proven: the reading began at something that had been
// proven, and not at the sealed position or the beginning.
func verdict(err error, proven bool) error {
	var missing *missingError
	var stray *strayError
	switch {
	case errors.As(err, &missing):
		return &CorruptError{Key: missing.key, Reason: "it is missing: " + missing.reason}
	case errors.As(err, &stray) && !proven:
		return &CorruptError{Reason: err.Error()}
	default:
		return fmt.Errorf("%w: %w", ErrRolledBack, err)
	}
}

// stillThere sees that the store has what was proven or installed, unless it is sealed. A goneError if not.
func stillThere(ctx context.Context, l Log, root *Root, proven Head) error {
	if proven.Key.Compare(root.Sealed.Pos().Key) <= 0 || mutant.Is("forget-installed") {
		return nil
	}
	o, err := l.Get(ctx, root.Instance, proven.Key)
	switch {
	case errors.Is(err, ErrNotFound):
		return &goneError{proven.Pos, "it is not in the store"}
	case err != nil:
		return err
	case o.Hash() != proven.Hash:
		return &goneError{proven.Pos, fmt.Sprintf("%s is in its place", o.Pos())}
	}
	return nil
}

// stayPath is the path of a reader whose base lies in the anchor's epoch.
func stayPath(base Head) path {
	p := path{segments: []segment{{epoch: base.Key.Epoch}}, claims: map[ID]bool{}}
	if !base.Claim.IsZero() {
		p.claims[base.Claim] = true
	}
	return p
}

// walk goes back from the start at anchor to base. Errors: missingError, strayError, CorruptError, what Get returns.
func walk(ctx context.Context, l Log, root *Root, base Head, anchor *Object) (path, error) {
	p := path{segments: []segment{{epoch: anchor.Epoch}}, claims: map[ID]bool{}}
	if !base.Claim.IsZero() {
		p.claims[base.Claim] = true
	}
	for start := anchor; ; {
		if start.Lineage != root.Lineage {
			return p, foreign(start)
		}
		p.claims[start.Claim] = true
		prev := start.Prev
		if mutant.Is("any-start") {
			if k, _, _ := newestStart(ctx, l, root.Instance, base.Key, start.Epoch); k.Epoch > prev.Key.Epoch {
				prev = Pos{Key: k}
			}
		}
		switch {
		case prev == base.Pos:
			if base.Pos != (Pos{}) {
				p.segments = append(p.segments, segment{base.Key.Epoch, base.Pos})
			}
			slices.Reverse(p.segments)
			return p, nil
		case prev.Key.Compare(base.Key) <= 0:
			return p, &strayError{prev, base.Pos}
		}
		p.segments = append(p.segments, segment{prev.Key.Epoch, prev})
		if prev.Key.Epoch == base.Key.Epoch {
			slices.Reverse(p.segments)
			return p, nil
		}
		next, err := fetch(ctx, l, root.Instance, StartKey(prev.Key.Epoch), "the chain back leads over it")
		if err != nil {
			return p, err
		}
		if prev.Key.IsStart() && next.Hash() != prev.Hash {
			return p, &CorruptError{Key: prev.Key, Reason: fmt.Sprintf("its hash is not the one that %s names", start.Key())}
		}
		start = next
	}
}

// fetch gets an object that ought to be there: a missingError with the reason if it is not.
func fetch(ctx context.Context, l Log, inst ID, k Key, reason string) (*Object, error) {
	o, err := l.Get(ctx, inst, k)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, &missingError{k, reason}
	case err != nil:
		return nil, err
	case o.Key() != k:
		return nil, &CorruptError{Key: k, Reason: fmt.Sprintf("object %s is stored under this key", o.Key())}
	}
	return o, nil
}

func foreign(o *Object) error {
	return &CorruptError{Key: o.Key(), Reason: fmt.Sprintf("it belongs to another log, of lineage %s", o.Lineage)}
}

// scan is one reading forward along a path.
type scan struct {
	log  Log
	root *Root
	path path
	at   int  // the segment that head is in, or about to enter
	head Head // the last object taken, or the base
	base Head
	emit func(*Object) error // takes each object of the chain

	// What was seen of objects that are not on the chain.
	dead       int    // lying before the head
	behind     int    // behind it, in this pass
	fenced     uint64 // the highest fenced under a claim of the chain
	fencedBy   Key    // who says so
	topEpoch   uint64 // the highest epoch of any object that is there
	lastStart  uint64 // the epoch of the last start that the pass came by
	orphan     Key    // a batch whose epoch's start the pass did not come by
	orphanSeen bool
}

func newScan(l Log, root *Root, p path, base Head, emit func(*Object) error) *scan {
	return &scan{log: l, root: root, path: p, head: base, base: base, emit: emit}
}

// next is the one key that can come next on the chain.
func (s *scan) next() Key {
	for s.at < len(s.path.segments)-1 && s.head.Pos == s.path.segments[s.at].end {
		s.at++
	}
	seg := s.path.segments[s.at]
	if s.head.Key.Epoch != seg.epoch {
		return StartKey(seg.epoch)
	}
	return Key{seg.epoch, s.head.LastT + 1}
}

// open reports whether the next object may be missing: nothing proves yet that the chain goes on.
func (s *scan) open() bool {
	return s.at == len(s.path.segments)-1 && s.head.Key.Epoch == s.path.segments[s.at].epoch
}

// run reads to the end of the chain. Errors: missingError, CorruptError, what emit and the store return.
func (s *scan) run(ctx context.Context) error {
	for {
		if err := s.pass(ctx); err != nil {
			return err
		}
		next, reason := s.next(), ""
		switch {
		case !s.open():
			reason = "the chain leads over it"
		case s.fenced >= next.FirstT && !mutant.Is("ignore-damage"):
			reason = fmt.Sprintf("object %s says that t %d was acknowledged", s.fencedBy, s.fenced)
		case s.orphanSeen && !mutant.Is("lost-start"):
			_, err := fetch(ctx, s.log, s.root.Instance, StartKey(s.orphan.Epoch), fmt.Sprintf("batch %s stands behind it", s.orphan))
			return err
		default:
			return nil
		}
		o, err := fetch(ctx, s.log, s.root.Instance, next, reason)
		if err != nil {
			return err
		}
		if err := s.take(o); err != nil {
			return err
		}
	}
}

// pass reads once forward from the head.
func (s *scan) pass(ctx context.Context) error {
	last := s.head.Key
	s.behind, s.lastStart, s.orphanSeen = 0, 0, false
	for o, err := range s.log.Read(ctx, s.root.Instance, s.head.Key) {
		if err != nil {
			return err
		}
		key := o.Key()
		switch {
		case key.Compare(last) <= 0:
			return &CorruptError{Key: key, Reason: fmt.Sprintf("the store yields it behind %s", last)}
		case o.Lineage != s.root.Lineage:
			return foreign(o)
		}
		last = key
		s.topEpoch = max(s.topEpoch, key.Epoch)
		for {
			next := s.next()
			if c := key.Compare(next); c == 0 {
				if err := s.take(o); err != nil {
					return err
				}
				break
			} else if c < 0 || s.open() {
				if c > 0 && mutant.Is("ignore-gap") && key.Epoch == next.Epoch {
					s.head = Head{Pos: o.Prev, LastT: o.FirstT - 1, Claim: s.head.Claim, Fenced: s.head.Fenced}
					continue
				}
				s.skip(o)
				break
			}
			missed, err := fetch(ctx, s.log, s.root.Instance, next, "the chain leads over it")
			if err != nil {
				return err
			}
			if err := s.take(missed); err != nil {
				return err
			}
		}
	}
	return nil
}

// take puts o, which stands at the next key, on the chain.
func (s *scan) take(o *Object) error {
	seg := s.path.segments[s.at]
	head, err := s.head.Follow(o)
	switch {
	case err != nil:
	case o.Lineage != s.root.Lineage:
		return foreign(o)
	case seg.end != Pos{} && o.Key() == seg.end.Key && o.Hash() != seg.end.Hash && !mutant.Is("skip-hash"):
		err = errors.New("its hash is not the one that the next epoch's start names")
	case seg.end != Pos{} && o.Key().Compare(seg.end.Key) > 0:
		err = fmt.Errorf("the chain leaves its epoch at %s", seg.end)
	}
	if err != nil {
		return &CorruptError{Key: o.Key(), Reason: "it does not link", Err: err}
	}
	if o.Kind == KindStart {
		s.lastStart = o.Epoch
	}
	s.head, s.dead, s.behind = head, s.dead+s.behind, 0
	return s.emit(o)
}

// skip looks at an object that is not on the chain, or not yet: what it says of the chain.
func (s *scan) skip(o *Object) {
	s.behind++
	if o.Kind == KindStart {
		s.lastStart = o.Epoch
	} else if o.Epoch != s.lastStart && o.Epoch != s.head.Key.Epoch && o.Epoch > s.base.Key.Epoch && !s.orphanSeen {
		s.orphan, s.orphanSeen = o.Key(), true
	}
	// Of the base's epoch the claim may not be known; an object of that epoch then counts.
	ours := s.path.claims[o.Claim] || mutant.Is("any-claim") || s.base.Claim.IsZero() && s.base.Key.Epoch != 0 && o.Epoch == s.base.Key.Epoch
	if ours && o.Fenced > s.fenced {
		s.fenced, s.fencedBy = o.Fenced, o.Key()
	}
}

// newestStart is the key of the newest start that is there, of an epoch above base's and below limit; zero: there is none. top is the
// highest epoch of any object behind base.
func newestStart(ctx context.Context, l Log, inst ID, base Key, limit uint64) (start Key, top uint64, err error) {
	for k, err := range l.List(ctx, inst, Key{base.Epoch, math.MaxUint64}) {
		if err != nil {
			return Key{}, 0, err
		}
		top = k.Epoch
		if k.IsStart() && k.Epoch < limit {
			start = k
		}
	}
	return start, top, nil
}

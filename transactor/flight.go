package transactor

import (
	"context"
	"slices"
	"sync"

	"github.com/steledb/stele/internal/mutant"
)

// flights are the batches that were closed and are not answered, in t order. At most depth of them flush at once, with at most so
// many bytes together (P4); one whose flush has ended waits for its predecessors'.
//
// Whoever ends a flush installs what is due: the batches at the front whose flushes have ended well (P1, P3, L7), which may be none, its own,
// or its own and some that waited for it. While somebody is at it, others leave their batches to him.
type flights struct {
	depth    int
	maxBytes int
	account  *account
	freed    chan struct{} // a token: a flush ended, and what was due then was answered, since somebody looked
	moved    chan struct{} // a token: somebody has ended installing since somebody looked

	mu         sync.Mutex
	flushing   int
	bytes      int // of those
	line       []*batch
	installing bool
	over       bool // the epoch is: nothing is installed any more
}

func newFlights(depth, maxBytes int, a *account) *flights {
	a.forget()
	return &flights{depth: depth, maxBytes: maxBytes, account: a, freed: make(chan struct{}, 1), moved: make(chan struct{}, 1)}
}

// free reports whether a batch of so many bytes may be sent, and how many flushes are in flight.
func (f *flights) free(bytes int) (ok bool, inFlight int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ok = f.flushing < f.depth && f.bytes+bytes <= f.maxBytes && len(f.line) < 2*f.depth
	return ok || f.flushing == 0, f.flushing
}

// began puts b behind the others.
func (f *flights) began(b *batch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.flushing++
	f.bytes += b.size
	f.line = append(f.line, b)
	b.inFlight = f.flushing
	f.account.batches.Add(int64(b.memory + b.size))
	f.account.replaced.Add(b.replaced)
}

// ended says that b's flush has ended, well or not, and delivers what is due.
func (f *flights) ended(b *batch, deliver func(*batch)) {
	// Only then is the next flush free: those who are answered submit again, and belong into one object with the others.
	defer signal(f.freed)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.flushing--
	f.bytes -= b.size
	close(b.done)
	if f.installing {
		return
	}
	f.installing = true
	for !f.over && len(f.line) > 0 && (f.line[0].fenced() || mutant.Is("verify-later") && f.line[0].verifiedLater(f.line[1:])) {
		due := f.line[0]
		f.line[0] = nil
		f.line = f.line[1:]
		f.account.batches.Add(-int64(due.memory + due.size))
		f.account.replaced.Add(-due.replaced)
		f.mu.Unlock()
		deliver(due)
		f.mu.Lock()
	}
	f.installing = false
	signal(f.moved)
}

// verifiedLater is what a mutation takes for fenced: durable, and a later batch has had its own Verify.
func (b *batch) verifiedLater(later []*batch) bool {
	return isClosed(b.done) && b.appendErr == nil && slices.ContainsFunc(later, (*batch).fenced)
}

// drain waits until everything is installed, or what comes next has failed, or ctx ends, and returns what was not installed, in order. From then
// on nothing is.
func (f *flights) drain(ctx context.Context) []*batch {
	for done := ctx.Done(); ; {
		f.mu.Lock()
		if !f.installing && (len(f.line) == 0 || isClosed(f.line[0].done) || ctx.Err() != nil) {
			f.over = true
			left := f.line
			f.mu.Unlock()
			return left
		}
		f.mu.Unlock()
		select {
		case <-f.moved:
		case <-done:
			done = nil // who installs is not waiting for the store
		}
	}
}

// signal leaves a token, if there is none.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

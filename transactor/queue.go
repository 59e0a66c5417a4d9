package transactor

import (
	"context"
	"slices"
	"sync"

	"github.com/steledb/stele/internal/mutant"
)

// queue is admission: it bounds, by count and by bytes, the transactions that are admitted and not yet answered, and hands
// those that wait to the preparing goroutine in the order of admission (P1, P5).
type queue struct {
	maxCount int
	maxBytes int
	wake     chan struct{} // a token: something waits, or the queue was closed

	mu      sync.Mutex
	waiting []*Future
	count   int // admitted and not answered
	bytes   int
	line    []*ticket // who waits for room, first come first served
	closed  error     // why nothing more is admitted
}

// ticket is a place in the line of those who wait to be admitted.
type ticket struct {
	f    *Future
	done chan struct{} // closed once f is admitted, or never will be
	err  error
}

func newQueue(maxCount, maxBytes int) *queue {
	return &queue{maxCount: maxCount, maxBytes: maxBytes, wake: make(chan struct{}, 1)}
}

// admit takes f or says why not; ErrBusy is the answer to a full queue, and while others wait for room. Submit has refused what
// is larger than maxBytes.
func (q *queue) admit(f *Future) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed != nil:
		return q.closed
	case len(q.line) > 0, !q.fits(f):
		return ErrBusy
	}
	q.enter(f)
	return nil
}

// await takes f as soon as there is room and nobody who came earlier waits for it, or returns why it gave up.
func (q *queue) await(ctx context.Context, f *Future) error {
	q.mu.Lock()
	switch {
	case q.closed != nil:
		defer q.mu.Unlock()
		return q.closed
	case len(q.line) == 0 && q.fits(f):
		defer q.mu.Unlock()
		q.enter(f)
		return nil
	}
	t := &ticket{f: f, done: make(chan struct{})}
	q.line = append(q.line, t)
	q.mu.Unlock()
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.line, t)
	if i < 0 { // it was admitted, or refused, just now
		return t.err
	}
	q.line = slices.Delete(q.line, i, i+1)
	q.advance() // those behind it may fit
	return context.Cause(ctx)
}

// busy reports whether a transaction that does not wait would be refused, however small it is.
func (q *queue) busy() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed == nil && (len(q.line) > 0 || q.count >= q.maxCount && !mutant.Is("no-bound"))
}

func (q *queue) fits(f *Future) bool {
	return (q.count < q.maxCount || mutant.Is("no-bound")) && (q.count == 0 || q.bytes+f.size <= q.maxBytes)
}

func (q *queue) enter(f *Future) {
	q.count++
	q.bytes += f.size
	q.waiting = append(q.waiting, f)
	if len(q.waiting) == 1 {
		q.signal()
	}
}

// advance admits those in the line that there is room for, in their order.
func (q *queue) advance() {
	n := 0
	for n < len(q.line) && q.fits(q.line[n].f) {
		q.enter(q.line[n].f)
		close(q.line[n].done)
		n++
	}
	q.line = slices.Delete(q.line, 0, n)
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take moves everything that waits behind buf.
func (q *queue) take(buf []*Future) []*Future {
	q.mu.Lock()
	defer q.mu.Unlock()
	buf = append(buf, q.waiting...)
	clear(q.waiting)
	q.waiting = q.waiting[:0]
	return buf
}

// answered gives back the room of n transactions.
func (q *queue) answered(n, bytes int) {
	q.mu.Lock()
	q.count -= n
	q.bytes -= bytes
	q.advance()
	q.mu.Unlock()
}

// close ends admission with err; what was admitted stays.
func (q *queue) close(err error) {
	q.mu.Lock()
	if q.closed == nil {
		q.closed = err
	}
	for _, t := range q.line {
		t.err = q.closed
		close(t.done)
	}
	q.line = nil
	q.mu.Unlock()
	q.signal()
}

// drained reports that the queue is closed and nothing waits.
func (q *queue) drained() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed != nil && len(q.waiting) == 0
}

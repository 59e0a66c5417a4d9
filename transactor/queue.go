package transactor

import (
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
	closed  error // why nothing more is admitted
}

func newQueue(maxCount, maxBytes int) *queue {
	return &queue{maxCount: maxCount, maxBytes: maxBytes, wake: make(chan struct{}, 1)}
}

// admit takes f or says why not; ErrBusy is the answer to a full queue. Submit has refused what is larger than maxBytes.
func (q *queue) admit(f *Future) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed != nil:
		return q.closed
	case q.count >= q.maxCount && !mutant.Is("no-bound"), q.count > 0 && q.bytes+f.size > q.maxBytes:
		return ErrBusy
	}
	q.count++
	q.bytes += f.size
	q.waiting = append(q.waiting, f)
	if len(q.waiting) == 1 {
		q.signal()
	}
	return nil
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
	q.mu.Unlock()
}

// close ends admission with err; what was admitted stays.
func (q *queue) close(err error) {
	q.mu.Lock()
	if q.closed == nil {
		q.closed = err
	}
	q.mu.Unlock()
	q.signal()
}

// drained reports that the queue is closed and nothing waits.
func (q *queue) drained() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed != nil && len(q.waiting) == 0
}

package transactor

import (
	"container/list"
	"context"
	"sync"

	"github.com/steledb/stele/internal/mutant"
)

// queue is admission: it bounds, by count, by bytes and by the memory budget, the transactions that are admitted and not yet answered,
// and hands those that wait to the preparing goroutine in the order of admission (P1, P5).
type queue struct {
	maxCount int
	maxBytes int
	account  *account
	wake     chan struct{} // a token: something waits, or the queue was closed

	mu      sync.Mutex
	waiting []*Future
	taken   share     // by what is admitted and not answered
	line    list.List // of *ticket: who waits for room, first come first served
	closed  error     // why nothing more is admitted
}

// share is what transactions take of a queue.
type share struct {
	count, bytes int
	memory       int64 // what they keep alive as they were submitted
	growth       int64 // what they may come to in the database
}

func (s share) plus(o share) share {
	return share{s.count + o.count, s.bytes + o.bytes, s.memory + o.memory, s.growth + o.growth}
}

func (s share) minus(o share) share {
	return share{s.count - o.count, s.bytes - o.bytes, s.memory - o.memory, s.growth - o.growth}
}

// ticket is a place in the line of those who wait to be admitted.
type ticket struct {
	f     *Future
	place *list.Element // in the line; nil once it has left
	done  chan struct{} // closed once f is admitted, or never will be
	err   error
}

func newQueue(maxCount, maxBytes int, a *account) *queue {
	return &queue{maxCount: maxCount, maxBytes: maxBytes, account: a, wake: make(chan struct{}, 1)}
}

// admit takes f or says why not: ErrBusy is the answer to a full queue, and while others wait for room, a *MemoryError to a budget that is used up.
// Submit has refused what is larger than maxBytes.
func (q *queue) admit(f *Future) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed != nil:
		return q.closed
	case q.line.Len() > 0:
		return ErrBusy
	}
	if err := q.room(f.share); err != nil {
		return err
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
	case q.line.Len() == 0:
		err := q.room(f.share)
		if err == nil {
			q.enter(f)
		}
		if !q.passing(err) {
			q.mu.Unlock()
			return err
		}
	}
	t := &ticket{f: f, done: make(chan struct{})}
	t.place = q.line.PushBack(t)
	q.mu.Unlock()
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.place == nil { // it was admitted, or refused, just now
		return t.err
	}
	q.line.Remove(t.place)
	q.advance() // those behind it may fit
	return context.Cause(ctx)
}

// full says why a transaction would be refused, however small it is: before anything is done for it.
func (q *queue) full(wait bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed != nil {
		return nil // admit says so
	}
	err := q.room(share{count: 1, memory: 1})
	switch {
	case wait && q.passing(err):
		return nil
	case err == nil && !wait && q.line.Len() > 0:
		return ErrBusy
	}
	return err
}

// room says why s does not fit: nil, ErrBusy or a *MemoryError.
func (q *queue) room(s share) error {
	switch {
	case q.taken.count+s.count > q.maxCount && !mutant.Is("no-bound"):
		return ErrBusy
	case q.taken.count > 0 && q.taken.bytes+s.bytes > q.maxBytes:
		return ErrBusy
	case s.memory == 0: // a repetition, see Submit
		return nil
	}
	return q.account.room(q.taken, s)
}

// passing reports whether what room said will be otherwise once what was admitted is answered.
func (q *queue) passing(err error) bool {
	if m, ok := err.(*MemoryError); ok {
		return m.passing && q.taken.count > 0
	}
	return err != nil
}

// grow takes more of the budget for a transaction that was admitted, since it becomes more than was thought. If that is more than old values that it
// retracts would make of it, and there is no room for it, grow says so.
func (q *queue) grow(f *Future, growth int64) error {
	const little = 4 << 10
	q.mu.Lock()
	defer q.mu.Unlock()
	more := share{growth: growth - f.growth}
	if growth > 2*f.growth+little {
		if err := q.account.room(q.taken, more); err != nil {
			return err
		}
	}
	q.taken = q.taken.plus(more)
	f.share = f.share.plus(more)
	return nil
}

// perPrepared is the most that a fact takes while its transaction is worked out.
const perPrepared = 320

// facts is how many facts f may come to, for the memory that they take while it is worked out: what it says itself, a few, and those that the budget
// has room for; 0: any number.
func (q *queue) facts(f *Future) int {
	const few = 4 << 10
	if q.account.budget == 0 {
		return 0
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	m := q.account.memory(q.taken.memory, q.taken.growth)
	return int(few + f.growth/64 + max(0, m.Budget-m.Accounted()-m.Reserved)/perPrepared)
}

// tooMany is the refusal of a transaction that comes to more than n facts.
func (q *queue) tooMany(n int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	more := share{growth: int64(n+1) * perPrepared}
	if err := q.account.room(q.taken, more); err != nil {
		return err
	}
	m := q.account.memory(q.taken.memory, q.taken.growth+more.growth) // somebody has been answered meanwhile
	return &MemoryError{Accounted: m.Accounted(), Reserved: m.Reserved, Budget: m.Budget}
}

// memory is what the transactions in the queue keep alive, and what they may come to.
func (q *queue) memory() (queue, growth int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.taken.memory, q.taken.growth
}

func (q *queue) enter(f *Future) {
	q.taken = q.taken.plus(f.share)
	q.waiting = append(q.waiting, f)
	if len(q.waiting) == 1 {
		q.signal()
	}
}

// advance admits those in the line that there is room for, in their order, and sends those away for whom there never will be.
func (q *queue) advance() {
	for q.line.Len() > 0 {
		t := q.line.Front().Value.(*ticket)
		err := q.room(t.f.share)
		if q.passing(err) {
			return
		}
		if err == nil {
			q.enter(t.f)
		}
		q.leave(t, err)
	}
}

// leave takes a ticket out of the line, with the answer.
func (q *queue) leave(t *ticket, err error) {
	q.line.Remove(t.place)
	t.place, t.err = nil, err
	close(t.done)
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

// answered gives back what transactions took.
func (q *queue) answered(s share) {
	q.mu.Lock()
	q.taken = q.taken.minus(s)
	q.advance()
	q.mu.Unlock()
}

// close ends admission with err; what was admitted stays.
func (q *queue) close(err error) {
	q.mu.Lock()
	if q.closed == nil {
		q.closed = err
	}
	for q.line.Len() > 0 {
		q.leave(q.line.Front().Value.(*ticket), q.closed)
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

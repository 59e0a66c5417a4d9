package transactor

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
	"github.com/steledb/stele/internal/mutant"
	"github.com/steledb/stele/tx"
)

// ErrMemoryBudget: the transaction does not fit into Options.MemoryBudget. Nothing was committed; a *MemoryError has the account. What is there can
// still be read.
var ErrMemoryBudget = errors.New("the memory budget is used up; raise Options.MemoryBudget, and what limits the process with it")

// MemoryError is why a transaction was not admitted: with what it may take, the account would be over the budget. It wraps ErrMemoryBudget and, if
// After is set, ErrBusy too: what keeps it out is what waits for the store, and there is likely to be room again in about After.
type MemoryError struct {
	Accounted int64 // bytes
	Reserved  int64 // bytes, for what was admitted, for the transaction itself and for merges
	Budget    int64 // bytes
	After     time.Duration

	passing bool
}

func (e *MemoryError) Error() string {
	s := fmt.Sprintf("%v: %d bytes are in use and %d reserved, of %d", ErrMemoryBudget, e.Accounted, e.Reserved, e.Budget)
	if e.After > 0 {
		s += fmt.Sprintf("; transactions wait for the store, try again in about %v", e.After)
	}
	return s
}

func (e *MemoryError) Unwrap() []error {
	if e.After > 0 {
		return []error{ErrMemoryBudget, ErrBusy}
	}
	return []error{ErrMemoryBudget}
}

// Memory is a transactor's account of the memory that it keeps alive, in bytes. What it leaves out, and how near it is to what is measured, is in
// docs/memory.md.
type Memory struct {
	Budget int64 // Options.MemoryBudget; 0: none

	Value       int64 // the newest database value, staged or shown
	Unique      int64 // fingerprints of unique values
	Stage       int64 // what one batch leaves to the next
	Queue       int64 // what was admitted and is not answered, as it was submitted
	Batches     int64 // what was judged and is not answered, the objects that hold it, and older values that are still shown
	Subscribers int64 // the newest transactions, for subscribers
	Other       int64 // places in the log, counters

	// Reserved is what may yet come: what was admitted, once it is in the database, and a merge in the background.
	Reserved int64
}

// Accounted is the sum of everything but what is reserved. Writes are refused where that and Reserved would be over the budget.
func (m Memory) Accounted() int64 {
	return m.Value + m.Unique + m.Stage + m.Queue + m.Batches + m.Subscribers + m.Other
}

// account is the part of Memory that is not the queue's. Each number is written by whoever owns what it counts, and read at admission.
type account struct {
	budget   int64
	stage    atomic.Pointer[db.Memory] // after the batch that was closed last
	batches  atomic.Int64              // of batches in flight: deltas and objects
	replaced atomic.Int64              // by them: what only the value that is still shown holds
	window   *atomic.Int64
	marks    *atomic.Int64
}

// fixed is what a transactor takes without anything in it: counters, above all.
const fixed = 1 << 19

// staged notes what a stage keeps alive, and returns what the batch that was just closed has replaced.
func (a *account) staged(s *db.Stage) (replaced int64) {
	m := s.Memory()
	a.stage.Store(&m)
	return m.Replaced
}

// forget takes the batches of an epoch that is over for answered; those that are not are judged and counted again.
func (a *account) forget() {
	a.batches.Store(0)
	a.replaced.Store(0)
}

// memory is the account with so much in the queue, and so much that may come of it.
func (a *account) memory(queue, growth int64) Memory {
	m := Memory{
		Budget: a.budget, Queue: queue, Batches: a.batches.Load() + a.replaced.Load(),
		Subscribers: a.window.Load(), Other: fixed + a.marks.Load(), Reserved: growth,
	}
	if s := a.stage.Load(); s != nil {
		m.Value, m.Unique, m.Stage = s.Value, s.Unique, s.Scratch
		m.Reserved += max(0, s.Merge-a.replaced.Load()) // what a merge that is over has replaced was reserved for it
	}
	if mutant.Is("count-no-batches") {
		m.Batches = 0
	}
	if mutant.Is("reserve-nothing") {
		m.Reserved = 0
	}
	return m
}

// room says why s does not fit beside what is taken: nil or a *MemoryError. It is passing if s would fit beside the database alone.
func (a *account) room(taken, s share) error {
	if a.budget == 0 || mutant.Is("no-budget") {
		return nil
	}
	m := a.memory(taken.memory, taken.growth)
	m.Reserved += s.memory + s.growth
	over := m.Accounted() + m.Reserved - m.Budget
	if over <= 0 {
		return nil
	}
	pending := m.Queue + m.Batches + taken.growth
	return &MemoryError{Accounted: m.Accounted(), Reserved: m.Reserved, Budget: m.Budget, passing: over <= pending}
}

// becoming is the most that a transaction whose record has so many bytes is likely to take in the database: four times that is more than
// its keys take in all indexes.
func becoming(size int) int64 { return 4 * int64(size) }

// asSubmitted is what a future keeps alive until it is answered, beside what its batch does.
func (f *Future) asSubmitted() int64 {
	const channel = 96
	return int64(unsafe.Sizeof(*f)) + channel + int64(f.req.Memory())
}

// asJudged is what a transaction keeps alive in a batch, without the text of its values, which is its request's.
func asJudged(t *datom.Tx) int {
	return int(unsafe.Sizeof(tx.Prepared{})) + cap(t.Datoms)*int(unsafe.Sizeof(datom.Datom{}))
}

// alone is what a transaction keeps alive for subscribers.
func alone(t *datom.Tx) int {
	n := asJudged(t)
	for i := range t.Datoms {
		n += len(t.Datoms[i].V.Text())
	}
	return n
}

// indexing is what a transaction adds to the database beside its datoms: those that its schema changes bring into AVET, which are sorted
// for it, so that it takes three times as much for a moment.
func indexing(s *db.Stage, t *datom.Tx) (n int64) {
	for i := range t.Datoms {
		d := &t.Datoms[i]
		if !d.Added || d.A != db.AttrUnique && (d.A != db.AttrIndex || !d.V.Bool()) {
			continue
		}
		if a := s.Schema().Attr(d.E); a != nil && !a.InAVET() {
			n += 3 * s.Extent(d.E)
		}
	}
	return n
}

// memory is the account of what the transactor keeps alive now.
func (x *Transactor) memory() Memory {
	queue, growth := x.queue.memory()
	return x.account.memory(queue, growth)
}

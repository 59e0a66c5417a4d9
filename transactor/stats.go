package transactor

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Stats is a snapshot of a transactor's counters since Open.
type Stats struct {
	Transactions uint64 // committed and answered
	Refused      uint64 // refused by the database
	Repeated     uint64 // committed before, under the same idempotency key
	Failed       uint64 // not committed because the log could not be written
	Busy         uint64 // not admitted because the queue was full
	OverBudget   uint64 // not admitted because of the memory budget

	Memory Memory // now

	Batches      uint64 // fenced, those of refusals alone included
	Objects      uint64 // batches written to the log
	ObjectBytes  uint64
	Fences       uint64 // Verify calls
	Takeovers    uint64 // epochs taken from oneself after a failure
	Renewals     uint64 // of the lease
	BatchPeak    int64  // the largest number of transactions in an object
	InFlightPeak int64  // the largest number of flushes in flight

	Queue  Stage // from admission of a batch's oldest transaction to the batch's close
	Append Stage // from the close until the object was durable and fenced
	Wait   Stage // from then until everything before it was, and it was answered

	batch, inFlight *hdrhistogram.Histogram
}

// Stage is the distribution of one stage's time, one sample per batch.
type Stage struct {
	Count              int64
	P50, P90, P99, Max time.Duration
	hist               *hdrhistogram.Histogram
}

// recorder gathers the counters. Batches are recorded by whoever installs them.
type recorder struct {
	busy, overBudget, fences, takeovers, renewals atomic.Uint64

	flush atomic.Int64 // moving average of a flush, ns

	mu                      sync.Mutex
	transactions, refused   uint64
	repeated                uint64
	failed                  uint64
	batches, objects, bytes uint64
	queue, append, wait     *hdrhistogram.Histogram // µs
	batch, inFlight         *hdrhistogram.Histogram
}

func newRecorder() *recorder {
	stage := func() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(time.Hour/time.Microsecond), 2) }
	count := func() *hdrhistogram.Histogram { return hdrhistogram.New(1, 1<<20, 3) }
	return &recorder{queue: stage(), append: stage(), wait: stage(), batch: count(), inFlight: count()}
}

// recentFlush is how long an append and its fence took lately.
func (r *recorder) recentFlush() time.Duration { return time.Duration(r.flush.Load()) }

func (r *recorder) delivered(b *batch, repeated int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batches++
	r.transactions += uint64(len(b.txs))
	r.refused += uint64(len(b.judged) - len(b.txs) - repeated)
	r.repeated += uint64(repeated)
	if b.obj != nil {
		r.objects++
		r.bytes += uint64(len(b.obj.Bytes()))
		record(r.batch, int64(len(b.txs)))
	}
	record(r.inFlight, int64(b.inFlight))
	record(r.queue, b.closed.Sub(b.oldest).Microseconds())
	if isClosed(b.done) { // else it was found on the chain before its flight had returned
		took := b.verified.Sub(b.closed)
		record(r.append, took.Microseconds())
		record(r.wait, time.Since(b.verified).Microseconds())
		r.flush.Store((7*r.flush.Load() + int64(took)) / 8)
	}
}

// lost counts a transaction that was not committed because the log could not be written.
func (r *recorder) lost() {
	r.mu.Lock()
	r.failed++
	r.mu.Unlock()
}

func record(h *hdrhistogram.Histogram, n int64) {
	_ = h.RecordValue(min(max(n, h.LowestTrackableValue()), h.HighestTrackableValue()))
}

// Stats is a snapshot of the counters since Open.
func (x *Transactor) Stats() Stats {
	r, memory := x.stats, x.memory()
	r.mu.Lock()
	defer r.mu.Unlock()
	return Stats{
		Transactions: r.transactions, Refused: r.refused, Repeated: r.repeated, Failed: r.failed, Busy: r.busy.Load(),
		OverBudget: r.overBudget.Load(), Memory: memory,
		Batches: r.batches, Objects: r.objects, ObjectBytes: r.bytes, Fences: r.fences.Load(), Takeovers: r.takeovers.Load(),
		Renewals: r.renewals.Load(),
		Queue:    stageOf(r.queue.Clone()), Append: stageOf(r.append.Clone()), Wait: stageOf(r.wait.Clone()),
		batch: r.batch.Clone(), inFlight: r.inFlight.Clone(),
	}.peaks()
}

// StatsSince is what has been counted since the snapshot prev, with the peaks since then.
func (x *Transactor) StatsSince(prev Stats) Stats {
	s := x.Stats()
	s.Transactions -= prev.Transactions
	s.Refused -= prev.Refused
	s.Repeated -= prev.Repeated
	s.Failed -= prev.Failed
	s.Busy -= prev.Busy
	s.OverBudget -= prev.OverBudget
	s.Batches -= prev.Batches
	s.Objects -= prev.Objects
	s.ObjectBytes -= prev.ObjectBytes
	s.Fences -= prev.Fences
	s.Takeovers -= prev.Takeovers
	s.Renewals -= prev.Renewals
	s.Queue = stageOf(minus(s.Queue.hist, prev.Queue.hist))
	s.Append = stageOf(minus(s.Append.hist, prev.Append.hist))
	s.Wait = stageOf(minus(s.Wait.hist, prev.Wait.hist))
	s.batch = minus(s.batch, prev.batch)
	s.inFlight = minus(s.inFlight, prev.inFlight)
	return s.peaks()
}

func (s Stats) peaks() Stats {
	s.BatchPeak, s.InFlightPeak = s.batch.Max(), s.inFlight.Max()
	if s.batch.TotalCount() == 0 {
		s.BatchPeak = 0
	}
	if s.inFlight.TotalCount() == 0 {
		s.InFlightPeak = 0
	}
	return s
}

func stageOf(h *hdrhistogram.Histogram) Stage {
	us := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	return Stage{
		Count: h.TotalCount(), P50: us(h.ValueAtQuantile(50)), P90: us(h.ValueAtQuantile(90)), P99: us(h.ValueAtQuantile(99)), Max: us(h.Max()),
		hist: h,
	}
}

// minus is h without what prev, an earlier state of it, had counted.
func minus(h, prev *hdrhistogram.Histogram) *hdrhistogram.Histogram {
	if prev == nil {
		return h
	}
	a, b := h.Export(), prev.Export()
	for i := range b.Counts {
		a.Counts[i] -= b.Counts[i]
	}
	return hdrhistogram.Import(a)
}

package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// lane is something that clients can hand transactions to, one at a time each.
type lane interface {
	// client is the i'th client's side of a level's loop.
	client(level, i int) clientLane
}

// clientLane commits transactions for one client.
type clientLane interface {
	// commit makes transaction n durable, waits for that, and returns its t. fatal says that there is no use in going on.
	commit(ctx context.Context, n uint64) (t uint64, fatal bool, err error)
}

// ack is how a transaction ended: its t, 0 if it was not acknowledged, and how long that took.
type ack struct {
	t    uint64
	took time.Duration
}

// acks are a client's, by the number of the transaction. They grow in chunks: no client ever stops to copy them.
type acks struct {
	chunks [][]ack
	n      int
}

const acksChunk = 1 << 10

func (a *acks) add(x ack) {
	last := len(a.chunks) - 1
	if a.n%acksChunk == 0 {
		a.chunks = append(a.chunks, make([]ack, 0, acksChunk))
		last++
	}
	a.chunks[last] = append(a.chunks[last], x)
	a.n++
}

// all yields each transaction's number and its end.
func (a *acks) all(yield func(int, ack) bool) {
	for i, c := range a.chunks {
		for j, x := range c {
			if !yield(i*acksChunk+j, x) {
				return
			}
		}
	}
}

// loop is a closed loop of clients, and what they remember of it.
type loop struct {
	level   int // its number in the run
	clients []*client
	seconds float64
}

type client struct {
	acks   acks
	done   atomic.Int64 // acknowledged; for whoever shows progress
	errors int
	err    error // the first
	_      [64]byte
}

// limit is when a loop ends.
type limit struct {
	duration     time.Duration // if transactions is 0
	transactions int
}

func (s *settings) limit() limit { return limit{s.duration, s.transactions} }

// maxErrors is after how many errors a client gives up.
const maxErrors = 1000

// runLoop lets clients commit in a closed loop until the limit is reached or ctx ends; then each waits for its last answer. started, if not
// nil, is called when all clients are ready.
func runLoop(ctx context.Context, l lane, level, clients int, lim limit, p *progress, what string, started func()) *loop {
	lp := &loop{level: level}
	var (
		stop  atomic.Bool
		quota atomic.Int64
		ready sync.WaitGroup
		end   sync.WaitGroup
		gate  = make(chan struct{})
	)
	quota.Store(int64(lim.transactions))
	work := context.WithoutCancel(ctx) // an interrupt ends the loop, never a transaction
	for i := range clients {
		c := new(client)
		lp.clients = append(lp.clients, c)
		cl := l.client(level, i)
		ready.Add(1)
		end.Go(func() {
			ready.Done()
			<-gate
			begin := time.Now()
			for seq := 0; !stop.Load() && (lim.transactions == 0 || quota.Add(-1) >= 0); seq++ {
				t, fatal, err := cl.commit(work, number(level, i, seq))
				now := time.Now()
				c.acks.add(ack{t, now.Sub(begin)})
				begin = now
				if err == nil {
					c.done.Add(1)
					continue
				}
				if c.errors++; c.err == nil {
					c.err = err
				}
				if fatal || c.errors >= maxErrors {
					return
				}
			}
		})
	}
	ready.Wait()
	runtime.GC() // what was before is not charged to this level
	if started != nil {
		started()
	}
	begin := time.Now()
	close(gate)
	unhook := context.AfterFunc(ctx, func() { stop.Store(true) })
	defer unhook()
	if lim.transactions == 0 {
		t := time.AfterFunc(lim.duration, func() { stop.Store(true) })
		defer t.Stop()
	}
	ended := make(chan struct{})
	go func() {
		end.Wait()
		lp.seconds = time.Since(begin).Seconds()
		close(ended)
	}()
	every(ended, func() {
		n, s := lp.acknowledged(), time.Since(begin).Seconds()
		p.tick("%s: %.1f s, %s transactions, %s per second", what, s, grouped(n), grouped(int64(float64(n)/s)))
	})
	return lp
}

// acknowledged is how many transactions were, so far.
func (lp *loop) acknowledged() (n int64) {
	for _, c := range lp.clients {
		n += c.done.Load()
	}
	return n
}

// failed is how many transactions were not acknowledged, and the first error of some client.
func (lp *loop) failed() (n int, err error) {
	for _, c := range lp.clients {
		n += c.errors
		if err == nil {
			err = c.err
		}
	}
	return n, err
}

// histogramMax is the longest time that a histogram holds, in units of histogramUnit: longer than any level.
const (
	histogramUnit = 100 * time.Nanosecond
	histogramMax  = int64(24 * time.Hour / histogramUnit)
)

// latencies are those of the acknowledged transactions. None is clamped: a time that the histogram cannot hold is an error.
func (lp *loop) latencies() (*hdrhistogram.Histogram, error) {
	h := hdrhistogram.New(1, histogramMax, 3)
	for _, c := range lp.clients {
		for _, a := range c.acks.all {
			if a.t == 0 {
				continue
			}
			if err := h.RecordValue(int64(a.took / histogramUnit)); err != nil {
				return nil, fmt.Errorf("a transaction took %s, which the histogram does not hold: %w", a.took, err)
			}
		}
	}
	return h, nil
}

// micros is a histogram's value in microseconds.
func micros(v int64) float64 {
	return float64(time.Duration(v)*histogramUnit) / float64(time.Microsecond)
}

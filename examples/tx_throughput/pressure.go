package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/steledb/stele/config"
	"github.com/steledb/stele/transactor"
)

const (
	pressureDelay   = 5 * time.Millisecond
	pressureDepth   = 2
	pressureBatch   = 64
	pressureQueue   = 256
	pressureClients = 256
	overload        = 4
	stall           = 3 * time.Second
	readPairs       = 5
	readsFor        = 400 * time.Millisecond
)

// pressure measures the promises about a transactor that gets more than it can do, and about reads while the store hangs, prints each
// with its bound, and fails if one does not hold.
func pressure(ctx context.Context, s *settings, stdout io.Writer, p *progress) error {
	over, err := overloaded(ctx, s, p)
	if err != nil || ctx.Err() != nil {
		return err
	}
	idle, stalled, err := stalledReads(ctx, s, p)
	if err != nil || ctx.Err() != nil {
		return err
	}
	p.done()
	var pairs []float64
	for i := range idle {
		pairs = append(pairs, stalled[i]/idle[i])
	}
	same := func(v float64) float64 { return v }
	ratios := []ratio{
		atMost("overload: p99 of the admitted / closed loop", over.openP99/over.closed.P99, 2, fmt.Sprintf("%s / %s", span(over.openP99), span(over.closed.P99))),
		atMost("overload: p99 of a refusal, ms", over.busyP99/1e3, 1, fmt.Sprintf("%s, %s refusals", span(over.busyP99), grouped(over.busy))),
		atMost("overload: memory of what is admitted / closed loop", over.openMemory/over.closedMemory, 2,
			fmt.Sprintf("%s / %s bytes, the most that was seen", grouped(int64(over.openMemory)), grouped(int64(over.closedMemory)))),
		atMost("reads: p99 of Entity while a flush hangs / idle", median(pairs, same), 1.2, fmt.Sprintf("%s / %s, medians of %d pairs in turn", span(median(stalled, same)), span(median(idle, same)), readPairs)),
	}
	if !s.json {
		fmt.Fprintf(stdout, "machine     %s %s/%s, %d CPUs\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0))
		fmt.Fprintf(stdout, "store       memory, %s a call; %d flushes in flight, batches of %d, a queue of %d\n", pressureDelay, pressureDepth, pressureBatch, pressureQueue)
		fmt.Fprintf(stdout, "capacity    %s tx/s, p99 %s, with %d clients in a closed loop\n", grouped(int64(over.closed.TxPerSec)), span(over.closed.P99), pressureClients)
		fmt.Fprintf(stdout, "overload    %s tx/s offered for %s: %s tx/s committed, p50 %s, p99 %s; %s refused\n", grouped(int64(over.offered)), s.duration, grouped(int64(over.committed)),
			span(over.openP50), span(over.openP99), grouped(over.busy))
	}
	return printRatios(stdout, s, ratios)
}

// overloading is what an open loop showed that offers more than the transactor can do.
type overloading struct {
	closed                   *result
	offered, committed       float64 // transactions per second
	openP50, openP99         float64 // µs, of those that were admitted
	busyP99                  float64 // µs, of a refusal
	busy                     int64
	closedMemory, openMemory float64 // bytes, the most of what was admitted
}

func overloaded(ctx context.Context, s *settings, p *progress) (o *overloading, err error) {
	own := *s
	own.depth, own.maxBatch, own.queue, own.levels = pressureDepth, pressureBatch, pressureQueue, []int{pressureClients}
	own.duration = min(s.duration, 10*time.Second)
	b, err := openBench(ctx, &own, fmt.Sprintf("mem:pressure-%08x?delay=%s", rand.Uint32(), pressureDelay), p)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	stop := b.watchMemory()
	closed, err := b.level(ctx, pressureClients)
	o = &overloading{closed: closed, closedMemory: stop()}
	if err != nil || ctx.Err() != nil {
		return nil, err
	}
	stop = b.watchMemory()
	err = b.openLoop(ctx, o, overload*closed.TxPerSec, s.duration)
	o.openMemory = stop()
	return o, err
}

// watchMemory watches the account of what was admitted and is not answered until it is stopped, and then returns the most that it saw. What is in the
// database, and merges of it, grows with what is committed.
func (b *bench) watchMemory() (stop func() float64) {
	end, most := make(chan struct{}), make(chan float64)
	go func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		peak := 0.0
		for {
			select {
			case <-tick.C:
				peak = max(peak, float64(b.x.Stats().Memory.Queue))
			case <-end:
				most <- peak
				return
			}
		}
	}()
	return func() float64 { close(end); return <-most }
}

// openLoop offers so many transactions per second for so long, whatever becomes of them.
func (b *bench) openLoop(ctx context.Context, o *overloading, rate float64, d time.Duration) error {
	type admitted struct {
		n      uint64
		m      *maker
		at     time.Time
		future *transactor.Future
	}
	level := len(b.loops)
	makers := make(chan *maker, 4*pressureQueue) // a maker's transaction is its own until it is answered
	for range cap(makers) {
		makers <- b.w.maker(level, 0)
	}
	waiting := make(chan admitted, 2*pressureQueue)
	took, refused := hdrhistogram.New(1, histogramMax, 3), hdrhistogram.New(1, histogramMax, 3)
	type found struct{ n, t uint64 }
	var committed []found
	var failure error
	ended := make(chan struct{})
	go func() { // answers come in the order of admission
		defer close(ended)
		for a := range waiting {
			r, err := a.future.Wait(context.WithoutCancel(ctx))
			_ = took.RecordValue(int64(time.Since(a.at) / histogramUnit))
			makers <- a.m
			if err != nil {
				failure = errors.Join(failure, err)
				continue
			}
			committed = append(committed, found{a.n, r.T})
		}
	}()
	b.p.step("offering %s transactions a second", grouped(int64(rate)))
	begun := time.Now()
	offered := 0
	for ctx.Err() == nil && time.Since(begun) < d {
		due := int(rate * time.Since(begun).Seconds())
		for ; offered < due; offered++ {
			m := <-makers
			n := number(level, 0, offered)
			at := time.Now()
			f, err := b.x.Submit(ctx, m.make(n))
			switch {
			case err == nil:
				waiting <- admitted{n, m, at, f}
			case errors.Is(err, transactor.ErrBusy):
				_ = refused.RecordValue(max(int64(time.Since(at)/histogramUnit), 1))
				makers <- m
			default:
				failure = errors.Join(failure, err)
				makers <- m
			}
		}
		time.Sleep(500 * time.Microsecond)
	}
	seconds := time.Since(begun).Seconds()
	close(waiting)
	<-ended
	if failure != nil {
		return failure
	}
	d2, m := b.x.DB(), b.w.maker(level, 0)
	for _, c := range committed {
		if err := b.w.find(d2, m, c.n, c.t); err != nil {
			return fmt.Errorf("AN ACKNOWLEDGED TRANSACTION IS MISSING: %w", err)
		}
	}
	o.offered, o.committed, o.busy = float64(offered)/seconds, float64(len(committed))/seconds, refused.TotalCount()
	o.openP50, o.openP99, o.busyP99 = micros(took.ValueAtQuantile(50)), micros(took.ValueAtQuantile(99)), micros(refused.ValueAtQuantile(99))
	return nil
}

// stalledReads reads entities at random, with nothing else going on and while a flush hangs, in pairs in turn, and returns the p99 of
// each in µs.
func stalledReads(ctx context.Context, s *settings, p *progress) (idle, stalled []float64, err error) {
	store := fmt.Sprintf("mem:reads-%08x", rand.Uint32())
	b, err := openBench(ctx, s, store, p)
	if err != nil {
		return nil, nil, err
	}
	_, err = b.preload(ctx, 100_000)
	if err = errors.Join(err, b.close()); err != nil || ctx.Err() != nil {
		return nil, nil, err
	}
	x, err := config.Open(ctx, store+"?delay="+stall.String(), transactor.Options{MustExist: true})
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err = errors.Join(err, x.Close(closing))
	}()
	pick := rand.New(rand.NewPCG(1, 2))
	read := func() (float64, error) {
		var took []time.Duration
		for begun := time.Now(); time.Since(begun) < readsFor; {
			at := time.Now()
			e, err := x.DB().Entity(b.w.olds[pick.IntN(len(b.w.olds))])
			if err != nil {
				return 0, err
			}
			if _, ok := e.Get(attrKey); !ok {
				return 0, errors.New("an entity that was loaded is not there")
			}
			took = append(took, time.Since(at))
		}
		slices.Sort(took)
		return inMicros(took[len(took)*99/100]), nil
	}
	for pair := range readPairs {
		p.step("reading, pair %d of %d", pair+1, readPairs)
		quiet, err := read()
		if err != nil || ctx.Err() != nil {
			return nil, nil, err
		}
		f, err := x.Submit(ctx, b.w.preload(200_000+pair, 200_001+pair)) // its flush takes two calls of stall each
		if err != nil {
			return nil, nil, err
		}
		time.Sleep(10 * time.Millisecond) // it is on its way
		hung, err := read()
		if err != nil {
			return nil, nil, err
		}
		select {
		case <-f.Done():
			return nil, nil, errors.New("the flush did not hang")
		default:
		}
		if _, err := f.Wait(ctx); err != nil {
			return nil, nil, err
		}
		idle, stalled = append(idle, quiet), append(stalled, hung)
	}
	return idle, stalled, nil
}

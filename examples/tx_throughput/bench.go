package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/config"
	"github.com/steledb/stele/db"
	"github.com/steledb/stele/log"
	"github.com/steledb/stele/transactor"
)

// bench is an open database, what is done to it, and what it acknowledged.
type bench struct {
	s     *settings
	url   string
	w     *workload
	x     *transactor.Transactor
	info  log.Info
	fence time.Duration // a round trip to the store: the median Verify
	loops []*loop
	p     *progress
}

// openBench opens the database at url and installs the schema.
func openBench(ctx context.Context, s *settings, url string, p *progress) (*bench, error) {
	b := &bench{s: s, url: url, w: newWorkload(s.shape, s.datoms), p: p}
	x, err := config.Open(ctx, url, s.options(slices.Max(s.levels)))
	if err != nil {
		return nil, err
	}
	b.x, b.info = x, x.Info()
	if _, err := x.Transact(ctx, b.w.schema()); err != nil {
		return nil, errors.Join(fmt.Errorf("installing the schema: %w", err), b.close())
	}
	if b.fence, err = b.roundTrip(ctx); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// roundTrip is the median time of a fence in an idle database.
func (b *bench) roundTrip(ctx context.Context) (time.Duration, error) {
	var took []time.Duration
	for range 21 {
		begin := time.Now()
		if _, err := b.x.Sync(ctx); err != nil {
			return 0, err
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// limits are the transactor's, given or by default.
type limits struct {
	depth, batch, batchBytes int
}

func (b *bench) limits() limits {
	def := transactor.Defaults()
	return limits{cmp.Or(b.s.depth, b.info.Depth), cmp.Or(b.s.maxBatch, def.MaxBatch), cmp.Or(b.s.maxBatchSize, def.MaxBatchBytes)}
}

// close closes the database, if it is open.
func (b *bench) close() error {
	if b.x == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return b.x.Close(ctx)
}

// preload loads the entities that updates change, many in a transaction and several transactions under way. It returns how many
// there are when ctx ends.
func (b *bench) preload(ctx context.Context, entities int) (int, error) {
	const perTx, underWay = 500, 16
	type part struct {
		from, to int
		future   *transactor.Future
	}
	var open []part
	work := context.WithoutCancel(ctx)
	settle := func(p part) error {
		r, err := p.future.Wait(work)
		if err != nil {
			return fmt.Errorf("loading: %w", err)
		}
		key, _ := r.DBAfter.Schema().Entid(attrKey)
		for i := range r.TxData {
			if d := &r.TxData[i]; d.A == key {
				b.w.olds = append(b.w.olds, d.E)
			}
		}
		if len(b.w.olds) != p.to {
			return fmt.Errorf("loading: %d entities are there where %d belong", len(b.w.olds), p.to)
		}
		return nil
	}
	b.p.step("loading %s entities", grouped(int64(entities)))
	for from := 0; from < entities && ctx.Err() == nil; from += perTx {
		to := min(from+perTx, entities)
		f, err := b.x.Submit(work, b.w.preload(from, to))
		if err != nil {
			return len(b.w.olds), fmt.Errorf("loading: %w", err)
		}
		if open = append(open, part{from, to, f}); len(open) == underWay {
			if err := settle(open[0]); err != nil {
				return len(b.w.olds), err
			}
			open = open[1:]
			b.p.tick("loading: %s of %s entities", grouped(int64(len(b.w.olds))), grouped(int64(entities)))
		}
	}
	for _, p := range open {
		if err := settle(p); err != nil {
			return len(b.w.olds), err
		}
	}
	return len(b.w.olds), nil
}

// full is the lane through the transactor.
type full struct{ *bench }

type fullClient struct {
	x *transactor.Transactor
	m *maker
}

func (f full) client(level, i int) clientLane { return &fullClient{f.x, f.w.maker(level, i)} }

func (c *fullClient) commit(ctx context.Context, n uint64) (t uint64, fatal bool, err error) {
	r, err := c.x.Transact(ctx, c.m.make(n))
	if err != nil {
		var again *transactor.CommitError
		return 0, !errors.As(err, &again) && !errors.Is(err, transactor.ErrBusy), err
	}
	if err := c.m.w.check(r); err != nil {
		return r.T, true, err
	}
	return r.T, false, nil
}

// level measures one level, and checks what it acknowledged. The result is there, with what was measured, also when the check fails.
func (b *bench) level(ctx context.Context, clients int) (*result, error) {
	prev := b.x.Stats()
	what := plural(clients, "client")
	b.p.step("%s: measuring", what)
	var profile *os.File
	if b.s.cpuProfile != "" {
		var err error
		if profile, err = os.Create(b.s.cpuProfile); err != nil {
			return nil, err
		}
		defer profile.Close()
	}
	var profileErr error
	lp := runLoop(ctx, full{b}, len(b.loops), clients, b.s.limit(), b.p, what, func() {
		if profile != nil {
			profileErr = pprof.StartCPUProfile(profile)
		}
	})
	if profile != nil {
		pprof.StopCPUProfile()
		if err := errors.Join(profileErr, profile.Close()); err != nil {
			return nil, fmt.Errorf("-cpuprofile: %w", err)
		}
	}
	st := b.x.StatsSince(prev)
	b.loops = append(b.loops, lp)
	r, err := b.result(lp, st)
	if err != nil {
		return nil, err
	}
	b.p.step("%s: looking for %s acknowledged transactions", what, grouped(r.Transactions))
	if err := b.check(b.x.DB(), lp); err != nil {
		return r, err
	}
	if n, err := lp.failed(); n > 0 {
		return r, fmt.Errorf("%d of %d transactions failed, the first with: %w", n, int64(n)+r.Transactions, err)
	}
	return r, nil
}

// check looks in a database for everything that a loop's clients were told was committed.
func (b *bench) check(d db.DB, lp *loop) error {
	workers := runtime.GOMAXPROCS(0)
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for k := range workers {
		wg.Go(func() {
			for i := k; i < len(lp.clients) && errs[k] == nil; i += workers {
				errs[k] = b.checkClient(d, lp, i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (b *bench) checkClient(d db.DB, lp *loop, i int) error {
	m := b.w.maker(lp.level, i)
	for seq, a := range lp.clients[i].acks.all {
		if a.t == 0 {
			m.skip()
			continue
		}
		if err := b.w.find(d, m, number(lp.level, i, seq), a.t); err != nil {
			return fmt.Errorf("AN ACKNOWLEDGED TRANSACTION IS MISSING: transaction %d of client %d: %w", seq, i, err)
		}
	}
	return nil
}

// replayed is what closing the database and opening it again showed.
type replayed struct {
	transactions uint64
	datoms       int64
	took         time.Duration
	heap         int64 // bytes, of the database alone
}

// reopen closes the database, opens it again by replaying its log, and checks everything that was ever acknowledged.
func (b *bench) reopen(ctx context.Context) (*replayed, error) {
	ctx = context.WithoutCancel(ctx)
	b.p.step("closing, and opening again by replay")
	if err := b.close(); err != nil {
		return nil, fmt.Errorf("closing: %w", err)
	}
	b.x = nil
	before := heap()
	begin := time.Now()
	opt := b.s.options(1)
	opt.MustExist = true
	x, err := config.Open(ctx, b.url, opt)
	if err != nil {
		return nil, fmt.Errorf("opening again: %w", err)
	}
	b.x = x
	d := x.DB()
	rep := &replayed{transactions: d.BasisT(), took: time.Since(begin)}
	rep.heap = heap() - before
	for _, err := range d.History().Datoms(db.EAVT) {
		if err != nil {
			return nil, err
		}
		rep.datoms++
	}
	b.p.step("looking for every acknowledged transaction again")
	for _, lp := range b.loops {
		if err := b.check(d, lp); err != nil {
			return nil, fmt.Errorf("after opening again: %w", err)
		}
	}
	return rep, nil
}

// heap is how many bytes are in use.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what finalizers let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

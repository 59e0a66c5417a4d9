package transactor

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/db"
	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/mem"
	"github.com/steledb/stele/tx"
)

var (
	worldSeed  = flag.Uint64("worlds.seed", 1, "the first seed of TestP1_P3_P7_L1_L8_RandomWorlds")
	worldCount = flag.Int("worlds.runs", 150, "how many seeds it runs")
)

// Random worlds: owners that depose each other, pipelines, streams, refusals, a reader, and a store whose calls fail, land late,
// lose their replies, hang and come twice, in virtual time. After each run everybody is answered, every answer agrees with the log, and
// every value that anybody was ever shown is a prefix of it.
func TestP1_P3_P7_L1_L8_RandomWorlds(t *testing.T) {
	for i := range *worldCount {
		seed := *worldSeed + uint64(i)
		synctest.Test(t, func(t *testing.T) {
			s := &sim{t: t, world: newWorld(t), rng: rand.New(rand.NewPCG(seed, 7))}
			s.run()
			s.check()
		})
		if t.Failed() {
			t.Fatalf("seed %d: go test ./transactor -run RandomWorlds -worlds.seed %d -worlds.runs 1", seed, seed)
		}
	}
}

type sim struct {
	t     *testing.T
	world *world
	opt   Options

	mu     sync.Mutex // of what the hooks use
	rng    *rand.Rand
	faulty bool // faults are on
	level  int  // of a hundred calls, how many go wrong
	held   []*mem.Held

	owners []*Transactor
	reader *Reader
	sent   []*simTx
	shown  []db.DB
}

// simTx is one transaction that was submitted: a new person, whose name is its own.
type simTx struct {
	name   string
	future *Future
	owner  *Transactor
	bad    bool // refused by every value
	after  *simTx
}

func (s *sim) n(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

func (s *sim) hook(c mem.Call) mem.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.faulty || s.rng.IntN(100) >= s.level {
		return mem.Fault{Delay: time.Duration(s.rng.IntN(20)) * time.Millisecond}
	}
	switch s.rng.IntN(5) {
	case 0:
		return mem.Fault{Fail: errBroken}
	case 1:
		return mem.Fault{Lose: errBroken}
	case 2:
		if c.Op != mem.OpAppend && c.Op != mem.OpCompareAndSwap {
			return mem.Fault{Fail: log.WithOutcome(log.NotWritten, errBroken)}
		}
		h := new(mem.Held)
		s.held = append(s.held, h)
		return mem.Fault{Hold: h}
	case 3:
		return mem.Fault{Delay: time.Duration(s.rng.IntN(3000)) * time.Millisecond}
	default:
		return mem.Fault{Twice: true}
	}
}

func (s *sim) handle() *mem.Log {
	return s.world.server.Open("main", mem.Options{Delay: time.Millisecond, Hook: s.hook})
}

// open adds an owner, if the store lets it.
func (s *sim) open() *Transactor {
	x, err := Open(context.Background(), s.handle(), s.opt)
	if err != nil {
		return nil
	}
	s.owners = append(s.owners, x)
	return x
}

func (s *sim) run() {
	s.level = 3 + s.n(12)
	s.opt = Options{
		MaxBatch: 1 + s.n(4), Depth: 1 + s.n(5), Retries: []int{-1, 1, 2}[s.n(3)], StoreTimeout: time.Second, MaxEpochs: 20, TakeOver: true,
		Logger: slog.New(slog.DiscardHandler),
	}
	x := s.open()
	mustTransact(s.t, x, people)
	mustTransact(s.t, x, person("nobody", 0))
	s.faults(true)
	for range 40 {
		s.submit()
		s.rest(30)
		s.look()
		s.land()
		newest := s.owners[len(s.owners)-1]
		if s.n(12) == 0 || isClosed(newest.ended) {
			s.open()
		}
	}
	s.faults(false)
	for _, x := range s.owners {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+s.n(100_000))*time.Millisecond)
		x.Close(ctx)
		cancel()
	}
	for _, h := range s.held {
		h.Land()
	}
}

func (s *sim) faults(on bool) {
	s.mu.Lock()
	s.faulty = on
	s.mu.Unlock()
}

// rest lets up to ms milliseconds of the bubble's time pass.
func (s *sim) rest(ms int) { <-time.After(time.Duration(s.n(ms)) * time.Millisecond) }

// submit sends some transactions to the newest owner, or to the one before it, which may be deposed by now.
func (s *sim) submit() {
	owner := s.owners[len(s.owners)-1]
	if len(s.owners) > 1 && s.n(4) == 0 {
		owner = s.owners[len(s.owners)-2]
	}
	for range s.n(6) {
		name := fmt.Sprintf("u%d", len(s.sent))
		x := &simTx{name: name, owner: owner, bad: s.n(4) == 0}
		data := person(name, len(s.sent))
		if x.bad {
			data = append(data, step("nobody", -5)...)
		}
		var opt TxOptions
		if n := len(s.sent); n > 0 && s.n(3) == 0 && s.sent[n-1].owner == owner {
			x.after = s.sent[n-1]
			opt.After = x.after.future
		}
		var err error
		if x.future, err = owner.Submit(context.Background(), data, opt); err != nil {
			return
		}
		s.sent = append(s.sent, x)
		if s.n(3) == 0 {
			s.rest(5)
		}
	}
}

// look notes what everybody shows now.
func (s *sim) look() {
	for _, x := range s.owners {
		s.shown = append(s.shown, x.DB())
	}
	if s.reader == nil {
		s.reader, _ = OpenReadOnly(context.Background(), s.handle())
	} else {
		before := s.reader.DB().BasisT()
		d, err := s.reader.Sync(context.Background())
		switch {
		case errors.Is(err, log.ErrRolledBack), errors.Is(err, log.ErrCorrupt):
			s.t.Errorf("the reader: %v", err)
		case err == nil && d.BasisT() < before:
			s.t.Errorf("the reader went back from t = %d to %d", before, d.BasisT())
		case err == nil:
			s.shown = append(s.shown, d)
		}
	}
	if s.n(3) > 0 {
		return
	}
	acknowledged := uint64(0)
	for _, x := range s.sent {
		if x.future.answered() && x.future.err == nil {
			acknowledged = max(acknowledged, x.future.report.T)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if d, err := s.owners[len(s.owners)-1].Sync(ctx); err == nil {
		s.shown = append(s.shown, d)
		if d.BasisT() < acknowledged {
			s.t.Errorf("Sync shows t = %d, and %d was acknowledged before it", d.BasisT(), acknowledged)
		}
	}
}

// land lets something arrive that was caught on its way.
func (s *sim) land() {
	s.mu.Lock()
	var h *mem.Held
	if len(s.held) > 0 && s.rng.IntN(3) == 0 {
		i := s.rng.IntN(len(s.held))
		h = s.held[i]
		s.held = append(s.held[:i], s.held[i+1:]...)
	}
	s.mu.Unlock()
	if h != nil {
		h.Land()
	}
}

// check compares every answer and every value shown with the log.
func (s *sim) check() {
	t := s.t
	last := s.open()
	if last == nil {
		t.Fatal("the database does not open any more")
	}
	defer closeIn(t, last, time.Hour)
	if s.reader != nil {
		s.reader.Close(context.Background())
	}
	attr, _ := last.DB().Schema().Entid("p/id")
	at := make(map[string]uint64) // who was committed when
	for _, o := range s.world.chain() {
		for r, err := range o.Txs() {
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range r.Datoms {
				if d.A != attr {
					continue
				}
				if at[d.V.Text()] > 0 {
					t.Errorf("%s is in the log twice", d.V)
				}
				at[d.V.Text()] = r.T
			}
		}
	}
	for _, d := range s.shown {
		if d.BasisT() < 2 {
			continue
		}
		have := make(map[string]bool)
		for f := range d.Datoms(db.AEVT, attr) {
			have[f.V.Text()] = true
			if at[f.V.Text()] == 0 {
				t.Errorf("a value at t = %d shows %s, which is in no log", d.BasisT(), f.V)
			}
		}
		for name, when := range at {
			if have[name] != (when <= d.BasisT()) {
				t.Errorf("a value at t = %d shows %s: %t; the log has it at %d", d.BasisT(), name, have[name], when)
			}
		}
	}
	for _, x := range s.owners {
		if x != last && x.queue.taken != (share{}) {
			t.Errorf("everybody is answered, and the queue still counts %+v", x.queue.taken)
		}
	}
	for _, x := range s.sent {
		s.checkAnswer(x, at[x.name])
	}
}

func (s *sim) checkAnswer(x *simTx, when uint64) {
	t := s.t
	if !x.future.answered() {
		t.Errorf("%s was never answered", x.name)
		return
	}
	r, err := x.future.report, x.future.err
	var failed *CommitError
	switch {
	case err == nil:
		if r.T != when || x.bad || x.after != nil && x.after.future.err != nil {
			t.Errorf("%s was committed at %d; the log has it at %d; bad: %t", x.name, r.T, when, x.bad)
		}
		if number(t, r.DBBefore, x.name) != -1 || number(t, r.DBAfter, x.name) == -1 || r.DBBefore.BasisT() != r.T-1 || r.DBAfter.BasisT() != r.T {
			t.Errorf("%s: the values of its report are not those around it", x.name)
		}
	case errors.Is(err, ErrUnknownOutcome):
	case when != 0:
		t.Errorf("%s was answered %v; it is in the log at %d", x.name, err, when)
	case errors.As(err, &failed), errors.Is(err, ErrClosed), errors.Is(err, ErrPredecessorRefused):
	case !x.bad || !errors.Is(err, tx.ErrCASFailed):
		t.Errorf("%s, bad: %t: %v", x.name, x.bad, err)
	}
}

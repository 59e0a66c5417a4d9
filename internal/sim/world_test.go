package sim

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/fs/crashfs"
	"github.com/steledb/stele/log/mem"
	"github.com/steledb/stele/transactor"
	"github.com/steledb/stele/tx"
)

// knobs are what one run is like, as its seed says. Much differs from run to run, so that what needs an unusual mixture happens in some.
type knobs struct {
	fs      bool
	steps   int
	level   int // of a hundred calls that might meet a fault, how many do
	faults  [numFaults]bool
	page    int // entries in a page of List and Read
	procs   int // how many processes at most
	queue   int // 0: as large as it comes
	duel    bool
	favours int // 0: all calls are equal; else how rarely priorities change
	opt     transactor.Options

	calls, clients, readers, procsEvents, late, time int // how often what happens
}

func (w *world) turnKnobs() {
	r := w.rng
	k := knobs{
		fs:    r.IntN(3) == 0,
		steps: 150 + r.IntN(350),
		page:  1 + r.IntN(8),
		procs: 1 + r.IntN(4),

		calls: 40 + r.IntN(60), clients: 5 + r.IntN(25), readers: r.IntN(8), procsEvents: 1 + r.IntN(5), late: 1 + r.IntN(6), time: 2 + r.IntN(12),
	}
	if r.IntN(5) > 0 {
		k.level = 2 + r.IntN(12)*r.IntN(4)
	}
	for f := range k.faults {
		k.faults[f] = r.IntN(2) == 0
	}
	if r.IntN(3) == 0 {
		k.queue = 2 + r.IntN(8)
	}
	k.opt = transactor.Options{
		MaxBatch: 1 + r.IntN(4), Depth: 1 + r.IntN(5), QueueTransactions: k.queue,
		Retries: []int{-1, 1, 2}[r.IntN(3)], StoreTimeout: time.Second, MaxEpochs: 3 + r.IntN(20), MaxOutage: time.Duration(1+r.IntN(60)) * time.Second,
		Lease:  []time.Duration{200 * time.Millisecond, time.Second, 3 * time.Second}[r.IntN(3)],
		Logger: slog.New(slog.DiscardHandler),
	}
	if r.IntN(2) == 0 {
		k.favours = 3 + r.IntN(30)
	}
	if k.opt.Retries < 0 {
		k.level /= 3
	}
	theme := []int{0, 0, 1, 2, 3, 3, 3, 3}[r.IntN(8)]
	if theme&1 > 0 { // owners depose each other all the time, and what they sent arrives late
		k.duel, k.procs = true, 3+r.IntN(2)
		k.procsEvents, k.late = 1+r.IntN(6), 3+r.IntN(12)
		k.steps += 150
		k.calls, k.readers = 100+r.IntN(60), r.IntN(5)
		k.opt.Depth = 2 + r.IntN(4)
		k.faults[faultLate], k.faults[faultSlow], k.faults[faultHang] = true, true, true
		if r.IntN(2) == 0 { // an append that is late ends the epoch, and little else goes wrong
			k.opt.Retries, k.level = -1, 10+r.IntN(30)
			k.faults[faultBefore], k.faults[faultAfter] = false, false
		}
	}
	if theme&2 > 0 { // many read
		k.readers = 10 + r.IntN(20)
		k.favours = 3 + r.IntN(30)
	}
	w.knobs = k
}

func (k knobs) String() string {
	store := "mem"
	if k.fs {
		store = "fs"
	}
	return fmt.Sprintf("on %s, duel %t: %d steps, %d%% faults of kinds %v, up to %d processes, queue %d, batches of %d, depth %d, %d retries, %d epochs, leases of %v, outages of %v",
		store, k.duel, k.steps, k.level, k.faults, k.procs, k.queue, k.opt.MaxBatch, k.opt.Depth, k.opt.Retries, k.opt.MaxEpochs, k.opt.Lease, k.opt.MaxOutage)
}

// world is one run.
type world struct {
	rng   *rand.Rand // of the scheduler alone, so that no race decides what it gives
	knobs knobs
	began time.Time

	server  *mem.Server      // unless knobs.fs
	disk    *crashfs.Machine // if knobs.fs
	failing int              // the number of its call that fails, if one will

	mu     sync.Mutex
	out    io.Writer // the transcript
	wrong  []string  // what must not be
	quiet  bool      // calls are made at once, without faults
	calls  []*call   // on their way
	sent   int
	clock  int64             // logical: every call and every answer of a client gets the next
	acked  uint64            // the highest t that was acknowledged
	digest map[uint64]seen   // by t: what its value holds
	delta  map[uint64]uint64 // by t: the hash of its datoms

	procs   []*proc
	readers []*reader
	subs    []*subscriber
	ops     []*op
	keys    []*key
	reads   []*read
	claims  map[log.ID]bool   // that the root has named
	regs    [registers]int64  // the newest values that the clients have heard of
	regsAt  [registers]uint64 // and as of when
	history []porcupine.Operation
	values  int64
	names   int
	syncs   int
}

func newWorld(seed uint64, out io.Writer) *world {
	w := &world{out: out, rng: rand.New(rand.NewPCG(seed, 0x57e1e)), began: time.Now(), digest: map[uint64]seen{}, delta: map[uint64]uint64{}, claims: map[log.ID]bool{}}
	w.turnKnobs()
	if w.knobs.fs {
		w.disk = crashfs.New()
	} else {
		w.server = mem.NewServer()
	}
	return w
}

// note adds a line to the transcript. The caller holds mu.
func (w *world) note(format string, args ...any) {
	fmt.Fprintf(w.out, "%9.3fs  %s\n", time.Since(w.began).Seconds(), fmt.Sprintf(format, args...))
}

func (w *world) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note(format, args...)
}

// fail says what must not be. The run ends soon.
func (w *world) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed(format, args...)
}

func (w *world) failed(format string, args ...any) {
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
	w.note("WRONG  "+format, args...)
}

func (w *world) isWrong() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.wrong) > 0
}

func (w *world) setQuiet(quiet bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.quiet = quiet
}

// one in n.
func (w *world) one(n int) bool { return w.rng.IntN(n) == 0 }

// upTo is a random duration below d.
func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.rng.Int64N(int64(d))) }

// rest lets everybody come to rest.
func (w *world) rest() { w.sleep(0) }

// sleep lets d pass, and everybody come to rest then.
func (w *world) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// run is the whole run, inside its bubble.
func (w *world) run() {
	w.say("%s", w.knobs)
	defer w.bury()
	w.begin()
	for range w.knobs.steps {
		if w.rest(); w.isWrong() {
			return
		}
		if w.knobs.fs {
			w.lookAtDisk()
		}
		w.step()
	}
	w.rest()
	w.settle()
	w.check()
}

func (w *world) limbo(c *call) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return c.limbo
}

// begin makes the database and what every run needs in it.
func (w *world) begin() {
	w.setQuiet(true)
	p := w.spawn(takesOver)
	w.rest()
	if p.x == nil {
		w.fail("the database cannot be made: %v", p.err)
		return
	}
	for _, data := range append([]tx.Data{schema}, registerData()...) {
		if _, err := p.x.Transact(context.Background(), data); err != nil {
			w.fail("the database cannot be prepared: %v", err)
		}
	}
	w.look(p.name, p.x.DB())
	w.setQuiet(false)
}

// step is one event.
func (w *world) step() {
	w.mu.Lock()
	var ready, late []*call
	for _, c := range w.calls {
		switch {
		case c.limbo:
			late = append(late, c)
		case c.movable():
			ready = append(ready, c)
		}
	}
	w.mu.Unlock()
	k := &w.knobs
	if w.one(3) && some(w, w.procs, w.lives) == nil {
		w.processEvent()
		return
	}
	if c := w.challenge(ready); c != nil && w.one(2) {
		w.ambush(c)
		return
	}
	if k.duel && w.one(8) && len(w.procs) < 40 && slices.ContainsFunc(ready, func(c *call) bool { return c.starts }) {
		w.spawn(takesOver) // while another has not begun
		return
	}
	weights := [...]int{k.calls, k.late, k.clients, k.readers, k.procsEvents, k.time}
	if len(ready) == 0 {
		weights[0] = 0
		weights[5] *= 4
	}
	if len(late) == 0 {
		weights[1] = 0
	}
	switch w.pick(weights[:]) {
	case 0:
		w.serve(w.next(ready))
	case 1:
		w.arrive(late[w.rng.IntN(len(late))], w.one(4))
	case 2:
		w.client()
	case 3:
		w.readerEvent()
	case 4:
		w.processEvent()
	case 5:
		w.pass([]time.Duration{time.Millisecond, 5 * time.Millisecond, 30 * time.Millisecond, 200 * time.Millisecond, time.Second, 4 * time.Second}[w.pick([]int{6, 8, 8, 5, 3, 1})])
	}
}

// challenge is a call that would take an epoch from its owner, and has not been seen before.
func (w *world) challenge(ready []*call) *call {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range ready {
		if w.knobs.duel && c.takes && !c.seen {
			c.seen = true
			return c
		}
	}
	return nil
}

// ambush lets an epoch be taken in the order in which most can go wrong: its owner has sent something, and a reader has read the root; the new owner takes
// the epoch and reads everything, or another does who takes the next one at once; now what had been sent arrives; and those read and go on who had begun
// before. Or what had been sent arrives first, all but starts, which the new owner then does not find. Now and then a part is left out.
func (w *world) ambush(c *call) {
	for _, p := range w.procs {
		if w.working(p) && p.h != c.h && !w.one(4) {
			w.stream(p)
		}
	}
	var reads *handle
	if r := some(w, w.readers, w.idle); r != nil && !r.follows && !w.one(4) {
		w.syncReader(r)
		reads = r.h
		w.drain(1, func(o *call) bool { return o.h == reads })
	}
	if w.one(2) {
		w.drain(20, func(o *call) bool { return o.h != c.h && o.sends && !o.starts })
	}
	w.drain(1, func(o *call) bool { return o == c })
	owner := c.h
	if w.one(2) && len(w.procs) < 40 && !w.knobs.fs { // there the lock decides, and the power may just have gone
		owner = w.spawn(takesOver).h
	}
	w.drain(80, func(o *call) bool { return o.h == owner && !o.sends })
	w.drain(20, func(o *call) bool { return o.h != owner && o.sends && !w.one(8) })
	if w.drain(80, func(o *call) bool { return o.h == reads }); w.one(2) {
		w.drain(40, func(o *call) bool { return o.h != owner })
	}
}

// drain serves up to n of the calls that are wanted, as they come.
func (w *world) drain(n int, wanted func(*call) bool) {
	for range n {
		w.rest()
		w.mu.Lock()
		var next *call
		for _, c := range w.calls {
			if (c.movable() || c.limbo) && wanted(c) {
				next = c
				break
			}
		}
		w.mu.Unlock()
		switch {
		case next == nil || w.isWrong():
			return
		case w.limbo(next):
			w.arrive(next, false)
		default:
			w.serve(next)
		}
	}
}

// next picks a call. In some runs each process has a priority, which changes now and then: so one may stand still between two calls while others
// make many.
func (w *world) next(ready []*call) *call {
	if w.knobs.duel && !w.one(8) { // a start is slow, so that others take over in between
		if quick := slices.DeleteFunc(slices.Clone(ready), func(c *call) bool { return c.starts }); len(quick) > 0 {
			ready = quick
		}
	}
	if w.knobs.favours == 0 || w.one(8) {
		return ready[w.rng.IntN(len(ready))]
	}
	if h := ready[w.rng.IntN(len(ready))].h; w.one(w.knobs.favours) {
		h.priority = w.rng.IntN(1000)
	}
	best := ready[0]
	for _, c := range ready[1:] {
		if c.h.priority > best.h.priority {
			best = c
		}
	}
	return best
}

// pick is an index, by weight.
func (w *world) pick(weights []int) int {
	sum := 0
	for _, n := range weights {
		sum += n
	}
	n := w.rng.IntN(sum)
	for i, weight := range weights {
		if n -= weight; n < 0 {
			return i
		}
	}
	panic("unreachable")
}

// pass lets up to d pass.
func (w *world) pass(d time.Duration) {
	w.sleep(1 + w.upTo(d))
}

// settle ends the faults: what is on its way arrives, or never will; who was stopped goes on; and within a bounded time somebody serves
// and everybody is answered.
func (w *world) settle() {
	w.say("the faults end")
	w.mend()
	for _, p := range w.procs {
		w.wake(p)
	}
	w.mu.Lock()
	for _, c := range w.calls {
		c.hung = false
	}
	calls := append([]*call(nil), w.calls...)
	w.quiet = true
	w.mu.Unlock()
	w.rng.Shuffle(len(calls), func(i, j int) { calls[i], calls[j] = calls[j], calls[i] })
	w.knobs.level = 0
	for _, c := range calls {
		w.rest()
		switch {
		case w.limbo(c):
			w.arrive(c, w.one(3))
		default:
			for !c.done && !w.limbo(c) { // its effect, and if that was slow its answer
				w.serve(c)
			}
		}
	}
	w.rest()
	for _, s := range w.subs {
		s.release(-1)
	}
	w.serveAgain()
	w.answers()
	w.burst()
}

package log_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/mem"
)

var (
	simRuns = flag.Int("sim.runs", 400, "how many random worlds TestRandomWorlds plays")
	simSeed = flag.Uint64("sim.seed", 0, "play this one world only, and print it")
)

// TestRandomWorlds_L1_L4_L5_L6_L8 plays random worlds: owners take the database from each other, renew their leases, crash, write into pipelines whose objects land in any
// order, at any time or never; readers follow; a sealer seals and deletes. Other processes move between any two store calls of a recovery or of a
// reading. What must hold is checked at every step:
//
//   - nothing is reported as damaged or rolled back;
//   - a recovery that nobody disturbed finds what a naive reading of the whole store finds (model);
//   - an owner whose start is durable and verified holds everything that was ever acknowledged, and everything that a reader was handed;
//   - a reader that does not wait was handed everything acknowledged before it was asked;
//   - in the end all agree.
func TestRandomWorlds_L1_L4_L5_L6_L8(t *testing.T) {
	if *simSeed != 0 {
		playWorld(t, *simSeed)
		return
	}
	var sum counts
	for seed := range uint64(*simRuns) {
		c := playWorld(t, seed+1)
		sum.epochs += c.epochs
		sum.acked += c.acked
		sum.disturbed += c.disturbed
		sum.sealed += c.sealed
		sum.restarts += c.restarts
	}
	// The worlds must be worth playing.
	if n := *simRuns; n >= 100 && (sum.epochs < 5*n || sum.acked < 3*n || sum.disturbed < n || sum.sealed < n/2 || sum.restarts == 0) {
		t.Errorf("%d worlds had only %+v", n, sum)
	}
	t.Logf("%d worlds: %+v", *simRuns, sum)
}

type counts struct{ epochs, acked, disturbed, sealed, restarts int }

// sim is a random world.
type sim struct {
	*world
	rnd     *rand.Rand
	seed    uint64
	trace   []string
	pending []*log.Object // sent, and not landed
	landed  map[log.Hash]bool
	acked   []*log.Object
	procs   []*simProc
	readers []*simReader
	// prefix is the chain up to each position that was ever sealed.
	prefix map[log.Hash][]*log.Object
	depth  int // of steps within steps
	steps  int
	counts
}

type simProc struct {
	*owner
	phase     string // "", "cas", "read", "start", "work"
	full      []*log.Object
	startObj  *log.Object
	sent      []*log.Object // batches of this epoch
	ackedN    int           // of sent
	installed log.Head
	has       []*log.Object // the chain up to installed
	busy      bool
}

type simReader struct {
	*reader
	busy bool
}

func playWorld(t *testing.T, seed uint64) counts {
	s := &sim{world: newWorld(t), rnd: rand.New(rand.NewPCG(seed, 1)), seed: seed, landed: map[log.Hash]bool{}, prefix: map[log.Hash][]*log.Object{}}
	for range 3 {
		s.procs = append(s.procs, &simProc{})
	}
	for range 2 {
		s.readers = append(s.readers, s.newReader(log.ReaderOptions{}, nil))
	}
	for range 100 + s.rnd.IntN(200) {
		s.step()
	}
	s.finish()
	return s.counts
}

func (s *sim) say(format string, args ...any) {
	line := strings.Repeat("  ", s.depth) + fmt.Sprintf(format, args...)
	s.trace = append(s.trace, line)
	if *simSeed != 0 {
		s.Log(line)
	}
}

func (s *sim) fail(format string, args ...any) {
	s.Helper()
	s.Fatalf("seed %d: %s\n%s", s.seed, fmt.Sprintf(format, args...), strings.Join(s.trace, "\n"))
}

// disturb lets others move before a call of this handle has its effect.
func (s *sim) disturb(l *mem.Log, disturbed *bool) {
	l.SetHook(func(mem.Call) mem.Fault {
		for s.depth < 3 && s.rnd.IntN(4) == 0 {
			*disturbed = true
			s.depth++
			s.step()
			s.depth--
		}
		return mem.Fault{}
	})
}

func (s *sim) step() {
	s.steps++
	if s.rnd.IntN(8) == 0 { // an owner renews its lease
		s.lease(time.Second)
	}
	switch n := s.rnd.IntN(100); {
	case n < 32:
		s.landOne()
	case n < 84:
		if p := s.procs[s.rnd.IntN(len(s.procs))]; !p.busy {
			p.busy = true
			s.move(p)
			p.busy = false
		}
	case n < 94:
		if r := s.readers[s.rnd.IntN(len(s.readers))]; !r.busy {
			r.busy = true
			s.follow(r, true)
			r.busy = false
		}
	case n < 96:
		s.sealSome()
	case n < 98:
		if n := len(s.pending); n > 0 { // a request that never arrives
			i := s.rnd.IntN(n)
			s.say("%s is lost on its way", s.name(s.pending[i]))
			s.pending = slices.Delete(s.pending, i, i+1)
		}
	default:
		if p := s.procs[s.rnd.IntN(len(s.procs))]; !p.busy && p.phase != "" {
			s.say("the owner of epoch %d crashes", p.root.Epoch)
			*p = simProc{}
		}
	}
}

func (s *sim) landOne() {
	if len(s.pending) == 0 {
		return
	}
	i := s.rnd.IntN(len(s.pending))
	o := s.pending[i]
	s.pending = slices.Delete(s.pending, i, i+1)
	s.say("%s lands", s.name(o))
	s.land(o)
	s.landed[o.Hash()] = true
}

func (s *sim) send(o *log.Object) {
	s.say("%s is sent, behind %s", s.name(o), s.nameOf(o.Prev))
	s.pending = append(s.pending, o)
}

func (s *sim) nameOf(p log.Pos) string {
	if p == (log.Pos{}) {
		return "nothing"
	}
	return s.names[p.Hash]
}

func (s *sim) owns(p *simProc) bool {
	return s.root().Owned(p.root.Instance, p.root.Epoch, p.root.Claim)
}

// move lets a process do its next thing.
func (s *sim) move(p *simProc) {
	switch p.phase {
	case "":
		if s.root().Epoch < 12 && (s.rnd.IntN(24) == 0 || !slices.ContainsFunc(s.procs, func(p *simProc) bool { return p.phase != "" })) {
			*p = simProc{owner: s.take(), phase: "cas", busy: true}
			s.epochs++
			s.say("epoch %d is taken", p.root.Epoch)
		}
	case "cas":
		s.recoverProc(p, true)
	case "read":
		p.startObj = p.start()
		s.send(p.startObj)
		p.phase = "start"
	case "start":
		switch {
		case s.landed[p.startObj.Hash()] && s.owns(p):
			s.say("epoch %d begins", p.root.Epoch)
			p.phase = "work"
			p.has, p.installed = append(slices.Clone(p.full), p.startObj), p.head
			s.judge(p.has, fmt.Sprintf("the owner of epoch %d", p.root.Epoch))
		case !s.owns(p):
			s.say("the owner of epoch %d gives up", p.root.Epoch)
			*p = simProc{busy: true}
		}
	case "work":
		switch n := s.rnd.IntN(20); {
		case n < 10 && len(p.sent)-p.ackedN < 3:
			o := p.batch(1 + s.rnd.IntN(2))
			p.sent = append(p.sent, o)
			s.send(o)
		case n < 19:
			for p.ackedN < len(p.sent) && s.landed[p.sent[p.ackedN].Hash()] && s.owns(p) {
				o := p.sent[p.ackedN]
				s.say("%s is acknowledged", s.name(o))
				p.ackedN++
				p.fenced = o.LastT()
				s.acked = append(s.acked, o)
				s.counts.acked++
				p.has = append(p.has, o)
				p.installed = log.Head{Pos: o.Pos(), LastT: o.LastT(), Claim: o.Claim}
			}
		default:
			if s.owns(p) && s.root().Epoch < 12 { // P7
				has, installed, fenced := p.has, p.installed, p.fenced
				*p = simProc{owner: s.take(), phase: "cas", busy: true, has: has, installed: installed}
				p.fenced = fenced
				s.epochs++
				s.say("epoch %d is taken by the owner of the one before", p.root.Epoch)
			}
		}
	}
}

func (s *sim) recoverProc(p *simProc, disturbing bool) {
	disturbed := false
	from, before := p.installed, p.has
	if s.rnd.IntN(2) == 0 {
		from, before = log.Head{}, nil
	}
	s.say("epoch %d reads the log from %s on", p.root.Epoch, s.nameOf(from.Pos))
	if disturbing {
		s.disturb(p.l, &disturbed)
	}
	err := p.try(from)
	p.l.SetHook(nil)
	if disturbed {
		s.disturbed++
	}
	switch {
	case errors.Is(err, log.ErrNotOwner):
		if s.owns(p) {
			s.fail("epoch %d is told that it is not the owner: %v", p.root.Epoch, err)
		}
		s.say("epoch %d is over", p.root.Epoch)
		*p = simProc{busy: true}
		return
	case errors.Is(err, log.ErrSealed):
		s.say("epoch %d: %v", p.root.Epoch, err)
		s.restarts++
		if s.owns(p) {
			p.root, p.installed, p.has = s.root(), log.Head{}, nil
		}
		return
	case err != nil:
		s.fail("epoch %d recovers: %v", p.root.Epoch, err)
	}
	if from == (log.Head{}) {
		if base := p.found.Base.Pos; base != (log.Pos{}) {
			before = s.prefix[base.Hash]
		}
	}
	p.full = append(slices.Clone(before), p.read...)
	p.fenced = max(p.fenced, p.found.Head.Fenced)
	p.phase = "read"
	s.say("epoch %d finds %s", p.root.Epoch, s.show(p.full))
	if !disturbed {
		if want := s.model(p.root); !slices.EqualFunc(p.full, want, sameBytes) {
			s.fail("epoch %d found %s, and a naive reading finds %s", p.root.Epoch, s.show(p.full), s.show(want))
		}
	}
	last := log.Head{}
	for _, o := range p.full {
		if o.FirstT != last.LastT+1 || o.Prev != last.Pos {
			s.fail("epoch %d found %s behind %s", p.root.Epoch, s.name(o), s.nameOf(last.Pos))
		}
		last = log.Head{Pos: o.Pos(), LastT: o.LastT()}
	}
}

func sameBytes(a, b *log.Object) bool { return a.Hash() == b.Hash() }

// model reads the log as simply as possible (L4), with everything in memory.
func (s *sim) model(root *log.Root) []*log.Object {
	byHash := map[log.Hash]*log.Object{}
	byKey := map[log.Key]*log.Object{}
	var newest *log.Object
	for o, err := range s.l.Read(s.ctx, root.Instance, log.Key{}) {
		s.check(err)
		byHash[o.Hash()], byKey[o.Key()] = o, o
		if o.Kind == log.KindStart && o.Epoch < root.Epoch && o.Epoch > s.root().Sealed.Epoch {
			newest = o
		}
	}
	sealed := s.root().Sealed
	prefix := s.prefix[sealed.Hash]
	var chain []*log.Object
	head, epoch, t := sealed.Hash, sealed.Epoch, sealed.LastT
	if newest != nil {
		for o := newest; ; {
			chain = append(chain, o)
			if o.Prev.Hash == sealed.Hash {
				break
			}
			o = byHash[o.Prev.Hash]
			if o == nil {
				s.fail("the model's chain back from %s breaks", s.name(newest))
			}
		}
		slices.Reverse(chain)
		head, epoch, t = newest.Hash(), newest.Epoch, newest.LastT()
	}
	for {
		o := byKey[log.Key{Epoch: epoch, FirstT: t + 1}]
		if o == nil || o.Prev.Hash != head {
			return append(slices.Clone(prefix), chain...)
		}
		chain = append(chain, o)
		head, t = o.Hash(), o.LastT()
	}
}

// judge sees that a chain holds what was acknowledged and what readers were handed.
func (s *sim) judge(chain []*log.Object, who string) {
	s.Helper()
	for _, o := range s.acked {
		if !slices.ContainsFunc(chain, func(c *log.Object) bool { return sameBytes(c, o) }) {
			s.fail("L1: %s was acknowledged, and %s has %s", s.name(o), who, s.show(chain))
		}
	}
	for _, r := range s.readers {
		if len(r.got) > len(chain) || !slices.EqualFunc(r.got, chain[:len(r.got)], sameBytes) {
			s.fail("L8: a reader was handed %s, and %s has %s", s.show(r.got), who, s.show(chain))
		}
	}
}

func (s *sim) newReader(o log.ReaderOptions, got []*log.Object) *simReader {
	o.Buffer = 1 + s.rnd.IntN(2000)
	r := &simReader{reader: s.reader(o)}
	r.got = slices.Clone(got)
	return r
}

// follow lets a reader read on.
func (s *sim) follow(r *simReader, disturbing bool) {
	disturbed := false
	if disturbing {
		s.disturb(r.l, &disturbed)
	}
	acked := slices.Clone(s.acked)
	before := len(r.got)
	s.say("a reader at %s reads on", s.nameOf(r.r.Head().Pos))
	err := r.try()
	r.l.SetHook(nil)
	switch {
	case errors.Is(err, log.ErrSealed):
		// It goes on from the sealed position, with what the chunks hold.
		s.say("the reader: %v", err)
		s.restarts++
		sealed := s.root().Sealed
		prefix := s.prefix[sealed.Hash]
		if len(r.got) > len(prefix) || !slices.EqualFunc(r.got, prefix[:len(r.got)], sameBytes) {
			s.fail("L8: a reader was handed %s, and %s was sealed", s.show(r.got), s.show(prefix))
		}
		fresh := s.newReader(log.ReaderOptions{From: sealed.Head()}, prefix)
		*r.reader = *fresh.reader
		return
	case err != nil:
		s.fail("a reader at %s: %v", s.nameOf(r.r.Head().Pos), err)
	}
	s.say("the reader was handed %s(waiting: %t)", s.show(r.got[before:]), r.status.Waiting)
	if r.status.Waiting {
		return
	}
	for _, o := range acked {
		if !slices.ContainsFunc(r.got, func(c *log.Object) bool { return sameBytes(c, o) }) {
			s.fail("%s had been acknowledged, and a reader that read on has %s", s.name(o), s.show(r.got))
		}
	}
}

// sealSome moves the sealed position to somewhere on the chain, proven by a reader under the present root, and deletes what lies below, or not yet.
func (s *sim) sealSome() {
	root := s.root()
	var got []*log.Object
	if root.Sealed != (log.Sealed{}) {
		got = slices.Clone(s.prefix[root.Sealed.Hash])
	}
	n := len(got)
	st, err := log.NewReader(s.l, log.ReaderOptions{From: root.Sealed.Head()}).Sync(context.Background(), func(o *log.Object) error {
		got = append(got, o)
		return nil
	})
	if err != nil {
		s.fail("the sealer: %v", err)
	}
	if st.Waiting || len(got) == n {
		return
	}
	i := n + s.rnd.IntN(len(got)-n)
	s.prefix[got[i].Hash()] = got[:i+1]
	s.counts.sealed++
	remove := s.rnd.IntN(3) > 0
	s.say("sealed up to %s (deleted: %t)", s.name(got[i]), remove)
	s.seal(got[i], remove)
}

// finish lets the last owner in, undisturbed, and everybody read to the end.
func (s *sim) finish() {
	s.say("the end")
	p := &simProc{owner: s.take(), phase: "cas"}
	s.recoverProc(p, false)
	o := p.start()
	s.land(o)
	chain := append(p.full, o)
	s.judge(chain, "the last owner")
	for _, r := range s.readers {
		for {
			n := s.restarts
			s.follow(r, false)
			if s.restarts == n {
				break
			}
		}
		if !slices.EqualFunc(r.got, chain, sameBytes) {
			s.fail("in the end a reader has %s, and the last owner %s", s.show(r.got), s.show(chain))
		}
	}
}

package logtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/steledb/stele/log"
)

// Orders plays every order in which the objects of three owners can land, that is, the steps of the protocol's model: the first owner dies with
// batches on their way; the second takes the database, reads, and its start is on its way too, for as long as it likes; so does the third. After
// every step a reader that follows, a reader that begins, and an owner that would take over now must each see the chain
// that a naive reading of everything that has landed finds, and nothing that was acknowledged may be missing.
//
// Each order has an instance of its own in the store, and a root in memory: what is tested is how objects are shown, and what package log makes
// of it. Of a store that lets one handle write only the orders are played in which no epoch writes after a later one.
func Orders(t *testing.T, b Backend) {
	t.Helper()
	playOrders(&suite{T: t, b: b, open: b.New(t), ctx: t.Context()}, 0)
}

// someOrders is how many orders Run plays: about ninety calls each, so two seconds in all where a call takes two milliseconds.
const someOrders = 12

func ordersOfLanding(s *suite) { playOrders(s, someOrders) }

// playOrders plays n orders that differ as much as n orders can; 0: all.
func playOrders(s *suite, n int) {
	orders := ordersOf(situation{}, nil)
	if s.b.OneWriter {
		orders = slices.DeleteFunc(orders, func(o []event) bool { return !slices.IsSortedFunc(landings(o), byEpoch) })
	}
	all := len(orders)
	if n > 0 {
		orders = covering(orders, n)
	}
	l := s.handle()
	unlock, err := l.Lock(s.ctx, true)
	s.must(err, "lock")
	defer func() { _ = unlock() }()
	work := make(chan []event)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for order := range work {
				if err := playOrder(s.ctx, l, order); err != nil {
					s.Errorf("%v: %v", order, err)
				}
			}
		})
	}
	for _, order := range orders {
		work <- order
	}
	close(work)
	wg.Wait()
	s.Logf("%d of %d orders", len(orders), all)
}

// event is one step of an order.
type event uint8

const (
	takeB  event = iota // the second owner's CAS
	readB               // it reads the log, and makes its start
	takeC               // the third owner's
	readC               //
	landA2              // the first owner's second batch lands
	landA3              //
	landB0              // the second owner's start lands
	landB1              // its batch; it is sent if the start landed while it was the owner
	landC0              //
	landC1              //
	events              // how many there are
)

func (e event) String() string {
	return [...]string{"B's CAS", "B reads", "C's CAS", "C reads", "1.2", "1.3", "2.0", "2.1", "3.0", "3.1"}[e]
}

func landings(order []event) []event {
	return slices.DeleteFunc(slices.Clone(order), func(e event) bool { return e < landA2 })
}

func byEpoch(a, b event) int { return int(a-landA2)/2 - int(b-landA2)/2 }

// covering picks n orders that, together, have as many triples of events one behind the other as n orders picked one by one can.
func covering(orders [][]event, n int) (picked [][]event) {
	covered := map[[3]event]bool{}
	triples := func(order []event, each func([3]event)) {
		for i := range order {
			for j := range i {
				for k := range j {
					each([3]event{order[k], order[j], order[i]})
				}
			}
		}
	}
	for range min(n, len(orders)) {
		best, most := 0, -1
		for i, order := range orders {
			fresh := 0
			triples(order, func(t [3]event) {
				if !covered[t] {
					fresh++
				}
			})
			if fresh > most {
				best, most = i, fresh
			}
		}
		triples(orders[best], func(t [3]event) { covered[t] = true })
		picked = append(picked, orders[best])
		orders = slices.Delete(orders, best, best+1)
	}
	return picked
}

// situation is what decides which events can come next.
type situation struct {
	done      [events]bool
	bVerified bool
}

func (s situation) enabled(e event) bool {
	if s.done[e] {
		return false
	}
	switch e {
	case readB:
		return s.done[takeB] && !s.done[takeC] // later it would learn that it is not the owner
	case takeC:
		return s.done[takeB]
	case readC:
		return s.done[takeC]
	case landB0:
		return s.done[readB]
	case landB1:
		return s.bVerified
	case landC0:
		return s.done[readC]
	case landC1:
		return s.done[landC0]
	default:
		return true
	}
}

// ordersOf is every way to go on from s until nothing can happen any more.
func ordersOf(s situation, order []event) (out [][]event) {
	for e := range events {
		if s.enabled(e) {
			next := s
			next.done[e] = true
			if e == landB0 && !s.done[takeC] {
				next.bVerified = true
			}
			out = append(out, ordersOf(next, append(slices.Clip(order), e))...)
		}
	}
	if out == nil {
		out = [][]event{order}
	}
	return out
}

// rootless is a store whose root is kept elsewhere.
type rootless struct {
	log.Log
	root *log.Root
}

func (l *rootless) Root(context.Context) (*log.Root, error) { return l.root.Clone(), nil }

// term is one owner of an order.
type term struct {
	root   *log.Root
	head   log.Head
	fenced uint64
}

// next makes the term's next object.
func (t *term) next(kind log.Kind) (*log.Object, error) {
	h := log.Header{Lineage: t.root.Lineage, Claim: t.root.Claim, Epoch: t.root.Epoch, Kind: kind, FirstT: t.head.LastT + 1,
		Prev: t.head.Pos, Fenced: t.fenced}
	n := 0
	if kind == log.KindBatch {
		n = 1
	}
	o, err := log.Encode(h, transactions(h.FirstT, n, fmt.Sprintf("epoch %d", h.Epoch)), false)
	if err == nil {
		t.head = log.HeadOf(o)
	}
	return o, err
}

// play is one order, played.
type play struct {
	*rootless
	ctx    context.Context
	inst   log.ID
	landed []*log.Object // in this order
	acked  []*log.Object
	follow *log.Reader
	got    []*log.Object // what the reader that follows was handed
}

func playOrder(ctx context.Context, l log.Log, order []event) error {
	first := log.NewRoot()
	p := &play{rootless: &rootless{l, first.Acquire(log.NewID(), "A")}, ctx: ctx, inst: first.Instance}
	p.follow = log.NewReader(p, log.ReaderOptions{})
	sent := map[event]*log.Object{}
	var err error
	send := func(t *term, kind log.Kind, as event) {
		if err == nil {
			sent[as], err = t.next(kind)
		}
	}
	a := &term{root: p.root}
	send(a, log.KindStart, events)
	send(a, log.KindBatch, events+1)
	a.fenced = a.head.LastT
	send(a, log.KindBatch, landA2)
	send(a, log.KindBatch, landA3)
	if err == nil {
		err = errors.Join(p.land(sent[events]), p.land(sent[events+1]), p.look())
	}
	var b, c *term
	for i, e := range order {
		if err != nil {
			return err
		}
		switch e {
		case takeB, takeC:
			p.root = p.root.Acquire(log.NewID(), e.String())
		case readB, readC:
			t := &term{root: p.root}
			if t.head, t.fenced, err = p.read(); err == nil && e == readB {
				b = t
				send(b, log.KindStart, landB0)
			} else if err == nil {
				c = t
				send(c, log.KindStart, landC0)
			}
		default:
			err = p.land(sent[e])
			if t := map[event]*term{landB0: b, landC0: c}[e]; t != nil && p.root.Epoch == t.root.Epoch {
				t.fenced = t.head.LastT // its start is durable and verified
				send(t, log.KindBatch, e+1)
			}
		}
		if err == nil && e != readB && e != readC {
			err = p.look()
		}
		if err != nil {
			return fmt.Errorf("step %d, %s: %w", i+1, e, err)
		}
	}
	return err
}

// land makes an object durable, and notes what its owner acknowledges if it is still that.
func (p *play) land(o *log.Object) error {
	if err := p.Append(p.ctx, p.inst, o); err != nil {
		return fmt.Errorf("append %s: %w", o.Key(), err)
	}
	p.landed = append(p.landed, o)
	if p.there(log.StartKey(p.root.Epoch)) != nil {
		p.acked = p.chain(p.there(log.StartKey(p.root.Epoch)))
	}
	return nil
}

func (p *play) there(k log.Key) *log.Object {
	for _, o := range p.landed {
		if o.Key() == k {
			return o
		}
	}
	return nil
}

// chain is the log that ends in the epoch of start, by a naive reading of what has landed.
func (p *play) chain(start *log.Object) (out []*log.Object) {
	for o := start; o != nil; o = p.there(o.Prev.Key) {
		out = append(out, o)
	}
	slices.Reverse(out)
	for o := start; o != nil; {
		o = p.there(log.Key{Epoch: start.Epoch, FirstT: o.LastT() + 1})
		if o != nil {
			out = append(out, o)
		}
	}
	return out
}

// read is what the owner that the root names finds in the log.
func (p *play) read() (head log.Head, fenced uint64, err error) {
	var got []*log.Object
	found, err := log.Recover(p.ctx, p, p.root, log.Head{}, func(o *log.Object) error { got = append(got, o); return nil })
	if err != nil {
		return head, 0, fmt.Errorf("recover: %w", err)
	}
	var newest *log.Object
	for _, o := range p.landed {
		if o.Kind == log.KindStart && (newest == nil || o.Epoch > newest.Epoch) {
			newest = o
		}
	}
	if want := p.chain(newest); !slices.EqualFunc(got, want, sameObject) {
		return head, 0, fmt.Errorf("an owner of epoch %d finds %v, want %v", p.root.Epoch, keysOf(got), keysOf(want))
	}
	return found.Head, found.Head.Fenced, p.hasAcked(got, "an owner")
}

func (p *play) hasAcked(got []*log.Object, who string) error {
	for _, o := range p.acked {
		if !slices.ContainsFunc(got, func(g *log.Object) bool { return sameObject(g, o) }) {
			return fmt.Errorf("%s was acknowledged, and %s finds %v", o.Key(), who, keysOf(got))
		}
	}
	return nil
}

// look compares what everybody sees with what they should.
func (p *play) look() error {
	var fresh []*log.Object
	status, err := log.NewReader(p, log.ReaderOptions{}).Sync(p.ctx, func(o *log.Object) error { fresh = append(fresh, o); return nil })
	if err != nil {
		return fmt.Errorf("a new reader: %w", err)
	}
	before := len(p.got)
	if _, err := p.follow.Sync(p.ctx, func(o *log.Object) error { p.got = append(p.got, o); return nil }); err != nil {
		return fmt.Errorf("a reader: %w", err)
	}
	start := p.there(log.StartKey(p.root.Epoch))
	if start == nil {
		if !status.Waiting || len(fresh) > 0 || len(p.got) > before {
			return fmt.Errorf("epoch %d has no start, and readers are handed %v and %v", p.root.Epoch, keysOf(fresh), keysOf(p.got[before:]))
		}
	} else {
		want := p.chain(start)
		if status.Waiting || !slices.EqualFunc(fresh, want, sameObject) || !slices.EqualFunc(p.got, want, sameObject) {
			return fmt.Errorf("a new reader is handed %v, one that follows %v, want %v", keysOf(fresh), keysOf(p.got), keysOf(want))
		}
		if err := p.hasAcked(fresh, "a reader"); err != nil {
			return err
		}
	}
	// And who would take over now.
	now := p.root
	defer func() { p.root = now }()
	p.root = now.Acquire(log.NewID(), "D")
	_, _, err = p.read()
	return err
}

package log_test

import (
	"errors"
	"testing"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/mem"
)

func TestL4_EmptyLog(t *testing.T) {
	w := newWorld(t)
	p := w.take().recover()
	p.wants("")
	if p.found.Head != (log.Head{}) || len(p.found.Unfenced) != 0 {
		t.Fatalf("found %+v", p.found)
	}
	if first := p.start(); first.FirstT != 1 || first.Prev != (log.Pos{}) {
		t.Fatalf("the first start is %+v", first.Header)
	}
}

func TestL4_HeadIsTheLastBatchThatLinks(t *testing.T) {
	w := newWorld(t)
	p := w.open()
	w.land(p.batch(2), p.batch(1))
	q := w.take().recover()
	q.wants("1.0 1.1 1.2 ")
	if q.found.Head.Pos != p.head.Pos || q.found.Head.LastT != 3 || q.found.Head.Claim != p.root.Claim || q.found.Txs != 3 || q.found.Objects != 3 || q.found.Dead != 0 {
		t.Fatalf("found %+v", q.found)
	}
}

func TestL4_ManyTakeoversAndSkippedEpochs(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	w.land(a.batch(1))
	w.skip(3)
	b := w.open() // epoch 5
	w.land(b.batch(2), b.batch(2))
	w.open()
	w.skip(1)
	c := w.take().recover()
	c.wants("1.0 1.1 5.0 5.1 5.2 6.0 ")
	if c.root.Epoch != 8 || c.found.Head.LastT != 5 {
		t.Fatalf("epoch %d, head %+v", c.root.Epoch, c.found.Head)
	}
}

// The start of epoch 2 lands after epoch 3 has read the log; the next start that becomes durable decides: it is dead.
func TestL5_LateStartIsDead(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	w.land(a.batch(1))
	b := w.take().recover()
	late := b.start()
	c := w.take().recover()
	c.wants("1.0 1.1 ")
	w.land(late, c.start(), c.batch(1))
	d := w.take().recover()
	d.wants("1.0 1.1 3.0 3.1 ")
	if d.found.Dead != 1 {
		t.Fatalf("%d dead objects", d.found.Dead)
	}
}

// Of two late starts the newer one is there when epoch 4 reads, and lives; the older one lands when it is history.
func TestL5_TheNextStartDecidesWhichOfTwoLateStartsLives(t *testing.T) {
	for _, c := range []struct {
		name       string
		before     []int // late starts (2, 3) that land before epoch 4 reads
		want4      string
		want5      string
		startAfter []int
	}{
		{"none there", nil, "1.0 1.1 ", "1.0 1.1 4.0 ", []int{2, 3}},
		{"the older one", []int{2}, "1.0 1.1 2.0 ", "1.0 1.1 2.0 4.0 ", []int{3}},
		{"the newer one", []int{3}, "1.0 1.1 3.0 ", "1.0 1.1 3.0 4.0 ", []int{2}},
		{"both", []int{2, 3}, "1.0 1.1 3.0 ", "1.0 1.1 3.0 4.0 ", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			a := w.open()
			w.land(a.batch(1))
			starts := map[int]*log.Object{2: w.take().recover().start(), 3: w.take().recover().start()}
			for _, n := range c.before {
				w.land(starts[n])
			}
			p := w.take().recover()
			p.wants(c.want4)
			w.land(p.start())
			for _, n := range c.startAfter {
				w.land(starts[n])
			}
			w.take().recover().wants(c.want5)
		})
	}
}

// A deposed owner goes on writing: what lands behind the head that its successor built on is dead, however late.
func TestL5_ZombieBatchesAreDead(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	w.land(a.batch(1))
	b := w.take().recover()
	w.land(a.batch(1)) // lands between the successor's reading and its start
	w.land(b.start(), b.batch(3))
	w.land(a.batch(1), a.batch(1)) // and after it
	c := w.take().recover()
	c.wants("1.0 1.1 2.0 2.1 ")
	if c.found.Dead != 3 || c.found.Head.LastT != 4 {
		t.Fatalf("found %+v", c.found)
	}
	r := w.reader(log.ReaderOptions{})
	w.land(c.start())
	r.sync()
	r.wants("1.0 1.1 2.0 2.1 3.0 ")
}

// What a dead epoch's successor read before it was dead is dead with it.
func TestL5_AWholeBranchIsDead(t *testing.T) {
	w := newWorld(t)
	w.open()
	b := w.take().recover()
	c := w.take() // has its CAS, has not read
	d := w.take().recover()
	d.wants("1.0 ")
	w.land(b.start()) // late
	wantError(t, c.try(log.Head{}), log.ErrNotOwner, "a slow owner that nobody waited for")
	c.head = b.head // had its last look at the root come before the CAS of epoch 4, it would have built on epoch 2
	w.land(c.start(), d.start(), d.batch(1))
	w.take().recover().wants("1.0 4.0 4.1 ")
}

func TestL6_GapEndsTheChain(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	w.land(a.batch(1))
	a.batch(1) // never lands
	w.land(a.batch(1), a.batch(1))
	b := w.take().recover()
	b.wants("1.0 1.1 ")
	if b.found.Dead != 2 || b.found.Head.LastT != 1 {
		t.Fatalf("found %+v", b.found)
	}
}

func TestL6_LateObjectFillsTheGap(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	late := a.batch(1)
	w.land(a.batch(1))
	r := w.reader(log.ReaderOptions{})
	r.sync()
	r.wants("1.0 ")
	w.land(late)
	r.sync()
	r.wants("1.0 1.1 1.2 ")
	w.take().recover().wants("1.0 1.1 1.2 ")
}

// What was acknowledged is missing: an owner and a reader refuse, and drop nothing.
func TestL6_GapBelowFencedIsDamage(t *testing.T) {
	for _, lost := range []int{1, 2} {
		w := newWorld(t)
		a := w.open()
		batches := []*log.Object{a.batch(1), a.batch(2)}
		w.land(batches...)
		a.ack()
		w.land(a.batch(1)) // fenced: 3
		w.lose(batches[lost-1])
		p := w.take()
		err := p.try(log.Head{})
		wantError(t, err, log.ErrCorrupt, "recover")
		var c *log.CorruptError
		if !errors.As(err, &c) || c.Key != batches[lost-1].Key() {
			t.Fatalf("the error names another object: %v", err)
		}
		w = newWorld(t)
		a = w.open()
		batches = []*log.Object{a.batch(1), a.batch(2)}
		w.land(batches...)
		a.ack()
		w.land(a.batch(1))
		w.lose(batches[lost-1])
		wantError(t, w.reader(log.ReaderOptions{}).try(), log.ErrCorrupt, "sync")
	}
}

// The last object was acknowledged, and nothing behind it says so: it cannot be noticed here.
// A dead epoch's object does not count: its claim is that of no start on the chain.
func TestL6_FencedUnderADeadClaimDoesNotCount(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	w.land(a.batch(1))
	b := w.take().recover()
	dead := b.start() // never lands before the next owner reads
	c := w.take().recover()
	w.land(c.start())
	b.fenced = 1
	zombie := b.batch(1) // t 2
	b.fenced = 2
	zombie2 := b.batch(1) // t 3, says that t 2 was acknowledged
	w.land(dead, zombie, zombie2)
	w.take().recover().wants("1.0 1.1 3.0 ")
}

// A batch is sent only once its epoch's start is durable: a start that is gone took acknowledged transactions with it.
func TestL6_ALostStartIsDamage(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	w.land(a.batch(1))
	b := w.take().recover()
	start := b.start()
	w.land(start)
	b.ack()
	w.land(b.batch(1))
	w.lose(start)
	wantError(t, w.take().try(log.Head{}), log.ErrCorrupt, "recover")
}

func TestL6_AMissingObjectBeforeAStartIsDamage(t *testing.T) {
	for _, c := range []struct {
		name string
		pick func(start, first, last *log.Object) *log.Object
	}{
		{"the start", func(s, _, _ *log.Object) *log.Object { return s }},
		{"the first batch", func(_, f, _ *log.Object) *log.Object { return f }},
		{"the last batch", func(_, _, l *log.Object) *log.Object { return l }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			p := w.take().recover()
			start := p.start()
			first, last := p.batch(1), p.batch(1)
			w.land(start, first, last)
			q := w.open()
			w.land(q.batch(1))
			w.lose(c.pick(start, first, last))
			wantError(t, w.reader(log.ReaderOptions{}).try(), log.ErrCorrupt, "sync")
			wantError(t, w.take().try(log.Head{}), log.ErrCorrupt, "recover")
		})
	}
}

// A listing that lacks an object of the chain: it is fetched by key.
func TestL6_WhatAListingLacksIsFetched(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	batches := []*log.Object{a.batch(1), a.batch(1)}
	w.land(batches...)
	a.ack()
	b := w.open()
	more := []*log.Object{b.batch(1), b.batch(1)}
	w.land(more...)
	b.ack()
	w.land(b.batch(1))
	for _, hidden := range [][]log.Key{
		{batches[0].Key()}, {batches[0].Key(), batches[1].Key()}, {log.StartKey(2)}, {more[0].Key()}, {more[0].Key(), more[1].Key()},
		{batches[1].Key(), log.StartKey(2), more[0].Key()},
	} {
		p := w.take()
		var got []*log.Object
		_, err := log.Recover(w.ctx, &blind{p.l, hidden}, p.root, log.Head{}, func(o *log.Object) error { got = append(got, o); return nil })
		w.check(err)
		if s := w.show(got); s != "1.0 1.1 1.2 2.0 2.1 2.2 2.3 " {
			t.Fatalf("with %v hidden: %s", hidden, s)
		}
	}
}

// Objects with other bytes than were written.
func TestL10_AnAlteredObjectIsDamage(t *testing.T) {
	for _, c := range []struct {
		name  string
		alter func(w *world, a *owner, start, first, last *log.Object) *log.Object
	}{
		{"another batch at a batch's key", func(w *world, a *owner, start, first, last *log.Object) *log.Object {
			a.head = log.Head{Pos: start.Pos()}
			return a.batch(1) // the same t, and another text, since it is another epoch's name
		}},
		{"another last batch", func(w *world, a *owner, start, first, last *log.Object) *log.Object {
			a.head = log.Head{Pos: first.Pos(), LastT: 1}
			a.fenced = 1
			return a.batch(1)
		}},
		{"another previous hash", func(w *world, a *owner, start, first, last *log.Object) *log.Object {
			a.head = log.Head{Pos: log.Pos{Key: first.Key(), Hash: log.Hash{1}}, LastT: 1}
			return a.batch(1)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			a := w.take().recover()
			start := a.start()
			a.fenced = 0
			first, last := a.batch(1), a.batch(1)
			w.land(start, first, last)
			q := w.open()
			w.land(q.batch(1))
			a.fenced = 0
			altered := c.alter(w, a, start, first, last)
			if altered.Hash() == first.Hash() || altered.Hash() == last.Hash() {
				h := altered.Header
				txs, err := altered.AppendTxs(nil)
				w.check(err)
				txs[0].Instant++
				altered, err = log.Encode(h, txs, false)
				w.check(err)
			}
			w.l.Replace(w.root().Instance, altered)
			wantError(t, w.reader(log.ReaderOptions{}).try(), log.ErrCorrupt, "sync")
			wantError(t, w.take().try(log.Head{}), log.ErrCorrupt, "recover")
		})
	}
}

func TestL10_AForeignObjectIsRefused(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	root := *a.root
	a.root = root.Clone()
	a.root.Lineage = log.NewID()
	w.land(a.batch(1))
	wantError(t, w.reader(log.ReaderOptions{}).try(), log.ErrCorrupt, "sync")
	wantError(t, w.take().try(log.Head{}), log.ErrCorrupt, "recover")
}

// Also where it is on no chain.
func TestL10_AForeignDeadObjectIsRefused(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	a.root = a.root.Clone()
	a.root.Lineage = log.NewID()
	a.batch(1)
	w.land(a.batch(1)) // behind a gap
	wantError(t, w.reader(log.ReaderOptions{}).try(), log.ErrCorrupt, "sync")
	wantError(t, w.take().try(log.Head{}), log.ErrCorrupt, "recover")
}

// Whoever owned the epoch wrote all of it.
func TestL10_ABatchUnderAnotherClaimIsRefused(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	w.land(a.batch(1))
	a.root = a.root.Clone()
	a.root.Claim = log.NewID()
	w.land(a.batch(1))
	wantError(t, w.reader(log.ReaderOptions{}).try(), log.ErrCorrupt, "sync")
	wantError(t, w.take().try(log.Head{}), log.ErrCorrupt, "recover")
}

// A start that leads elsewhere than the one that was written.
func TestL10_AnAlteredStartIsDamage(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	w.land(a.batch(1))
	b := w.take().recover()
	w.land(b.start())
	w.open()
	h := b.head
	b.head = log.Head{Pos: log.Pos{Key: log.StartKey(1), Hash: log.Hash{1}}}
	altered := b.start()
	w.l.Replace(w.root().Instance, altered)
	for _, err := range []error{w.reader(log.ReaderOptions{}).try(), w.take().try(log.Head{})} {
		var c *log.CorruptError
		if !errors.As(err, &c) || c.Key != h.Key {
			t.Errorf("%v", err)
		}
	}
}

// The root's epoch has a start, but not that of the root's claim.
func TestL11_TheStartOfTheRootsEpochIsUnderAnotherClaim(t *testing.T) {
	w := newWorld(t)
	w.open()
	b := w.take().recover()
	other := *b
	other.root = b.root.Clone()
	other.root.Claim = log.NewID()
	w.land(other.start())
	wantError(t, w.reader(log.ReaderOptions{}).try(), log.ErrRolledBack, "sync")
}

// Unfenced is what a crash of the machine may have taken from a file system: what nobody is known to have seen acknowledged.
func TestL10_UnfencedObjects(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	w.land(a.batch(1), a.batch(1))
	a.ack()
	w.land(a.batch(1), a.batch(1))
	b := w.take().recover()
	if got := w.show(b.found.Unfenced); got != "1.3 1.4 " {
		t.Fatalf("unfenced: %s", got)
	}
	b.fenced = 0 // it has acknowledged nothing itself, and its start fences nothing
	w.land(b.start())
	c := w.take().recover()
	if got := w.show(c.found.Unfenced); got != "1.3 1.4 2.0 " {
		t.Fatalf("unfenced: %s", got)
	}
	w.land(c.start())
	c.ack()
	w.land(c.batch(1))
	c.ack()
	last := c.batch(1)
	w.land(last)
	d := w.take().recover()
	if got := w.show(d.found.Unfenced); got != "3.2 " {
		t.Fatalf("unfenced: %s", got)
	}
	if d.found.Head.Fenced != 5 {
		t.Fatalf("fenced up to %d", d.found.Head.Fenced)
	}
}

// P7: an owner reads on from what it had installed, and learns by hash what landed.
func TestL4_RecoverFromWhatWasInstalled(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	w.land(a.batch(1))
	installed := a.head
	sent := []*log.Object{a.batch(1), a.batch(1), a.batch(1)}
	w.land(sent[0], sent[2])
	b := w.take()
	w.check(b.try(installed))
	b.wants("1.2 ")
	if b.read[0].Hash() != sent[0].Hash() || b.found.Base.Pos != installed.Pos {
		t.Fatalf("found %+v", b.found)
	}
	w.land(b.start(), b.batch(1))
	installed = b.head
	c := w.take()
	w.check(c.try(installed))
	c.wants("")
	if c.head.Pos != installed.Pos {
		t.Fatalf("head %s, want %s", c.head.Pos, installed.Pos)
	}
}

func TestL11_TheChainMustLeadThroughWhatWasInstalled(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	w.land(a.batch(1))
	restore := w.l.Backup()
	w.land(a.batch(1))
	a.ack()
	installed := a.head
	w.check(w.reader(log.ReaderOptions{From: installed}).try())
	restore()
	w.open()
	c := w.take()
	wantError(t, c.try(installed), log.ErrRolledBack, "recover")
	w.land(c.recover().start())
	wantError(t, w.reader(log.ReaderOptions{From: installed}).try(), log.ErrRolledBack, "sync")
}

// What was installed is lost, and nothing else: it would be missed only when somebody reads the whole log.
func TestL11_WhatWasInstalledMustStillBeThere(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	last := a.batch(1)
	w.land(last)
	a.ack()
	r := w.reader(log.ReaderOptions{})
	r.sync()
	w.lose(last)
	b := w.take()
	wantError(t, b.try(a.head), log.ErrRolledBack, "recover")
	b.head = a.head // as it would have gone on
	w.land(b.start())
	wantError(t, r.try(), log.ErrRolledBack, "sync")
	// Sealed, it may be gone.
	w = newWorld(t)
	a = w.open()
	last = a.batch(1)
	w.land(last)
	r = w.reader(log.ReaderOptions{})
	r.sync()
	w.seal(last, true)
	b = w.take()
	w.check(b.try(a.head))
	w.land(b.start())
	r.sync()
	r.wants("1.0 1.1 2.0 ")
}

func TestL11_ObjectsOfALaterEpoch(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	w.land(a.batch(1))
	early := w.root()
	b := w.take().recover()
	w.land(b.start(), b.batch(1))
	// Only the root goes back, as a root kept elsewhere would.
	w.rollRootBack(early)
	wantError(t, w.reader(log.ReaderOptions{}).try(), log.ErrRolledBack, "sync")
	var witness log.Witness
	_, err := witness.RootToOpen(w.ctx, w.l)
	wantError(t, err, log.ErrRolledBack, "open")
	// Somebody opens it nevertheless: its own epoch is there already.
	wantError(t, w.take().try(log.Head{}), log.ErrRolledBack, "recover")
}

// rollRootBack puts an older root in place of the present one, and leaves the objects alone.
func (w *world) rollRootBack(to *log.Root) {
	w.Helper()
	server := mem.NewServer()
	l := server.Open("main", mem.Options{})
	old := to.Clone()
	old.Version = 1
	w.check(l.CompareAndSwap(w.ctx, nil, old))
	for o, err := range w.l.Read(w.ctx, to.Instance, log.Key{}) {
		w.check(err)
		w.check(l.Append(w.ctx, to.Instance, o))
	}
	w.server, w.l = server, l
}

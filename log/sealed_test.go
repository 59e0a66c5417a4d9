package log_test

import (
	"testing"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/mem"
)

func TestL4_RecoveryBeginsAtTheSealedPosition(t *testing.T) {
	for _, remove := range []bool{false, true} {
		w := newWorld(t)
		a := w.open()
		sealed := a.batch(2)
		w.land(sealed, a.batch(1))
		w.seal(sealed, remove)
		p := w.take().recover()
		p.wants("1.2 ")
		if p.found.Base.LastT != 2 || p.found.Head.LastT != 3 {
			t.Fatalf("found %+v", p.found)
		}
		w.land(p.start(), p.batch(1))
		w.take().recover().wants("1.2 2.0 2.1 ")
	}
}

// A head that is the sealed position, a batch or a start, with nothing behind it: the next start names it by key and hash.
func TestL4_TheHeadIsTheSealedPosition(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	last := a.batch(2)
	w.land(last)
	w.seal(last, true)
	p := w.take().recover()
	p.wants("")
	start := p.start()
	if start.Prev != last.Pos() || start.FirstT != 3 {
		t.Fatalf("its start is %+v", start.Header)
	}
	w.land(start)
	w.seal(start, true)
	q := w.take().recover()
	q.wants("")
	if s := q.start(); s.Prev != start.Pos() || s.FirstT != 3 {
		t.Fatalf("the next start is %+v", s.Header)
	}
}

// A dead start of an epoch at or below the sealed one is not picked, however new it is among those that are there.
func TestL4_StartsBelowTheSealedEpochAreNotPicked(t *testing.T) {
	w := newWorld(t)
	w.open()
	b := w.take().recover()
	late := b.start()
	c := w.open()
	sealed := c.batch(1)
	w.land(sealed, late)
	w.seal(sealed, true) // takes every key up to 3.1, and with it the late start
	w.land(late)         // which lands again
	p := w.take().recover()
	p.wants("")
	if p.head.Pos != sealed.Pos() {
		t.Fatalf("head %s", p.head.Pos)
	}
}

// The sealed position moves, and objects go, while an owner reads.
func TestL4_TheSealedPositionMovesWhileAnOwnerReads(t *testing.T) {
	for _, c := range []struct {
		name string
		op   mem.Op
		call int
		want string // "": ErrSealed
	}{
		{"before it lists the starts", mem.OpList, 1, "2.1 "},
		{"before it gets the newest start", mem.OpGet, 1, "2.1 "},
		{"before it gets an older start", mem.OpGet, 2, "2.1 "},
		{"before it reads forward", mem.OpRead, 1, ""}, // what it then reads does not link: either answer begins again
		{"before it reads the root again", mem.OpRoot, 1, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			a := w.open()
			w.land(a.batch(1))
			b := w.open()
			w.land(b.batch(1))
			p := w.take()
			start := w.get(log.StartKey(2))
			on(p.l, c.op, c.call, func() { w.seal(start, true) })
			err := p.try(log.Head{})
			if c.want == "" && err != nil {
				wantError(t, err, log.ErrSealed, "recover")
				p.root = w.root()
				p.recover()
			} else {
				w.check(err)
			}
			p.wants("2.1 ")
		})
	}
}

func (w *world) get(k log.Key) *log.Object {
	w.Helper()
	o, err := w.l.Get(w.ctx, w.root().Instance, k)
	w.check(err)
	return o
}

func TestL8_AReaderAtTheSealedPosition(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	sealed := a.batch(1)
	w.land(sealed, a.batch(1))
	w.seal(sealed, true)
	r := w.reader(log.ReaderOptions{})
	wantError(t, r.try(), log.ErrSealed, "a reader without the chunks")
	r = w.reader(log.ReaderOptions{From: w.root().Sealed.Head()})
	r.sync()
	r.wants("1.2 ")
	// Under an epoch without a start it serves up to there.
	p := w.take().recover()
	fresh := w.reader(log.ReaderOptions{From: w.root().Sealed.Head()})
	fresh.sync()
	fresh.wants("")
	if !fresh.status.Waiting {
		t.Fatal("it does not wait")
	}
	w.land(p.start())
	fresh.sync()
	fresh.wants("1.2 2.0 ")
}

// What a reader has not read is sealed and deleted: it must not take the rest for the whole.
func TestL8_TheSealedPositionPassesAReader(t *testing.T) {
	for _, op := range []mem.Op{mem.OpRoot, mem.OpRead} {
		w := newWorld(t)
		a := w.open()
		w.land(a.batch(1))
		r := w.reader(log.ReaderOptions{})
		r.sync()
		r.wants("1.0 1.1 ")
		last := a.batch(1)
		w.land(last)
		a.ack()
		on(r.l, op, 1, func() { w.seal(last, true) })
		wantError(t, r.try(), log.ErrSealed, "sync")
		r.wants("1.0 1.1 ")
	}
	// And what it has read just now is not taken back.
	w := newWorld(t)
	a := w.open()
	w.land(a.batch(1))
	r := w.reader(log.ReaderOptions{})
	last := a.batch(1)
	w.land(last)
	on(r.l, mem.OpRoot, 2, func() { w.seal(last, true) })
	r.sync()
	r.wants("1.0 1.1 1.2 ")
}

// The claim of a sealed epoch's start may not be known any more; damage behind the position is noticed all the same.
func TestL6_DamageBehindTheSealedPosition(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	sealed, lost := a.batch(1), a.batch(1)
	w.land(sealed, lost)
	a.ack()
	w.land(a.batch(1))
	w.seal(sealed, true)
	w.lose(lost)
	wantError(t, w.reader(log.ReaderOptions{From: w.root().Sealed.Head()}).try(), log.ErrCorrupt, "sync")
	wantError(t, w.take().try(log.Head{}), log.ErrCorrupt, "recover")
}

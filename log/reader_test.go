package log_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/mem"
)

func TestL8_ReaderFollows(t *testing.T) {
	w := newWorld(t)
	r := w.reader(log.ReaderOptions{})
	r.sync() // epoch 0: nobody has owned it
	r.wants("")
	if r.status.Waiting {
		t.Fatal("it waits for nobody")
	}
	a := w.open()
	r.sync()
	r.wants("1.0 ")
	w.land(a.batch(1), a.batch(2))
	r.sync()
	r.sync()
	r.wants("1.0 1.1 1.2 ")
	b := w.open()
	w.land(b.batch(1))
	r.sync()
	r.wants("1.0 1.1 1.2 2.0 2.1 ")
	from := w.reader(log.ReaderOptions{From: log.HeadOf(r.got[2])})
	from.sync()
	from.wants("2.0 2.1 ")
	if h := r.r.Head(); h.LastT != 4 || h.Pos != b.head.Pos || r.status.Objects != 2 || r.status.Root.Epoch != 2 {
		t.Fatalf("head %+v, status %+v", h, r.status)
	}
}

// While the root's epoch has no start, a reader keeps what it had proven; what landed meanwhile may be of no later log.
func TestL5_ReaderWaitsForTheStartOfTheRootsEpoch(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	w.land(a.batch(1))
	r := w.reader(log.ReaderOptions{})
	r.sync()
	b := w.take().recover()
	w.land(a.batch(1))
	r.sync()
	r.wants("1.0 1.1 ")
	if !r.status.Waiting {
		t.Fatal("it does not wait")
	}
	fresh := w.reader(log.ReaderOptions{})
	fresh.sync()
	fresh.wants("")
	w.land(b.start())
	for _, x := range []*reader{r, fresh} {
		x.sync()
		x.wants("1.0 1.1 2.0 ")
	}
}

// The root moves on while the reader reads: what it read may be of a branch that no later owner will adopt.
func TestL8_NothingIsTrustedBeforeTheRootIsReadAgain(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	zombie := a.batch(1)
	r := w.reader(log.ReaderOptions{})
	var b *owner
	on(r.l, mem.OpRead, 1, func() {
		b = w.take().recover() // builds on 1.0
		w.land(zombie)         // and only then 1.1 lands, and the reader reads it
	})
	r.sync()
	r.wants("")
	w.land(b.start(), b.batch(1))
	r.sync()
	r.wants("1.0 2.0 2.1 ")
}

// The same for what it read of epochs older than the one it anchored at.
func TestL8_OlderEpochsAreTrustedNoEarlier(t *testing.T) {
	w := newWorld(t)
	w.open()
	b := w.take().recover()
	late := b.start()
	c := w.take()
	c.head = b.head // it read after b's start had landed
	start3 := c.start()
	r := w.reader(log.ReaderOptions{})
	var d *owner
	on(r.l, mem.OpGet, 1, func() { // the reader has read the root of epoch 3
		d = w.take().recover() // builds on 1.0
		w.land(late, start3)
	})
	r.sync()
	r.wants("")
	w.land(d.start())
	r.sync()
	r.wants("1.0 4.0 ")
}

// A reader does not wait for a start that was there.
func TestL6_AReaderDoesNotWaitForALostStart(t *testing.T) {
	w := newWorld(t)
	w.open()
	b := w.take().recover()
	start := b.start()
	w.land(start)
	b.ack()
	w.land(b.batch(1))
	w.lose(start)
	wantError(t, w.reader(log.ReaderOptions{}).try(), log.ErrCorrupt, "sync")
	// It looks for the start once more: here it is only late.
	r := w.reader(log.ReaderOptions{})
	on(r.l, mem.OpList, 1, func() { w.land(start) })
	r.sync()
	r.wants("1.0 2.0 2.1 ")
}

// While it waits for one epoch it sees a later one: the root went back.
func TestL11_AReaderThatWaitsSeesALaterEpoch(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.take()
	early := w.root()
	w.open()
	w.rollRootBack(early)
	wantError(t, w.reader(log.ReaderOptions{}).try(), log.ErrRolledBack, "sync")
	// Only an owner that came meanwhile is no step back.
	w = newWorld(t)
	w.open()
	w.take()
	r := w.reader(log.ReaderOptions{})
	on(r.l, mem.OpList, 1, func() { w.open() })
	r.sync()
	r.wants("1.0 3.0 ")
}

// A start of an older epoch is no anchor, be it the newest that is there.
func TestL5_ReaderAnchorsAtTheRootsEpochAlone(t *testing.T) {
	w := newWorld(t)
	w.open()
	b := w.take().recover()
	c := w.take().recover() // builds on 1.0
	w.land(b.start())       // late
	r := w.reader(log.ReaderOptions{})
	r.sync()
	r.wants("")
	w.land(c.start())
	r.sync()
	r.wants("1.0 3.0 ")
}

func TestL8_ReaderHandsOutInSteps(t *testing.T) {
	w := newWorld(t)
	want := ""
	for range 4 {
		p := w.open()
		want += fmt.Sprintf("%d.0 ", p.root.Epoch)
		for i := range 10 {
			w.land(p.batch(1))
			want += fmt.Sprintf("%d.%d ", p.root.Epoch, i+1)
		}
		w.skip(1)
	}
	w.open()
	want += "9.0 "
	r := w.reader(log.ReaderOptions{Buffer: 500})
	roots := 0
	r.l.SetHook(func(c mem.Call) mem.Fault {
		if c.Op == mem.OpRoot {
			roots++
		}
		return mem.Fault{}
	})
	r.sync()
	r.wants(want)
	if roots < 10 {
		t.Fatalf("the root was read %d times", roots)
	}
	// An owner that comes in between ends a step, not the reading.
	r = w.reader(log.ReaderOptions{Buffer: 500})
	on(r.l, mem.OpRoot, 5, func() { w.open() })
	r.sync()
	r.wants(want + "10.0 ")
}

func TestL8_YieldEndsTheReading(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	w.land(a.batch(1), a.batch(1))
	r := w.reader(log.ReaderOptions{})
	stop := fmt.Errorf("enough: %w", log.ErrRolledBack) // whatever it wraps
	n := 0
	_, err := r.r.Sync(w.ctx, func(o *log.Object) error {
		if n++; n == 2 {
			if h := r.r.Head(); h.Pos != w.get(log.StartKey(1)).Pos() {
				t.Errorf("the head, meanwhile, is %s", h.Pos)
			}
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) {
		t.Fatal(err)
	}
	r.sync()
	r.wants("1.1 1.2 ")
}

func TestL8_ReaderOfADeletedDatabase(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	w.land(a.batch(1))
	r := w.reader(log.ReaderOptions{})
	r.sync()
	old := w.root()
	tomb := old.Tombstone()
	w.check(w.l.CompareAndSwap(w.ctx, old, tomb))
	wantError(t, r.try(), log.ErrDeleted, "sync")
	w.check(w.l.CompareAndSwap(w.ctx, tomb, tomb.Recreate()))
	wantError(t, r.try(), log.ErrDeleted, "sync of another life")
	// Whoever holds something of the first life already is told so at once.
	w.open()
	wantError(t, w.reader(log.ReaderOptions{Instance: old.Instance}).try(), log.ErrDeleted, "sync for the first life")
	w.check(w.reader(log.ReaderOptions{Instance: w.root().Instance}).try())
	none := log.NewReader(w.server.Open("other", mem.Options{}), log.ReaderOptions{})
	_, err := none.Sync(w.ctx, nil)
	wantError(t, err, log.ErrNoRoot, "sync of nothing")
}

func TestL11_WitnessNeverGoesBack(t *testing.T) {
	w := newWorld(t)
	early := w.l.Backup()
	w.open()
	restore := w.l.Backup()
	other := w.l.Backup()
	w.open()
	witness := new(log.Witness)
	_, err := witness.Root(w.ctx, w.l)
	w.check(err)
	restore()
	_, err = witness.Root(w.ctx, w.l)
	wantError(t, err, log.ErrRolledBack, "an older root")
	w.open()
	_, err = witness.Root(w.ctx, w.l)
	wantError(t, err, log.ErrRolledBack, "the same epoch under another claim")
	r := w.root()
	next := r.Next()
	w.check(w.l.CompareAndSwap(w.ctx, r, next))
	_, err = witness.Root(w.ctx, w.l)
	wantError(t, err, log.ErrRolledBack, "the same epoch under another claim, at a later version")
	other()
	early()
	empty := w.server.Open("empty", mem.Options{})
	_, err = witness.Root(w.ctx, empty)
	wantError(t, err, log.ErrRolledBack, "no root")

	// A renewed lease is lost: nothing but the counter tells.
	w = newWorld(t)
	w.open()
	restore = w.l.Backup()
	renew := func(counter uint64) {
		r := w.root()
		next := r.Next()
		next.LeaseCounter = counter
		w.check(w.l.CompareAndSwap(w.ctx, r, next))
	}
	renew(1)
	witness = new(log.Witness)
	_, err = witness.Root(w.ctx, w.l)
	w.check(err)
	restore()
	renew(2)
	_, err = witness.Root(w.ctx, w.l)
	wantError(t, err, log.ErrRolledBack, "the same version with other fields")

	w = newWorld(t)
	reader := w.reader(log.ReaderOptions{})
	restore = w.l.Backup()
	a := w.open()
	w.land(a.batch(1))
	reader.sync()
	restore()
	wantError(t, reader.try(), log.ErrRolledBack, "a reader")
	w.open()
	wantError(t, reader.try(), log.ErrRolledBack, "a reader, of another owner's epoch 1")
}

// A read that began before a newer root was seen may end after it: that is no step back.
func TestL11_WitnessJudgesByWhatWasSeenWhenTheReadBegan(t *testing.T) {
	w := newWorld(t)
	var witness log.Witness
	slow := w.handle()
	on(slow, mem.OpRoot, 1, func() {})
	held := make(chan struct{})
	begun := make(chan struct{})
	result := make(chan error)
	go func() {
		l := &slowRoot{Log: slow, read: begun, release: held}
		_, err := witness.Root(w.ctx, l)
		result <- err
	}()
	<-begun
	w.open()
	_, err := witness.Root(w.ctx, w.l)
	w.check(err)
	close(held)
	w.check(<-result)
	_, err = witness.Root(w.ctx, w.l)
	w.check(err)
}

func TestL11_RootToOpen(t *testing.T) {
	w := newWorld(t)
	var witness log.Witness
	r, err := witness.RootToOpen(w.ctx, w.l)
	w.check(err)
	if r.Epoch != 0 {
		t.Fatalf("%+v", r)
	}
	// An owner comes between the look at the root and the look at the log: no step back.
	on(w.l, mem.OpList, 1, func() {
		l := w.handle()
		old, err := l.Root(w.ctx)
		w.check(err)
		p := &owner{world: w, l: l, root: old.Acquire(log.NewID(), "test")}
		w.check(l.CompareAndSwap(w.ctx, old, p.root))
		w.check(l.Append(w.ctx, old.Instance, p.start()))
	})
	r, err = witness.RootToOpen(w.ctx, w.l)
	w.check(err)
	if r.Epoch != 1 {
		t.Fatalf("%+v", r)
	}
	w.check(w.l.CompareAndSwap(w.ctx, r, r.Tombstone()))
	_, err = witness.RootToOpen(w.ctx, w.l)
	wantError(t, err, log.ErrDeleted, "open")
	_, err = new(log.Witness).RootToOpen(w.ctx, w.server.Open("none", mem.Options{}))
	wantError(t, err, log.ErrNoRoot, "open")
}

// The database is deleted and made anew while an opener looks: the epochs of two lives are not compared.
func TestL11_RootToOpenBetweenTwoLives(t *testing.T) {
	w := newWorld(t)
	w.open()
	l := w.handle()
	n := 0
	on(l, mem.OpList, 1, func() {
		w.open() // so that the listing shows an epoch above the root's
		on(l, mem.OpRoot, 1, func() {
			n++
			w.check(log.Delete(w.ctx, w.l, log.DeleteOptions{}))
			_, err := log.Create(w.ctx, w.l)
			w.check(err)
		})
	})
	r, err := new(log.Witness).RootToOpen(w.ctx, l)
	w.check(err)
	if r.Epoch != 0 || n != 1 {
		t.Fatalf("%+v", r)
	}
}

// A tombstone that gave way to an older state, which then lived on.
func TestL11_ADeletedDatabaseComesBack(t *testing.T) {
	w := newWorld(t)
	w.open()
	restore := w.l.Backup()
	w.check(log.Delete(w.ctx, w.l, log.DeleteOptions{}))
	var witness log.Witness
	_, err := witness.Root(w.ctx, w.l)
	w.check(err)
	restore()
	for range 3 {
		_, err = witness.Root(w.ctx, w.l)
		wantError(t, err, log.ErrRolledBack, "the root of a database that was deleted")
		w.take()
	}
}

// Leases are renewed while an owner recovers and readers read: only the root's version and lease counter change, and nobody begins
// again for that.
func TestL8_RenewalsDisturbNobody(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	for range 20 {
		w.land(a.batch(1))
	}
	w.open()
	renew := func(l *mem.Log, calls *int) {
		l.SetHook(func(mem.Call) mem.Fault {
			*calls++
			w.lease(time.Second)
			return mem.Fault{}
		})
	}
	quiet := func(l *mem.Log, calls *int) {
		l.SetHook(func(mem.Call) mem.Fault { *calls++; return mem.Fault{} })
	}
	// As many calls as in quiet, and the same answers.
	p := w.take()
	var calls [2]int
	for i, hook := range []func(*mem.Log, *int){quiet, renew} {
		hook(p.l, &calls[i])
		w.check(p.try(log.Head{}))
		if len(p.read) != 22 {
			t.Fatalf("found %s", p.show(p.read))
		}
	}
	if calls[0] != calls[1] {
		t.Errorf("a recovery takes %d calls, and %d while the lease is renewed", calls[0], calls[1])
	}
	w.land(p.start())
	calls = [2]int{}
	for i, hook := range []func(*mem.Log, *int){quiet, renew} {
		r := w.reader(log.ReaderOptions{Buffer: 1000})
		hook(r.l, &calls[i])
		r.sync()
		r.sync()
		if len(r.got) != 23 {
			t.Fatalf("read %s", r.show(r.got))
		}
	}
	if calls[0] != calls[1] {
		t.Errorf("two Syncs take %d calls, and %d while the lease is renewed", calls[0], calls[1])
	}
	// What is missing is missing, however often the lease is renewed meanwhile.
	lost := w.get(log.Key{Epoch: 1, FirstT: 5})
	w.lose(lost)
	n := 0
	q := w.take()
	renew(q.l, &n)
	wantError(t, q.try(log.Head{}), log.ErrCorrupt, "recover")
	q.head = p.head
	w.land(q.start())
	r := w.reader(log.ReaderOptions{})
	renew(r.l, &n)
	wantError(t, r.try(), log.ErrCorrupt, "sync")
}

func BenchmarkRecover(b *testing.B) {
	for _, n := range []int{1, 256} {
		b.Run(fmt.Sprintf("batch=%d", n), func(b *testing.B) {
			w := newWorld(b)
			a := w.open()
			const objects = 4000
			for range objects {
				a.fenced = a.head.LastT
				w.land(a.batch(n))
			}
			p := w.take()
			b.ReportAllocs()
			for b.Loop() {
				_, err := log.Recover(w.ctx, p.l, p.root, log.Head{}, func(*log.Object) error { return nil })
				w.check(err)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/objects, "ns/object")
		})
	}
}

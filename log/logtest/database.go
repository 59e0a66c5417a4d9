package logtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/log"
)

var databaseCases = []testCase{
	{"Create_OneOfSixteenWins", createRace},
	{"Create_OverATombstone", createOverTombstone},
	{"Delete_LeavesATombstone", deleteDatabase},
	{"Delete_HeedsItsOwner", deleteOwned},
	{"Delete_GoesOnWhereItStopped", deleteAgain},
	{"Copy_IsTheSameLog", copied},
	{"Copy_L8_BesideAnOwner", copyBesideOwner},
	{"Copy_InterruptedLeavesNoDatabase", copyInterrupted},
	{"Open_L11_ARootOfAnOlderState", olderRoot},
	{"Open_L11_ObjectsAboveTheRootsEpoch", objectsAbove},
}

// elsewhere is another empty place of the same store.
func (s *suite) elsewhere() *suite {
	s.Helper()
	return &suite{T: s.T, b: s.b, open: s.b.New(s.T), ctx: s.ctx}
}

func createRace(s *suite) {
	handles := make([]log.Log, 16)
	for i := range handles {
		handles[i] = s.handle()
	}
	roots := make([]*log.Root, len(handles))
	errs := inParallel(len(handles), func(i int) (err error) { roots[i], err = log.Create(s.ctx, handles[i]); return err })
	won := -1
	for i, err := range errs {
		switch {
		case err != nil:
			s.wants(err, log.ErrExists, "create behind another")
		case won >= 0:
			s.Fatalf("%d and %d both created the database", won, i)
		default:
			won = i
		}
	}
	if won < 0 {
		s.Fatalf("nobody created the database: %v", errors.Join(errs...))
	}
	got, err := s.handle().Root(s.ctx)
	s.must(err, "read the root")
	if *got != *roots[won] || got.Epoch != 0 || got.Version != 1 {
		s.Fatalf("the root is %+v, its creator wrote %+v", got, roots[won])
	}
	_, err = log.Create(s.ctx, handles[0])
	s.wants(err, log.ErrExists, "create again")
	if o := s.own(handles[1]); o.root.Epoch != 1 || len(o.chain) != 1 {
		s.Fatalf("the new database begins with %+v", o.root)
	}
}

// createOverTombstone: a deletion stopped behind its tombstone; the next database of that name is another, and nothing is left of the first.
func createOverTombstone(s *suite) {
	l := s.handle()
	o := s.own(l)
	o.append(o.batch(1))
	s.must(l.PutBlob(s.ctx, o.root.Instance, "0-blob", []byte("x")), "put a blob")
	tomb := o.root.Tombstone()
	s.must(l.CompareAndSwap(s.ctx, o.root, tomb), "delete")
	o.release()
	root, err := log.Create(s.ctx, s.handle())
	s.must(err, "create over a tombstone")
	if root.Instance == tomb.Instance || root.Lineage == tomb.Lineage || root.Epoch != 0 || root.Version != tomb.Version+1 {
		s.Fatalf("created %+v over %+v", root, tomb)
	}
	s.nothingOf(tomb.Instance)
	if p := s.own(s.handle()); p.root.Instance != root.Instance || p.root.Epoch != 1 || len(p.chain) != 1 {
		s.Fatalf("the new database begins with %+v and %d objects", p.root, len(p.chain))
	}
}

// nothingOf fails if objects or the blob "0-blob" of an instance are there.
func (s *suite) nothingOf(inst log.ID) {
	s.Helper()
	l := s.handle()
	if keys := s.keys(s.ctx, l, inst, log.Key{}); len(keys) > 0 {
		s.Fatalf("%v are still there", keys)
	}
	_, err := l.GetBlob(s.ctx, inst, "0-blob")
	s.wants(err, log.ErrNotFound, "get a blob of what was deleted")
}

func deleteDatabase(s *suite) {
	l := s.handle()
	s.wants(log.Delete(s.ctx, l, log.DeleteOptions{}), log.ErrNoRoot, "delete nothing")
	o := s.own(l)
	o.append(o.batches(3)...)
	s.must(l.PutBlob(s.ctx, o.root.Instance, "0-blob", []byte("x")), "put a blob")
	reader := log.NewReader(s.handle(), log.ReaderOptions{})
	_, err := reader.Sync(s.ctx, func(*log.Object) error { return nil })
	s.must(err, "read")
	o.release()
	for range 2 {
		s.must(log.Delete(s.ctx, s.handle(), log.DeleteOptions{}), "delete")
		tomb, err := l.Root(s.ctx)
		s.must(err, "a tombstone is a root like any")
		if want := o.root.Tombstone(); *tomb != *want {
			s.Fatalf("the root is %+v, want %+v", tomb, want)
		}
		s.nothingOf(o.root.Instance)
	}
	s.wants(l.Verify(s.ctx, o.check()), log.ErrNotOwner, "verify against a tombstone")
	_, err = reader.Sync(s.ctx, nil)
	s.wants(err, log.ErrDeleted, "read what was deleted")
	_, err = new(log.Witness).RootToOpen(s.ctx, l)
	s.wants(err, log.ErrDeleted, "open what was deleted")
}

func deleteOwned(s *suite) {
	l := s.handle()
	o := s.own(l)
	o.append(o.batch(1))
	o.swap(func(r *log.Root) { r.Lease = time.Hour })
	kept := o.root
	for _, force := range []bool{false, true} {
		if force && !s.b.OneWriter {
			break // it would be deleted
		}
		s.wants(log.Delete(s.ctx, s.handle(), log.DeleteOptions{Force: force}), log.ErrOwned, "delete what is owned")
	}
	got, err := l.Root(s.ctx)
	s.must(err, "read the root")
	if *got != *kept || len(s.keys(s.ctx, l, kept.Instance, log.Key{})) != 2 {
		s.Fatalf("what was owned is %+v", got)
	}
	if s.b.OneWriter {
		o.release()
		s.must(log.Delete(s.ctx, s.handle(), log.DeleteOptions{}), "delete what nobody holds")
		return
	}
	o.swap(func(r *log.Root) { r.Lease = 0 })
	s.must(log.Delete(s.ctx, s.handle(), log.DeleteOptions{}), "delete what was released")
	to := s.elsewhere()
	o = to.own(to.handle())
	o.swap(func(r *log.Root) { r.Lease = time.Hour })
	s.must(log.Delete(s.ctx, to.handle(), log.DeleteOptions{Force: true}), "delete by force")
	s.wants(o.Verify(s.ctx, o.check()), log.ErrNotOwner, "verify, deposed")
}

// deleteAgain: what a late write of the deposed owner leaves behind, or a deletion that stopped, goes when Delete is called again.
func deleteAgain(s *suite) {
	l := s.handle()
	o := s.own(l)
	o.append(o.batch(1))
	s.must(l.CompareAndSwap(s.ctx, o.root, o.root.Tombstone()), "write the tombstone")
	s.must(log.Delete(s.ctx, s.handle(), log.DeleteOptions{}), "delete what is a tombstone")
	s.nothingOf(o.root.Instance)
	late := o.batch(1)
	if err := l.Append(s.ctx, o.root.Instance, late); err == nil {
		s.must(l.PutBlob(s.ctx, o.root.Instance, "0-blob", []byte("late")), "put a blob, late")
		s.must(log.Delete(s.ctx, s.handle(), log.DeleteOptions{}), "delete what landed late")
	}
	s.nothingOf(o.root.Instance)
}

// copied: a copy holds the same objects, byte for byte, under a root with an instance of its own, and another owner goes on from there.
func copied(s *suite) {
	src := s.handle()
	for range 3 {
		o := s.own(src)
		o.append(o.batch(2), o.batch(1))
		o.release()
	}
	to := s.elsewhere()
	dst := to.handle()
	root, err := log.Copy(s.ctx, src, dst, log.CopyOptions{})
	s.must(err, "copy")
	s.isCopy(to, root, src)
	_, err = log.Copy(s.ctx, src, s.handle(), log.CopyOptions{})
	s.wants(err, log.ErrExists, "copy onto a database")
}

// isCopy fails unless to holds, under root, what src does, and an owner can go on with it.
func (s *suite) isCopy(to *suite, root *log.Root, src log.Log) {
	s.Helper()
	read := func(l log.Log) (chain []*log.Object, st log.Status) {
		s.Helper()
		r, err := l.Root(s.ctx)
		s.must(err, "read the root")
		st, err = log.NewReader(l, log.ReaderOptions{From: r.Sealed.Head()}).Sync(s.ctx, func(o *log.Object) error { chain = append(chain, o); return nil })
		s.must(err, "read the log")
		if st.Waiting {
			s.Fatalf("a reader waits for the owner of %+v", st.Root)
		}
		return chain, st
	}
	want, from := read(src)
	got, st := read(to.handle())
	switch {
	case *st.Root != *root:
		s.Fatalf("the copy's root is %+v, and its maker wrote %+v", st.Root, root)
	case root.Lineage != from.Root.Lineage || root.Instance == from.Root.Instance || root.Epoch <= from.Root.Epoch || root.Lease != 0:
		s.Fatalf("the copy's root is %+v, the source's %+v", root, from.Root)
	case root.Sealed != from.Root.Sealed || root.Chunks != from.Root.Chunks || root.Snapshot != from.Root.Snapshot || root.Collect != from.Root.Collect:
		s.Fatalf("the copy's root is %+v, the source's %+v", root, from.Root)
	case len(got) != len(want)+1 || !slices.EqualFunc(got[:len(want)], want, sameObject):
		s.Fatalf("the copy is %v, want %v and a start", keysOf(got), keysOf(want))
	}
	for i, o := range want {
		a, err := o.AppendTxs(nil)
		s.must(err, "decode the source")
		b, err := got[i].AppendTxs(nil)
		s.must(err, "decode the copy")
		if !slices.Equal(o.Bytes(), got[i].Bytes()) || len(a) != len(b) || len(a) != int(o.Count) {
			s.Fatalf("%s is not the same", o.Key())
		}
	}
	o := to.own(to.handle())
	if !slices.EqualFunc(o.chain[:len(o.chain)-1], got, sameObject) || o.root.Epoch != root.Epoch+1 {
		s.Fatalf("the copy's owner finds %v, want %v", keysOf(o.chain), keysOf(got))
	}
	next := o.batch(2)
	o.append(next)
	s.must(o.Verify(s.ctx, o.check(next.Key())), "verify in the copy")
	o.release()
	if again, _ := read(to.handle()); !sameObject(again[len(again)-1], next) {
		s.Fatalf("the copy goes on with %v", keysOf(again))
	}
	if again, _ := read(src); !slices.EqualFunc(again, want, sameObject) {
		s.Fatalf("the source became %v", keysOf(again))
	}
}

// copyBesideOwner copies while an owner appends: a prefix of its log, with everything that it had acknowledged before.
func copyBesideOwner(s *suite) {
	o := s.own(s.handle())
	o.append(o.batches(20)...)
	s.must(o.Verify(s.ctx, o.check()), "verify")
	acked := o.head
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	var wg sync.WaitGroup
	objs := o.batches(2000)
	wg.Go(func() {
		for _, obj := range objs {
			if ctx.Err() != nil {
				return
			}
			if err := o.Append(s.ctx, o.root.Instance, obj); err != nil {
				s.Errorf("append: %v", err)
				return
			}
		}
	})
	to := s.elsewhere()
	_, err := log.Copy(s.ctx, s.handle(), to.handle(), log.CopyOptions{})
	cancel()
	wg.Wait()
	s.must(err, "copy")
	var source, copied []*log.Object
	_, err = log.NewReader(s.handle(), log.ReaderOptions{}).Sync(s.ctx, func(o *log.Object) error { source = append(source, o); return nil })
	s.must(err, "read the source")
	_, err = log.NewReader(to.handle(), log.ReaderOptions{}).Sync(s.ctx, func(o *log.Object) error { copied = append(copied, o); return nil })
	s.must(err, "read the copy")
	n := len(copied) - 1
	if n > len(source) || !slices.EqualFunc(copied[:n], source[:n], sameObject) || copied[n-1].LastT() < acked.LastT {
		s.Fatalf("a copy of %d objects, to t %d, is no prefix of %d that reaches t %d", n, copied[n-1].LastT(), len(source), acked.LastT)
	}
}

// copyInterrupted: whatever a copy had written when its context ended, there is no database; and the next makes one.
func copyInterrupted(s *suite) {
	src := s.handle()
	for range 2 {
		o := s.own(src)
		o.append(o.batches(3)...)
		o.release()
	}
	to := s.elsewhere()
	for _, after := range []int{1, 4, 8} {
		ctx, cancel := context.WithCancel(s.ctx)
		_, err := log.Copy(ctx, src, to.handle(), log.CopyOptions{Progress: func(objects int, _ int64) {
			if objects == after {
				cancel()
			}
		}})
		cancel()
		s.wants(err, context.Canceled, "copy until object %d", after)
		_, err = to.handle().Root(s.ctx)
		s.wants(err, log.ErrNoRoot, "the root of a copy that was interrupted")
	}
	root, err := log.Copy(s.ctx, src, to.handle(), log.CopyOptions{})
	s.must(err, "copy")
	s.isCopy(to, root, src)
}

// olderRoot puts back what the root was an epoch earlier, as one who restores a backup of it does (though a version number cannot go back
// through a swap): whoever reads or opens the database notices, and an opener leaves the root alone.
func olderRoot(s *suite) {
	a := s.own(s.handle())
	a.append(a.batch(1))
	older := a.root
	a.release()
	b := s.own(s.handle())
	b.append(b.batch(1))
	running := log.NewReader(s.handle(), log.ReaderOptions{})
	_, err := running.Sync(s.ctx, func(*log.Object) error { return nil })
	s.must(err, "read")
	b.release()
	b.swap(func(r *log.Root) { r.Epoch, r.Claim = older.Epoch, older.Claim })
	l := s.handle()
	_, err = running.Sync(s.ctx, func(*log.Object) error { return nil })
	s.wants(err, log.ErrRolledBack, "read on")
	_, err = log.NewReader(l, log.ReaderOptions{}).Sync(s.ctx, func(*log.Object) error { return nil })
	s.wants(err, log.ErrRolledBack, "read from the beginning")
	_, err = new(log.Witness).RootToOpen(s.ctx, l)
	s.wants(err, log.ErrRolledBack, "open")
	_, err = log.Copy(s.ctx, l, s.elsewhere().handle(), log.CopyOptions{})
	s.wants(err, log.ErrRolledBack, "copy")
	now, err := l.Root(s.ctx)
	s.must(err, "read the root")
	if *now != *b.root {
		s.Fatalf("the root was not left alone: %+v", now)
	}
}

// objectsAbove: an object of an epoch that the root has not reached, and be it dead, is refused by an opener before its CAS; who takes the epoch
// all the same finds it.
func objectsAbove(s *suite) {
	o := s.own(s.handle())
	o.append(o.batch(1))
	root, err := new(log.Witness).RootToOpen(s.ctx, o)
	s.must(err, "open")
	next := o.root.Acquire(log.NewID(), "nobody")
	above, err := log.Encode(log.Header{Lineage: next.Lineage, Claim: next.Claim, Epoch: next.Epoch, Kind: log.KindStart,
		FirstT: o.head.LastT + 1, Prev: o.head.Pos}, nil, false)
	s.must(err, "encode")
	o.append(above)
	for _, l := range []log.Log{o, s.handle()} {
		_, err = new(log.Witness).RootToOpen(s.ctx, l)
		s.wants(err, log.ErrRolledBack, "open")
	}
	now, err := o.Root(s.ctx)
	s.must(err, "read the root")
	if *now != *root {
		s.Fatalf("the root was not left alone: %+v", now)
	}
	o.release()
	l := s.handle()
	_, err = s.takeOver(l)
	s.wants(err, log.ErrRolledBack, "recover")
}

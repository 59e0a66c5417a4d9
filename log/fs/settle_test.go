package fs_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/fs"
	"github.com/steledb/stele/log/fs/crashfs"
)

// watched is a process whose reads are counted.
type watched struct {
	*crashfs.Process
	reads  int
	before func(n int) // each read, from 0
}

type watchedFile struct {
	fs.File
	p *watched
}

func (p *watched) Open(name string, flag int) (fs.File, error) {
	f, err := p.Process.Open(name, flag)
	return watchedFile{f, p}, err
}

func (f watchedFile) ReadAt(b []byte, off int64) (int, error) {
	f.p.reads++
	f.p.before(f.p.reads - 1)
	return f.File.ReadAt(b, off)
}

// evict lets the page cache drop what is clean, where choose picks 1 of 2.
func evict(m *crashfs.Machine, choose crashfs.Choose) { m.Process().Kill(choose) }

// failedSync is a log whose owner has died because a sync failed, with n objects in that flush: all of them are in the page cache, and choose
// decides what is on the disk.
func failedSync(mut fs.Mutation, n int, choose crashfs.Choose) (*world, *owner, error) {
	w := newWorld(fs.Options{Prealloc: 1 << 10}, mut)
	p := w.m.Process()
	l, err := w.open(p)
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	o, err := own(ctx, l)
	if err != nil {
		return nil, nil, err
	}
	w.acked[o.head.Key], w.root = o.head.Hash, o.root.Version
	for range 3 {
		if err := o.commit(ctx, 700); err != nil {
			return nil, nil, err
		}
		w.acked[o.head.Key], w.acks = o.head.Hash, o.lastT
	}
	// The first flush holds one object, the next one all that came meanwhile.
	last := len(w.m.Calls())
	objs := make([]*log.Object, n+1)
	for i := range objs {
		if objs[i], err = o.batch(700); err != nil {
			return nil, nil, err
		}
	}
	results := make(chan error, n)
	w.m.Hook(func(c crashfs.Call, _ string) {
		if c.Op != "fdatasync" || len(w.m.Calls()) < last {
			return
		}
		w.m.Hook(nil)
		for i, obj := range objs[1:] {
			go func() { results <- l.Append(ctx, o.root.Instance, obj) }()
			for l.Queued(o.root.Instance) <= i {
				runtime.Gosched()
			}
		}
		w.m.Hook(func(c crashfs.Call, _ string) {
			if c.Op == "write" && c.Len > 80 {
				w.m.Hook(nil)
				w.m.FailAt(len(w.m.Calls())+1, syscall.EIO, choose)
			}
		})
	})
	if err := l.Append(ctx, o.root.Instance, objs[0]); err != nil {
		return nil, nil, err
	}
	w.acked[objs[0].Key()], w.acks = objs[0].Hash(), objs[0].LastT()
	for range n {
		if err := <-results; !errors.Is(err, syscall.EIO) {
			return nil, nil, fmt.Errorf("a failed sync: %w", err)
		}
	}
	p.Kill(nil)
	return w, o, nil
}

// vanishing lets the page cache drop, right before each of a later owner's reads in turn, what a failed sync has left in it.
func vanishing(logf func(string, ...any), mut fs.Mutation, subsets int) error {
	reads := 0
	for n := range subsets {
		for k := 0; ; k++ {
			w, _, err := failedSync(mut, 3, crashfs.Random(uint64(n)))
			if err != nil {
				return err
			}
			drop := crashfs.Random(uint64(n*1000 + k))
			if n%2 == 0 {
				drop = newest
			}
			p := &watched{Process: w.m.Process()}
			p.before = func(i int) {
				if i == k {
					evict(w.m, drop)
				}
			}
			err, failure := w.session(p, 2, true)
			if err = errors.Join(err, failure); err == nil {
				err, failure = w.session(w.m.Process(), 2, true)
				err = errors.Join(err, failure)
			}
			if err == nil {
				w = w.after(crashfs.Random(uint64(n + k)))
				err, failure = w.session(w.m.Process(), 2, true)
				err = errors.Join(err, failure)
			}
			if err != nil {
				return fmt.Errorf("subset %d, dropped at read %d: %w", n, k, err)
			}
			if p.reads <= k {
				break
			}
			reads++
		}
	}
	logf("%d reads", reads)
	return nil
}

func TestL10_ThePageCacheDropsWhatAFailedSyncLeft(t *testing.T) {
	if err := vanishing(t.Logf, 0, 12); err != nil {
		t.Fatal(err)
	}
}

// What a mark covers is not torn, whenever it is found damaged; nor is what an owner was shown above the last mark, which is as durable.
func TestL10_WhatWasListedIsNotTorn(t *testing.T) {
	w, o, err := failedSync(0, 3, newest)
	if err != nil {
		t.Fatal(err)
	}
	writes := logWrites(w.m)
	// start, mark, 1, mark, 2, mark, 3, mark, 4, mark, 5 to 7
	if len(writes) != 11 {
		t.Fatalf("%d writes", len(writes))
	}
	path := fmt.Sprintf("/data/store/main/%s/00000001-0000000000000001.log", o.root.Instance)
	for what, at := range map[string]int64{"below a mark": writes[8].Off, "settled": writes[10].Off} {
		m := w.m.Crash(newest)
		l, err := fs.Open(ctx, fs.Options{Dir: "/data/store", FS: m.Process()})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		a, err := acquire(ctx, l)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, err := range l.List(ctx, a.root.Instance, log.Key{}) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != 8 {
			t.Fatalf("%d objects", n)
		}
		m.Flip(path, at+200)
		if err := a.recover(ctx); !errors.Is(err, log.ErrCorrupt) || !strings.Contains(err.Error(), fmt.Sprintf("offset %d", at)) {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// While an owner settles what it found, a caller whose context ends does not wait, and the lock is not given back.
func TestLock_IsKeptWhileSettling(t *testing.T) {
	w, o, err := failedSync(0, 1, newest)
	if err != nil {
		t.Fatal(err)
	}
	l, err := w.open(w.m.Process())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	unlock, err := l.Lock(ctx, false)
	if err != nil {
		t.Fatal(err)
	}
	other, err := w.open(w.m.Process())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	syncing, goOn := make(chan struct{}), make(chan struct{})
	resume := sync.OnceFunc(func() { close(goOn) })
	defer resume()
	w.m.Hook(func(c crashfs.Call, path string) {
		if c.Op == "fdatasync" && strings.HasSuffix(path, ".log") {
			w.m.Hook(nil)
			close(syncing)
			<-goOn
		}
	})
	ending, cancel := context.WithCancel(ctx)
	go func() {
		<-syncing
		cancel()
	}()
	if _, err := l.Get(ending, o.root.Instance, o.head.Key); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	unlocked := make(chan error, 1)
	go func() { unlocked <- unlock() }()
	for range 1000 {
		runtime.Gosched()
		if _, err := other.Lock(ctx, false); !errors.Is(err, log.ErrOwned) {
			t.Fatalf("the lock was given back while its holder wrote: %v", err)
		}
	}
	resume()
	if err := <-unlocked; err != nil {
		t.Fatal(err)
	}
	if _, err := other.Lock(ctx, false); err != nil {
		t.Fatal(err)
	}
}

// Package mem keeps logs in memory: for tests, and for databases that need no durability. It implements the whole contract
// of log.Log, with a delay on every call where one is asked for, and with faults where a test injects them (faults.go).
//
// A [Server] is the store; it outlives the handles that are opened on it, so a database can be closed and opened again, and several
// handles stand for several processes. Objects are kept as they are given, not copied: they are immutable.
package mem

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/log"
)

// Server holds databases by name. The zero Server is not usable; see NewServer.
type Server struct {
	mu  sync.Mutex
	dbs map[string]*database
}

// NewServer is an empty store.
func NewServer() *Server { return &Server{dbs: map[string]*database{}} }

// Options of a handle. The zero value has no delay.
type Options struct {
	// Delay is how long every call takes before it does anything, as a round trip to a store would. Read and List take it once
	// for each page of pageSize entries.
	Delay time.Duration
	// Hook, if set, is asked at every call what is to go wrong. It may be changed later by SetHook.
	Hook Hook
}

// Open is a new handle on the database named name. The database need not exist: that is for its root to say.
func (s *Server) Open(name string, o Options) *Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	db := s.dbs[name]
	if db == nil {
		db = &database{shelves: map[log.ID]*shelf{}}
		s.dbs[name] = db
	}
	l := &Log{name: name, db: db, delay: o.Delay, closed: make(chan struct{})}
	l.SetHook(o.Hook)
	return l
}

// database is what all handles of one name share.
type database struct {
	mu      sync.RWMutex
	root    *log.Root // nil: none; replaced, never changed
	swapped time.Time // when root was written
	shelves map[log.ID]*shelf
}

// shelf holds the objects and blobs of one instance.
type shelf struct {
	objects []*log.Object // by key
	blobs   map[string][]byte
}

func (s *shelf) find(k log.Key) (int, bool) {
	if n := len(s.objects); n == 0 || s.objects[n-1].Key().Compare(k) < 0 {
		return n, false
	}
	return slices.BinarySearchFunc(s.objects, k, func(o *log.Object, k log.Key) int { return o.Key().Compare(k) })
}

func (db *database) shelf(inst log.ID) *shelf {
	s := db.shelves[inst]
	if s == nil {
		s = &shelf{blobs: map[string][]byte{}}
		db.shelves[inst] = s
	}
	return s
}

// Log is one process's handle on one database. It may be used by any number of goroutines.
type Log struct {
	name   string
	db     *database
	delay  time.Duration
	close  sync.Once
	closed chan struct{}
	faults
}

var _ log.Log = (*Log)(nil)

// pageSize is how many entries Read and List take from the store at once.
const pageSize = 1024

// depth is how many appends are best kept in flight: a round trip is a wait, so enough to fill it.
const depth = 8

// Info describes the store.
func (l *Log) Info() log.Info {
	return log.Info{Backend: "mem", Location: "mem:" + l.name, Durability: "none: memory of this process", Depth: depth}
}

// Root reads the root record.
func (l *Log) Root(ctx context.Context) (r *log.Root, err error) {
	err = l.call(ctx, Call{Op: OpRoot}, func() error {
		l.db.mu.RLock()
		defer l.db.mu.RUnlock()
		if l.db.root == nil {
			return log.ErrNoRoot
		}
		r = l.db.root.Clone()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// RootAge reads the root record and its age. Its calls are OpRoot to a Hook.
func (l *Log) RootAge(ctx context.Context) (r *log.Root, age time.Duration, err error) {
	err = l.call(ctx, Call{Op: OpRoot}, func() error {
		l.db.mu.RLock()
		defer l.db.mu.RUnlock()
		if l.db.root == nil {
			return log.ErrNoRoot
		}
		r, age = l.db.root.Clone(), time.Since(l.db.swapped)
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	return r, age, nil
}

// CompareAndSwap replaces the root.
func (l *Log) CompareAndSwap(ctx context.Context, old, next *log.Root) error {
	want := uint64(1)
	if old != nil {
		want = old.Version + 1
	}
	if next.Version != want {
		return log.WithOutcome(log.Rejected, fmt.Errorf("the new root's version is %d, not %d", next.Version, want))
	}
	if _, err := log.EncodeRoot(next); err != nil {
		return log.WithOutcome(log.Rejected, err)
	}
	next = next.Clone()
	return l.call(ctx, Call{Op: OpCompareAndSwap, Root: next}, func() error {
		l.db.mu.Lock()
		defer l.db.mu.Unlock()
		if have := l.db.root; (have == nil) != (old == nil) || have != nil && *have != *old {
			return log.ErrConflict
		}
		l.db.root, l.db.swapped = next, time.Now()
		return nil
	})
}

// Append writes one object.
func (l *Log) Append(ctx context.Context, inst log.ID, o *log.Object) error {
	return l.call(ctx, Call{Op: OpAppend, Key: o.Key(), Object: o}, func() error {
		l.db.mu.Lock()
		defer l.db.mu.Unlock()
		s := l.db.shelf(inst)
		i, found := s.find(o.Key())
		if found {
			if s.objects[i].Hash() != o.Hash() {
				return fmt.Errorf("object %s: %w", o.Key(), log.ErrConflict)
			}
			return nil
		}
		s.objects = slices.Insert(s.objects, i, o)
		return nil
	})
}

// Verify reads the root and looks for the keys.
func (l *Log) Verify(ctx context.Context, c log.Check) error {
	return l.call(ctx, Call{Op: OpVerify, Check: c}, func() error {
		l.db.mu.RLock()
		defer l.db.mu.RUnlock()
		r := l.db.root
		if r == nil || !r.Owned(c.Instance, c.Epoch, c.Claim) {
			return log.ErrNotOwner
		}
		s := l.db.shelves[c.Instance]
		for _, k := range c.Keys {
			if k.Compare(r.Sealed.Pos().Key) <= 0 {
				continue
			}
			if s != nil {
				if _, found := s.find(k); found {
					continue
				}
			}
			return fmt.Errorf("object %s is gone: %w", k, log.ErrRolledBack)
		}
		return nil
	})
}

// AppendVerify is Append and Verify in turn: two calls.
func (l *Log) AppendVerify(ctx context.Context, o *log.Object, c log.Check) (appendErr, verifyErr error) {
	if err := l.Append(ctx, c.Instance, o); err != nil {
		return err, nil
	}
	return nil, l.Verify(ctx, c)
}

// Get reads one object.
func (l *Log) Get(ctx context.Context, inst log.ID, k log.Key) (o *log.Object, err error) {
	err = l.call(ctx, Call{Op: OpGet, Key: k}, func() error {
		l.db.mu.RLock()
		defer l.db.mu.RUnlock()
		if s := l.db.shelves[inst]; s != nil {
			if i, found := s.find(k); found {
				o = s.objects[i]
				return nil
			}
		}
		return fmt.Errorf("object %s: %w", k, log.ErrNotFound)
	})
	if err != nil {
		return nil, err
	}
	return o, nil
}

// List yields the keys behind after.
func (l *Log) List(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[log.Key, error] {
	return func(yield func(log.Key, error) bool) {
		for o, err := range l.scan(ctx, OpList, inst, after) {
			if err != nil {
				yield(log.Key{}, err)
				return
			}
			if !yield(o.Key(), nil) {
				return
			}
		}
	}
}

// Read yields the objects behind after.
func (l *Log) Read(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[*log.Object, error] {
	return l.scan(ctx, OpRead, inst, after)
}

func (l *Log) scan(ctx context.Context, op Op, inst log.ID, after log.Key) iter.Seq2[*log.Object, error] {
	return func(yield func(*log.Object, error) bool) {
		for after := after; ; {
			var page []*log.Object
			err := l.call(ctx, Call{Op: op, Key: after}, func() error {
				l.db.mu.RLock()
				defer l.db.mu.RUnlock()
				s := l.db.shelves[inst]
				if s == nil {
					return nil
				}
				i, found := s.find(after)
				if found {
					i++
				}
				page = slices.Clone(s.objects[i:min(i+pageSize, len(s.objects))])
				return nil
			})
			if err != nil {
				yield(nil, err)
				return
			}
			for _, o := range page {
				if err := ctx.Err(); err != nil {
					yield(nil, err)
					return
				}
				if !yield(o, nil) {
					return
				}
				after = o.Key()
			}
			if len(page) < pageSize {
				return
			}
		}
	}
}

// Lock does nothing: what proves ownership is the root.
func (l *Log) Lock(ctx context.Context, wait bool) (unlock func() error, err error) {
	if err := l.usable(ctx); err != nil {
		return nil, err
	}
	return func() error { return nil }, nil
}

// Adopt does nothing: what is here cannot be torn.
func (l *Log) Adopt(ctx context.Context, inst log.ID, head log.Pos, unfenced []*log.Object) (repairs []string, err error) {
	return nil, l.usable(ctx)
}

// PutBlob keeps a copy of b under name, unless there is one.
func (l *Log) PutBlob(ctx context.Context, inst log.ID, name string, b []byte) error {
	b = slices.Clone(b)
	return l.call(ctx, Call{Op: OpPutBlob, Name: name}, func() error {
		l.db.mu.Lock()
		defer l.db.mu.Unlock()
		if blobs := l.db.shelf(inst).blobs; blobs[name] == nil {
			blobs[name] = b
		}
		return nil
	})
}

// GetBlob reads a blob.
func (l *Log) GetBlob(ctx context.Context, inst log.ID, name string) (b []byte, err error) {
	err = l.call(ctx, Call{Op: OpGetBlob, Name: name}, func() error {
		l.db.mu.RLock()
		defer l.db.mu.RUnlock()
		if s := l.db.shelves[inst]; s != nil {
			if kept, ok := s.blobs[name]; ok {
				b = slices.Clone(kept)
				return nil
			}
		}
		return fmt.Errorf("blob %q: %w", name, log.ErrNotFound)
	})
	return b, err
}

// Delete removes the objects up to a key, and with MaxKey the blobs too.
func (l *Log) Delete(ctx context.Context, inst log.ID, upTo log.Key) error {
	return l.call(ctx, Call{Op: OpDelete, Key: upTo}, func() error {
		l.db.mu.Lock()
		defer l.db.mu.Unlock()
		if upTo == log.MaxKey {
			delete(l.db.shelves, inst)
			return nil
		}
		s := l.db.shelf(inst)
		i, found := s.find(upTo)
		if found {
			i++
		}
		s.objects = slices.Clone(s.objects[i:])
		return nil
	})
}

// Close ends the handle. The database stays.
func (l *Log) Close() error {
	l.close.Do(func() { close(l.closed) })
	return nil
}

// usable says why a call cannot begin.
func (l *Log) usable(ctx context.Context) error {
	select {
	case <-l.closed:
		return log.WithOutcome(log.NotWritten, log.ErrClosed)
	default:
	}
	if err := ctx.Err(); err != nil {
		return log.WithOutcome(log.NotWritten, err)
	}
	return nil
}

// wait takes d, or until ctx ends or the handle is closed.
func (l *Log) wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return l.usable(ctx)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return log.WithOutcome(log.NotWritten, ctx.Err())
	case <-l.closed:
		return log.WithOutcome(log.NotWritten, log.ErrClosed)
	}
}

// call runs one store call: the delay, what the hook injects, and the effect.
func (l *Log) call(ctx context.Context, c Call, effect func() error) error {
	if err := l.usable(ctx); err != nil {
		return err
	}
	if err := l.wait(ctx, l.delay); err != nil {
		return err
	}
	return l.inject(ctx, c, effect)
}

var errLost = errors.New("the reply was lost")

package fs

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/steledb/stele/log"
)

// Options says where a database is and how its files are written.
type Options struct {
	// Dir is the store's directory; the database lies in Dir/Name. Required.
	Dir string
	// Name is the database's, [a-z0-9][a-z0-9._-]{0,62}; "" is "main".
	Name string
	// AllowNonLocal opens a directory on a file system that keeps nothing (tmpfs, ramfs) or does not keep the lock's promises
	// (NFS, SMB, FUSE, …). Info then reports Durable as false and Durability as "none".
	AllowNonLocal bool
	// RollSize is the size in bytes from which on an epoch file is not written further; 0 is 64 MiB.
	RollSize int64
	// Prealloc is the first step in bytes in which room is allocated for an epoch file; steps grow with the file, to a quarter of
	// what it holds, up to 1 MiB. 0 is 256 KiB.
	Prealloc int64
	// Logger gets warnings; nil is none.
	Logger *slog.Logger
	// FS is the file layer; nil is the operating system's. For tests.
	FS FS
}

const (
	defaultRollSize = 64 << 20
	defaultPrealloc = 256 << 10
	maxPrealloc     = 1 << 20

	readOnly  = os.O_RDONLY
	readWrite = os.O_RDWR
	create    = os.O_RDWR | os.O_CREATE
	createNew = os.O_RDWR | os.O_CREATE | os.O_EXCL
)

// Log is one database in a directory. It implements [log.Log].
type Log struct {
	opts Options
	dir  string // Dir/Name
	fsys FS
	info log.Info
	log  *slog.Logger
	mut  mutation // tests break one rule with it

	root  rootCache
	life  context.Context // ended by Close
	end   context.CancelFunc
	calls sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	failure   error // what ended the use of this handle for writing
	held      *held // the lock, while this handle owns the database
	releasing bool  // it is being given back: no new writers
	instances map[log.ID]*instance
	writers   map[log.ID]*writer
}

var _ log.Log = (*Log)(nil)

// Open opens a database's directory. Nothing is created before the first write or Lock. An error says what is wrong with the options, or
// that the file system is not a local one and AllowNonLocal is not set.
func Open(ctx context.Context, o Options) (*Log, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if o.Name == "" {
		o.Name = "main"
	}
	if o.FS == nil {
		o.FS = OS{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.RollSize == 0 {
		o.RollSize = defaultRollSize
	}
	if o.Prealloc == 0 {
		o.Prealloc = defaultPrealloc
	}
	var errs []error
	if o.Dir == "" {
		errs = append(errs, errors.New("no directory is given"))
	}
	if err := log.CheckName(o.Name); err != nil {
		errs = append(errs, err)
	}
	if o.RollSize < headSize {
		errs = append(errs, fmt.Errorf("a RollSize of %d bytes: at least %d are needed", o.RollSize, headSize))
	}
	if o.Prealloc < 0 {
		errs = append(errs, fmt.Errorf("a Prealloc of %d bytes", o.Prealloc))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("cannot open the store: %w", errors.Join(errs...))
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("cannot open the store: %w", err)
	}
	l := &Log{
		opts:      o,
		dir:       filepath.Join(dir, o.Name),
		fsys:      o.FS,
		log:       o.Logger,
		instances: map[log.ID]*instance{},
		writers:   map[log.ID]*writer{},
		mut:       mutated(),
	}
	l.life, l.end = context.WithCancel(context.Background())
	durable, name, err := durableOn(l.fsys, l.dir)
	if err != nil {
		return nil, fmt.Errorf("cannot tell which file system holds %s: %w", l.dir, err)
	}
	if !durable && !o.AllowNonLocal {
		return nil, fmt.Errorf("%s lies on %s, which does not keep what a database needs (data after a crash, or locks): "+
			"use a directory on a local disk, or allow it and have no durability", l.dir, name)
	}
	l.info = log.Info{
		Backend:    "fs",
		Location:   l.dir,
		Durability: "fdatasync",
		Durable:    durable,
		Depth:      1, // docs/decisions/log-fs.md
		Guarded:    true,
		FailStop:   true,
	}
	if !durable {
		l.info.Durability = "none"
	}
	return l, nil
}

// Info describes the store.
func (l *Log) Info() log.Info { return l.info }

// enter opens a call, which calls.Done ends.
func (l *Log) enter(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return log.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	l.calls.Add(1)
	return nil
}

// begin opens a call whose context ends with the handle. end must be called.
func (l *Log) begin(ctx context.Context) (_ context.Context, end func(), err error) {
	if err := l.enter(ctx); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.life, func() { cancel(log.ErrClosed) })
	return ctx, func() { stop(); cancel(nil); l.calls.Done() }, nil
}

// apart runs a call that writes on a goroutine of its own, so that a disk that hangs holds up no caller whose context has
// ended. f calls writing before it changes anything; until then it heeds the context itself.
func (l *Log) apart(ctx context.Context, f func(ctx context.Context, writing func()) error) error {
	var begun atomic.Bool
	result := make(chan error, 1)
	l.calls.Add(1)
	go func() {
		defer l.calls.Done()
		result <- f(ctx, func() { begun.Store(true) })
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
	}
	if !begun.Load() {
		return <-result
	}
	select {
	case err := <-result:
		return err
	default:
		return log.WithOutcome(log.Unknown, context.Cause(ctx))
	}
}

// Close ends the calls under way, syncs the last mark, gives the lock back and releases what the handle holds. Closing again
// does nothing. It waits for the write that is under way, if there is one.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	h := l.held
	l.mu.Unlock()
	l.end()
	var err error
	if h != nil {
		err = l.release(h)
	}
	l.calls.Wait()
	l.root.drop()
	return err
}

// fail ends the use of this handle for writing and returns the error that says so. The first cause stays.
func (l *Log) fail(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure == nil {
		l.failure = err
		l.log.Error("a write failed; the log takes no more until it is opened anew", "dir", l.dir, "err", err)
	}
	return l.failed()
}

// failed is the error of a handle that has failed, or nil. The caller holds mu.
func (l *Log) failed() error {
	if l.failure == nil {
		return nil
	}
	return fmt.Errorf("%w: %w (close the database, check the disk, and open it again)", log.ErrFailed, l.failure)
}

// failedNow is failed for callers that do not hold mu.
func (l *Log) failedNow() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed()
}

// noSpace reports whether an error says that the disk is full.
func noSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// makeDir makes the database's directory durably, with its parents.
func (l *Log) makeDir() error {
	if err := l.mkdir(l.dir); err != nil {
		return err
	}
	// Who made them may have failed to sync them. What lies above is no business of ours where we have no access.
	below, err := l.fsys.Stat(l.dir)
	if err != nil {
		return err
	}
	for dir := l.dir; dir != filepath.Dir(dir); {
		dir = filepath.Dir(dir)
		st, err := l.fsys.Stat(dir)
		if err == nil && st.Dev != below.Dev {
			break // a mount point
		}
		if err == nil {
			err = l.fsys.SyncDir(dir)
		}
		if errors.Is(err, iofs.ErrPermission) {
			break
		}
		if err != nil {
			return l.fail(fmt.Errorf("cannot sync the directory %s: %w", dir, err))
		}
	}
	return nil
}

// mkdir makes a directory and its parents, and each durable in its own.
func (l *Log) mkdir(dir string) error {
	err := l.fsys.Mkdir(dir)
	parent := filepath.Dir(dir)
	if errors.Is(err, iofs.ErrNotExist) && parent != dir {
		if err := l.mkdir(parent); err != nil {
			return err
		}
		err = l.fsys.Mkdir(dir)
	}
	if errors.Is(err, iofs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return l.syncDir(parent)
}

// syncDir makes a directory's entries durable; a failure ends the use of the handle.
func (l *Log) syncDir(dir string) error {
	if err := l.fsys.SyncDir(dir); err != nil {
		return l.fail(fmt.Errorf("cannot sync the directory %s: %w", dir, err))
	}
	return nil
}

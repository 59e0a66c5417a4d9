package fs

import (
	"context"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"sync"
	"time"

	"github.com/steledb/stele/log"
)

// maxRoot bounds what is read of a root's file. A root is about a kilobyte.
const maxRoot = 1 << 20

// rootReserve is how much room is kept for a root on a full disk, in bytes.
const rootReserve = 4 << 10

// rootCache keeps the root that was read last, and its file open. The files of roots are written once, before they get their name;
// and an open file's inode is not given to another. So if ROOT is still that inode, unchanged, the root is still that root: to
// read it now costs one stat.
type rootCache struct {
	mu   sync.Mutex
	file File
	stat Stat
	root *log.Root
}

func (c *rootCache) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear()
}

func (c *rootCache) clear() {
	if c.file != nil {
		_ = c.file.Close()
	}
	c.file, c.root = nil, nil
}

// readRoot reads the root now. The result is shared and must not be changed.
func (l *Log) readRoot() (*log.Root, error) {
	c := &l.root
	c.mu.Lock()
	defer c.mu.Unlock()
	path := l.path(rootName)
	if c.file != nil {
		if st, err := l.fsys.Stat(path); err == nil && st == c.stat {
			return c.root, nil
		}
		c.clear()
	}
	f, err := l.fsys.Open(path, readOnly)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil, log.ErrNoRoot
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the root: %w", err)
	}
	root, st, err := l.decodeRoot(f)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	if l.isClosed() {
		_ = f.Close() // a call that Close did not wait for
		return root, nil
	}
	c.file, c.stat, c.root = f, st, root
	return root, nil
}

func (l *Log) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

func (l *Log) decodeRoot(f File) (*log.Root, Stat, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, st, fmt.Errorf("cannot read the root: %w", err)
	}
	if st.Size > maxRoot {
		return nil, st, &log.CorruptError{Location: l.path(rootName), Reason: fmt.Sprintf("the root has %d bytes", st.Size)}
	}
	b := make([]byte, st.Size)
	if n, err := f.ReadAt(b, 0); n < len(b) && err != nil && err != io.EOF {
		return nil, st, fmt.Errorf("cannot read the root: %w", err)
	}
	root, err := log.DecodeRoot(b)
	if err != nil {
		return nil, st, &log.CorruptError{
			Location: l.path(rootName),
			Reason:   "the root does not decode (keep a copy of the directory, and restore it from a backup)",
			Err:      err,
		}
	}
	return root, st, nil
}

// Root reads the root record now.
func (l *Log) Root(ctx context.Context) (*log.Root, error) {
	if err := l.enter(ctx); err != nil {
		return nil, err
	}
	defer l.calls.Done()
	root, err := l.readRoot()
	if err != nil {
		return nil, err
	}
	return root.Clone(), nil
}

// RootAge reads the root record. Its age is not known, and nobody asks: the lock decides who owns a directory.
func (l *Log) RootAge(ctx context.Context) (*log.Root, time.Duration, error) {
	root, err := l.Root(ctx)
	return root, -1, err
}

// Verify reads the root now; and if this handle took the lock, it looks whether the lock's file is still the one at its place. It does
// not look at the keys: what is durable in a directory goes only if a person takes it away, and then the chain has a gap.
func (l *Log) Verify(ctx context.Context, c log.Check) error {
	if err := l.enter(ctx); err != nil {
		return err
	}
	defer l.calls.Done()
	return l.verify(c)
}

func (l *Log) verify(c log.Check) error {
	root, err := l.readRoot()
	if errors.Is(err, log.ErrNoRoot) {
		return fmt.Errorf("%w: %w", log.ErrNotOwner, err)
	}
	if err != nil {
		return err
	}
	if !root.Owned(c.Instance, c.Epoch, c.Claim) {
		return log.ErrNotOwner
	}
	return l.checkLock()
}

// CompareAndSwap replaces the root: under the flock on ROOT.lock it reads it, writes the next one beside it, syncs that, renames it
// over ROOT — from here on every reader sees it — and syncs the directory, after which it is durable.
func (l *Log) CompareAndSwap(ctx context.Context, old, next *log.Root) error {
	want := uint64(1)
	if old != nil {
		want = old.Version + 1
	}
	if next.Version != want {
		return log.WithOutcome(log.Rejected, fmt.Errorf("the new root's version is %d, not %d", next.Version, want))
	}
	b, err := log.EncodeRoot(next)
	if err != nil {
		return log.WithOutcome(log.Rejected, err)
	}
	ctx, end, err := l.begin(ctx)
	if err != nil {
		return log.WithOutcome(log.NotWritten, err)
	}
	defer end()
	next = next.Clone()
	if old != nil {
		old = old.Clone()
	}
	return l.apart(ctx, func(ctx context.Context, writing func()) error { return l.swap(ctx, old, next, b, writing) })
}

func (l *Log) swap(ctx context.Context, old, next *log.Root, b []byte, writing func()) error {
	if err := l.failedNow(); err != nil {
		return log.WithOutcome(log.NotWritten, err)
	}
	if old == nil {
		if err := l.makeDir(); err != nil {
			return log.WithOutcome(log.NotWritten, fmt.Errorf("cannot create the database: %w", err))
		}
	}
	lock, _, err := l.flock(ctx, l.path(rootLockName), true)
	if errors.Is(err, iofs.ErrNotExist) {
		return fmt.Errorf("%w: %w", log.ErrConflict, log.ErrNoRoot)
	}
	if err != nil {
		return log.WithOutcome(log.NotWritten, fmt.Errorf("cannot change the root: %w", err))
	}
	defer lock.Close()
	switch now, err := l.readRoot(); {
	case errors.Is(err, log.ErrNoRoot):
		if old != nil {
			return fmt.Errorf("%w: %w", log.ErrConflict, err)
		}
	case err != nil:
		return log.WithOutcome(log.NotWritten, err)
	case old == nil:
		return fmt.Errorf("%w: the database exists", log.ErrConflict)
	case *now != *old:
		return fmt.Errorf("%w: the root is of version %d, not the one of version %d that was read", log.ErrConflict, now.Version, old.Version)
	}
	if ctx.Err() != nil {
		return log.WithOutcome(log.NotWritten, context.Cause(ctx))
	}
	writing()
	if err := l.failedNow(); err != nil {
		return log.WithOutcome(log.NotWritten, err)
	}
	if err := l.install(b); err != nil {
		return err
	}
	l.root.drop() // its file is the root before this one: closing it gives its room back
	l.reserveRoot()
	if l.owner() && !next.Deleted && (old == nil || old.Instance != next.Instance) {
		l.reserveStart(next.Instance)
	}
	return nil
}

// install makes b the root.
func (l *Log) install(b []byte) error {
	temp := l.path(rootTempName)
	err := l.alone(temp, l.path(rootName))
	if err == nil {
		err = l.writeFile(temp, b)
	}
	if noSpace(err) {
		full := err
		temp = l.path(rootReserveName)
		if err := l.alone(temp, l.path(rootName)); err != nil {
			return log.WithOutcome(log.NotWritten, l.fail(fmt.Errorf("cannot write the root: %w", err)))
		}
		if _, serr := l.fsys.Stat(temp); serr != nil || len(b) > rootReserve {
			return log.WithOutcome(log.NotWritten, fmt.Errorf("cannot write the root: %w", full))
		}
		err = l.writeFile(temp, b)
	}
	if noSpace(err) {
		return log.WithOutcome(log.NotWritten, fmt.Errorf("cannot write the root: %w", err))
	}
	if err != nil {
		return log.WithOutcome(log.NotWritten, l.fail(fmt.Errorf("cannot write the root: %w", err)))
	}
	if err := l.fsys.Rename(temp, l.path(rootName)); err != nil {
		return log.WithOutcome(log.Unknown, l.fail(fmt.Errorf("cannot replace the root: %w", err)))
	}
	if l.mut == mutSkipDirSync {
		return nil
	}
	if err := l.syncDir(l.dir); err != nil {
		return log.WithOutcome(log.Unknown, err)
	}
	return nil
}

// alone sees to it that a file about to be written is not also at newName, to which an earlier one was renamed from path: a loss of power may leave
// both names of a rename, and what is written to the one would change the other. Then path is free again.
func (l *Log) alone(path, newName string) error {
	here, err := l.fsys.Stat(path)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	there, err := l.fsys.Stat(newName)
	switch {
	case errors.Is(err, iofs.ErrNotExist):
		return nil
	case err == nil && here.same(there):
		return l.fsys.Remove(path)
	}
	return err
}

// writeFile writes a whole file durably, except for its name. An error that says that the disk is full leaves the handle usable: the file
// is one that nobody reads yet. Whatever room the file has already is used.
func (l *Log) writeFile(path string, b []byte) (err error) {
	f, err := l.fsys.Open(path, create)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	if len(b) > 0 {
		err = f.Allocate(0, int64(len(b)))
	}
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(b, 0); err != nil {
		return err
	}
	if err := f.Truncate(int64(len(b))); err != nil {
		return err
	}
	return f.Sync()
}

// reserveRoot makes sure, as far as the disk has room, that there is some for one more root. The caller holds ROOT.lock.
func (l *Log) reserveRoot() {
	err := l.alone(l.path(rootReserveName), l.path(rootName))
	if err == nil {
		err = l.keepRoom(l.path(rootReserveName), rootReserve)
	}
	if err != nil {
		l.log.Warn("no room is left for a root on a full disk", "err", err)
	}
}

// reserveStart does so for one more start (writer.go), and reports whether there was room. The caller is the owner.
func (l *Log) reserveStart(inst log.ID) bool {
	err := l.mkdir(l.instanceDir(inst))
	if err == nil {
		err = l.newestApart(inst, fileReserveName)
	}
	if err == nil {
		err = l.keepRoom(l.path(inst.String(), fileReserveName), fileReserve)
	}
	if err != nil {
		l.log.Warn("no room is left for a start on a full disk", "err", err)
	}
	return err == nil
}

// newestApart is alone for a file that becomes an epoch file: of those only the newest may still have both names, since the next is made only once
// the directory was synced.
func (l *Log) newestApart(inst log.ID, temp string) error {
	names, err := l.fsys.ReadDir(l.instanceDir(inst))
	if err != nil {
		return err
	}
	newest := ""
	for _, name := range names {
		if _, _, ok := parseFileName(name); ok {
			newest = max(newest, name)
		}
	}
	if newest == "" {
		return nil
	}
	return l.alone(l.path(inst.String(), temp), l.path(inst.String(), newest))
}

// reserve keeps room for both from the moment on in which a handle owns the database.
func (l *Log) reserve(ctx context.Context) {
	root, err := l.readRoot()
	if err != nil || root.Deleted {
		return // there is no database yet; CompareAndSwap makes one
	}
	lock, _, err := l.flock(ctx, l.path(rootLockName), true)
	if err != nil {
		l.log.Warn("no room is kept for a root on a full disk", "err", err)
		return
	}
	l.reserveRoot()
	_ = lock.Close()
	l.reserveStart(root.Instance)
}

// keepRoom allocates a file. What it holds does not matter, nor whether it survives a crash.
func (l *Log) keepRoom(path string, n int64) error {
	f, err := l.fsys.Open(path, create)
	if err != nil {
		return err
	}
	err = f.Allocate(0, n)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = l.fsys.Remove(path)
	}
	return err
}

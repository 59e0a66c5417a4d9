package fs

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/steledb/stele/log"
)

// held is the lock while this handle has it.
type held struct {
	file File
	stat Stat
}

// Lock takes the flock on LOCK, which ends with unlock, Close or the process. Another handle of the same process is refused like
// another process.
func (l *Log) Lock(ctx context.Context, wait bool) (unlock func() error, err error) {
	ctx, end, err := l.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	if err := l.mkdir(l.dir); err != nil {
		return nil, fmt.Errorf("cannot lock the database: %w", err)
	}
	f, st, err := l.flock(ctx, l.path(lockName), wait)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the database: %w", err)
	}
	// For people; nothing depends on it.
	host, _ := os.Hostname()
	text := fmt.Sprintf("pid %d on %s\n", os.Getpid(), host)
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(text), 0)
	}
	h := &held{f, st}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		_ = f.Close()
		return nil, log.ErrClosed
	}
	l.held = h
	l.instances = map[log.ID]*instance{} // another owner may have written meanwhile
	l.mu.Unlock()
	l.reserve(ctx)
	return sync.OnceValue(func() error { return l.release(h) }), nil
}

// release ends ownership: nothing more is written, what was is synced with its mark, and the lock is given back.
func (l *Log) release(h *held) error {
	l.mu.Lock()
	if l.held != h {
		l.mu.Unlock()
		return nil
	}
	writers, instances := l.writers, slices.Collect(maps.Values(l.instances))
	l.writers = map[log.ID]*writer{}
	l.releasing = true
	l.mu.Unlock()
	var err error
	for _, w := range writers {
		if e := w.stop(); err == nil {
			err = e
		}
	}
	for _, in := range instances { // which may be settling something
		in.scanning.Lock()
		in.ended = true
		in.scanning.Unlock()
	}
	l.mu.Lock()
	l.held, l.releasing = nil, false
	l.instances = map[log.ID]*instance{}
	l.mu.Unlock()
	_ = h.file.Truncate(0)
	if e := h.file.Close(); err == nil {
		err = e
	}
	return err
}

// owner reports whether this handle holds the lock.
func (l *Log) owner() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held != nil
}

// checkLock returns an error if this handle took the lock and its file is not the one at LOCK any more.
func (l *Log) checkLock() error {
	l.mu.Lock()
	h := l.held
	l.mu.Unlock()
	if h == nil {
		return nil
	}
	st, err := l.fsys.Stat(l.path(lockName))
	if (err != nil || !st.same(h.stat)) && l.mut != mutPathUnchecked {
		return fmt.Errorf("%w: %s was removed or replaced while this process held its lock", log.ErrNotOwner, l.path(lockName))
	}
	return nil
}

const (
	firstPoll = time.Millisecond
	lastPoll  = 100 * time.Millisecond
)

// flock opens a file and locks it, waiting until ctx ends if asked to. The lock counts only if the file is still the one
// at that path: nothing of ours removes it, a person might.
func (l *Log) flock(ctx context.Context, path string, wait bool) (File, Stat, error) {
	said := false
	for poll := firstPoll; ; poll = min(2*poll, lastPoll) {
		if ctx.Err() != nil {
			return nil, Stat{}, context.Cause(ctx)
		}
		f, err := l.fsys.Open(path, create)
		if err != nil {
			return nil, Stat{}, err
		}
		ok, err := f.TryLock()
		if err != nil {
			_ = f.Close()
			return nil, Stat{}, err
		}
		if ok {
			st, err := f.Stat()
			there, serr := l.fsys.Stat(path)
			if err == nil && (serr == nil && st.same(there) || l.mut == mutPathUnchecked) {
				return f, st, nil
			}
			_ = f.Close()
			if err != nil {
				return nil, Stat{}, err
			}
			continue
		}
		who := holder(f)
		_ = f.Close()
		if !wait {
			return nil, Stat{}, fmt.Errorf("%w: %s is locked by %s", log.ErrOwned, path, who)
		}
		if !said && poll == lastPoll {
			said = true
			l.log.Info("waiting for a lock", "file", path, "holder", who)
		}
		timer := time.NewTimer(poll)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, Stat{}, fmt.Errorf("%w: %w: %s is locked by %s", log.ErrOwned, context.Cause(ctx), path, who)
		case <-timer.C:
		}
	}
}

// holder says who wrote the lock file.
func holder(f File) string {
	b := make([]byte, 256)
	n, _ := f.ReadAt(b, 0)
	if s := strings.TrimSpace(string(b[:n])); s != "" {
		return s
	}
	return "another process"
}

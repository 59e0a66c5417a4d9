package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/steledb/stele/config"
)

// freshStore makes an empty directory on a disk that keeps what is synced, and returns its URL, what to say about the choice, and what
// removes it.
func freshStore() (storeURL, note string, remove func() error, err error) {
	dir, note, err := diskDir(candidates(), config.DurableDir)
	if err != nil {
		return "", "", nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", "", nil, err
	}
	if dir, err = os.MkdirTemp(dir, "stele-throughput-"); err != nil {
		return "", "", nil, err
	}
	return fileURL(dir), note, func() error { return os.RemoveAll(dir) }, nil
}

// candidates are the directories to try, in order.
func candidates() []string {
	dirs := []string{os.TempDir()}
	if d, err := os.UserCacheDir(); err == nil {
		dirs = append(dirs, d)
	}
	if d, err := os.Getwd(); err == nil {
		dirs = append(dirs, d)
	}
	return dirs
}

// diskDir chooses the first directory that is on a disk. What it passed over stands in the note.
func diskDir(dirs []string, durable func(string) (bool, string, error)) (dir, note string, err error) {
	var passed []string
	for _, d := range dirs {
		ok, name, err := durable(d)
		switch {
		case err != nil:
			passed = append(passed, fmt.Sprintf("%s: %v", d, err))
		case !ok:
			passed = append(passed, fmt.Sprintf("%s is on %s, which keeps nothing after a crash or does not keep locks", d, name))
		default:
			note = fmt.Sprintf("%s, a local disk", name)
			if len(passed) > 0 {
				note += fmt.Sprintf(" (not used: %s)", strings.Join(passed, "; "))
			}
			return d, note, nil
		}
	}
	return "", "", fmt.Errorf("no directory on a local disk was found; name one with -store fs:DIR: %s", strings.Join(passed, "; "))
}

// syncTime is the disk's own time for one write of size bytes and one fdatasync: the median of a hundred or so, one after the other, into a
// file that was written before, so that no file system work but the write itself is in it. Nothing that makes each write durable can be faster.
func syncTime(ctx context.Context, dir string, size int) (time.Duration, error) {
	f, err := os.CreateTemp(dir, "sync-time-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	const n = 101
	b := make([]byte, max(size, 1))
	for i := range b {
		b[i] = byte(i * 7)
	}
	for range n {
		if _, err := f.Write(b); err != nil {
			return 0, err
		}
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	var took []time.Duration
	for i, begun := 0, time.Now(); i < n && time.Since(begun) < 2*time.Second && ctx.Err() == nil; i++ {
		b[0] = byte(i)
		begin := time.Now()
		if _, err := f.WriteAt(b, int64(i)*int64(len(b))); err != nil {
			return 0, err
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return 0, err
		}
		took = append(took, time.Since(begin))
	}
	if len(took) == 0 {
		return 0, context.Cause(ctx)
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// syncSize is about what a full batch of small transactions takes.
const syncSize = 16 << 10

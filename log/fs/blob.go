package fs

import (
	"context"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"math"
	"path/filepath"
	"slices"

	"github.com/steledb/stele/log"
)

// PutBlob writes a blob beside its place, syncs it, renames it and syncs the directory.
func (l *Log) PutBlob(ctx context.Context, inst log.ID, name string, b []byte) error {
	if err := log.CheckBlobName(name); err != nil {
		return log.WithOutcome(log.Rejected, err)
	}
	ctx, end, err := l.begin(ctx)
	if err != nil {
		return log.WithOutcome(log.NotWritten, err)
	}
	defer end()
	b = slices.Clone(b) // the write may outlast the call
	return l.apart(ctx, func(ctx context.Context, writing func()) error {
		writing()
		if err := l.putBlob(inst, name, b); err != nil {
			return fmt.Errorf("cannot write blob %s: %w", name, err)
		}
		return nil
	})
}

func (l *Log) putBlob(inst log.ID, name string, b []byte) error {
	if err := l.failedNow(); err != nil {
		return log.WithOutcome(log.NotWritten, err)
	}
	dir := l.blobDir(inst)
	err := l.mkdir(dir)
	for _, above := range []string{l.instanceDir(inst), l.dir} { // who made them may have failed to sync them
		if err == nil {
			err = l.syncDir(above)
		}
	}
	if err != nil {
		return log.WithOutcome(log.NotWritten, err)
	}
	path := filepath.Join(dir, name)
	if _, err := l.fsys.Stat(path); errors.Is(err, iofs.ErrNotExist) {
		temp := filepath.Join(dir, blobTempPrefix+log.NewID().String())
		if err := l.writeFile(temp, b); err != nil {
			_ = l.fsys.Remove(temp)
			if !noSpace(err) {
				err = l.fail(err)
			}
			return log.WithOutcome(log.NotWritten, err)
		}
		if err := l.fsys.Rename(temp, path); err != nil {
			return l.fail(err)
		}
	} else if err != nil {
		return log.WithOutcome(log.NotWritten, err)
	}
	if l.mut == mutSkipDirSync {
		return nil
	}
	return l.syncDir(dir)
}

// GetBlob reads a blob.
func (l *Log) GetBlob(ctx context.Context, inst log.ID, name string) ([]byte, error) {
	if err := log.CheckBlobName(name); err != nil {
		return nil, fmt.Errorf("%w: %w", log.ErrNotFound, err)
	}
	if err := l.enter(ctx); err != nil {
		return nil, err
	}
	defer l.calls.Done()
	f, err := l.fsys.Open(filepath.Join(l.blobDir(inst), name), readOnly)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil, fmt.Errorf("blob %s: %w", name, log.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size > math.MaxInt32 {
		return nil, &log.CorruptError{Location: filepath.Join(l.blobDir(inst), name), Reason: fmt.Sprintf("the blob has %d bytes", st.Size)}
	}
	b := make([]byte, st.Size)
	if n, err := f.ReadAt(b, 0); n < len(b) {
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("cannot read blob %s: %w", name, err)
	}
	return b, nil
}

// Delete removes whole files, lowest first, as long as all that they hold lies at or below upTo; the newest file stays. MaxKey removes
// everything, blobs too. Each removal is durable before the next, so that what is left after a crash has no gap.
func (l *Log) Delete(ctx context.Context, inst log.ID, upTo log.Key) error {
	ctx, end, err := l.begin(ctx)
	if err != nil {
		return log.WithOutcome(log.NotWritten, err)
	}
	defer end()
	return l.apart(ctx, func(ctx context.Context, writing func()) error {
		if upTo == log.MaxKey {
			writing()
			return l.deleteAll(inst)
		}
		in, err := l.look(ctx, inst)
		if err != nil {
			return err
		}
		writing()
		in.mu.Lock()
		var names []string
		for i, f := range in.files {
			if i == len(in.files)-1 || !f.closed || !f.known || f.maxKey().Compare(upTo) > 0 {
				break
			}
			names = append(names, filepath.Base(f.path))
		}
		in.mu.Unlock()
		return l.remove(in.dir, names)
	})
}

// remove removes files of a directory, each durably before the next.
func (l *Log) remove(dir string, names []string) error {
	for _, name := range names {
		err := l.fsys.Remove(filepath.Join(dir, name))
		if err == nil || errors.Is(err, iofs.ErrNotExist) {
			err = l.syncDir(dir)
		}
		if err != nil {
			return fmt.Errorf("cannot delete %s: %w", filepath.Join(dir, name), err)
		}
	}
	return nil
}

// deleteAll removes an instance's directory.
func (l *Log) deleteAll(inst log.ID) error {
	l.mu.Lock()
	w := l.writers[inst]
	delete(l.writers, inst)
	delete(l.instances, inst)
	l.mu.Unlock()
	if w != nil {
		if err := w.stop(); err != nil {
			return err
		}
	}
	dir := l.instanceDir(inst)
	names, err := l.fsys.ReadDir(dir)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	slices.Sort(names)
	var others []string
	for _, name := range names {
		if _, _, ok := parseFileName(name); ok {
			if err := l.remove(dir, []string{name}); err != nil {
				return err
			}
		} else if name != blobDirName {
			others = append(others, name)
		}
	}
	blobs, err := l.fsys.ReadDir(l.blobDir(inst))
	if err == nil {
		for _, name := range blobs {
			if err := l.fsys.Remove(filepath.Join(l.blobDir(inst), name)); err != nil && !errors.Is(err, iofs.ErrNotExist) {
				return err
			}
		}
		others = append(others, blobDirName)
	} else if !errors.Is(err, iofs.ErrNotExist) {
		return err
	}
	if err := l.remove(dir, others); err != nil {
		return err
	}
	return l.remove(l.dir, []string{inst.String()})
}

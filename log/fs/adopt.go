package fs

import (
	"cmp"
	"context"
	"fmt"

	"github.com/steledb/stele/log"
)

// settle makes durable what an owner's scan has found above the last mark of the newest file, before anybody is shown it.
//
// It may be in the page cache only, though it can be read: after a failed fdatasync Linux holds such pages for clean, and drops them when it
// likes. So it is written again, in place, marks too, and then synced. What was dropped before that is found missing by another scan, and is torn;
// what that scan finds stays. The bytes are those of whole frames, which nobody ever changes.
func (s *scanner) settle(found scanned) error {
	err := rewrite(s.w.f, found.synced, found.end, s.mut)
	if err == nil {
		err = s.w.f.Datasync()
	}
	s.w.drop()
	return err
}

// open makes what an earlier owner left whole before anything is written behind it: once for each writer. The caller holds io.
//
// What is in the newest file has been settled. It is closed with a final mark (F1), and what was torn behind it is cut off. A crash in between
// leaves the same objects, and the next open does all of it again. A newest file without any object goes away, and its number is used again: its
// name may not be durable.
func (w *writer) open() error {
	if w.opened {
		return nil
	}
	if err := w.in.refresh(context.Background(), true); err != nil {
		return err
	}
	w.in.mu.Lock()
	var f *file
	if n := len(w.in.files); n > 0 && !w.in.files[n-1].closed {
		f = w.in.files[n-1]
	}
	settled := f == nil || f.owned
	w.in.mu.Unlock()
	if !settled { // the handle has failed meanwhile
		return cmp.Or(w.l.failedNow(), log.ErrClosed)
	}
	if f != nil {
		if err := w.seal(f); err != nil {
			return err
		}
	}
	w.opened = true
	return nil
}

// seal ends the newest file of an earlier owner.
func (w *writer) seal(f *file) error {
	found := f.found // nobody else changes it: the scan was the owner's
	if len(found.entries) == 0 {
		if found.torn != "" {
			w.repaired(f, found.end, found.size, found.torn)
		}
		err := w.l.fsys.Remove(f.path)
		if err == nil {
			err = w.l.fsys.SyncDir(w.in.dir)
		}
		if err != nil {
			return w.l.fail(fmt.Errorf("cannot remove %s, which holds no object: %w", f.path, err))
		}
		w.in.mu.Lock()
		w.in.files = w.in.files[:len(w.in.files)-1]
		w.in.mu.Unlock()
		return nil
	}
	if err := w.cut(f, &found); err != nil {
		return err
	}
	w.in.mu.Lock()
	f.closed, f.synced, f.found = true, found.end, scanned{}
	w.in.mu.Unlock()
	return nil
}

// cut ends a file behind its last whole frame.
func (w *writer) cut(f *file, found *scanned) (err error) {
	h, err := w.l.fsys.Open(f.path, readWrite)
	if err != nil {
		return fmt.Errorf("cannot repair %s: %w", f.path, err)
	}
	defer func() {
		if cerr := h.Close(); err == nil && cerr != nil {
			err = w.l.fail(cerr)
		}
	}()
	end := found.end
	if !found.final {
		end += headSize
		if err := h.Allocate(found.end, headSize); noSpace(err) {
			return fmt.Errorf("no room to close %s: %w", f.path, err)
		} else if err != nil {
			return w.l.fail(fmt.Errorf("cannot repair %s: %w", f.path, err))
		}
	}
	if !found.final {
		last := found.entries[len(found.entries)-1]
		mark := frame{final: true, synced: found.end, min: f.min, max: f.max, maxT: f.maxT, hash: last.hash}
		var b [headSize]byte
		mark.put(b[:], found.head.nonce, found.end)
		if _, err := h.WriteAt(b[:], found.end); err != nil {
			return w.l.fail(fmt.Errorf("cannot write a sync mark to %s at offset %d: %w", f.path, found.end, err))
		}
	}
	if err := h.Truncate(end); err != nil {
		return w.l.fail(fmt.Errorf("cannot cut %s to %d bytes: %w", f.path, end, err))
	}
	if err := h.Sync(); err != nil {
		return w.l.fail(fmt.Errorf("cannot sync %s: %w", f.path, err))
	}
	if found.torn != "" {
		w.repaired(f, found.end, found.size, found.torn)
	}
	found.end = end
	return nil
}

// rewrite writes [from, to) of a file again.
func rewrite(h File, from, to int64, mut mutation) error {
	b := make([]byte, min(1<<20, to-from))
	for at := from; at < to && mut != mutNoRewrite; at += int64(len(b)) {
		b = b[:min(int64(len(b)), to-at)]
		if _, err := h.ReadAt(b, at); err != nil {
			return err
		}
		if _, err := h.WriteAt(b, at); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) repaired(f *file, from, to int64, why string) {
	s := fmt.Sprintf("%s: %d torn bytes from offset %d on were cut off (%s)", f.path, to-from, from, why)
	w.repairs = append(w.repairs, s)
	w.l.log.Warn("a torn log was repaired", "file", f.path, "offset", from, "bytes", to-from, "why", why)
}

// Adopt closes what an earlier owner left (see writer.open), and writes every unfenced object again, in place, and syncs it.
func (l *Log) Adopt(ctx context.Context, inst log.ID, head log.Pos, unfenced []*log.Object) (repairs []string, err error) {
	ctx, end, err := l.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	w, err := l.writer(inst)
	if err != nil {
		return nil, err
	}
	var found []string
	err = l.apart(ctx, func(ctx context.Context, writing func()) error {
		writing()
		w.io.Lock()
		defer w.io.Unlock()
		if err := l.failedNow(); err != nil {
			return err
		}
		if w.stopped() {
			return log.WithOutcome(log.NotWritten, log.ErrClosed)
		}
		if err := w.open(); err != nil {
			return err
		}
		err := w.adopt(head, unfenced)
		found, w.repairs = w.repairs, nil
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot adopt the log up to %s: %w", head, err)
	}
	return found, nil
}

func (w *writer) adopt(head log.Pos, unfenced []*log.Object) error {
	if head != (log.Pos{}) {
		p, ok, err := w.in.find(head.Key)
		if err != nil {
			return err
		}
		if ok && p.hash != head.Hash { // if not, it was sealed and deleted
			return p.file.corrupt(p.at, head.Key, fmt.Sprintf("its chain hash is %s", p.hash))
		}
	}
	places := map[*file][]located{}
	var files []*file
	for _, o := range unfenced {
		p, ok, err := w.in.find(o.Key())
		if err != nil {
			return err
		}
		if !ok || p.hash != o.Hash() {
			return &log.CorruptError{Location: w.in.dir, Key: o.Key(), Reason: "the object was read, and is not there any more"}
		}
		if places[p.file] == nil {
			files = append(files, p.file)
		}
		places[p.file] = append(places[p.file], p)
	}
	for _, f := range files {
		if err := w.rewriteObjects(f, places[f]); err != nil {
			return w.l.fail(fmt.Errorf("cannot rewrite what is adopted in %s: %w", f.path, err))
		}
	}
	if len(files) > 0 {
		return w.l.syncDir(w.in.dir)
	}
	return nil
}

func (w *writer) rewriteObjects(f *file, places []located) (err error) {
	h, err := w.l.fsys.Open(f.path, readWrite)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := h.Close(); err == nil {
			err = cerr
		}
	}()
	for _, p := range places {
		if err := rewrite(h, p.at, p.at+p.length(), w.l.mut); err != nil {
			return err
		}
	}
	return h.Datasync()
}

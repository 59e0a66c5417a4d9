package fs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/steledb/stele/log"
)

// A writer appends to an instance's epoch files for the owner. While something is queued, one flush after the other runs, each on a goroutine
// of its own:
//
//	batch = everything queued, of one epoch            // gathered while the last flush was syncing
//	open: repair what an earlier owner left            // once
//	drop from it what is there already                 // same hash: nil; another: ErrConflict
//	roll if the file is full; allocate room            // may fail as "not written"; the handle goes on
//	write(objects); fdatasync                          // the commit point; a failure ends the handle
//	write(mark)                                        // not synced: the next sync or Close covers it
//	let the next flush go on; answer
//
// Invariants of the files:
//
//	F1 A file that is not the newest ends in a final mark, and was synced with it before the next file got its name.
//	F2 No object is written to a file before the file's name is durable.
//	F3 A mark is written only once everything below what it says has been synced since it was last written.
//
// Rejected: a mark in each file's header, in place. It costs every sync a second page.
type writer struct {
	l  *Log
	in *instance

	mu       sync.Mutex
	queue    []*request
	flushing bool // a flush is under way; it starts the next one
	stopping bool

	io      sync.Mutex // held by whoever writes: a flush, Adopt, stop
	opened  bool
	repairs []string
	file    *file // nil: the next flush makes one
	h       File
	head    header
	end     int64 // where the next frame goes
	room    int64 // up to where the file is allocated
	kept    bool  // there is room for one more start
	synced  int64
	last    log.Hash // of the last object that was synced
	cover   coverage
	buf     []byte
	lost    map[log.Hash]bool // what was in the flush that failed
}

// request is one Append.
type request struct {
	o     *log.Object
	frame frame
	taken bool // by a flush; guarded by the writer's mu
	err   error
	done  chan struct{}
}

const (
	fileReserve = 4 << 10  // what is kept allocated for a start, in bytes: more than its file takes
	maxFlush    = 32 << 20 // bytes of one flush, unless one object is larger
	keepBuffer  = 8 << 20  // a larger buffer is not kept
	markRoom    = 2 * headSize
)

// writer returns the instance's writer. Only the owner has one.
func (l *Log) writer(inst log.ID) (*writer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil || l.releasing {
		return nil, fmt.Errorf("%w: this handle does not hold the lock of %s: call Lock first", log.ErrNotOwner, l.dir)
	}
	w := l.writers[inst]
	if w == nil {
		w = &writer{l: l, in: l.instance(inst)}
		l.writers[inst] = w
	}
	return w, nil
}

// Append writes one object. Appends that come while a flush is under way share the next one: one write, one fdatasync.
func (l *Log) Append(ctx context.Context, inst log.ID, o *log.Object) error {
	if err := l.enter(ctx); err != nil {
		return log.WithOutcome(log.NotWritten, err)
	}
	defer l.calls.Done()
	w, err := l.writer(inst)
	if err != nil {
		return err
	}
	r := &request{o: o, frame: objectFrame(o), done: make(chan struct{})}
	if !w.push(r) {
		return log.WithOutcome(log.NotWritten, log.ErrClosed)
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
	}
	if w.pull(r) {
		return log.WithOutcome(log.NotWritten, ctx.Err())
	}
	select {
	case <-r.done:
		return r.err
	default:
		return log.WithOutcome(log.Unknown, ctx.Err())
	}
}

// AppendVerify is Append and Verify in turn: both are local.
func (l *Log) AppendVerify(ctx context.Context, o *log.Object, c log.Check) (appendErr, verifyErr error) {
	if err := l.Append(ctx, c.Instance, o); err != nil {
		return err, nil
	}
	return nil, l.Verify(ctx, c)
}

func (w *writer) push(r *request) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopping {
		return false
	}
	w.queue = append(w.queue, r)
	w.start()
	return true
}

// pull takes a request back, and reports whether no flush had taken it.
func (w *writer) pull(r *request) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.Index(w.queue, r); i >= 0 {
		w.queue = slices.Delete(w.queue, i, i+1)
	}
	return !r.taken
}

// start begins a flush if something is queued and none is under way. The caller holds mu.
func (w *writer) start() {
	if !w.flushing && len(w.queue) > 0 && !w.stopping {
		w.flushing = true
		go w.flushQueued()
	}
}

// flushQueued is one flush. It is not the appending goroutine's, whose context may end before. The next flush has another goroutine, so that Go's
// scheduler runs those who are answered here before it: a goroutine in fdatasync keeps its processor from them for a while.
func (w *writer) flushQueued() {
	w.io.Lock()
	batch, err := w.flush(w.take())
	w.io.Unlock()
	w.mu.Lock()
	w.flushing = false
	w.start()
	w.mu.Unlock()
	answer(batch, err)
}

// take returns what a flush writes: what is queued, of one epoch, in the order in which it came; nothing once the writer stops.
func (w *writer) take() []*request {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, size := 0, int64(0)
	for n < len(w.queue) {
		r := w.queue[n]
		size += r.frame.length()
		if n > 0 && (r.frame.key.Epoch != w.queue[0].frame.key.Epoch || size > maxFlush) {
			break
		}
		r.taken = true
		n++
	}
	batch := w.queue[:n:n]
	w.queue = w.queue[n:]
	if len(w.queue) == 0 {
		w.queue = nil
	}
	return batch
}

// stop waits for the flush under way and lets no other begin. What is queued is not written; the file is closed with a final mark.
func (w *writer) stop() error {
	w.mu.Lock()
	w.stopping = true
	queue := w.queue
	w.queue = nil
	w.mu.Unlock()
	answer(queue, log.WithOutcome(log.NotWritten, fmt.Errorf("the lock was given back: %w", log.ErrClosed)))
	w.io.Lock()
	defer w.io.Unlock()
	if w.l.failedNow() != nil {
		w.drop() // nothing is synced after a failure
		return nil
	}
	return w.finish()
}

// stopped reports whether the lock is being given back, or was. Whoever holds io and is told that it is not is waited for.
func (w *writer) stopped() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stopping
}

func answer(batch []*request, err error) {
	for _, r := range batch {
		r.err = err
		close(r.done)
	}
}

// flush writes a batch, and returns those of it that are still to be answered, with their answer. The caller holds io.
func (w *writer) flush(batch []*request) ([]*request, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	if err := w.l.failedNow(); err != nil && w.l.mut != mutGoOn {
		for _, r := range batch {
			outcome := log.NotWritten
			if w.lost[r.frame.hash] {
				outcome = log.Unknown
			}
			answer([]*request{r}, log.WithOutcome(outcome, err))
		}
		return nil, nil
	}
	if err := w.open(); err != nil {
		return batch, log.WithOutcome(log.NotWritten, err)
	}
	batch = w.settle(batch)
	if len(batch) == 0 {
		return nil, nil
	}
	var need int64
	for _, r := range batch {
		need += r.frame.length()
	}
	if err := w.allocate(batch, need); err != nil {
		return batch, log.WithOutcome(log.NotWritten, err)
	}
	if err := w.write(batch, need); err != nil {
		w.lost = map[log.Hash]bool{}
		for _, r := range batch {
			w.lost[r.frame.hash] = true
		}
		return batch, log.WithOutcome(log.Unknown, w.l.fail(err))
	}
	return batch, nil
}

// settle answers the requests whose key is there, which is durable: open and flush leave nothing that is not. It returns the rest.
func (w *writer) settle(batch []*request) []*request {
	rest := batch[:0:0]
	seen := make(map[log.Key]bool, len(batch))
	var again []*request // a key's second, which the first decides
	for _, r := range batch {
		k := r.frame.key
		if seen[k] {
			again = append(again, r)
			continue
		}
		p, ok, err := w.in.find(k)
		switch {
		case err != nil:
			answer([]*request{r}, log.WithOutcome(log.NotWritten, err))
		case !ok:
			seen[k] = true
			rest = append(rest, r)
		case p.hash == r.frame.hash:
			answer([]*request{r}, nil)
		default:
			answer([]*request{r}, fmt.Errorf("object %s is there with chain hash %s, not %s: %w", k, p.hash, r.frame.hash, log.ErrConflict))
		}
	}
	w.requeue(again)
	return rest
}

// requeue puts requests behind the flush that settles them.
func (w *writer) requeue(rs []*request) {
	if len(rs) == 0 {
		return
	}
	w.mu.Lock()
	if w.stopping {
		w.mu.Unlock()
		answer(rs, log.WithOutcome(log.Unknown, log.ErrClosed))
		return
	}
	for _, r := range rs {
		r.taken = false
	}
	w.queue = append(rs, w.queue...)
	w.mu.Unlock()
}

// write puts the batch behind what the file holds: the commit.
func (w *writer) write(batch []*request, need int64) error {
	if int64(cap(w.buf)) < need {
		w.buf = make([]byte, need)
	}
	b := w.buf[:need]
	if cap(w.buf) > keepBuffer {
		w.buf = nil
	}
	at := int64(0)
	for _, r := range batch {
		r.frame.put(b[at:], w.head.nonce, w.end+at)
		n := at + headSize + int64(copy(b[at+headSize:], r.o.Bytes()))
		at += r.frame.length()
		clear(b[n:at])
	}
	if _, err := w.h.WriteAt(b, w.end); err != nil {
		return fmt.Errorf("cannot write %d bytes to %s at offset %d: %w", need, w.file.path, w.end, err)
	}
	if w.l.mut == mutMarkFirst {
		w.in.mu.Lock()
		err := w.mark(w.end+need, batch[len(batch)-1].frame.hash, false, w.end+need)
		w.in.mu.Unlock()
		if err != nil {
			return err
		}
	}
	if w.l.mut != mutSkipSync {
		err := w.h.Datasync()
		if err != nil && w.l.mut == mutRetrySync {
			err = w.h.Datasync()
		}
		if err != nil {
			return fmt.Errorf("cannot sync %s: %w", w.file.path, err)
		}
	}
	// The mark shows the objects to readers of other handles, the index to those of this one: both at once, or one could miss
	// what the other has shown.
	w.in.mu.Lock()
	defer w.in.mu.Unlock()
	f := w.file
	lo, hi, maxT, known := f.min, f.max, f.maxT, f.known
	for _, r := range batch {
		e := r.frame.entry(0)
		f.holds(&e)
	}
	w.end += need
	if err := w.mark(w.end, batch[len(batch)-1].frame.hash, false, w.end); err != nil {
		f.min, f.max, f.maxT, f.known = lo, hi, maxT, known
		return err
	}
	at = w.end - need
	for _, r := range batch {
		f.add(r.frame.entry(at))
		w.cover.add(&r.frame)
		at += r.frame.length()
	}
	f.synced, w.synced, w.last = w.end, w.end, batch[len(batch)-1].frame.hash
	w.end += headSize
	return nil
}

// mark writes a sync mark at an offset. The caller holds the instance's mu: the one write under it, into the page cache.
func (w *writer) mark(synced int64, last log.Hash, final bool, at int64) error {
	f := frame{final: final, synced: synced, min: w.file.min, max: w.file.max, maxT: w.file.maxT, hash: last}
	var b [headSize]byte
	f.put(b[:], w.head.nonce, at)
	if _, err := w.h.WriteAt(b[:], at); err != nil {
		return fmt.Errorf("cannot write a sync mark to %s at offset %d: %w", w.file.path, at, err)
	}
	return nil
}

// allocate makes sure that the batch can be written: it rolls to a new file if this one is full or of another epoch, and
// allocates the next step. An error means that nothing was written; if it was the disk being full the handle goes on.
func (w *writer) allocate(batch []*request, need int64) error {
	epoch := batch[0].frame.key.Epoch
	if w.file != nil && (w.head.epoch != epoch || w.end >= w.l.opts.RollSize) {
		if err := w.finish(); err != nil {
			return err
		}
	}
	if w.file == nil {
		return w.create(epoch, need, batch[0].frame.key.IsStart())
	}
	if want := w.end + need + markRoom; want > w.room {
		step := roundUp(max(w.l.opts.Prealloc, min(w.end/4, maxPrealloc), want-w.room, 1), align)
		err := w.h.Allocate(w.room, step)
		if noSpace(err) && step > want-w.room {
			step = want - w.room
			err = w.h.Allocate(w.room, step)
		}
		if noSpace(err) {
			return fmt.Errorf("no room for %d bytes in %s: %w", need, w.file.path, err)
		}
		if err != nil {
			return w.l.fail(fmt.Errorf("cannot allocate room in %s: %w", w.file.path, err))
		}
		w.room += step
		if !w.kept {
			w.kept = w.l.reserveStart(w.in.id)
		}
	}
	return nil
}

// finish closes the file: a final mark, the room behind it given back, all of it synced (F1).
func (w *writer) finish() error {
	if w.file == nil {
		return nil
	}
	w.in.mu.Lock()
	err := w.mark(w.synced, w.last, true, w.end)
	w.in.mu.Unlock()
	if err == nil {
		err = w.h.Truncate(w.end + headSize)
	}
	if err == nil && w.l.mut != mutFinalUnsynced {
		err = w.h.Sync()
	}
	w.in.mu.Lock()
	if err == nil { // else nothing says that the file has ended: what is known of it stays
		w.file.live, w.file.closed, w.file.loaded, w.file.byKey = false, true, false, nil
	}
	w.in.mu.Unlock()
	path := w.file.path
	w.drop()
	if err != nil {
		return w.l.fail(fmt.Errorf("cannot close %s: %w", path, err))
	}
	return nil
}

// drop forgets the file.
func (w *writer) drop() {
	if w.h != nil {
		_ = w.h.Close()
	}
	w.file, w.h = nil, nil
}

// create makes the next file: header and room, synced; then its name, synced (F2). Only then objects go into it. If the disk is full a start
// takes the room that was kept for it.
func (w *writer) create(epoch uint64, need int64, start bool) error {
	dir := w.in.dir
	if err := w.l.mkdir(dir); err != nil {
		return w.creating(dir, err)
	}
	w.in.mu.Lock()
	first := len(w.in.files) == 0
	seq, base := uint32(1), uint64(0)
	if n := len(w.in.files); n > 0 {
		last := w.in.files[n-1]
		seq = last.seq + 1
		if last.epoch == epoch {
			base = last.maxT
			if w.cover.any {
				base = w.cover.t
			}
		}
	}
	w.in.mu.Unlock()
	if first { // who made the directory may have failed to sync it
		if err := w.l.syncDir(w.l.dir); err != nil {
			return err
		}
	}
	head, err := newHeader(w.in.id, epoch, seq, base)
	if err != nil {
		return err
	}
	name := fileName(seq, epoch)
	f := &file{inst: w.in.id, seq: seq, epoch: epoch, path: w.l.path(w.in.id.String(), name), live: true}
	least := headSize + need + markRoom
	room := roundUp(max(least, w.l.opts.Prealloc), align)
	temp := w.l.path(w.in.id.String(), fileTempName)
	if err := w.l.newestApart(w.in.id, fileTempName); err != nil {
		return w.creating(f.path, err)
	}
	h, err := w.prepare(temp, head, room)
	if noSpace(err) && start && least <= fileReserve {
		full := err
		temp, room = w.l.path(w.in.id.String(), fileReserveName), fileReserve
		if _, serr := w.l.fsys.Stat(temp); serr != nil {
			return w.creating(f.path, full)
		}
		if err := w.l.newestApart(w.in.id, fileReserveName); err != nil {
			return w.creating(f.path, err)
		}
		h, err = w.prepare(temp, head, room)
	}
	if err != nil {
		return w.creating(f.path, err)
	}
	err = w.l.fsys.Rename(temp, f.path)
	if err == nil && w.l.mut != mutSkipDirSync {
		err = w.l.fsys.SyncDir(dir)
	}
	_ = h.Close()
	if err == nil {
		h, err = w.l.fsys.Open(f.path, readWrite) // by its name, which errors then tell
	}
	if err != nil {
		return w.l.fail(fmt.Errorf("cannot create %s: %w", f.path, err))
	}
	if !w.cover.any || w.head.epoch != epoch {
		w.cover = coverage{t: base, any: base > 0}
	}
	w.file, w.h, w.head = f, h, head
	w.end, w.synced, w.room, w.last = headSize, headSize, room, log.Hash{}
	w.in.mu.Lock()
	if n := len(w.in.files); n > 0 && w.in.files[n-1].seq == seq { // somebody read the directory meanwhile
		w.in.files = w.in.files[:n-1]
	}
	w.in.files = append(w.in.files[:len(w.in.files):len(w.in.files)], f)
	w.in.mu.Unlock()
	w.kept = w.l.reserveStart(w.in.id)
	return nil
}

// creating is the error of a file that was not made. A full disk leaves the handle usable, any other failure does not.
func (w *writer) creating(path string, err error) error {
	err = fmt.Errorf("cannot create %s: %w", path, err)
	if noSpace(errors.Unwrap(err)) {
		return err
	}
	return w.l.fail(err)
}

// prepare writes a file's header and allocates its room, durably.
func (w *writer) prepare(temp string, head header, room int64) (File, error) {
	h, err := w.l.fsys.Open(temp, create)
	if err != nil {
		return nil, err
	}
	err = h.Allocate(0, room)
	if err == nil {
		_, err = h.WriteAt(head.encode(), 0)
	}
	if err == nil {
		err = h.Sync()
	}
	if err != nil {
		_ = h.Close()
		_ = w.l.fsys.Remove(temp)
		return nil, err
	}
	return h, nil
}

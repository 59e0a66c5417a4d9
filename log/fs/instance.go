package fs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/steledb/stele/log"
)

// instance is what this handle knows of an instance's epoch files.
type instance struct {
	l   *Log
	id  log.ID
	dir string

	scanning sync.Mutex // one refresh or load at a time; held while files are read, never by a flush
	ended    bool       // the lock was given back; guarded by scanning

	mu    sync.Mutex // guards files and what is in them; never held while a file is read, or written but for a mark
	files []*file    // by number
	clock uint64     // counts loads
}

// file is an epoch file. All fields behind path are guarded by the instance's mu.
type file struct {
	inst  log.ID
	seq   uint32
	epoch uint64
	path  string

	live   bool // this handle writes it: objects are added as they become durable
	closed bool // it ends in a final mark and another file follows, or its writer has ended: it does not change any more
	known  bool // min, max and maxT are
	loaded bool // entries are all there
	min    uint64
	max    uint64 // first t of the lowest and highest key
	maxT   uint64
	synced int64   // entries below it lie below a sync mark, or were settled
	byKey  []entry // in key order
	found  scanned // of the last scan, if the file is not closed and not live
	owned  bool    // found is an owner's
	used   uint64  // when entries were last needed
}

func (f *file) corrupt(at int64, k log.Key, reason string) error {
	return &log.CorruptError{
		Location: fmt.Sprintf("%s at offset %d", f.path, at),
		Key:      k,
		Reason:   reason + " (stop using this directory, keep a copy of it, and restore it from a backup)",
	}
}

func (f *file) key(e *entry) log.Key { return log.Key{Epoch: f.epoch, FirstT: e.firstT} }

func (f *file) minKey() log.Key { return log.Key{Epoch: f.epoch, FirstT: f.min} }
func (f *file) maxKey() log.Key { return log.Key{Epoch: f.epoch, FirstT: f.max} }

// add puts an entry where its key belongs, nearly always at the end.
func (f *file) add(e entry) {
	i := len(f.byKey)
	for i > 0 && f.byKey[i-1].firstT > e.firstT {
		i--
	}
	f.byKey = slices.Insert(f.byKey, i, e)
	f.holds(&e)
}

// holds widens what the file is known to hold.
func (f *file) holds(e *entry) {
	if !f.known {
		f.min, f.max, f.maxT, f.known = e.firstT, e.firstT, e.lastT, true
	}
	f.min, f.max, f.maxT = min(f.min, e.firstT), max(f.max, e.firstT), max(f.maxT, e.lastT)
}

// set takes over what a scan found.
func (f *file) set(s scanned, owner bool) {
	f.byKey = slices.SortedStableFunc(slices.Values(s.entries), func(a, b entry) int { return cmp.Compare(a.firstT, b.firstT) })
	f.synced, f.found, f.owned, f.loaded = s.synced, s, owner, true
	f.known, f.min, f.max, f.maxT = false, 0, 0, 0
	for i := range f.byKey {
		f.holds(&f.byKey[i])
	}
}

// lookup finds the entry of a first t. The entries must be loaded.
func (f *file) lookup(firstT uint64) (entry, bool) {
	i, ok := slices.BinarySearchFunc(f.byKey, firstT, func(e entry, t uint64) int { return cmp.Compare(e.firstT, t) })
	if !ok {
		return entry{}, false
	}
	return f.byKey[i], true
}

// shown returns the entries that may be seen, those behind the first t after, at most n: what is known to be durable because it lies below a mark,
// because a later object of the file proves it to have been acknowledged, or because an owner has settled it.
func (f *file) shown(after uint64, n int, to []located) []located {
	i, found := slices.BinarySearchFunc(f.byKey, after, func(e entry, t uint64) int { return cmp.Compare(e.firstT, t) })
	if found {
		i++
	}
	return f.shownFrom(i, n, to)
}

func (f *file) shownFrom(i int, n int, to []located) []located {
	for ; i < len(f.byKey) && n > 0; i++ {
		e := &f.byKey[i]
		if f.closed || e.at < f.synced || f.proven(e) {
			to = append(to, located{f, *e})
			n--
		}
	}
	return to
}

// proven reports whether an object behind e in the file was written when e had been acknowledged.
func (f *file) proven(e *entry) bool {
	if f.found.fenced >= e.proves {
		return true
	}
	for i := len(f.byKey) - 1; i >= 0; i-- {
		if o := &f.byKey[i]; o.at > e.at && o.fenced >= e.proves {
			return true
		} else if o.at < f.synced {
			break
		}
	}
	return false
}

// located is an object's place.
type located struct {
	*file
	entry
}

func (p *located) objectKey() log.Key { return p.file.key(&p.entry) }

// instance returns what the handle knows of an instance. The caller holds mu.
func (l *Log) instance(id log.ID) *instance {
	in := l.instances[id]
	if in == nil {
		in = &instance{l: l, id: id, dir: l.instanceDir(id)}
		l.instances[id] = in
	}
	return in
}

// look returns what is there of an instance now. An owner may have to write for it (scanner.settle).
func (l *Log) look(ctx context.Context, id log.ID) (*instance, error) {
	l.mu.Lock()
	in, owner := l.instance(id), l.held != nil && !l.releasing
	l.mu.Unlock()
	if !owner {
		return in, in.refresh(ctx, false)
	}
	return in, l.apart(ctx, func(ctx context.Context, writing func()) error {
		writing()
		return in.refresh(ctx, true)
	})
}

// refresh looks which files there are, and reads what the last one has gained. owner: the caller holds the lock, so nobody
// else writes.
func (in *instance) refresh(ctx context.Context, owner bool) error {
	in.scanning.Lock()
	defer in.scanning.Unlock()
	for try := 0; ; try++ {
		err := in.list()
		if err == nil {
			err = in.examine(ctx, owner)
		}
		gone := errors.Is(err, iofs.ErrNotExist) // sealed and deleted since the directory was read
		if (gone || errors.Is(err, errGap)) && try < 3 {
			continue
		}
		return err
	}
}

// errGap: the numbers of the files are not dense. Files may be deleted, lowest first, while the directory is read.
var errGap = errors.New("a file is missing")

// list reads the directory.
func (in *instance) list() error {
	names, err := in.l.fsys.ReadDir(in.dir)
	if err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return err
	}
	slices.Sort(names)
	in.mu.Lock()
	defer in.mu.Unlock()
	known := make(map[uint32]*file, len(in.files))
	for _, f := range in.files {
		known[f.seq] = f
	}
	var files []*file
	for _, name := range names {
		seq, epoch, ok := parseFileName(name)
		if !ok {
			continue
		}
		if n := len(files); n > 0 && files[n-1].seq+1 != seq {
			return &log.CorruptError{
				Location: filepath.Join(in.dir, name),
				Reason: fmt.Sprintf("the file before it, number %08x, is missing (restore it, or the whole directory, from a backup)",
					seq-1),
				Err: errGap,
			}
		}
		f := known[seq]
		if f == nil || f.epoch != epoch {
			f = &file{inst: in.id, seq: seq, epoch: epoch, path: filepath.Join(in.dir, name)}
		}
		files = append(files, f)
	}
	for _, f := range in.files { // what the writer has made since
		if f.live && !slices.Contains(files, f) {
			files = append(files, f)
		}
	}
	in.files = files
	return nil
}

// examine learns what keys the files hold.
func (in *instance) examine(ctx context.Context, owner bool) error {
	in.mu.Lock()
	files := slices.Clone(in.files)
	in.mu.Unlock()
	for i, f := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		newest := i == len(files)-1
		in.mu.Lock()
		skip := f.live || f.closed || newest && f.owned
		in.mu.Unlock()
		if skip {
			continue
		}
		if !newest {
			ok, err := in.summarize(f)
			if err != nil {
				return err
			}
			if ok {
				continue
			}
		}
		if err := in.read(f, newest, owner); err != nil {
			return err
		}
	}
	return nil
}

func (in *instance) summarize(f *file) (bool, error) {
	h, err := in.l.fsys.Open(f.path, readOnly)
	if err != nil {
		return false, err
	}
	defer h.Close()
	s := scanner{file: f, w: window{f: h}}
	lo, hi, maxT, ok, err := s.summary()
	if err != nil || !ok {
		return false, err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	f.min, f.max, f.maxT, f.known = lo, hi, maxT, true
	f.closed, f.loaded, f.byKey = true, false, nil
	return true, nil
}

// read scans a file. An owner settles the newest; one that has failed, or given the lock back, reads it like everybody else. The caller
// holds scanning.
func (in *instance) read(f *file, newest, owner bool) error {
	owner = owner && newest && !in.ended && in.l.failedNow() == nil
	flag := readOnly
	if owner {
		flag = readWrite
	}
	h, err := in.l.fsys.Open(f.path, flag)
	if err != nil {
		return err
	}
	defer h.Close()
	in.mu.Lock()
	have := f.found
	if owner || !newest {
		have = scanned{}
	}
	in.mu.Unlock()
	have.entries = slices.Clip(have.entries)
	s := scanner{file: f, w: window{f: h}, newest: newest, owner: owner, mut: in.l.mut}
	found, err := s.scan(have)
	if err == nil && owner && found.synced < found.end {
		if err := s.settle(found); err != nil {
			return in.l.fail(fmt.Errorf("cannot rewrite %s: %w", f.path, err))
		}
		if in.l.mut != mutLookOnce {
			found.resume, found.final = found.synced, false
			found, err = s.scan(found)
		}
	}
	if err != nil {
		return err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if f.live {
		return nil // the writer has taken it over meanwhile, and knows more
	}
	f.set(found, owner)
	if f.closed = !newest; f.closed {
		f.found = scanned{}
	}
	if f.closed || owner || in.l.mut == mutShowUnmarked {
		f.synced = found.end
	}
	return nil
}

// cached is how many files that do not change any more keep their entries in memory.
const cached = 4

// load makes sure that a file's entries are there, and returns nil with mu held: once it is released, another load may let them go.
func (in *instance) load(f *file) error {
	in.mu.Lock()
	in.clock++
	f.used = in.clock
	if f.loaded || f.live {
		return nil
	}
	in.mu.Unlock()
	in.scanning.Lock()
	defer in.scanning.Unlock()
	if err := in.read(f, false, false); err != nil {
		return err
	}
	in.mu.Lock()
	var full []*file
	for _, o := range in.files {
		if o.closed && o.loaded && o != f {
			full = append(full, o)
		}
	}
	slices.SortFunc(full, func(a, b *file) int { return cmp.Compare(b.used, a.used) })
	for _, o := range full[min(len(full), cached):] {
		o.byKey, o.loaded = nil, false
	}
	return nil
}

// find returns the place of an object that is there. The caller has refreshed.
func (in *instance) find(k log.Key) (p located, ok bool, err error) {
	in.mu.Lock()
	var files []*file
	for _, f := range in.files {
		if f.epoch == k.Epoch && f.known && f.min <= k.FirstT && k.FirstT <= f.max {
			files = append(files, f)
		}
	}
	in.mu.Unlock()
	for _, f := range files {
		if err := in.load(f); errors.Is(err, iofs.ErrNotExist) {
			continue
		} else if err != nil {
			return p, false, err
		}
		e, found := f.lookup(k.FirstT)
		found = found && (f.closed || e.at < f.synced || f.proven(&e))
		in.mu.Unlock()
		if found {
			return located{f, e}, true, nil
		}
	}
	return p, false, nil
}

// next returns up to n of the objects behind a key, in order: those that are there of the lowest keys.
func (in *instance) next(after log.Key, n int) ([]located, error) {
	in.mu.Lock()
	var files []*file
	for _, f := range in.files {
		if f.known && f.maxKey().Compare(after) > 0 {
			files = append(files, f)
		}
	}
	slices.SortStableFunc(files, func(a, b *file) int { return a.minKey().Compare(b.minKey()) })
	bounds := make([]log.Key, len(files))
	for i, f := range files {
		bounds[i] = f.minKey()
	}
	in.mu.Unlock()
	var out []located
	for i, f := range files {
		if len(out) >= n && out[n-1].objectKey().Compare(bounds[i]) < 0 {
			break // what follows lies behind
		}
		if err := in.load(f); errors.Is(err, iofs.ErrNotExist) {
			continue // sealed and deleted
		} else if err != nil {
			return nil, err
		}
		if f.epoch > after.Epoch {
			out = f.shownFrom(0, n, out)
		} else {
			out = f.shown(after.FirstT, n, out)
		}
		in.mu.Unlock()
		slices.SortStableFunc(out, func(a, b located) int { return a.objectKey().Compare(b.objectKey()) })
		out = out[:min(len(out), n)]
	}
	return out, nil
}

// last is the highest key that is there.
func (in *instance) last() (log.Key, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	var k log.Key
	for _, f := range in.files {
		if !f.known {
			continue
		}
		if f.closed || f.live {
			if f.maxKey().Compare(k) > 0 {
				k = f.maxKey()
			}
			continue
		}
		for _, p := range f.shownFrom(0, len(f.byKey), nil) {
			if p.objectKey().Compare(k) > 0 {
				k = p.objectKey()
			}
		}
	}
	return k, k != log.Key{}
}

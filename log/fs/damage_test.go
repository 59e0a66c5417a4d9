package fs_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/fs"
	"github.com/steledb/stele/log/fs/crashfs"
)

// specimen is a small log in a directory: two epochs, three files.
type specimen struct {
	dir   string // of the store
	inst  log.ID
	files []string // the epoch files, oldest first
	chain []*log.Object
	bytes map[string][]byte // all files of the database
}

func makeSpecimen(dir string) (*specimen, error) {
	for range 2 {
		l, err := fs.Open(ctx, fs.Options{Dir: dir, RollSize: 1500, Prealloc: 512})
		if err != nil {
			return nil, err
		}
		o, err := own(ctx, l)
		for i := 0; i < 4 && err == nil; i++ {
			err = o.commit(ctx, 100)
		}
		if err := errors.Join(err, l.Close()); err != nil {
			return nil, err
		}
	}
	return readSpecimen(dir)
}

func readSpecimen(dir string) (*specimen, error) {
	l, err := fs.Open(ctx, fs.Options{Dir: dir})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	root, err := l.Root(ctx)
	if err != nil {
		return nil, err
	}
	s := &specimen{dir: dir, inst: root.Instance, bytes: map[string][]byte{}}
	if s.chain, err = chainOf(ctx, l, root.Instance); err != nil {
		return nil, err
	}
	if s.files, err = filepath.Glob(filepath.Join(dir, "main", root.Instance.String(), "*.log")); err != nil {
		return nil, err
	}
	slices.Sort(s.files)
	for _, name := range append(slices.Clone(s.files), filepath.Join(dir, "main", "ROOT")) {
		if s.bytes[name], err = os.ReadFile(name); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// restore puts every file back as it was.
func (s *specimen) restore() error {
	names, err := filepath.Glob(filepath.Join(s.dir, "main", s.inst.String(), "*.log"))
	if err != nil {
		return err
	}
	for _, name := range names {
		if s.bytes[name] == nil {
			if err := os.Remove(name); err != nil {
				return err
			}
		}
	}
	for name, b := range s.bytes {
		if err := os.WriteFile(name, b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// verdict is what an opener says: the chain that it found and repaired, or an error.
type verdict struct {
	chain   []*log.Object
	repairs []string
	err     error
}

func (s *specimen) open(mut fs.Mutation) (v verdict) {
	l, err := fs.Open(ctx, fs.Options{Dir: s.dir})
	if err != nil {
		return verdict{err: err}
	}
	defer l.Close()
	l.Break(mut)
	o, err := acquire(ctx, l)
	if err != nil {
		return verdict{err: err}
	}
	if v.chain, v.err = o.chain(ctx); v.err != nil {
		return v
	}
	v.err = o.recover(ctx)
	v.repairs = o.repairs
	return v
}

// corruptAt wants ErrCorrupt, and the file and an offset in it.
func (v verdict) corruptAt(file string) error {
	var c *log.CorruptError
	switch {
	case !errors.As(v.err, &c) || !errors.Is(v.err, log.ErrCorrupt):
		return fmt.Errorf("not ErrCorrupt, but %v, repairs %q", v.err, v.repairs)
	case !strings.Contains(v.err.Error(), file):
		return fmt.Errorf("%q does not name %s", v.err, file)
	}
	return nil
}

// endsAt wants the first n objects of the specimen's chain, and a report of repairs or none.
func (s *specimen) endsAt(v verdict, n int, repaired bool) error {
	switch {
	case v.err != nil:
		return v.err
	case len(v.chain) != n || n > 0 && v.chain[n-1].Hash() != s.chain[n-1].Hash():
		return fmt.Errorf("%d objects are left, not %d", len(v.chain), n)
	case repaired != (len(v.repairs) == 1) || repaired && !strings.Contains(v.repairs[0], "offset"):
		return fmt.Errorf("repairs %q, wanted %v", v.repairs, repaired)
	}
	return nil
}

// lastObject is where the frame of the newest file's last object begins, and where the object ends with its padding. Behind it
// stand its mark and the final one.
func (s *specimen) lastObject() (from, to int) {
	size := len(s.bytes[last(s.files)])
	to = size - 160
	return to - (80+last(s.chain).Size()+7)/8*8, to
}

// reopen restores nothing: a repaired log must be whole.
func (s *specimen) reopen() error {
	v := s.open(0)
	if v.err != nil || len(v.repairs) > 0 {
		return fmt.Errorf("after the repair: %v, repairs %q", v.err, v.repairs)
	}
	return nil
}

func TestL10_TruncateTheLastObject(t *testing.T) {
	s, err := makeSpecimen(diskDir(t))
	if err != nil {
		t.Fatal(err)
	}
	name := last(s.files)
	from, to := s.lastObject()
	n := len(s.chain)
	for size := from; size <= len(s.bytes[name]); size++ {
		if err := s.restore(); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(name, int64(size)); err != nil {
			t.Fatal(err)
		}
		want, repaired := n-1, size > from
		if size >= to {
			want, repaired = n, size != to && size != to+80 && size != to+160
		}
		err := s.endsAt(s.open(0), want, repaired)
		if err == nil {
			err = s.reopen()
		}
		if err != nil {
			t.Fatalf("cut at %d of [%d, %d): %v", size, from, len(s.bytes[name]), err)
		}
	}
}

func TestL10_FlipAnyByte(t *testing.T) {
	s, err := makeSpecimen(diskDir(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.flipEveryByte(0); err != nil {
		t.Fatal(err)
	}
}

// damageEverywhere is the same test for the table of mutations.
func damageEverywhere(mut fs.Mutation) error {
	dir, err := os.MkdirTemp("", "stele-fs-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := makeSpecimen(dir)
	if err != nil {
		return err
	}
	return s.flipEveryByte(mut)
}

func (s *specimen) flipEveryByte(mut fs.Mutation) error {
	for i, name := range s.files {
		for at := range s.bytes[name] {
			if err := s.restore(); err != nil {
				return err
			}
			b := slices.Clone(s.bytes[name])
			b[at] ^= 1 << (at % 8)
			if err := os.WriteFile(name, b, 0o644); err != nil {
				return err
			}
			v := s.open(mut)
			// The last file's last two marks, of its last sync and of Close, have nothing behind them that says they
			// were durable.
			_, marks := s.lastObject()
			err := v.corruptAt(filepath.Base(name))
			if i == len(s.files)-1 && at >= marks {
				if err = s.endsAt(v, len(s.chain), true); err == nil {
					err = s.reopen()
				}
			}
			if err != nil {
				return fmt.Errorf("byte %d of %s: %w", at, filepath.Base(name), err)
			}
		}
	}
	return nil
}

func TestL10_FlipAnyByteOfTheRoot(t *testing.T) {
	s, err := makeSpecimen(diskDir(t))
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(s.dir, "main", "ROOT")
	for at := range s.bytes[name] {
		b := slices.Clone(s.bytes[name])
		b[at] ^= 1 << (at % 8)
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := s.open(0).corruptAt("ROOT"); err != nil {
			t.Fatalf("byte %d: %v", at, err)
		}
	}
}

func TestL10_GarbageBehindTheEnd(t *testing.T) {
	s, err := makeSpecimen(diskDir(t))
	if err != nil {
		t.Fatal(err)
	}
	whole := s.bytes[last(s.files)]
	for i, name := range s.files {
		for what, garbage := range map[string][]byte{
			"text":          []byte("garbage"),
			"a byte":        {1},
			"zeros, text":   append(make([]byte, 5000), "garbage"...),
			"its own bytes": whole[80:],
			"itself":        whole,
		} {
			if err := s.restore(); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, append(slices.Clone(s.bytes[name]), garbage...), 0o644); err != nil {
				t.Fatal(err)
			}
			v := s.open(0)
			if i < len(s.files)-1 {
				err = v.corruptAt(filepath.Base(name))
			} else if err = s.endsAt(v, len(s.chain), true); err == nil {
				err = s.reopen()
			}
			if err != nil {
				t.Fatalf("%s behind %s: %v", what, filepath.Base(name), err)
			}
		}
	}
}

// Zeros are what preallocation leaves.
func TestL10_ZerosAreTheEnd(t *testing.T) {
	s, err := makeSpecimen(diskDir(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range s.files {
		if err := os.Truncate(name, int64(len(s.bytes[name])+10_000)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.endsAt(s.open(0), len(s.chain), false); err != nil {
		t.Fatal(err)
	}
}

func TestL10_MissingFiles(t *testing.T) {
	s, err := makeSpecimen(diskDir(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.files) < 4 {
		t.Fatalf("only %d files", len(s.files))
	}
	for i, name := range s.files[1 : len(s.files)-1] {
		if err := s.restore(); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
		if err := s.open(0).corruptAt(filepath.Base(s.files[i+2])); err != nil {
			t.Fatalf("without %s: %v", filepath.Base(name), err)
		}
	}
	// A file cut at a mark, between two objects, is whole as far as it goes; but it does not say that it is.
	if err := s.restore(); err != nil {
		t.Fatal(err)
	}
	middle := s.files[1]
	if err := os.Truncate(middle, int64(len(s.bytes[middle])-80)); err != nil {
		t.Fatal(err)
	}
	if err := s.open(0).corruptAt(filepath.Base(middle)); err != nil {
		t.Fatal(err)
	}
}

// A start is torn, or lost, with the file that was made for it.
func TestL10_TornStart(t *testing.T) {
	s, err := makeSpecimen(diskDir(t))
	if err != nil {
		t.Fatal(err)
	}
	whole, err := readSpecimen(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	if v := s.open(0); v.err != nil { // another epoch, of a start alone
		t.Fatal(v.err)
	}
	if s, err = readSpecimen(s.dir); err != nil {
		t.Fatal(err)
	}
	name := last(s.files)
	for size := 80; size < len(s.bytes[name])-160; size += 3 {
		if err := s.restore(); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(name, int64(size)); err != nil {
			t.Fatal(err)
		}
		if err := whole.endsAt(s.open(0), len(whole.chain), size > 80); err != nil {
			t.Fatalf("cut at %d: %v", size, err)
		}
	}
}

// What a later object proves to have been acknowledged is not torn, with or without a mark.
func TestL10_FencedIsNotTorn(t *testing.T) {
	w := newWorld(fs.Options{}, 0)
	p := w.m.Process()
	l, err := w.open(p)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o, err := own(ctx, l)
	if err != nil {
		t.Fatal(err)
	}
	mustCommit(t, o, 3, 600)
	var writes []crashfs.Call
	for _, c := range w.m.Calls() {
		if c.Op == "write" && strings.HasSuffix(c.Path, ".log") {
			writes = append(writes, c)
		}
	}
	// start, mark, 1, mark, 2, mark, 3, mark: without the last two marks, object 3 is what proves object 2.
	if len(writes) != 8 {
		t.Fatalf("%d writes", len(writes))
	}
	path := fmt.Sprintf("/data/store/main/%s/00000001-0000000000000001.log", o.root.Instance)
	p.Kill(nil)
	w.m.Flip(path, writes[7].Off+10)
	w.m.Flip(path, writes[5].Off+10)

	// A reader sees what is proven: up to object 2. An owner sees all of it.
	r, err := w.open(w.m.Process())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := chainOf2(ctx, w, r); err != nil {
		t.Fatal(err)
	}
	if len(w.shown) != 2 { // the mark in between is broken: what lies behind it is not read yet
		t.Fatalf("a reader sees %d objects", len(w.shown))
	}

	w.m.Flip(path, writes[4].Off+200) // object 2 itself
	o2, err := w.open(w.m.Process())
	if err != nil {
		t.Fatal(err)
	}
	defer o2.Close()
	if _, err := own(ctx, o2); !errors.Is(err, log.ErrCorrupt) || !strings.Contains(err.Error(), fmt.Sprintf("offset %d", writes[4].Off)) {
		t.Fatalf("object 2 was acknowledged, says object 3, and is damaged: %v", err)
	}
}

// goesOn fails a sync and expects that nothing more is taken.
func goesOn(mut fs.Mutation) error {
	w := newWorld(fs.Options{}, mut)
	l, err := w.open(w.m.Process())
	if err != nil {
		return err
	}
	defer l.Close()
	o, err := own(ctx, l)
	if err != nil {
		return err
	}
	if err := o.commit(ctx, 10); err != nil {
		return err
	}
	head, t := o.head, o.lastT
	w.m.FailAt(len(w.m.Calls())+1, syscall.EIO, crashfs.Random(1)) // the write, then the sync
	err = o.commit(ctx, 10)
	if !errors.Is(err, log.ErrFailed) || !errors.Is(err, syscall.EIO) || log.OutcomeOf(err) != log.Unknown {
		return fmt.Errorf("a failed sync: %v, outcome %s", err, log.OutcomeOf(err))
	}
	n := len(w.m.Calls())
	o.head, o.lastT = head, t
	err = o.commit(ctx, 20)
	if !errors.Is(err, log.ErrFailed) || !errors.Is(err, syscall.EIO) || log.OutcomeOf(err) != log.NotWritten {
		return fmt.Errorf("an append after a failed sync: %v, outcome %s", err, log.OutcomeOf(err))
	}
	err = l.CompareAndSwap(ctx, o.root, o.root.Next())
	if !errors.Is(err, log.ErrFailed) || log.OutcomeOf(err) != log.NotWritten {
		return fmt.Errorf("a swap after a failed sync: %v, outcome %s", err, log.OutcomeOf(err))
	}
	if _, err := chainOf2(ctx, w, l); err != nil {
		return fmt.Errorf("reading after a failed sync: %w", err)
	}
	if err := l.Close(); err != nil {
		return err
	}
	for _, c := range w.m.Calls()[n:] {
		if c.Op != "truncate" && c.Op != "create" { // LOCK, ROOT.lock
			return fmt.Errorf("%s after a failed sync", c)
		}
	}
	return nil
}

func TestFailStop_NothingMore(t *testing.T) {
	if err := goesOn(0); err != nil {
		t.Fatal(err)
	}
}

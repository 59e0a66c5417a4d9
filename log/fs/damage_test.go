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

// specimen is a small log on a machine of its own: two epochs, some files.
type specimen struct {
	base  *crashfs.Machine
	inst  log.ID
	dir   string   // of the instance
	files []string // the epoch files' names, oldest first
	bytes map[string][]byte
	chain []*log.Object
}

var tiny = fs.Options{Dir: "/store", RollSize: 1500, Prealloc: 512}

func makeSpecimen() (*specimen, error) {
	m := crashfs.New()
	for range 2 {
		o := tiny
		o.FS = m.Process()
		l, err := fs.Open(ctx, o)
		if err != nil {
			return nil, err
		}
		owner, err := own(ctx, l)
		for i := 0; i < 4 && err == nil; i++ {
			err = owner.commit(ctx, 100)
		}
		if err := errors.Join(err, l.Close()); err != nil {
			return nil, err
		}
	}
	return readSpecimen(m)
}

func readSpecimen(m *crashfs.Machine) (*specimen, error) {
	s := &specimen{base: m, bytes: map[string][]byte{}}
	o := tiny
	o.FS = m.Process()
	l, err := fs.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	root, err := l.Root(ctx)
	if err != nil {
		return nil, err
	}
	if s.chain, err = chainOf(ctx, l, root.Instance); err != nil {
		return nil, err
	}
	s.inst = root.Instance
	s.dir = "/store/main/" + root.Instance.String() + "/"
	names, err := o.FS.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	for _, name := range names {
		if strings.HasSuffix(name, ".log") {
			s.files = append(s.files, name)
			s.bytes[name] = m.File(s.dir + name)
		}
	}
	return s, nil
}

// newest keeps the newest of everything: a copy of a machine.
func newest(n int) int { return n - 1 }

// with is the specimen with other bytes in one file; nil: without the file.
func (s *specimen) with(name string, b []byte) *crashfs.Machine {
	m := s.base.Crash(newest)
	m.SetFile(s.dir+name, b)
	return m
}

// verdict is what an opener says: the chain that it found and repaired, or an error.
type verdict struct {
	chain   []*log.Object
	repairs []string
	err     error
}

func open(m *crashfs.Machine, mut fs.Mutation) (v verdict) {
	o := tiny
	o.FS = m.Process()
	l, err := fs.Open(ctx, o)
	if err != nil {
		return verdict{err: err}
	}
	defer l.Close()
	l.Break(mut)
	owner, err := acquire(ctx, l)
	if err != nil {
		return verdict{err: err}
	}
	if v.chain, v.err = owner.chain(ctx); v.err != nil {
		return v
	}
	v.err = owner.recover(ctx)
	v.repairs = owner.repairs
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
	to = len(s.bytes[last(s.files)]) - 160
	return to - (80+last(s.chain).Size()+7)/8*8, to
}

// repaired wants the first n objects of the chain, and what was repaired reported; and that the repaired log, and one whose repair a crash
// cut short, is whole.
func (s *specimen) repaired(m *crashfs.Machine, n int, repaired bool, mut fs.Mutation) error {
	copied := m.Crash(newest)
	v := open(copied, mut)
	if err := s.endsAt(v, n, repaired); err != nil {
		return err
	}
	if v := open(copied, 0); v.err != nil || len(v.repairs) > 0 || len(v.chain) != n+1 {
		return fmt.Errorf("after the repair: %v, repairs %q, %d objects", v.err, v.repairs, len(v.chain))
	}
	// A quarter of the calls for each of the many damages that come here.
	var size int
	for _, name := range s.files {
		size += len(m.File(s.dir + name))
	}
	for k := size % 4; k < len(copied.Calls()); k += 4 {
		crashing := m.Crash(newest)
		crashing.CrashAt(k)
		open(crashing, mut)
		if !crashing.Off() {
			break
		}
		v := open(crashing.Crash(crashfs.Random(uint64(n*1000+k))), 0)
		if v.err != nil || len(v.chain) < n || n > 0 && v.chain[n-1].Hash() != s.chain[n-1].Hash() {
			return fmt.Errorf("a crash at call %s of the repair: %v, %d objects", last(crashing.Calls()), v.err, len(v.chain))
		}
	}
	return nil
}

func specimenOf(t *testing.T) *specimen {
	t.Helper()
	s, err := makeSpecimen()
	if err != nil {
		t.Fatal(err)
	}
	if len(s.files) < 4 || len(s.chain) != 10 {
		t.Fatalf("%d files, %d objects", len(s.files), len(s.chain))
	}
	return s
}

func TestL10_TruncateTheLastObject(t *testing.T) {
	s := specimenOf(t)
	name := last(s.files)
	from, to := s.lastObject()
	n := len(s.chain)
	for size := from; size <= len(s.bytes[name]); size++ {
		want, repaired := n-1, size > from
		if size >= to {
			want, repaired = n, size != to && size != to+80 && size != to+160
		}
		if err := s.repaired(s.with(name, s.bytes[name][:size]), want, repaired, 0); err != nil {
			t.Fatalf("cut at %d of [%d, %d): %v", size, from, len(s.bytes[name]), err)
		}
	}
}

func TestL10_FlipAnyByte(t *testing.T) {
	if err := flipEveryByte(0); err != nil {
		t.Fatal(err)
	}
}

func flipEveryByte(mut fs.Mutation) error {
	s, err := makeSpecimen()
	if err != nil {
		return err
	}
	for i, name := range s.files {
		for at := range s.bytes[name] {
			b := slices.Clone(s.bytes[name])
			b[at] ^= 1 << (at % 8)
			m := s.with(name, b)
			// The last file's last two marks, of its last sync and of Close, have nothing behind them that says they
			// were durable.
			_, marks := s.lastObject()
			if i == len(s.files)-1 && at >= marks {
				err = s.repaired(m, len(s.chain), true, mut)
			} else {
				err = open(m, mut).corruptAt(name)
			}
			if err != nil {
				return fmt.Errorf("byte %d of %s: %w", at, name, err)
			}
		}
	}
	return nil
}

func TestL10_FlipAnyByteOfTheRoot(t *testing.T) {
	s := specimenOf(t)
	for at := range s.base.File("/store/main/ROOT") {
		m := s.base.Crash(newest)
		m.Flip("/store/main/ROOT", int64(at))
		if err := open(m, 0).corruptAt("ROOT"); err != nil {
			t.Fatalf("byte %d: %v", at, err)
		}
	}
}

func TestL10_GarbageBehindTheEnd(t *testing.T) {
	s := specimenOf(t)
	whole := s.bytes[last(s.files)]
	for i, name := range s.files {
		for what, garbage := range map[string][]byte{
			"text":          []byte("garbage"),
			"a byte":        {1},
			"zeros, text":   append(make([]byte, 5000), "garbage"...),
			"its own bytes": whole[80:],
			"itself":        whole,
		} {
			m := s.with(name, append(slices.Clone(s.bytes[name]), garbage...))
			var err error
			if i < len(s.files)-1 {
				err = open(m, 0).corruptAt(name)
			} else {
				err = s.repaired(m, len(s.chain), true, 0)
			}
			if err != nil {
				t.Fatalf("%s behind %s: %v", what, name, err)
			}
		}
	}
}

// Zeros are what preallocation leaves.
func TestL10_ZerosAreTheEnd(t *testing.T) {
	s := specimenOf(t)
	m := s.base.Crash(newest)
	for _, name := range s.files {
		m.SetFile(s.dir+name, append(slices.Clone(s.bytes[name]), make([]byte, 10_000)...))
	}
	if err := s.repaired(m, len(s.chain), false, 0); err != nil {
		t.Fatal(err)
	}
}

func TestL10_MissingFiles(t *testing.T) {
	s := specimenOf(t)
	for i, name := range s.files[1 : len(s.files)-1] {
		if err := open(s.with(name, nil), 0).corruptAt(s.files[i+2]); err != nil {
			t.Fatalf("without %s: %v", name, err)
		}
	}
	// A file cut at a mark, between two objects, is whole as far as it goes; but it does not say that it is.
	middle := s.files[1]
	b := s.bytes[middle]
	if err := open(s.with(middle, b[:len(b)-80]), 0).corruptAt(middle); err != nil {
		t.Fatal(err)
	}
}

// A torn start goes, with the file that was made for it.
func TestL10_TornStart(t *testing.T) {
	s := specimenOf(t)
	m := s.base.Crash(newest)
	if v := open(m, 0); v.err != nil { // one more epoch, of a start alone
		t.Fatal(v.err)
	}
	longer, err := readSpecimen(m)
	if err != nil {
		t.Fatal(err)
	}
	name := last(longer.files)
	for size := 80; size < len(longer.bytes[name])-160; size++ {
		if err := longer.repaired(longer.with(name, longer.bytes[name][:size]), len(s.chain), size > 80, 0); err != nil {
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
	writes := logWrites(w.m)
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
	if len(w.shown) != 3 {
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

// The same on a real disk, for the cases that matter most.
func TestL10_OnADisk(t *testing.T) {
	s := specimenOf(t)
	name := last(s.files)
	from, _ := s.lastObject()
	b := s.bytes[name]
	flipped := slices.Clone(b)
	flipped[from+100] ^= 1
	for what, c := range map[string]struct {
		bytes    []byte
		objects  int
		repaired bool
		corrupt  bool
	}{
		"whole":   {b, len(s.chain), false, false},
		"cut":     {b[:from+100], len(s.chain) - 1, true, false},
		"garbage": {append(slices.Clone(b), "garbage"...), len(s.chain), true, false},
		"flipped": {flipped, 0, false, true},
	} {
		dir := diskDir(t)
		inst := filepath.Join(dir, strings.TrimPrefix(s.dir, "/store"))
		if err := os.MkdirAll(inst, 0o755); err != nil {
			t.Fatal(err)
		}
		files := map[string][]byte{filepath.Join(dir, "main", "ROOT"): s.base.File("/store/main/ROOT")}
		for n, b := range s.bytes {
			files[filepath.Join(inst, n)] = b
		}
		files[filepath.Join(inst, name)] = c.bytes
		for n, b := range files {
			if err := os.WriteFile(n, b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for round := range 2 {
			l := openDir(t, fs.Options{Dir: dir})
			o, err := own(t.Context(), l)
			var v verdict
			if v.err = err; err == nil {
				v.chain, v.err = o.chain(t.Context())
				v.chain, v.repairs = v.chain[:len(v.chain)-1-round], o.repairs // without the starts of these two
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if c.corrupt {
				err = v.corruptAt(name)
			} else {
				err = s.endsAt(v, c.objects, c.repaired && round == 0)
			}
			if err != nil {
				t.Fatalf("%s, opened for the %d. time: %v", what, round+1, err)
			}
		}
	}
}

// Whatever a file holds, an opener says that it is damaged, or repairs it; and says nothing of it afterwards.
func FuzzFile(f *testing.F) {
	s, err := makeSpecimen()
	if err != nil {
		f.Fatal(err)
	}
	name := last(s.files)
	for _, n := range s.files {
		f.Add(s.bytes[n], false)
		f.Add(s.bytes[n][80:], true)
		f.Add(s.bytes[n][:len(s.bytes[n])/2], false)
	}
	f.Fuzz(func(t *testing.T, b []byte, behind bool) {
		if behind {
			b = append(slices.Clone(s.bytes[name]), b...)
		}
		m := s.with(name, b)
		r, err := fs.Open(ctx, fs.Options{Dir: "/store", FS: m.Process()})
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range r.Read(ctx, s.inst, log.Key{}) {
			if err != nil && !errors.Is(err, log.ErrCorrupt) {
				t.Fatal(err)
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		v := open(m, 0)
		if v.err != nil && !errors.Is(v.err, log.ErrCorrupt) {
			t.Fatal(v.err)
		}
		if v.err == nil {
			if v := open(m, 0); v.err != nil || len(v.repairs) > 0 {
				t.Fatalf("after a repair: %v, %q", v.err, v.repairs)
			}
		}
	})
}

// logWrites are the writes to epoch files so far, in order.
func logWrites(m *crashfs.Machine) (writes []crashfs.Call) {
	for _, c := range m.Calls() {
		if c.Op == "write" && strings.HasSuffix(c.Path, ".log") {
			writes = append(writes, c)
		}
	}
	return writes
}

package crashfs

import (
	"io"
	"slices"
	"syscall"

	"github.com/steledb/stele/log/fs"
)

// file is an open file of a process.
type file struct {
	p    *Process
	n    *node
	path string
}

var _ fs.File = (*file)(nil)

func (f *file) ReadAt(b []byte, off int64) (n int, err error) {
	err = f.p.call(nil, f.path, func() error {
		if off < int64(len(f.n.data)) {
			n = copy(b, f.n.data[off:])
		}
		if n < len(b) {
			return io.EOF
		}
		return nil
	})
	return n, err
}

// WriteAt writes to the page cache. A write that fails has written a part, which the machine's choice decides.
func (f *file) WriteAt(b []byte, off int64) (n int, err error) {
	m := f.p.m
	err = f.p.call(&Call{Op: "write", Off: off, Len: int64(len(b))}, f.path, func() error {
		if err := m.take(off + int64(len(b)) - f.n.alloc); err != nil {
			return err
		}
		f.put(b, off)
		n = len(b)
		return nil
	}, func() {
		part := m.choose(len(b)/Sector+2) * Sector
		f.put(b[:min(part, len(b))], off)
	})
	return n, err
}

func (f *file) put(b []byte, off int64) {
	if len(b) == 0 {
		return
	}
	end := off + int64(len(b))
	f.n.change()
	f.n.resize(max(end, int64(len(f.n.data))))
	f.n.alloc = max(f.n.alloc, end)
	copy(f.n.data[off:], b)
	f.n.touch(off, end)
	f.n.mtime = f.p.m.clock
}

// touch records a version of every sector in [off, end).
func (n *node) touch(off, end int64) {
	for s := off / Sector; s*Sector < end; s++ {
		v := make([]byte, Sector)
		copy(v, n.data[s*Sector:min((s+1)*Sector, int64(len(n.data)))])
		n.dirty[s] = append(n.dirty[s], v)
	}
}

// resize changes the size in the page cache.
func (n *node) resize(size int64) {
	old := int64(len(n.data))
	if size == old {
		return
	}
	n.change()
	n.sizes = append(n.sizes, size)
	if size > old {
		n.data = grown(n.data, size)
		return
	}
	n.data = slices.Clip(n.data[:size])
	if size%Sector != 0 {
		n.touch(size, size+1)
	}
	for s := range n.dirty {
		if s*Sector >= size {
			n.dirty[s] = append(n.dirty[s], make([]byte, Sector))
		}
	}
}

// Datasync makes what was written durable.
func (f *file) Datasync() error { return f.sync("fdatasync") }

// Sync does, too.
func (f *file) Sync() error { return f.sync("fsync") }

func (f *file) sync(op string) error {
	return f.p.call(&Call{Op: op}, f.path, func() error {
		if len(f.n.dirty) > 0 {
			f.n.change()
		}
		for s, versions := range f.n.dirty {
			f.n.disk = grown(f.n.disk, (s+1)*Sector)
			copy(f.n.disk[s*Sector:], versions[len(versions)-1])
		}
		f.n.disk = grown(f.n.disk, int64(len(f.n.data)))[:len(f.n.data)]
		clear(f.n.dirty)
		f.n.sizes = nil
		return nil
	}, func() {
		// Some of it was written; all of it counts as clean. The size is metadata, and stays to be written.
		disk, _ := f.n.settle(f.p.m.choose)
		f.n.disk = disk[:min(len(disk), len(f.n.data))]
		if len(f.n.sizes) == 0 {
			f.n.disk = grown(f.n.disk, int64(len(f.n.data)))
		}
		clear(f.n.dirty)
	})
}

// Truncate sets the size.
func (f *file) Truncate(size int64) error {
	return f.p.call(&Call{Op: "truncate", Off: size}, f.path, func() error {
		f.n.resize(size)
		if size < f.n.alloc {
			f.p.m.free(f.n.alloc - size)
			f.n.alloc = size
		}
		f.n.mtime = f.p.m.clock
		return nil
	})
}

// Allocate takes room, and makes the file no shorter.
func (f *file) Allocate(off, n int64) error {
	return f.p.call(&Call{Op: "allocate", Off: off, Len: n}, f.path, func() error {
		if n <= 0 {
			return syscall.EINVAL
		}
		if err := f.p.m.take(off + n - f.n.alloc); err != nil {
			return err
		}
		f.n.alloc = max(f.n.alloc, off+n)
		f.n.resize(max(off+n, int64(len(f.n.data))))
		f.n.mtime = f.p.m.clock
		return nil
	})
}

func (f *file) TryLock() (ok bool, err error) {
	err = f.p.call(nil, f.path, func() error {
		if ok = f.n.lock == nil || f.n.lock == f; ok {
			f.n.lock = f
		}
		return nil
	})
	return ok, err
}

func (f *file) unlock() {
	if f.n.lock == f {
		f.n.lock = nil
	}
	delete(f.p.open, f)
}

func (f *file) Stat() (st fs.Stat, err error) {
	err = f.p.call(nil, f.path, func() error { st = f.n.stat(); return nil })
	return st, err
}

func (f *file) Close() error {
	f.p.m.mu.Lock()
	defer f.p.m.mu.Unlock()
	f.unlock()
	return nil
}

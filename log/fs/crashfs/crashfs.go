// Package crashfs is a file layer for tests of log/fs: a machine with a page cache and a disk, in memory. It counts the calls that
// change something, can lose its power at any of them and then keeps any subset of what was not synced, can fail any of them, and can
// run out of room.
//
// What it assumes of a disk and its file system, and no more:
//
//   - What was written and not synced may be on the disk or not, each sector of 512 bytes on its own, in any of the versions that it
//     had since it was last clean. So may a file's size.
//   - Names made, replaced or removed and not synced with their directory may be there or not, each name on its own; a rename never
//     leaves a name with neither the old nor the new file.
//   - A sync that returned nil has made all of it durable. One that failed has written any of it, and what it was to write counts as clean from then on: a later
//     sync does not write it again, and the page cache may drop it.
//   - A directory's sync that failed has done nothing, and a later one does what it should have (ext4, XFS and btrfs stop taking writes when
//     their journal fails).
//   - A sector is written whole or not at all.
package crashfs

import (
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/steledb/stele/log/fs"
)

// Sector is what the disk writes whole, in bytes.
const Sector = 512

// ErrOff is what every call returns once the machine has lost its power or the process was killed.
var ErrOff = errors.New("the machine is off")

// Choose picks one of n possibilities, 0 to n-1. It decides what a crash leaves.
type Choose func(n int) int

// Call is a call that changes something.
type Call struct {
	N    int // from 0
	Op   string
	Path string
	Off  int64
	Len  int64
}

func (c Call) String() string {
	return fmt.Sprintf("%d %s %s [%d,%d)", c.N, c.Op, filepath.Base(c.Path), c.Off, c.Off+c.Len)
}

// Machine is a machine with one disk.
type Machine struct {
	mu     sync.Mutex
	root   *node
	inodes uint64
	clock  int64
	calls  []Call
	off    bool

	crashAt int
	failAt  int
	failure error
	choose  Choose
	room    int64 // bytes that may still be allocated; -1: any
	magic   int64
	hook    func(c Call, path string)
}

// node is a file or a directory.
type node struct {
	ino   uint64
	dir   bool
	mtime int64
	lock  *file

	// A directory: its names as every process sees them, as the disk has them, and what each name stood for in between, oldest first (nil: for nothing).
	names   map[string]*node
	onDisk  map[string]*node
	pending map[string][]*node

	// A file likewise.
	data  []byte
	disk  []byte
	dirty map[int64][][]byte // versions of sectors
	sizes []int64            // sizes since the last sync
	own   bool               // data and disk are this node's alone; else they are copied before they change
	alloc int64              // up to where it is allocated
}

// New is a machine with an empty disk.
func New() *Machine {
	m := &Machine{crashAt: -1, failAt: -1, room: -1, magic: 0xef53, choose: func(int) int { return 0 }}
	m.root = m.node(true)
	return m
}

func (m *Machine) node(dir bool) *node {
	m.inodes++
	n := &node{ino: m.inodes, dir: dir}
	if dir {
		n.names, n.onDisk, n.pending = map[string]*node{}, map[string]*node{}, map[string][]*node{}
	} else {
		n.dirty = map[int64][][]byte{}
	}
	return n
}

// CrashAt makes the machine lose its power in the call of this number: the call has reached the page cache. -1: never.
func (m *Machine) CrashAt(n int) { m.set(func() { m.crashAt = n }) }

// FailAt makes the call of this number fail with err. -1: none. choose decides what of it happens nevertheless.
func (m *Machine) FailAt(n int, err error, choose Choose) {
	m.set(func() { m.failAt, m.failure, m.choose = n, err, choose })
}

// Room sets how many bytes files may grow by from now on; -1: as many as they like. What is removed or cut gives room back.
func (m *Machine) Room(n int64) { m.set(func() { m.room = n }) }

// Magic sets the type of the file system.
func (m *Machine) Magic(n int64) { m.set(func() { m.magic = n }) }

// Hook sets a function that is called before each call that changes something. It may use the machine.
func (m *Machine) Hook(f func(c Call, path string)) { m.set(func() { m.hook = f }) }

func (m *Machine) set(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// Calls returns the calls so far that changed something.
func (m *Machine) Calls() []Call {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.calls)
}

// Off reports whether the machine has lost its power.
func (m *Machine) Off() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.off
}

// Crash ends the machine, and returns what comes up again: choose decides what of the unsynced is on the disk.
func (m *Machine) Crash(choose Choose) *Machine {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.off = true
	c := New()
	c.magic = m.magic
	seen := map[*node]*node{}
	c.root = c.restore(m.root, choose, seen)
	return c
}

func (m *Machine) restore(n *node, choose Choose, seen map[*node]*node) *node {
	if c := seen[n]; c != nil {
		return c
	}
	c := m.node(n.dir)
	seen[n] = c
	if n.dir {
		names := maps.Clone(n.onDisk)
		for _, name := range slices.Sorted(maps.Keys(n.pending)) {
			versions := append([]*node{n.onDisk[name]}, n.pending[name]...)
			if v := versions[choose(len(versions))]; v != nil {
				names[name] = v
			} else {
				delete(names, name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			c.names[name] = m.restore(names[name], choose, seen)
		}
		c.onDisk = maps.Clone(c.names)
		return c
	}
	size := int64(len(n.disk))
	c.disk = n.disk
	if len(n.dirty) > 0 || len(n.sizes) > 0 {
		c.disk, size = n.settle(choose)
		c.disk = grown(c.disk, size)[:size]
	}
	c.data = c.disk
	c.alloc = size
	return c
}

// settle chooses what of the unsynced has reached the disk.
func (n *node) settle(choose Choose) (disk []byte, size int64) {
	size = int64(len(n.disk))
	if len(n.sizes) > 0 {
		if i := choose(len(n.sizes) + 1); i > 0 {
			size = n.sizes[i-1]
		}
	}
	disk = slices.Clone(n.disk)
	for _, s := range slices.Sorted(maps.Keys(n.dirty)) {
		versions := n.dirty[s]
		if i := choose(len(versions) + 1); i > 0 {
			disk = grown(disk, (s+1)*Sector)
			copy(disk[s*Sector:], versions[i-1])
		}
	}
	return disk, size
}

// change makes data and disk the node's own.
func (n *node) change() {
	if !n.own {
		n.data, n.disk, n.own = slices.Clone(n.data), slices.Clone(n.disk), true
	}
}

func grown(b []byte, n int64) []byte {
	if int64(len(b)) < n {
		b = append(b, make([]byte, n-int64(len(b)))...)
	}
	return b
}

// Flip damages a byte of a file, on the disk and in the page cache.
func (m *Machine) Flip(path string, off int64) {
	b := m.File(path)
	b[off] ^= 0x40
	m.SetFile(path, b)
}

// File is what a file holds.
func (m *Machine) File(path string) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.find(path).data)
}

// SetFile changes what a file holds, durably, behind everybody's back. nil removes it.
func (m *Machine) SetFile(path string, b []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.find(path)
	if b == nil {
		dir := m.find(filepath.Dir(path))
		delete(dir.names, filepath.Base(path))
		delete(dir.onDisk, filepath.Base(path))
		delete(dir.pending, filepath.Base(path))
		return
	}
	n.data, n.disk, n.own = slices.Clone(b), slices.Clone(b), true
	n.sizes = nil
	clear(n.dirty)
	n.mtime++
}

// Process is a process on the machine; it implements fs.FS.
type Process struct {
	m    *Machine
	dead bool // guarded by the machine's mu
	open map[*file]bool
}

var _ fs.FS = (*Process)(nil)

// Process starts a process.
func (m *Machine) Process() *Process { return &Process{m: m, open: map[*file]bool{}} }

// Kill ends the process; what it wrote stays in the page cache. Then, where choose picks 1 of 2, the page cache drops a sector that is clean, so that
// it reads as the disk has it.
func (p *Process) Kill(choose Choose) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	p.dead = true
	for f := range p.open {
		f.unlock()
	}
	if choose != nil {
		p.m.root.evict(choose)
	}
}

func (n *node) evict(choose Choose) {
	for _, name := range slices.Sorted(maps.Keys(n.names)) {
		n.names[name].evict(choose)
	}
	for s := int64(0); s*Sector < int64(len(n.data)); s++ {
		if len(n.dirty[s]) > 0 {
			continue
		}
		from, to := s*Sector, min((s+1)*Sector, int64(len(n.data)))
		old := make([]byte, to-from)
		if from < int64(len(n.disk)) {
			copy(old, n.disk[from:])
		}
		if !slices.Equal(old, n.data[from:to]) && choose(2) == 1 {
			n.change()
			copy(n.data[from:to], old)
		}
	}
}

// find walks to a node; nil: there is none.
func (m *Machine) find(path string) *node {
	n := m.root
	for part := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if part == "" {
			continue
		}
		if n == nil || !n.dir {
			return nil
		}
		n = n.names[part]
	}
	return n
}

// call is entered by every call. A change is counted, and may crash or fail; partly is what a failing call does nevertheless.
func (p *Process) call(c *Call, path string, do func() error, partly ...func()) error {
	m := p.m
	m.mu.Lock()
	hook := m.hook
	if c != nil && hook != nil && !m.off && !p.dead {
		m.mu.Unlock()
		hook(*c, path)
		m.mu.Lock()
	}
	defer m.mu.Unlock()
	if m.off || p.dead {
		return ErrOff
	}
	if c == nil {
		return wrap("", path, do())
	}
	c.N, c.Path = len(m.calls), path
	m.calls = append(m.calls, *c)
	m.clock++
	if c.N == m.failAt {
		for _, f := range partly {
			f()
		}
		return wrap(c.Op, path, m.failure)
	}
	err := do()
	if c.N == m.crashAt {
		m.off = true
		return ErrOff
	}
	return wrap(c.Op, path, err)
}

func wrap(op, path string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return &iofs.PathError{Op: op, Path: path, Err: err}
}

// bind makes a name in a directory stand for a node, or for nothing.
func (n *node) bind(name string, to *node) {
	if to == nil {
		delete(n.names, name)
	} else {
		n.names[name] = to
	}
	n.pending[name] = append(n.pending[name], to)
}

// Open opens or makes a file.
func (p *Process) Open(name string, flag int) (fs.File, error) {
	var f *file
	p.m.mu.Lock()
	missing := p.m.find(name) == nil
	p.m.mu.Unlock()
	var c *Call
	if missing && flag&os.O_CREATE != 0 {
		c = &Call{Op: "create"}
	}
	err := p.call(c, name, func() error {
		n := p.m.find(name)
		switch {
		case n != nil && flag&(os.O_CREATE|os.O_EXCL) == os.O_CREATE|os.O_EXCL:
			return syscall.EEXIST
		case n == nil && flag&os.O_CREATE == 0:
			return syscall.ENOENT
		case n == nil:
			dir := p.m.find(filepath.Dir(name))
			if dir == nil {
				return syscall.ENOENT
			}
			n = p.m.node(false)
			dir.bind(filepath.Base(name), n)
		case n.dir:
			return syscall.EISDIR
		}
		f = &file{p: p, n: n, path: name}
		p.open[f] = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Rename gives a file another name.
func (p *Process) Rename(from, to string) error {
	return p.call(&Call{Op: "rename"}, to, func() error {
		n, a, b := p.m.find(from), p.m.find(filepath.Dir(from)), p.m.find(filepath.Dir(to))
		if n == nil || b == nil {
			return syscall.ENOENT
		}
		if old := b.names[filepath.Base(to)]; old != nil && old != n {
			p.m.free(old.alloc)
		}
		a.bind(filepath.Base(from), nil)
		b.bind(filepath.Base(to), n)
		return nil
	})
}

// Remove removes a name.
func (p *Process) Remove(name string) error {
	return p.call(&Call{Op: "remove"}, name, func() error {
		n, dir := p.m.find(name), p.m.find(filepath.Dir(name))
		if n == nil {
			return syscall.ENOENT
		}
		if n.dir && len(n.names) > 0 {
			return syscall.ENOTEMPTY
		}
		p.m.free(n.alloc)
		dir.bind(filepath.Base(name), nil)
		return nil
	})
}

// Mkdir makes a directory.
func (p *Process) Mkdir(name string) error {
	p.m.mu.Lock()
	there, parent := p.m.find(name) != nil, p.m.find(filepath.Dir(name)) != nil
	p.m.mu.Unlock()
	var c *Call
	if !there && parent {
		c = &Call{Op: "mkdir"}
	}
	return p.call(c, name, func() error {
		dir := p.m.find(filepath.Dir(name))
		if dir == nil {
			return syscall.ENOENT
		}
		if p.m.find(name) != nil {
			return syscall.EEXIST
		}
		dir.bind(filepath.Base(name), p.m.node(true))
		return nil
	})
}

// ReadDir returns the names in a directory.
func (p *Process) ReadDir(name string) (names []string, err error) {
	err = p.call(nil, name, func() error {
		n := p.m.find(name)
		if n == nil {
			return syscall.ENOENT
		}
		names = slices.Collect(maps.Keys(n.names))
		return nil
	})
	return names, err
}

// Stat returns a file's attributes.
func (p *Process) Stat(name string) (st fs.Stat, err error) {
	err = p.call(nil, name, func() error {
		n := p.m.find(name)
		if n == nil {
			return syscall.ENOENT
		}
		st = n.stat()
		return nil
	})
	return st, err
}

func (n *node) stat() fs.Stat {
	return fs.Stat{Dev: 1, Ino: n.ino, Size: int64(len(n.data)), Mtime: n.mtime, Ctime: n.mtime}
}

// SyncDir makes a directory's names durable.
func (p *Process) SyncDir(name string) error {
	return p.call(&Call{Op: "syncdir"}, name, func() error {
		n := p.m.find(name)
		if n == nil {
			return syscall.ENOENT
		}
		n.onDisk = maps.Clone(n.names)
		clear(n.pending)
		return nil
	})
}

// Magic is the file system's type.
func (p *Process) Magic(name string) (magic int64, err error) {
	err = p.call(nil, name, func() error {
		if p.m.find(name) == nil {
			return syscall.ENOENT
		}
		magic = p.m.magic
		return nil
	})
	return magic, err
}

// take takes room, and free gives it back. The caller holds mu.
func (m *Machine) take(n int64) error {
	if m.room < 0 || n <= 0 {
		return nil
	}
	if n > m.room {
		return syscall.ENOSPC
	}
	m.room -= n
	return nil
}

func (m *Machine) free(n int64) {
	if m.room >= 0 {
		m.room += max(n, 0)
	}
}

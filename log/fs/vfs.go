package fs

import "io"

// FS is the file layer: every call that this package makes to the file system. [OS] is the real one; package crashfs has one
// that crashes. Errors are those of package os and wrap a syscall.Errno; a missing name wraps fs.ErrNotExist.
type FS interface {
	// Open opens a file; flag is os.O_RDONLY or os.O_RDWR, with os.O_CREATE and os.O_EXCL if wanted.
	Open(name string, flag int) (File, error)
	Rename(from, to string) error
	Remove(name string) error
	Mkdir(name string) error
	// ReadDir returns the names in a directory, in no order.
	ReadDir(name string) ([]string, error)
	Stat(name string) (Stat, error)
	// SyncDir makes a directory's entries durable.
	SyncDir(name string) error
	// Magic is the type of the file system that holds name, as statfs tells it.
	Magic(name string) (int64, error)
}

// File is an open file.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Datasync makes what was written durable, and the size with it; Sync everything.
	Datasync() error
	Sync() error
	Truncate(size int64) error
	// Allocate makes sure that writes to [off, off+n) need no further room, and that the file is no shorter; what was not
	// written reads as zeros.
	Allocate(off, n int64) error
	// TryLock takes an exclusive flock, which ends with Close, and reports false if somebody else has it.
	TryLock() (bool, error)
	Stat() (Stat, error)
}

// Stat is what of a file's attributes is needed here. Two Stats are equal if the file is the same and nobody wrote to it in
// between.
type Stat struct {
	Dev, Ino     uint64
	Size         int64
	Mtime, Ctime int64 // nanoseconds
}

// same reports whether both are of one file.
func (s Stat) same(o Stat) bool { return s.Dev == o.Dev && s.Ino == o.Ino }

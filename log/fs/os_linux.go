package fs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// OS is the real file layer.
type OS struct{}

type osFile struct{ *os.File }

func (OS) Open(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, 0o644)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (OS) Rename(from, to string) error { return os.Rename(from, to) }
func (OS) Remove(name string) error     { return os.Remove(name) }
func (OS) Mkdir(name string) error      { return os.Mkdir(name, 0o755) }

func (OS) ReadDir(name string) ([]string, error) {
	d, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

func (OS) Stat(name string) (Stat, error) {
	var st unix.Stat_t
	if err := retry(func() error { return unix.Stat(name, &st) }); err != nil {
		return Stat{}, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	return statOf(&st), nil
}

func (OS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	err = osFile{d}.Sync()
	return errors.Join(err, d.Close())
}

func (OS) Magic(name string) (int64, error) {
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Statfs(name, &st) }); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: name, Err: err}
	}
	return int64(st.Type), nil
}

// Datasync and Sync are called once, whatever they return: a second call may say yes to what the first one lost.
func (f osFile) Datasync() error { return f.once("fdatasync", unix.Fdatasync) }
func (f osFile) Sync() error     { return f.once("fsync", unix.Fsync) }

func (f osFile) once(op string, call func(fd int) error) error {
	if err := call(int(f.Fd())); err != nil {
		return &os.PathError{Op: op, Path: f.Name(), Err: err}
	}
	return nil
}

// Allocate takes the room, and then writes zeros over what is new of it: room that was only allocated is marked as not yet written, and each sync of a
// write into it would have to change that on disk as well, which takes half as long again. A file system without fallocate (ZFS was one) takes the room when the zeros
// are written.
func (f osFile) Allocate(off, n int64) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	err = f.wrap("fallocate", func(fd int) error { return unix.Fallocate(fd, 0, off, n) })
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	for at := max(off, st.Size); at < off+n; at += int64(len(zeros)) { // nothing stands behind the file's end
		if _, err := f.WriteAt(zeros[:min(int64(len(zeros)), off+n-at)], at); err != nil {
			return err
		}
	}
	return nil
}

// zeros is never written to.
var zeros [64 << 10]byte

func (f osFile) TryLock() (bool, error) {
	err := f.wrap("flock", func(fd int) error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

func (f osFile) Stat() (Stat, error) {
	var st unix.Stat_t
	err := f.wrap("fstat", func(fd int) error { return unix.Fstat(fd, &st) })
	return statOf(&st), err
}

// wrap makes a system call on the descriptor, again if a signal interrupted it.
func (f osFile) wrap(op string, call func(fd int) error) error {
	if err := retry(func() error { return call(int(f.Fd())) }); err != nil {
		return &os.PathError{Op: op, Path: f.Name(), Err: err}
	}
	return nil
}

func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func statOf(st *unix.Stat_t) Stat {
	return Stat{
		Dev: uint64(st.Dev), Ino: st.Ino, Size: st.Size,
		Mtime: st.Mtim.Nano(), Ctime: st.Ctim.Nano(),
	}
}

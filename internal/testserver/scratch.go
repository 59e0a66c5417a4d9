package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// scratch is a server's directory. It holds a lock for the life of this process, by which others see that it is in use.
type scratch struct {
	dir  string
	lock *os.File
	as   *syscall.Credential // whom the server runs as; nil: ourselves
}

const (
	scratchPrefix = "stele-test-"
	lockName      = "lock"
)

// newScratch makes a directory on a real disk, for a server that runs as the given user (nil: ourselves), and removes those that processes
// left behind which are gone.
func newScratch(what string, as *syscall.Credential) (*scratch, error) {
	base, err := diskDir(as)
	if err != nil {
		return nil, err
	}
	sweep(base)
	for {
		dir, err := os.MkdirTemp(base, scratchPrefix+what+"-")
		if err != nil {
			return nil, err
		}
		lock, err := lockDir(dir)
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
		if lock == nil {
			continue // another process's sweep was faster
		}
		s := &scratch{dir: dir, lock: lock, as: as}
		if as != nil {
			err = os.Chown(dir, int(as.Uid), int(as.Gid))
		}
		if err != nil {
			return nil, errors.Join(err, s.remove())
		}
		return s, nil
	}
}

// lockDir takes the lock in dir. Nil: somebody else has it, or had it and removed dir.
func lockDir(dir string) (*os.File, error) {
	name := filepath.Join(dir, lockName)
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		have, err1 := f.Stat()
		there, err2 := os.Stat(name)
		if err1 == nil && err2 == nil && os.SameFile(have, there) {
			return f, nil
		}
	}
	return nil, f.Close()
}

// sweep removes our directories whose process is gone. What cannot be removed is left.
func sweep(base string) {
	dirs, _ := filepath.Glob(filepath.Join(base, scratchPrefix+"*"))
	for _, dir := range dirs {
		st, err := os.Lstat(filepath.Join(dir, lockName))
		if err != nil || !st.Mode().IsRegular() || int(st.Sys().(*syscall.Stat_t).Uid) != os.Getuid() {
			continue
		}
		if lock, _ := lockDir(dir); lock != nil {
			_ = removeAll(dir)
			_ = lock.Close()
		}
	}
}

// removeAll removes a directory whose lock we have. The lock goes last: if something else cannot be removed yet, the next sweep tries again.
func removeAll(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if e.Name() != lockName {
			errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// unprivileged is whom to run servers as that refuse to be root. Nil: we are not root ourselves.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as")
}

// diskDir is where to put directories: the first of TMPDIR or /tmp, /var/tmp and the user's cache that is on a real disk and that the
// user can reach whom servers run as.
func diskDir(as *syscall.Credential) (string, error) {
	candidates := []string{os.TempDir(), "/var/tmp"}
	if cache, err := os.UserCacheDir(); err == nil {
		candidates = append(candidates, cache)
	}
	var why []string
	for _, dir := range candidates {
		if reason := unfit(dir, as); reason != "" {
			why = append(why, dir+" "+reason)
			continue
		}
		return dir, nil
	}
	return "", fmt.Errorf("no directory for a server's files: %s; TMPDIR can name one on a disk", strings.Join(why, "; "))
}

// unfit says what is wrong with a place for servers' files.
func unfit(dir string, as *syscall.Credential) string {
	const tmpfs, ramfs, hugetlbfs = 0x01021994, 0x858458f6, 0x958458f6 // linux/magic.h
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return "cannot be used: " + err.Error()
	}
	switch uint32(fs.Type) {
	case tmpfs, ramfs, hugetlbfs:
		return "is memory, not a disk"
	}
	for d := dir; as != nil; d = filepath.Dir(d) {
		if st, err := os.Stat(d); err != nil || st.Mode()&0o001 == 0 {
			return fmt.Sprintf("cannot be reached by uid %d, whom servers run as", as.Uid)
		}
		if d == filepath.Dir(d) {
			break
		}
	}
	return ""
}

func (s *scratch) path(name string) string { return filepath.Join(s.dir, name) }

// command is a program that runs in the directory as the unprivileged user, until ctx ends.
func (s *scratch) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = s.dir
	cmd.Env = clean(s.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as}
	return cmd
}

// write makes a file that the server alone can read.
func (s *scratch) write(name, content string) (string, error) {
	path := s.path(name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return "", err
	}
	if s.as != nil {
		return path, os.Chown(path, int(s.as.Uid), int(s.as.Gid))
	}
	return path, nil
}

// log opens the file for a server's output.
func (s *scratch) log() (*os.File, error) {
	return os.OpenFile(s.path("server.log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

// explain adds the end of the server's log to an error.
func (s *scratch) explain(server string, err error) error {
	b, _ := os.ReadFile(s.path("server.log"))
	return fmt.Errorf("%s: %w; its log ends with: %s", server, err, tail(b))
}

// remove removes the directory. It may be called again.
func (s *scratch) remove() error {
	if s.lock == nil {
		return nil
	}
	err := errors.Join(removeAll(s.dir), s.lock.Close())
	s.lock = nil
	return err
}

package fs_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/fs"
	"github.com/steledb/stele/log/fs/crashfs"
)

// A child process takes the lock of the directory in its environment, says so, and keeps it until its standard input ends; then it
// gives it back or, if it was told so, ends without.
const (
	childDir  = "STELE_FS_TEST_LOCK"
	childExit = "STELE_FS_TEST_EXIT"
)

func child(dir string) int {
	l, err := fs.Open(context.Background(), fs.Options{Dir: dir})
	if err == nil {
		_, err = l.Lock(context.Background(), false)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("locked")
	_, _ = io.Copy(io.Discard, os.Stdin)
	if os.Getenv(childExit) != "" {
		return 0
	}
	if err := l.Close(); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// process is a child that holds the lock. It is killed at the end of the test at the latest.
type process struct {
	*exec.Cmd
	stdin io.WriteCloser
}

func lockInChild(t *testing.T, dir string, env ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(exe)
	c.Env = append(append(os.Environ(), childDir+"="+dir), env...)
	c.Stderr = os.Stderr
	stdin, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if c.ProcessState == nil {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if strings.TrimSpace(line) != "locked" {
		t.Fatalf("the child says %q, %v", line, err)
	}
	return &process{c, stdin}
}

func TestLock_AnotherProcess(t *testing.T) {
	for _, how := range []string{"gives it back", "exits", "is killed"} {
		t.Run(how, func(t *testing.T) {
			dir := diskDir(t)
			var env []string
			if how == "exits" {
				env = append(env, childExit+"=1")
			}
			c := lockInChild(t, dir, env...)
			l := openDir(t, fs.Options{Dir: dir})
			_, err := l.Lock(t.Context(), false)
			if !errors.Is(err, log.ErrOwned) || !strings.Contains(err.Error(), fmt.Sprintf("pid %d on ", c.Process.Pid)) {
				t.Fatalf("locked by process %d: %v", c.Process.Pid, err)
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := l.Lock(ended, true); !errors.Is(err, context.Canceled) {
				t.Fatalf("a wait that has ended: %v", err)
			}
			got := make(chan error)
			go func() {
				_, err := l.Lock(t.Context(), true)
				got <- err
			}()
			if how == "is killed" {
				_ = c.Process.Kill()
			} else {
				_ = c.stdin.Close()
			}
			if err := <-got; err != nil {
				t.Fatal(err)
			}
			if err := c.Wait(); (err != nil) != (how == "is killed") {
				t.Fatal(err)
			}
		})
	}
}

func TestLock_AnotherHandleOfThisProcess(t *testing.T) {
	dir := diskDir(t)
	a, b := openDir(t, fs.Options{Dir: dir}), openDir(t, fs.Options{Dir: dir})
	unlock, err := a.Lock(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []*fs.Log{a, b} {
		_, err = l.Lock(t.Context(), false)
		if !errors.Is(err, log.ErrOwned) || !strings.Contains(err.Error(), fmt.Sprintf("pid %d on ", os.Getpid())) {
			t.Fatalf("locked by this process: %v", err)
		}
	}
	got := make(chan error)
	go func() {
		_, err := b.Lock(t.Context(), true)
		got <- err
	}()
	for range 2 {
		if err := unlock(); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	other := openDir(t, fs.Options{Dir: dir, Name: "other"})
	if _, err := other.Lock(t.Context(), false); err != nil {
		t.Fatalf("another database of the same directory: %v", err)
	}
}

// A wait ends with its context, and with the handle.
func TestLock_WaitEnds(t *testing.T) {
	dir := diskDir(t)
	a, b := openDir(t, fs.Options{Dir: dir}), openDir(t, fs.Options{Dir: dir})
	if _, err := a.Lock(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	waiting, cancel := context.WithCancel(t.Context())
	got := make(chan error)
	go func() {
		_, err := b.Lock(waiting, true)
		got <- err
	}()
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	go func() {
		_, err := b.Lock(t.Context(), true)
		got <- err
	}()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; !errors.Is(err, log.ErrClosed) {
		t.Fatal(err)
	}
}

// replaceLock puts another file in the place of LOCK.
func replaceLock(mut fs.Mutation) error {
	w := newWorld(fs.Options{}, mut)
	p := w.m.Process()
	l, err := w.open(p)
	if err != nil {
		return err
	}
	defer l.Close()
	o, err := own(ctx, l)
	if err != nil {
		return err
	}
	check := log.Check{Instance: o.root.Instance, Epoch: o.root.Epoch, Claim: o.root.Claim}
	if err := l.Verify(ctx, check); err != nil {
		return err
	}
	if err := p.Remove("/data/store/main/LOCK"); err != nil {
		return err
	}
	if err := l.Verify(ctx, check); !errors.Is(err, log.ErrNotOwner) {
		return fmt.Errorf("Verify, once LOCK was removed: %v", err)
	}
	if _, err := p.Open("/data/store/main/LOCK", os.O_RDWR|os.O_CREATE); err != nil {
		return err
	}
	if err := l.Verify(ctx, check); !errors.Is(err, log.ErrNotOwner) {
		return fmt.Errorf("Verify, once LOCK was replaced: %v", err)
	}
	return nil
}

func TestLock_Replaced(t *testing.T) {
	if err := replaceLock(0); err != nil {
		t.Fatal(err)
	}
}

// A person removes LOCK between the moment when somebody opens it and the moment when they lock it: what they lock is not what
// the next one will.
func TestLock_RemovedWhileItIsTaken(t *testing.T) {
	m := crashfs.New()
	p := m.Process()
	l, err := fs.Open(ctx, fs.Options{Dir: "/store", FS: &removing{Process: p}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := l.Lock(ctx, false); err != nil {
		t.Fatal(err)
	}
	r, err := fs.Open(ctx, fs.Options{Dir: "/store", FS: m.Process()})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Lock(ctx, false); !errors.Is(err, log.ErrOwned) {
		t.Fatalf("two owners: %v", err)
	}
}

// removing removes the first LOCK that is opened.
type removing struct {
	*crashfs.Process
	done bool
}

func (r *removing) Open(name string, flag int) (fs.File, error) {
	f, err := r.Process.Open(name, flag)
	if filepath.Base(name) == "LOCK" && err == nil && !r.done {
		r.done = true
		err = r.Remove(name)
	}
	return f, err
}

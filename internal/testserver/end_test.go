package testserver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// parentOf, in the environment, makes this test binary start servers, say where they are, and wait to be killed.
const parentOf = "STELE_TEST_PARENT"

// where says where a server is.
type where struct{ Addr, Dir string }

func parent() {
	ctx := context.Background()
	p, err := StartPostgres(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	b, err := StartPgBouncer(ctx, p.URL())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	m, err := StartMinIO(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode([]where{{p.Addr(), p.dir.dir}, {b.Addr(), b.dir.dir}, {m.Addr(), m.dir.dir}})
	select {} // until it is killed
}

// TestServersDieWithTheirParent: also with one that is killed, and the next one sweeps up its directories.
func TestServersDieWithTheirParent(t *testing.T) {
	if err := errors.Join(PostgresInstalled(), PgBouncerInstalled(), MinIOBuilt()); err != nil {
		missing(t, err, required())
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), parentOf+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err := errors.Join(err, cmd.Process.Kill()); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it says "killed"
	var servers []where
	if err := json.Unmarshal(line, &servers); err != nil {
		t.Fatal(err)
	}
	for _, s := range servers {
		until(t, "the server at "+s.Addr+" ends", func() bool {
			c, err := net.Dial("tcp", s.Addr)
			if err == nil {
				c.Close()
			}
			return errors.Is(err, syscall.ECONNREFUSED)
		})
		until(t, s.Dir+" is swept up", func() bool {
			sweep(filepath.Dir(s.Dir))
			_, err := os.Stat(s.Dir)
			return errors.Is(err, os.ErrNotExist)
		})
	}
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); {
		if time.Now().After(end) {
			t.Fatalf("waited a minute in vain until %s", what)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// TestSweepLeavesWhatIsInUse, and what is not ours.
func TestSweepLeavesWhatIsInUse(t *testing.T) {
	base := t.TempDir()
	for _, name := range []string{"used", "left", "foreign"} {
		if err := os.MkdirAll(filepath.Join(base, scratchPrefix+name, "data"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	used, err := lockDir(filepath.Join(base, scratchPrefix+"used"))
	if err != nil || used == nil {
		t.Fatal(used, err)
	}
	defer used.Close()
	left, err := lockDir(filepath.Join(base, scratchPrefix+"left"))
	if err != nil || left == nil {
		t.Fatal(left, err)
	}
	left.Close() // as the end of its process does
	sweep(base)
	for name, want := range map[string]bool{"used": true, "left": false, "foreign": true} {
		_, err := os.Stat(filepath.Join(base, scratchPrefix+name, "data"))
		if got := err == nil; got != want {
			t.Errorf("%s is there: %t, want %t", name, got, want)
		}
	}
}

// TestCloseTwice: servers may be closed in any state, and leave nothing.
func TestCloseTwice(t *testing.T) {
	m := OwnMinIO(t)
	dir := m.dir.dir
	if err := errors.Join(m.Kill(), m.Kill(), m.Stop(), m.Close(), m.Close()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory: %v", err)
	}
}

// TestPortIsLost: when somebody else takes the port before the server has it, the server gets another; a restart, which needs its own,
// waits for it and then says so.
func TestPortIsLost(t *testing.T) {
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	m := OwnMinIO(t)
	if err := m.Kill(); err != nil {
		t.Fatal(err)
	}
	tries := 0
	err = m.startOn(t.Context(), func() (int, error) {
		if tries++; tries == 1 {
			return port, nil // free a moment ago
		}
		return freePort()
	})
	if err != nil || tries < 2 {
		t.Fatalf("%d tries, %v", tries, err)
	}
	if err := m.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := m.startOn(t.Context(), same(port)); !errors.Is(err, errPort) {
		t.Errorf("on a port that another has: %v", err)
	}
}

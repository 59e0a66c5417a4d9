package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/steledb/stele/internal/testserver"
)

func TestMain(m *testing.M) {
	if os.Getenv(asRun) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// asRun, in the environment, makes this test binary be the command itself.
const asRun = "STELE_TEST_AS_RUN"

// TestExitCode is the command's, as a shell would have it.
func TestExitCode(t *testing.T) {
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": 128 + 9} {
		var out bytes.Buffer
		code, err := command(t.Context(), []string{"sh", "-c", "echo $X; " + script}, []string{"X=y"}, &out, &out)
		if code != want || (err != nil) != (want > 128) || out.String() != "y\n" {
			t.Errorf("%s: %d, %v, output %q; want %d", script, code, err, &out, want)
		}
	}
	if code, err := command(t.Context(), []string{"/nonsense"}, nil, nil, nil); code != 127 || err == nil {
		t.Errorf("a command that is not there: %d, %v", code, err)
	}
}

// TestInterrupted: the signal goes to the command and to what it started, and what it says to that is still heard.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	out, in := net.Pipe() // unbuffered: what is read was just written
	done := make(chan struct{})
	go func() {
		defer close(done)
		code, err := command(ctx, []string{"sh", "-c", "trap 'echo heard; exit 1' TERM; sleep 3600 & echo $!; wait"}, os.Environ(), in, in)
		if code != 128+int(syscall.SIGTERM) || err == nil {
			t.Errorf("it ended with %d, %v", code, err)
		}
		in.Close()
	}()
	lines := bufio.NewScanner(out)
	lines.Scan()
	var child int
	if _, err := fmt.Sscan(lines.Text(), &child); err != nil {
		t.Fatal(err)
	}
	cancel(interrupted{syscall.SIGTERM})
	lines.Scan()
	if lines.Text() != "heard" {
		t.Errorf("the command said %q", lines.Text())
	}
	for lines.Scan() {
	}
	<-done
	until(t, "the command's child ends", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child))
		return err != nil || bytes.Contains(stat, []byte(") Z "))
	})
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

func TestRecord(t *testing.T) {
	r, err := readRecord(strings.NewReader("s3 (aws)\tMinIO 1\t40\nzoo\tz\t1\nmem \tno server\t3\nmem\tno server\t41\npg\tPostgreSQL 15\t39\n"))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	r.print(&out)
	want := `backend mem          41 cases  no server
backend pg           39 cases  PostgreSQL 15
backend s3 (aws)     40 cases  MinIO 1
backend zoo           1 cases  z
backends not tested: fs, s3 (minio)
`
	if out.String() != want {
		t.Errorf("printed\n%swant\n%s", &out, want)
	}
	if err := r.complete(); err == nil || !strings.Contains(err.Error(), "fs, s3 (minio)") {
		t.Errorf("with two backends left out: %v", err)
	}
	if err := append(r, tested{backend: "fs"}, tested{backend: "s3 (minio)"}).complete(); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"mem\n", "mem\tx\tmany\n", "a\tb\t1\td\n"} {
		if _, err := readRecord(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// needServers skips the test unless the servers can be started without getting anything first.
func needServers(t *testing.T) {
	t.Helper()
	if err := errors.Join(testserver.PostgresInstalled(), testserver.PgBouncerInstalled(), testserver.MinIOBuilt()); err != nil {
		t.Skipf("%v; `make test` gets it", err)
	}
}

// asCommand is run itself, in an environment that names no servers.
func asCommand(t *testing.T, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "STELE_TEST_") && !strings.HasPrefix(kv, "CI=") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(append(cmd.Env, asRun+"=1"), env...)
	return cmd
}

// TestServersForACommand: it finds them, its exit code comes through, they are gone behind it, and under CI no backend may be left out.
func TestServersForACommand(t *testing.T) {
	needServers(t)
	names := []string{testserver.PostgresURL, testserver.PgBouncerURL, testserver.S3URL, testserver.S3Server, "AWS_ACCESS_KEY_ID"}
	script := `printf 'mem\tno server\t1\n' >> $` + testserver.Backends
	for _, n := range names {
		script += `; echo "$` + n + `"`
	}
	cmd := asCommand(t, []string{"CI=true"}, "--", "sh", "-c", script+"; exit 3")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Fatalf("it ended with %v; want exit status 3\n%s", err, &stderr)
	}
	values := strings.Split(strings.TrimSuffix(stdout.String(), "\n"), "\n")
	if len(values) != len(names) || slices.Contains(values, "") {
		t.Fatalf("the command was told %q", values)
	}
	for _, raw := range values[:3] {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		addr := u.Host
		if endpoint, err := url.Parse(u.Query().Get("endpoint")); err == nil && endpoint.Host != "" {
			addr = endpoint.Host
		}
		if c, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dialling %s afterwards: %v, %v", addr, c, err)
		}
	}
	for _, line := range []string{"backend mem ", "backends not tested: fs, pg, s3 (aws), s3 (minio)", "under CI=true every backend must be tested"} {
		if !strings.Contains(stderr.String(), line) {
			t.Errorf("%q is not in what it said:\n%s", line, &stderr)
		}
	}
}

// TestTerminated: also a SIGTERM while servers are being started leaves nothing, and a parent that is gone is one.
func TestTerminated(t *testing.T) {
	needServers(t)
	tmp := t.TempDir()
	if err := os.Chmod(tmp, 0o711); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{}, {"--", "sh", "-c", "echo ready; exec sleep 3600"}} {
		cmd := asCommand(t, []string{"TMPDIR=" + tmp}, args...)
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(stdout)
		lines.Scan() // "ready", or the first export
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
		}
		err = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); len(args) > 0 && code != 128+int(syscall.SIGTERM) {
			t.Errorf("%q: ended with %v", args, err)
		}
		left, err := filepath.Glob(filepath.Join(tmp, "*"))
		if err != nil || len(left) > 0 {
			t.Errorf("%q: left behind: %q, %v", args, left, err)
		}
	}
}

// TestParentGone: `go run` that is killed takes its program with it.
func TestParentGone(t *testing.T) {
	needServers(t)
	tmp := t.TempDir()
	if err := os.Chmod(tmp, 0o711); err != nil {
		t.Fatal(err)
	}
	// A shell that waits for it is its parent.
	run := asCommand(t, []string{"TMPDIR=" + tmp})
	parent := exec.CommandContext(t.Context(), "sh", "-c", `"$0" & wait`, run.Path)
	parent.Env = run.Env
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Scan() // the servers run
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() { // until the last process that has the pipe ends
	}
	_ = parent.Wait()
	if left, err := filepath.Glob(filepath.Join(tmp, "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

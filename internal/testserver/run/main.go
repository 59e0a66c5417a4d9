// Command run starts a PostgreSQL, a PgBouncer and a MinIO, runs a command that finds them in its environment, and stops them again.
//
//	go run ./internal/testserver/run -- go test ./...
//
// The command's output is left as it is; what run has to say goes to standard error, at the end a line for each backend that log/logtest was run
// against, with the server and version that it really spoke to. Its exit code is the command's; under CI=true it also fails if a
// backend that must be tested was not. Without a command it prints the environment as shell commands and keeps the servers until it is
// interrupted.
//
// What is not installed it gets: MinIO by building it, once, and as root on Debian PostgreSQL and PgBouncer by apt-get. A server that
// the environment names already (see package testserver) is used as it is.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/steledb/stele/internal/testserver"
)

func main() {
	runtime.LockOSThread() // the command is started by this thread and dies with it
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	code, err := run(args, os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testserver:", err)
	}
	os.Exit(code)
}

func run(args []string, stdout, stderr io.Writer) (code int, err error) {
	ctx, stop := interruptible()
	defer stop()
	s := &servers{out: stderr, environ: map[string]string{}}
	defer func() {
		if cerr := s.close(); cerr != nil {
			code, err = max(code, 1), errors.Join(err, cerr)
		}
	}()
	if err := s.start(ctx); err != nil {
		if sig := interruption(ctx); sig != 0 {
			return 128 + int(sig), fmt.Errorf("%v: stopping", sig)
		}
		return 1, err
	}
	if len(args) == 0 {
		for _, kv := range s.env() {
			k, v, _ := strings.Cut(kv, "=")
			fmt.Fprintf(stdout, "export %s='%s'\n", k, strings.ReplaceAll(v, "'", `'\''`))
		}
		fmt.Fprintln(stderr, "testserver: the servers run until this is interrupted")
		<-ctx.Done()
		return 0, nil
	}

	record, err := os.CreateTemp("", "stele-test-backends-")
	if err != nil {
		return 1, err
	}
	defer os.Remove(record.Name())
	defer record.Close()
	env := append(os.Environ(), s.env()...)
	env = append(env, testserver.Backends+"="+record.Name())
	code, err = command(ctx, args, env, stdout, stderr)
	if err != nil {
		return code, err
	}
	tested, err := readRecord(record)
	if err != nil {
		return max(code, 1), err
	}
	tested.print(stderr)
	if os.Getenv("CI") == "true" {
		if err := tested.complete(); err != nil {
			return max(code, 1), err
		}
	}
	return code, nil
}

// interrupted is why a context ended.
type interrupted struct{ sig syscall.Signal }

func (i interrupted) Error() string { return i.sig.String() }

// interruption is the signal that ended ctx; 0 if none did.
func interruption(ctx context.Context) syscall.Signal {
	var i interrupted
	if errors.As(context.Cause(ctx), &i) {
		return i.sig
	}
	return 0
}

// interruptible is a context that ends on SIGINT, SIGTERM and SIGHUP, and when the parent process is gone: `go run` does not pass a SIGTERM on.
func interruptible() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	parent := os.Getppid()
	tick := time.NewTicker(500 * time.Millisecond)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case sig := <-signals:
				cancel(interrupted{sig.(syscall.Signal)})
			case <-tick.C:
				if os.Getppid() != parent {
					cancel(interrupted{syscall.SIGTERM})
				}
			case <-done:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		tick.Stop()
		close(done)
		cancel(nil)
	}
}

// patience is how long the command may take to end after a signal.
const patience = 20 * time.Second

// command runs args in a process group of its own, which gets the signal that ends ctx. It returns the exit code, as a shell would.
func command(ctx context.Context, args, env []string, stdout, stderr io.Writer) (int, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = env
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return 127, err
	}
	done := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-done:
			return
		case <-ctx.Done():
		}
		group := -cmd.Process.Pid
		_ = syscall.Kill(group, interruption(ctx))
		select {
		case <-done:
		case <-time.After(patience):
		}
		if syscall.Kill(group, 0) == nil { // the command, or what it left behind
			_ = syscall.Kill(group, syscall.SIGKILL)
		}
	}()
	err := cmd.Wait()
	close(done)
	<-watched
	var exit *exec.ExitError
	switch {
	case interruption(ctx) != 0:
		return 128 + int(interruption(ctx)), fmt.Errorf("%v: stopped", interruption(ctx))
	case errors.As(err, &exit):
		status := exit.Sys().(syscall.WaitStatus)
		if status.Signaled() {
			return 128 + int(status.Signal()), fmt.Errorf("%s: %v", args[0], err)
		}
		return status.ExitStatus(), nil
	case err != nil:
		return 1, err
	}
	return 0, nil
}

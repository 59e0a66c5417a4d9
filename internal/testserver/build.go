package testserver

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
	"syscall"
	"time"
)

const (
	minioModule  = "github.com/minio/minio"
	minioVersion = "v0.0.0-20260212201848-7aac2a2c5b7c"
)

// minioBin is where the built MinIO of our version lies, or will.
func minioBin() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no place for a built MinIO: %w", err)
	}
	return filepath.Join(cache, "stele", "minio-"+minioVersion, "minio"), nil
}

// builtMinIO is minioBin, if it is there.
func builtMinIO() (string, error) {
	bin, err := minioBin()
	if err == nil && !executable(bin) {
		err = fmt.Errorf("MinIO (%s) was %w; %s can name a server that runs elsewhere", bin, ErrMissing, S3URL)
	}
	return bin, err
}

// BuildMinIO builds the pinned MinIO with the go command, into the user's cache directory, unless it is there. That takes minutes, once; what
// goes on is told on progress. Several processes may call it at once: one builds.
func BuildMinIO(ctx context.Context, progress io.Writer) error {
	bin, err := minioBin()
	if err != nil || executable(bin) {
		return err
	}
	dir := filepath.Dir(bin)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	unlock, err := waitLock(ctx, filepath.Join(dir, "lock"), func() {
		fmt.Fprintf(progress, "testserver: another process builds MinIO; waiting for it\n")
	})
	if err != nil {
		return err
	}
	defer unlock()
	if executable(bin) {
		return nil
	}
	tmp, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	fmt.Fprintf(progress, "testserver: building MinIO %s with go install, once; this takes minutes (into %s)\n", minioVersion, dir)
	began := time.Now()
	if err := goInstall(ctx, tmp, progress); err != nil {
		return fmt.Errorf("go install %s@%s: %w", minioModule, minioVersion, err)
	}
	if err := os.Rename(filepath.Join(tmp, "minio"), bin); err != nil {
		return err
	}
	fmt.Fprintf(progress, "testserver: built MinIO in %v\n", time.Since(began).Round(time.Second))
	return nil
}

// goInstall builds MinIO into dir, saying now and then how far it is.
func goInstall(ctx context.Context, dir string, progress io.Writer) error {
	cmd := exec.CommandContext(ctx, "go", "install", "-v", "-ldflags=-s -w", minioModule+"@"+minioVersion)
	cmd.Dir = dir // outside any module
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=", "GOWORK=off", "GOOS=", "GOARCH=", "CGO_ENABLED=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	out, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var last []string // what went wrong stands at the end
	packages, said := 0, time.Now()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		packages++
		if last = append(last, lines.Text()); len(last) > 20 {
			last = last[1:]
		}
		if time.Since(said) >= 15*time.Second {
			said = time.Now()
			fmt.Fprintf(progress, "testserver: building MinIO: %d packages so far\n", packages)
		}
	}
	_, _ = io.Copy(io.Discard, out)
	if err := cmd.Wait(); err != nil {
		return errors.Join(err, ctx.Err(), errors.New(strings.Join(last, "\n")))
	}
	return nil
}

// waitLock takes the flock on a file. waiting is called if somebody else has it.
func waitLock(ctx context.Context, path string, waiting func()) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	for told := false; ; told = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f.Close, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(err, f.Close())
		}
		if !told {
			waiting()
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), f.Close())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

package testserver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// outcome is a testing.TB that notes how a test was ended early.
type outcome struct {
	testing.TB
	how string
}

func (o *outcome) Helper()           {}
func (o *outcome) Fatal(args ...any) { o.end("fatal", fmt.Sprint(args...)) }
func (o *outcome) Fatalf(f string, args ...any) {
	o.end("fatal", fmt.Sprintf(f, args...))
}
func (o *outcome) Skipf(f string, args ...any) { o.end("skip", fmt.Sprintf(f, args...)) }

// ended is what end panics with, since a test ends where it is ended.
type ended struct{}

func (o *outcome) end(how, text string) {
	o.how = how + ": " + text
	panic(ended{})
}

// how runs f with a TB and says how it was ended; "" if it was not.
func how(t *testing.T, f func(testing.TB)) string {
	o := &outcome{TB: t}
	func() {
		defer func() {
			if r := recover(); r != nil && r != (ended{}) {
				panic(r)
			}
		}()
		f(o)
	}()
	return o.how
}

// TestMissingServers: without MinIO a test is skipped, with a word on how to get it, and fails wherever servers are required.
func TestMissingServers(t *testing.T) {
	for _, name := range []string{"CI", Backends, S3URL, PostgresURL, PgBouncerURL} {
		t.Setenv(name, "")
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	own := func(t testing.TB) { OwnMinIO(t) }
	shared := func(t testing.TB) { new(Shared).S3(t) }
	for _, c := range []struct {
		env    []string
		get    func(testing.TB)
		how    string
		saying string
	}{
		{nil, own, "skip", "make test"},
		{nil, shared, "skip", "make test"},
		{[]string{"CI=false"}, shared, "skip", "make test"},
		{[]string{"CI=true"}, own, "fatal", S3URL},
		{[]string{"CI=true"}, shared, "fatal", S3URL},
		{[]string{Backends + "=/dev/null"}, own, "fatal", S3URL},
		{[]string{Backends + "=/dev/null"}, shared, "fatal", S3URL},
		{[]string{Backends + "=/dev/null", S3URL + "=s3://b?endpoint=http://127.0.0.1:1"}, own, "skip", "make test"},
		{[]string{"CI=true", Backends + "=/dev/null", S3URL + "=s3://b?endpoint=http://127.0.0.1:1"}, own, "fatal", S3URL},
	} {
		t.Run(strings.Join(c.env, " "), func(t *testing.T) {
			for _, kv := range c.env {
				k, v, _ := strings.Cut(kv, "=")
				t.Setenv(k, v)
			}
			if got := how(t, c.get); !strings.HasPrefix(got, c.how+": ") || !strings.Contains(got, c.saying) {
				t.Errorf("the test ends with %q; want %s, and a word of %s", got, c.how, c.saying)
			}
		})
	}
}

// TestWrongURLs: a server that the environment names and that is not there fails tests, everywhere; no message holds the URL's password.
func TestWrongURLs(t *testing.T) {
	const secret = "hunter2"
	for _, c := range []struct{ name, value string }{
		{PostgresURL, "postgres://u:" + secret + "@127.0.0.1:1/x"},
		{PostgresURL, "postgres://u:" + secret + "@[::bad/x"},
		{PostgresURL, "http://u:" + secret + "@127.0.0.1:1/x"},
		{PostgresURL, "postgres://u:" + secret + "@127.0.0.1:1/x?sslmode=" + secret},
		{PgBouncerURL, "postgres://u:" + secret + "@127.0.0.1:1/x"},
		{S3URL, "s3://b?endpoint=http://127.0.0.1:1"},
		{S3URL, "http://127.0.0.1:1/" + secret},
		{S3URL, "s3:// " + secret},
	} {
		t.Run(c.name+"="+c.value, func(t *testing.T) {
			for _, name := range []string{"CI", Backends, S3URL, PostgresURL, PgBouncerURL, S3Server} {
				t.Setenv(name, "")
			}
			t.Setenv(c.name, c.value)
			err := CheckEnvironment(t.Context())
			if err == nil {
				t.Fatal("it was taken")
			}
			said := []string{err.Error()}
			if c.name != PgBouncerURL {
				said = append(said, how(t, func(t testing.TB) {
					var s Shared
					if c.name == PostgresURL {
						s.Postgres(t)
					} else {
						s.S3(t)
						s.S3Server(t)
					}
				}))
			}
			for _, text := range said {
				if !strings.Contains(text, c.name) || strings.Contains(text, secret) {
					t.Errorf("the message is %q; want %s in it, and not the password", text, c.name)
				}
			}
		})
	}
}

// TestBuildMinIO builds with a go command that does nothing but leave a file: once, however many ask, and not at all if it is there. One that fails
// is quoted.
func TestBuildMinIO(t *testing.T) {
	cache, bin := t.TempDir(), t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	fake := func(script string) {
		if err := os.WriteFile(filepath.Join(bin, "go"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	fake("echo some/package >&2; echo 'it does not compile' >&2; exit 1\n")
	var progress strings.Builder
	err := BuildMinIO(t.Context(), &progress)
	if err == nil || !strings.Contains(err.Error(), "it does not compile") || !strings.Contains(err.Error(), minioVersion) {
		t.Errorf("a build that fails: %v", err)
	}
	if !strings.Contains(progress.String(), "minutes") {
		t.Errorf("it said %q", progress.String())
	}

	fake(`echo "$*" >> ` + cache + `/built; printf '#!/bin/sh\n' > "$GOBIN/minio"; chmod +x "$GOBIN/minio"` + "\n")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := BuildMinIO(t.Context(), new(strings.Builder)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	built, err := os.ReadFile(filepath.Join(cache, "built"))
	if err != nil || strings.Count(string(built), "\n") != 1 || !strings.Contains(string(built), minioModule+"@"+minioVersion) {
		t.Errorf("go was called with %q, %v", built, err)
	}
	left, err := filepath.Glob(filepath.Join(cache, "stele", "*", "build-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}

	fake("sleep 3600\n")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- BuildMinIO(ctx, new(strings.Builder)) }()
	cancel()
	if err := <-done; err == nil {
		t.Error("a build that was given up succeeded")
	}
}

// TestUnfit: memory is no disk, and a place must be within reach of whom servers run as.
func TestUnfit(t *testing.T) {
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); f[2] == "tmpfs" && f[1] == "/dev/shm" {
			if got := unfit(f[1], nil); !strings.Contains(got, "memory") {
				t.Errorf("a tmpfs is unfit for %q", got)
			}
		}
	}
	if got := unfit("/proc/nonsense", nil); got == "" {
		t.Error("a directory that is not there is fit")
	}
	private := filepath.Join(t.TempDir(), "private")
	if err := os.Mkdir(private, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := unfit(private, &syscall.Credential{Uid: 12345}); !strings.Contains(got, "uid 12345") {
		t.Errorf("a private directory is unfit for %q", got)
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/steledb/stele/internal/testserver"
)

// servers are those that run has started.
type servers struct {
	out io.Writer

	mu      sync.Mutex
	environ map[string]string // what the command gets to know
	closers []func() error
}

// start starts what the environment does not name. MinIO's build and PostgreSQL's set-up go on side by side.
func (s *servers) start(ctx context.Context) error {
	if err := testserver.CheckEnvironment(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make(chan error)
	for _, f := range []func(context.Context) error{s.startMinIO, s.startPostgres} {
		go func() {
			err := f(ctx)
			if err != nil {
				cancel() // the other need not finish
			}
			errs <- err
		}()
	}
	var first error
	for range 2 {
		if err := <-errs; err != nil && (first == nil || errors.Is(first, context.Canceled)) {
			first = err
		}
	}
	return first
}

func (s *servers) startMinIO(ctx context.Context) error {
	err := testserver.BuildMinIO(ctx, s.out)
	if named := os.Getenv(testserver.S3URL) != ""; err != nil || named {
		if err != nil && named && os.Getenv("CI") != "true" {
			s.say("MinIO could not be built, so tests that kill a server are skipped: %v", err)
			return nil
		}
		return err
	}
	m, err := testserver.StartMinIO(ctx)
	if err != nil {
		return err
	}
	s.add(m.Close)
	for _, kv := range m.Environ() {
		k, v, _ := strings.Cut(kv, "=")
		s.set(k, v)
	}
	s.set(testserver.S3URL, m.URL())
	s.set(testserver.S3Server, m.Version())
	s.say("%s at %s", m.Version(), m.Endpoint())
	return nil
}

func (s *servers) startPostgres(ctx context.Context) error {
	named, bouncerNamed := os.Getenv(testserver.PostgresURL), os.Getenv(testserver.PgBouncerURL)
	if bouncerNamed != "" && named == "" {
		return fmt.Errorf("%s is set, but %s is not", testserver.PgBouncerURL, testserver.PostgresURL)
	}
	if err := install(ctx, s.out); err != nil {
		if named == "" || bouncerNamed == "" || os.Getenv("CI") == "true" {
			return err
		}
		s.say("PostgreSQL could not be installed, so tests that kill a server are skipped: %v", err)
	}
	url := named
	if url == "" {
		p, err := testserver.StartPostgres(ctx)
		if err != nil {
			return err
		}
		s.add(p.Close)
		url = p.URL()
		s.set(testserver.PostgresURL, url)
		v, err := p.Version(ctx)
		if err != nil {
			return err
		}
		s.say("%s at %s", v, p.Addr())
	}
	if bouncerNamed != "" {
		return nil
	}
	b, err := testserver.StartPgBouncer(ctx, url)
	if err != nil {
		return err
	}
	s.add(b.Close)
	s.set(testserver.PgBouncerURL, b.URL())
	v, err := b.Version(ctx)
	if err != nil {
		return err
	}
	s.say("%s at %s", v, b.Addr())
	return nil
}

func (s *servers) say(format string, args ...any) {
	fmt.Fprintf(s.out, "testserver: "+format+"\n", args...)
}

func (s *servers) set(name, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.environ[name] = value
}

func (s *servers) add(closer func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closers = append(s.closers, closer)
}

// env is what the command gets to know, as NAME=value.
func (s *servers) env() (env []string) {
	for _, name := range slices.Sorted(maps.Keys(s.environ)) {
		env = append(env, name+"="+s.environ[name])
	}
	return env
}

// close stops the servers, the last one first.
func (s *servers) close() error {
	var errs []error
	for _, c := range slices.Backward(s.closers) {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

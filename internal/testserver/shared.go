package testserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Shared are the servers that the tests of one package share. Its zero value is ready; its methods may be called concurrently.
type Shared struct {
	mu       sync.Mutex
	postgres *Postgres
	bouncer  *PgBouncer
	minio    *MinIO
	failed   map[string]error // by server: why it could not be started; tried once
}

// M is a [testing.M] that stops the servers behind the tests.
type M struct {
	m *testing.M
	s *Shared
}

// Main makes a TestMain's m stop the servers, before what it is handed to looks for leaks.
func (s *Shared) Main(m *testing.M) *M { return &M{m, s} }

// Run runs the tests, closes the servers and returns the exit code.
func (m *M) Run() int {
	code := m.m.Run()
	if err := m.s.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "testserver:", err)
		code = max(code, 1)
	}
	return code
}

// Close stops what s started. Servers that the environment named are left alone.
func (s *Shared) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	if s.bouncer != nil {
		errs = append(errs, s.bouncer.Close())
	}
	if s.postgres != nil {
		errs = append(errs, s.postgres.Close())
	}
	if s.minio != nil {
		errs = append(errs, s.minio.Close())
	}
	s.bouncer, s.postgres, s.minio = nil, nil, nil
	return errors.Join(errs...)
}

// Postgres returns the URL of a new, empty database, which is dropped with t.
func (s *Shared) Postgres(t testing.TB) string {
	t.Helper()
	direct, _ := s.database(t, false)
	return direct
}

// PgBouncer returns the URL of a new, empty database through PgBouncer in transaction mode, and of the same database without it. It is
// dropped with t.
func (s *Shared) PgBouncer(t testing.TB) (pooled, direct string) {
	t.Helper()
	direct, pooled = s.database(t, true)
	return pooled, direct
}

// PostgresServer says which server and version [Shared.Postgres] is, asking it: "PostgreSQL 15.14 (Debian …)".
func (s *Shared) PostgresServer(t testing.TB) string {
	t.Helper()
	admin := s.postgresURL(t)
	v, err := postgresVersion(t.Context(), admin)
	if err != nil {
		t.Fatal(wrong(PostgresURL, err))
	}
	return v
}

func (s *Shared) postgresURL(t testing.TB) string {
	t.Helper()
	if u := os.Getenv(PostgresURL); u != "" {
		return u
	}
	p, err := lazily(s, "postgres", &s.postgres, func() (*Postgres, error) { return StartPostgres(free(t.Context())) })
	if err != nil {
		missing(t, err, required())
	}
	return p.URL()
}

func (s *Shared) database(t testing.TB, pooled bool) (direct, viaBouncer string) {
	t.Helper()
	admin := s.postgresURL(t)
	bouncer := os.Getenv(PgBouncerURL)
	if pooled && bouncer == "" {
		b, err := lazily(s, "pgbouncer", &s.bouncer, func() (*PgBouncer, error) { return StartPgBouncer(free(t.Context()), admin) })
		if err != nil {
			missing(t, err, required())
		}
		bouncer = b.URL()
	}
	name := unique()
	direct, drop, err := createDatabase(t.Context(), admin, name)
	if err != nil {
		t.Fatal(wrong(PostgresURL, err))
	}
	t.Cleanup(func() {
		if err := drop(free(t.Context())); err != nil {
			t.Error(wrong(PostgresURL, err))
		}
	})
	if pooled {
		if viaBouncer, err = withDatabase(bouncer, name); err != nil {
			t.Fatal(wrong(PgBouncerURL, err))
		}
	}
	return direct, viaBouncer
}

// S3 returns a store URL with a prefix that nobody else uses: s3://bucket/prefix?endpoint=…. If s starts the server, its credentials are put
// into this process's environment, as `make test` does for all. What the test leaves below the prefix stays until the
// server goes.
func (s *Shared) S3(t testing.TB) string {
	t.Helper()
	u, err := url.Parse(s.s3URL(t))
	if err != nil || u.Scheme != "s3" || u.Host == "" {
		t.Fatal(wrong(S3URL, errNotS3))
	}
	u.Path = strings.TrimSuffix(u.Path, "/") + "/" + unique()
	return u.String()
}

// S3Server says which server and version [Shared.S3] is: the name in its answers, and the version where that is known.
func (s *Shared) S3Server(t testing.TB) string {
	t.Helper()
	u, err := url.Parse(s.s3URL(t))
	if err != nil {
		t.Fatal(wrong(S3URL, errNotS3))
	}
	version := os.Getenv(S3Server)
	s.mu.Lock()
	if s.minio != nil {
		version = s.minio.Version()
	}
	s.mu.Unlock()
	name, err := serverHeader(t.Context(), u.Query().Get("endpoint"))
	if err != nil {
		t.Fatal(wrong(S3URL, err))
	}
	if version == "" {
		return name + ", which does not tell its version"
	}
	if !strings.HasPrefix(version, name+" ") {
		t.Fatalf("%s is %q, but the server calls itself %q", S3Server, version, name)
	}
	return version
}

func (s *Shared) s3URL(t testing.TB) string {
	t.Helper()
	if u := os.Getenv(S3URL); u != "" {
		return u
	}
	m, err := lazily(s, "minio", &s.minio, func() (*MinIO, error) {
		m, err := StartMinIO(free(t.Context()))
		if err == nil {
			err = setenv(m.Environ())
		}
		return m, err
	})
	if err != nil {
		missing(t, err, required())
	}
	return m.URL()
}

// lazily starts a server once.
func lazily[S any](s *Shared, name string, field **S, start func() (*S, error)) (*S, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if *field != nil || s.failed[name] != nil {
		return *field, s.failed[name]
	}
	server, err := start()
	if err != nil {
		if s.failed == nil {
			s.failed = map[string]error{}
		}
		s.failed[name] = err
		return nil, err
	}
	*field = server
	return server, nil
}

func setenv(env []string) error {
	for _, kv := range env {
		k, v, _ := strings.Cut(kv, "=")
		if err := os.Setenv(k, v); err != nil {
			return err
		}
	}
	return nil
}

// unique is a name that was never used before: good for a database, a bucket's prefix, a user.
func unique() string { return "stele-test-" + strings.ToLower(rand.Text()[:16]) }

// serverHeader asks an HTTP server for its name: "AmazonS3", "MinIO".
func serverHeader(ctx context.Context, endpoint string) (string, error) {
	if endpoint == "" {
		return "AmazonS3", nil // the SDK's own endpoint
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint, nil)
	if err != nil {
		return "", err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if name := resp.Header.Get("Server"); name != "" {
		return name, nil
	}
	return "a server without a name", nil
}

// What is wrong with a URL that is no store's. Never the URL itself: it may hold a password.
var (
	errNotPostgres = errors.New("it is no URL of the form postgres://user:password@host:port/database")
	errNotS3       = errors.New("it is no URL of the form s3://bucket?endpoint=http://host:port")
)

// withDatabase is a PostgreSQL URL with another database.
func withDatabase(rawURL, name string) (string, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" || u.Host == "" {
		return "", errNotPostgres
	}
	u.Path, u.RawPath = "/"+name, ""
	return u.String(), nil
}

// createDatabase makes an empty database and returns its URL and what drops it, whoever still uses it.
func createDatabase(ctx context.Context, admin, name string) (string, func(context.Context) error, error) {
	u, err := withDatabase(admin, name)
	if err != nil {
		return "", nil, err
	}
	quoted := pgx.Identifier{name}.Sanitize()
	if err := runSQL(ctx, admin, "CREATE DATABASE "+quoted); err != nil {
		return "", nil, err
	}
	return u, func(ctx context.Context) error {
		return runSQL(ctx, admin, "DROP DATABASE IF EXISTS "+quoted+" WITH (FORCE)")
	}, nil
}

// runSQL runs one statement on a connection of its own.
func runSQL(ctx context.Context, url, sql string) error {
	return connected(ctx, url, func(c *pgx.Conn) error {
		_, err := c.Exec(ctx, sql)
		return err
	})
}

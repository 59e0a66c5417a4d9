// Package testserver starts and controls the real servers that tests run against: PostgreSQL, PgBouncer and MinIO, each on a free
// loopback port, with its files in a directory of its own on a real disk, and all durability settings on.
//
// A package's tests share one server of each kind:
//
//	var servers testserver.Shared
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(servers.Main(m)) }
//
//	func TestCommit(t *testing.T) {
//		url := servers.Postgres(t) // a new, empty database of this test's own
//		…
//	}
//
// and a test that kills its server has one for itself: [OwnPostgres], [OwnMinIO].
//
// # Where the servers come from
//
// If the environment names a server ([PostgresURL], [PgBouncerURL], [S3URL]) it is used; `make test` starts one of each and
// names them so. Otherwise one is started when the first test asks for it, if its programs are there: initdb and postgres on PATH or
// in /usr/lib/postgresql/*/bin, pgbouncer on PATH or in /usr/sbin, MinIO built into the cache by an earlier `make test`. Otherwise
// the test fails where servers are required (under CI=true, and under `make test`), or is skipped with a sentence that names `make test`.
//
// # How they end
//
// A server ends with Close, and at the latest with the process that started it, however that ends: the kernel sends the server a
// signal then. Directories that a killed process left behind are removed by the next one.
package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
)

// The environment that names servers which already run, and what goes with them.
const (
	// PostgresURL is a URL of PostgreSQL whose user may create databases.
	PostgresURL = "STELE_TEST_POSTGRES_URL"
	// PgBouncerURL is a URL of PgBouncer in transaction mode, in front of every database of the server that PostgresURL names.
	PgBouncerURL = "STELE_TEST_PGBOUNCER_URL"
	// S3URL is a store URL of a bucket that exists, as in s3://bucket?endpoint=http://127.0.0.1:9000; credentials come from where
	// log/s3 looks for them.
	S3URL = "STELE_TEST_S3_URL"
	// S3Server says which server and version S3URL is, which S3 itself does not tell.
	S3Server = "STELE_TEST_S3_SERVER"
	// Backends is a file to which log/logtest adds a line for each backend that it tested. It is set by `make test`, and says that
	// servers are required.
	Backends = "STELE_TEST_BACKENDS"
)

// ErrMissing: the programs of a server are not on this machine.
var ErrMissing = errors.New("not found on this machine")

// required reports whether a test must not be skipped for want of a server.
func required() bool { return os.Getenv("CI") == "true" || os.Getenv(Backends) != "" }

// missing ends a test that cannot have its server: it fails where servers are required or exist and do not work, else it is skipped.
func missing(t testing.TB, err error, required bool) {
	t.Helper()
	if required || !errors.Is(err, ErrMissing) {
		t.Fatal(err)
	}
	t.Skipf("%v; `make test` gets it", err)
}

// Lacking ends a test that the servers given by hand cannot serve: it fails where servers are required, else it is skipped.
func Lacking(t testing.TB, what string) {
	t.Helper()
	if required() {
		t.Fatal(what)
	}
	t.Skip(what)
}

// OwnPostgres starts a PostgreSQL for one test, which may kill it. It is closed with t. Where PostgresURL was set by hand and the
// programs are missing, the test is skipped, except under CI.
func OwnPostgres(t testing.TB) *Postgres {
	t.Helper()
	p, err := StartPostgres(t.Context())
	if err != nil {
		missing(t, err, os.Getenv("CI") == "true" || required() && os.Getenv(PostgresURL) == "")
	}
	closeWith(t, p)
	return p
}

// OwnPgBouncer starts a PgBouncer in front of p for one test. It is closed with t.
func OwnPgBouncer(t testing.TB, p *Postgres) *PgBouncer {
	t.Helper()
	b, err := StartPgBouncer(t.Context(), p.URL())
	if err != nil {
		missing(t, err, required())
	}
	closeWith(t, b)
	return b
}

// OwnMinIO starts a MinIO for one test, which may kill it. It is closed with t. Its credentials are those in this process's environment
// if they are a test server's, so that the two can be used side by side; [MinIO.Environ] tells.
func OwnMinIO(t testing.TB) *MinIO {
	t.Helper()
	m, err := StartMinIO(t.Context())
	if err != nil {
		missing(t, err, os.Getenv("CI") == "true" || required() && os.Getenv(S3URL) == "")
	}
	closeWith(t, m)
	return m
}

func closeWith(t testing.TB, s interface{ Close() error }) {
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// free is a context for cleaning up behind ctx, which may have ended.
func free(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }

// wrong is an error about what the environment says. It never holds a URL: they have passwords.
func wrong(name string, err error) error { return fmt.Errorf("%s: %w", name, err) }

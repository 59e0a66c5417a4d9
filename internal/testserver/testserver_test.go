package testserver

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

var servers Shared

func TestMain(m *testing.M) {
	if os.Getenv(parentOf) != "" {
		parent()
	}
	goleak.VerifyTestMain(servers.Main(m))
}

// TestPostgresKeepsWhatItCommitted: databases are separate, and what was committed is there after Stop and after Kill.
func TestPostgresKeepsWhatItCommitted(t *testing.T) {
	p := OwnPostgres(t)
	url := p.NewDatabase(t)
	do(t, url, "CREATE TABLE x (n int)")
	for i, end := range []func() error{p.Stop, p.Kill} {
		do(t, url, "INSERT INTO x VALUES (1)")
		addr := p.Addr()
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if c, err := pgx.Connect(t.Context(), url); err == nil {
			_ = c.Close(t.Context())
			t.Fatal("a server that was ended answers")
		}
		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if p.Addr() != addr {
			t.Errorf("it moved from %s to %s", addr, p.Addr())
		}
		if got := ask(t, url, "SELECT count(*)::text FROM x"); got != []string{"1", "2"}[i] {
			t.Errorf("%s rows are left of %d", got, i+1)
		}
	}
}

// TestPostgresIsDurable: the settings that durability hangs on are on, and nobody gets in without the password.
func TestPostgresIsDurable(t *testing.T) {
	url := servers.Postgres(t)
	if os.Getenv(PostgresURL) != "" {
		t.Log("of the server that", PostgresURL, "names")
	}
	for _, name := range []string{"fsync", "full_page_writes", "synchronous_commit"} {
		if got := ask(t, url, "SHOW "+name); got != "on" {
			t.Errorf("%s is %s", name, got)
		}
	}
	p := OwnPostgres(t)
	cfg, err := pgx.ParseConfig(p.URL())
	if err != nil {
		t.Fatal(err)
	}
	cfg.Password = "guess"
	if c, err := pgx.ConnectConfig(t.Context(), cfg); err == nil {
		_ = c.Close(t.Context())
		t.Error("a wrong password was taken")
	}
}

// TestSharedDatabasesAreSeparate also goes through PgBouncer.
func TestSharedDatabasesAreSeparate(t *testing.T) {
	a := servers.Postgres(t)
	pooled, direct := servers.PgBouncer(t)
	do(t, a, "CREATE TABLE x ()")
	do(t, pooled, "CREATE TABLE x ()")
	if a == direct || pooled == direct {
		t.Errorf("two of these are one: %q %q %q", a, pooled, direct)
	}
	if got := ask(t, direct, "SELECT count(*)::text FROM pg_tables WHERE tablename = 'x'"); got != "1" {
		t.Errorf("what was made through PgBouncer is there %s times", got)
	}
	if v := servers.PostgresServer(t); !strings.HasPrefix(v, "PostgreSQL 1") {
		t.Errorf("the server calls itself %q", v)
	}
}

func TestMinIOStartsAgain(t *testing.T) {
	m := OwnMinIO(t)
	url := m.URL()
	for _, end := range []func() error{m.Kill, m.Stop} {
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if err := m.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if m.URL() != url {
			t.Errorf("it moved from %s to %s", url, m.URL())
		}
	}
	if got, want := m.URLAt("127.0.0.1:1", "p"), "s3://stele-test/p?endpoint=http://127.0.0.1:1"; got != want {
		t.Errorf("through a proxy its URL is %q; want %q", got, want)
	}
	if got := m.Version(); got != "MinIO "+minioVersion {
		t.Errorf("its version is %q", got)
	}
}

// TestSharedS3: prefixes are separate, and whoever finds the server finds its credentials in the environment.
func TestSharedS3(t *testing.T) {
	a, b := servers.S3(t), servers.S3(t)
	if a == b || !strings.HasPrefix(a, "s3://") {
		t.Errorf("two prefixes are %q and %q", a, b)
	}
	if got := servers.S3Server(t); got == "" {
		t.Error("the server has no name")
	}
	if os.Getenv(S3URL) != "" {
		return
	}
	m := OwnMinIO(t)
	if m.AccessKey() != os.Getenv("AWS_ACCESS_KEY_ID") || m.SecretKey() != os.Getenv("AWS_SECRET_ACCESS_KEY") {
		t.Error("a second server has other credentials than the shared one")
	}
}

func do(t *testing.T, url, sql string) {
	t.Helper()
	onConn(t, url, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, sql)
		return err
	})
}

func ask(t *testing.T, url, sql string) (answer string) {
	t.Helper()
	onConn(t, url, func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, sql, pgx.QueryExecModeSimpleProtocol).Scan(&answer)
	})
	return answer
}

func onConn(t *testing.T, url string, f func(context.Context, *pgx.Conn) error) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	if err := f(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

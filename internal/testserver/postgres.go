package testserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Postgres is a PostgreSQL server of our own. It speaks on one loopback port only, with a random password for its superuser, and is as
// durable as PostgreSQL is out of the box: fsync, full_page_writes and synchronous_commit are on. Its methods may be called concurrently.
type Postgres struct {
	bin      string // the directory of its programs
	dir      *scratch
	password string
	port     int

	mu   sync.Mutex // one at a time: Start, Stop, Kill, Close
	proc *process   // nil: it does not run
}

// pgUser is the superuser.
const pgUser = "stele"

// StartPostgres makes a new cluster and starts it. An error that wraps ErrMissing says that PostgreSQL is not installed.
func StartPostgres(ctx context.Context) (*Postgres, error) {
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	as, err := unprivileged()
	if err != nil {
		return nil, err
	}
	dir, err := newScratch("postgres", as)
	if err != nil {
		return nil, err
	}
	p := &Postgres{bin: bin, dir: dir, password: rand.Text()}
	err = p.create(ctx)
	if err == nil {
		err = p.startOn(ctx, freePort)
	}
	if err != nil {
		return nil, errors.Join(err, dir.remove())
	}
	return p, nil
}

// postgresBin finds the directory that holds initdb and postgres: on PATH, or the newest of Debian's.
func postgresBin() (string, error) {
	var dirs []string
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(path))
		}
	}
	debian, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	version := func(dir string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
		return n
	}
	slices.SortFunc(debian, func(a, b string) int { return version(b) - version(a) })
	for _, dir := range append(dirs, debian...) {
		if executable(filepath.Join(dir, "initdb")) && executable(filepath.Join(dir, "postgres")) {
			return dir, nil
		}
	}
	return "", fmt.Errorf("PostgreSQL (initdb and postgres, on PATH or in /usr/lib/postgresql/*/bin) was %w; %s can name a server that runs elsewhere", ErrMissing, PostgresURL)
}

func executable(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
}

// create makes the cluster.
func (p *Postgres) create(ctx context.Context) error {
	pw, err := p.dir.write("password", p.password)
	if err != nil {
		return err
	}
	cmd := p.dir.command(ctx, filepath.Join(p.bin, "initdb"), "-D", p.dir.path("data"), "-U", pgUser, "--pwfile", pw,
		"-A", "scram-sha-256", "-E", "UTF8", "--no-locale", "--no-instructions")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb: %w: %s", err, tail(out))
	}
	return nil
}

// startOn starts the server on a port that choose gives, and on another one if that is taken meanwhile.
func (p *Postgres) startOn(ctx context.Context, choose func() (int, error)) error {
	return onPort(ctx, choose, func(port int) error {
		p.port = port
		log, err := p.dir.log()
		if err != nil {
			return err
		}
		defer log.Close()
		cmd := p.dir.command(context.Background(), filepath.Join(p.bin, "postgres"), "-D", p.dir.path("data"),
			"-c", "listen_addresses=127.0.0.1", "-c", "port="+strconv.Itoa(port), "-c", "unix_socket_directories=",
			"-c", "max_connections=200", "-c", "fsync=on", "-c", "full_page_writes=on", "-c", "synchronous_commit=on",
			"-c", "logging_collector=off", "-c", "log_line_prefix=%m [%p] ")
		cmd.Stdout, cmd.Stderr = log, log
		// Immediate shutdown, should this process end first: the postmaster takes its children with it.
		proc, err := start(cmd, syscall.SIGQUIT)
		if err != nil {
			return err
		}
		err = proc.ready(ctx, func(ctx context.Context) error {
			_, err := postgresVersion(ctx, p.URL())
			return err
		})
		if err != nil {
			_ = proc.end(syscall.SIGQUIT)
			return p.dir.explain("postgres", err)
		}
		p.proc = proc
		return nil
	})
}

// URL is that of the superuser on the database postgres; its password is in it.
func (p *Postgres) URL() string {
	return (&url.URL{Scheme: "postgres", User: url.UserPassword(pgUser, p.password), Host: p.Addr(), Path: "/postgres"}).String()
}

// Addr is the host and port on which it listens, running or not.
func (p *Postgres) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

// NewDatabase makes an empty database, which is dropped with t, and returns its URL. The server must run; if it does not when t ends, the
// database stays.
func (p *Postgres) NewDatabase(t testing.TB) string {
	t.Helper()
	u, drop, err := createDatabase(t.Context(), p.URL(), unique())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = drop(free(t.Context())) })
	return u
}

// Version asks the server which it is: "PostgreSQL 15.14 (Debian …)".
func (p *Postgres) Version(ctx context.Context) (string, error) { return postgresVersion(ctx, p.URL()) }

// Stop ends the server in good order (pg_ctl stop -m fast): clients are told, everything is written out.
func (p *Postgres) Stop() error { return p.stop(syscall.SIGINT) }

// Kill ends the server at once, as pg_ctl stop -m immediate does: nothing is written out, the next start recovers from the WAL.
func (p *Postgres) Kill() error { return p.stop(syscall.SIGQUIT) }

func (p *Postgres) stop(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proc == nil {
		return nil
	}
	err := p.proc.end(sig)
	p.proc = nil
	return err
}

// Start starts the server again, on the same port and data, and returns once it answers. It does nothing if the server runs.
func (p *Postgres) Start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proc != nil && !p.proc.ended() {
		return nil
	}
	p.proc = nil
	return p.startOn(ctx, same(p.port))
}

// Close ends the server and removes its files.
func (p *Postgres) Close() error { return errors.Join(p.Kill(), p.dir.remove()) }

// postgresVersion is the server's own word.
func postgresVersion(ctx context.Context, url string) (v string, err error) {
	err = connected(ctx, url, func(c *pgx.Conn) error {
		return c.QueryRow(ctx, "SHOW server_version").Scan(&v)
	})
	return "PostgreSQL " + v, err
}

// connected runs f with a connection of its own.
func connected(ctx context.Context, url string, f func(*pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return errNotPostgres // pgx's text repeats parts of it
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol // PgBouncer keeps no prepared statements
	c, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return fmt.Errorf("PostgreSQL at %s:%d: %w", cfg.Host, cfg.Port, err)
	}
	return errors.Join(f(c), c.Close(free(ctx)))
}

// tail is the end of a program's output.
func tail(out []byte) string {
	s := strings.TrimSpace(string(out))
	return s[max(0, len(s)-2000):]
}

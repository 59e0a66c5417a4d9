package testserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// PgBouncer is a PgBouncer of our own, in transaction mode, in front of every database of one PostgreSQL server. Its users are that
// server's URL's one user. Its methods may be called concurrently.
type PgBouncer struct {
	bin   string
	dir   *scratch
	front *url.URL // the URL of PostgreSQL, for the user, the password and the database
	port  int

	mu   sync.Mutex
	proc *process
}

// StartPgBouncer starts a PgBouncer in front of the PostgreSQL that url names. An error that wraps ErrMissing says that it is not installed.
func StartPgBouncer(ctx context.Context, postgres string) (*PgBouncer, error) {
	bin, err := pgbouncerBin()
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(postgres)
	if err != nil || u.Hostname() == "" || u.User == nil {
		return nil, errNotPostgres
	}
	as, err := unprivileged()
	if err != nil {
		return nil, err
	}
	dir, err := newScratch("pgbouncer", as)
	if err != nil {
		return nil, err
	}
	b := &PgBouncer{bin: bin, dir: dir, front: u}
	if err := b.startOn(ctx, freePort); err != nil {
		return nil, errors.Join(err, dir.remove())
	}
	return b, nil
}

func pgbouncerBin() (string, error) {
	if path, err := exec.LookPath("pgbouncer"); err == nil {
		return path, nil
	}
	if debian := "/usr/sbin/pgbouncer"; executable(debian) {
		return debian, nil
	}
	return "", fmt.Errorf("PgBouncer (pgbouncer, on PATH or in /usr/sbin) was %w; %s can name one that runs elsewhere", ErrMissing, PgBouncerURL)
}

func (b *PgBouncer) startOn(ctx context.Context, choose func() (int, error)) error {
	return onPort(ctx, choose, func(port int) error {
		b.port = port
		password, _ := b.front.User.Password()
		quoted := func(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
		users, err := b.dir.write("users", quoted(b.front.User.Username())+" "+quoted(password)+"\n")
		if err != nil {
			return err
		}
		pgPort := b.front.Port()
		if pgPort == "" {
			pgPort = "5432"
		}
		config, err := b.dir.write("pgbouncer.ini", strings.Join([]string{
			"[databases]",
			"* = host=" + b.front.Hostname() + " port=" + pgPort,
			"[pgbouncer]",
			"listen_addr = 127.0.0.1",
			"listen_port = " + strconv.Itoa(port),
			"unix_socket_dir =",
			"auth_type = scram-sha-256",
			"auth_file = " + users,
			"pool_mode = transaction",
			"max_client_conn = 500",
			"default_pool_size = 40",
			"max_db_connections = 60",
			"",
		}, "\n"))
		if err != nil {
			return err
		}
		log, err := b.dir.log()
		if err != nil {
			return err
		}
		defer log.Close()
		cmd := b.dir.command(context.Background(), b.bin, config)
		cmd.Stdout, cmd.Stderr = log, log
		proc, err := start(cmd, syscall.SIGKILL) // it holds nothing that it could lose
		if err != nil {
			return err
		}
		err = proc.ready(ctx, func(ctx context.Context) error {
			_, err := postgresVersion(ctx, b.URL())
			return err
		})
		if err != nil {
			_ = proc.end(syscall.SIGKILL)
			return b.dir.explain("pgbouncer", err)
		}
		b.proc = proc
		return nil
	})
}

// URL is that of PostgreSQL, through PgBouncer.
func (b *PgBouncer) URL() string {
	u := *b.front
	u.Host = b.Addr()
	u.RawQuery = ""
	return u.String()
}

// Addr is the host and port on which it listens, running or not.
func (b *PgBouncer) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(b.port)) }

// Version is the program's own word: "PgBouncer 1.18.0".
func (b *PgBouncer) Version(ctx context.Context) (string, error) {
	out, err := b.dir.command(ctx, b.bin, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("pgbouncer --version: %w", err)
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return first, nil
}

// Kill ends it at once; its connections are cut.
func (b *PgBouncer) Kill() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.proc == nil {
		return nil
	}
	err := b.proc.end(syscall.SIGKILL)
	b.proc = nil
	return err
}

// Start starts it again, on the same port. It does nothing if it runs.
func (b *PgBouncer) Start(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.proc != nil && !b.proc.ended() {
		return nil
	}
	b.proc = nil
	return b.startOn(ctx, same(b.port))
}

// Close ends it and removes its files.
func (b *PgBouncer) Close() error { return errors.Join(b.Kill(), b.dir.remove()) }

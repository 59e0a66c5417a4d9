package pg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/internal/netfault"
	"github.com/steledb/stele/internal/testserver"
	"github.com/steledb/stele/log"
)

var servers testserver.Shared

func TestMain(m *testing.M) { goleak.VerifyTestMain(servers.Main(m)) }

// open opens a log that is closed with t.
func open(t testing.TB, o Options) *Log {
	t.Helper()
	l, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// session is a connection beside the log, for looking at and meddling with the server.
type session struct {
	testing.TB
	url string
	pg  *pgconn.PgConn
}

func connect(t testing.TB, url string) *session {
	t.Helper()
	c, err := pgconn.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return &session{t, url, c}
}

// rows runs statements and returns the rows of the last one.
func (s *session) rows(sql string, args ...any) [][]string {
	s.Helper()
	results, err := s.pg.Exec(context.WithoutCancel(s.Context()), fmt.Sprintf(sql, args...)).ReadAll()
	if err != nil {
		s.Fatalf("%s: %v", fmt.Sprintf(sql, args...), err)
	}
	var out [][]string
	for _, row := range results[len(results)-1].Rows {
		var cells []string
		for _, v := range row {
			cells = append(cells, string(v))
		}
		out = append(out, cells)
	}
	return out
}

// get runs a statement that has one row of one value.
func (s *session) get(sql string, args ...any) string {
	s.Helper()
	rows := s.rows(sql, args...)
	if len(rows) != 1 || len(rows[0]) != 1 {
		s.Fatalf("%s: %v", fmt.Sprintf(sql, args...), rows)
	}
	return rows[0][0]
}

// until waits for a condition that something else brings about. Its limit counts looks, not time: the process may be stopped meanwhile.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for range 60_000 {
		if ok() {
			return
		}
		<-time.After(time.Millisecond)
	}
	t.Fatalf("waiting in vain until %s", what)
}

// owner writes a log as an owner does.
type owner struct {
	testing.TB
	l    *Log
	root *log.Root
	head log.Head
}

// own creates a database and takes its first epoch.
func own(t testing.TB, l *Log) *owner {
	t.Helper()
	o := &owner{TB: t, l: l, root: log.NewRoot().Acquire(log.NewID(), "test")}
	o.root.Version = 1
	if err := l.CompareAndSwap(t.Context(), nil, o.root); err != nil {
		t.Fatal(err)
	}
	o.must(o.appendVerify(o.next(log.KindStart, 0, "")))
	return o
}

func (o *owner) must(errs ...error) {
	o.Helper()
	if err := errors.Join(errs...); err != nil {
		o.Fatal(err)
	}
}

// next makes the next object, of n transactions.
func (o *owner) next(kind log.Kind, n int, text string) *log.Object {
	o.Helper()
	var txs []*datom.Tx
	for i := range uint64(n) {
		t := o.head.LastT + 1 + i
		txs = append(txs, &datom.Tx{T: t, Instant: 1_700_000_000_000 + int64(t), Next: datom.NextIDs{Part: 10, Seq: 5000 + t}, Datoms: []datom.Datom{
			{E: datom.TxID(t), A: 50, V: datom.InstantMilli(1_700_000_000_000 + int64(t)), T: t, Added: true},
			{E: datom.MakeID(datom.PartUser, 5000+t), A: 2100, V: datom.String(text), T: t, Added: true},
		}})
	}
	obj, err := log.Encode(log.Header{Lineage: o.root.Lineage, Claim: o.root.Claim, Epoch: o.root.Epoch, Kind: kind,
		FirstT: o.head.LastT + 1, Prev: o.head.Pos}, txs, false)
	if err != nil {
		o.Fatal(err)
	}
	o.head = log.Head{Pos: obj.Pos(), LastT: obj.LastT(), Claim: obj.Claim}
	return obj
}

func (o *owner) batch() *log.Object {
	o.Helper()
	return o.next(log.KindBatch, 1, "a fact")
}

func (o *owner) check(keys ...log.Key) log.Check {
	return log.Check{Instance: o.root.Instance, Epoch: o.root.Epoch, Claim: o.root.Claim, Keys: keys}
}

func (o *owner) append(obj *log.Object) error {
	return o.l.Append(o.Context(), o.root.Instance, obj)
}

func (o *owner) appendVerify(obj *log.Object) (appendErr, verifyErr error) {
	return o.l.AppendVerify(o.Context(), obj, o.check(obj.Key()))
}

// proxied is a URL that goes through a proxy.
func proxied(t testing.TB, rawURL string) (string, *netfault.Proxy) {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	p, err := netfault.Listen(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	u.Host = p.Addr()
	return u.String(), p
}

func wants(t testing.TB, err error, outcome log.Outcome, text string) {
	t.Helper()
	if err == nil || log.OutcomeOf(err) != outcome || !strings.Contains(err.Error(), text) {
		t.Errorf("%v; want %s: %s", err, outcome, text)
	}
}

// hold makes every commit on the server wait for a standby that does not exist, until release.
func hold(s *session) (release func()) {
	s.Helper()
	s.rows("SET synchronous_commit = local")
	s.rows("ALTER SYSTEM SET synchronous_standby_names = 'ghost'")
	s.rows("SELECT pg_reload_conf()")
	// The server heeds it once its checkpointer has read it.
	other := connect(s, s.url)
	other.rows("SET synchronous_commit = on")
	for held := false; !held; {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = other.pg.Exec(context.WithoutCancel(s.Context()), "SELECT pg_logical_emit_message(true, 'stele', 'x')").ReadAll()
		}()
		until(s, "a commit waits", func() bool {
			select {
			case <-done:
				return true
			default:
				held = len(s.waiting()) > 0
				return held
			}
		})
		if held {
			s.rows("SELECT pg_terminate_backend(%d)", other.pg.PID())
		}
		<-done
	}
	return func() {
		s.rows("ALTER SYSTEM RESET synchronous_standby_names")
		s.rows("SELECT pg_reload_conf()")
	}
}

// waiting is what the sessions run whose commits wait for a standby: process id and statement.
func (s *session) waiting() [][]string {
	s.Helper()
	return s.rows("SELECT pid, query FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
}

// cluster is a test server's cluster, which can be started with settings and in ways that the test server does not know.
type cluster struct {
	server    *testserver.Postgres
	bin, data string
}

func clusterOf(t testing.TB, server *testserver.Postgres) *cluster {
	t.Helper()
	s := connect(t, server.URL())
	return &cluster{server, s.get("SELECT setting FROM pg_config WHERE name = 'BINDIR'"), s.get("SHOW data_directory")}
}

// start stops the test server and starts the cluster with settings, until stop or the end of the test.
func (c *cluster) start(t testing.TB, settings ...string) (stop func()) {
	t.Helper()
	if err := c.server.Stop(); err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(c.server.Addr())
	cmd := exec.Command(filepath.Join(c.bin, "postgres"), "-D", c.data)
	for _, set := range append(settings, "listen_addresses=127.0.0.1", "port="+port, "unix_socket_directories=", "max_connections=200") {
		cmd.Args = append(cmd.Args, "-c", set)
	}
	uid, gid := c.owner(t)
	cmd.Dir = c.data
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		_ = cmd.Wait()
	})
	t.Cleanup(stop)
	until(t, "the server answers", func() bool {
		conn, err := pgconn.Connect(t.Context(), c.server.URL())
		if err == nil {
			_ = conn.Close(t.Context())
		}
		return err == nil
	})
	return stop
}

func (c *cluster) owner(t testing.TB) (uid, gid uint32) {
	t.Helper()
	st, err := os.Stat(c.data)
	if err != nil {
		t.Fatal(err)
	}
	sys := st.Sys().(*syscall.Stat_t)
	return sys.Uid, sys.Gid
}

// standby makes the cluster start as a standby of nobody.
func (c *cluster) standby(t testing.TB) {
	t.Helper()
	name := filepath.Join(c.data, "standby.signal")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	uid, gid := c.owner(t)
	if err := os.Chown(name, int(uid), int(gid)); err != nil {
		t.Fatal(err)
	}
}

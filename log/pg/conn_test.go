package pg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/steledb/stele/log"
)

// TestNoSecrets: no error and no log line holds the password, whatever is wrong.
func TestNoSecrets(t *testing.T) {
	const secret = "hunter2"
	good, err := url.Parse(servers.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := closed.Addr().String()
	closed.Close()
	var lines bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&lines, nil))
	at := good.Host + good.Path
	for _, c := range []struct{ url, want string }{
		{"", "it is empty"},
		{"postgres://u:" + secret + "@" + at, "password authentication failed"},
		{"postgres://u:" + secret + "@" + nobody + "/x", "connection refused"},
		{"postgres://u:" + secret + "@" + nobody + "," + nobody + "/x?target_session_attrs=read-write", "connection refused"},
		{"host=127.0.0.1 port=1 user=u password=" + secret, "connection refused"},
		{"host=127.0.0.1 port=1 user=u password='" + secret + " x", "bad PostgreSQL URL"},
		{"password=" + secret + " port=x", "invalid port"},
		{"postgres://u:" + secret + "@h:port/x", "invalid port"},
		{"postgres://u:" + secret + "/@h/x", "bad PostgreSQL URL"},
		{"postgres://u:12/" + secret + "@" + nobody + "/x", "bad PostgreSQL URL"},
		{"postgres://u:" + secret + "%zz@h/x", "bad PostgreSQL URL"},
		{"postgres://u:a@" + secret + "@h/x?connect_timeout=" + secret, "bad PostgreSQL URL"},
		{"postgres://u@h/x?password=" + secret + "&sslmode=" + secret, "failed to configure TLS"},
		{"postgres://u:" + secret + "@h/x?target_session_attrs=" + secret, "target_session_attrs"},
		{"postgres://u:" + secret + "@[::1/x", "bad PostgreSQL URL"},
		{"postgres://u:" + secret + "@" + at + "?enable_seqscan=" + secret + "&sslpassword=" + secret, "password authentication failed"},
		{secret, "bad PostgreSQL URL"},
		{"postgres://u:" + secret + "@\x7f/x", ""},
		{"u:" + secret + "@h", "bad PostgreSQL URL"},
	} {
		_, err := Open(t.Context(), Options{URL: c.url, Logger: logger})
		for e := err; e != nil; e = errors.Unwrap(e) {
			if strings.Contains(fmt.Sprintf("%v %+v", e, e), secret) {
				t.Errorf("the error of %q says %v", c.url, e)
			}
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v; want %q", c.url, err, c.want)
		}
		var ce *pgconn.ConnectError
		var pe *pgconn.ParseConfigError
		if errors.As(err, &ce) || errors.As(err, &pe) {
			t.Errorf("%q: the error holds the configuration", c.url)
		}
	}
	for _, o := range []Options{
		{URL: good.String(), Name: "No"}, {URL: good.String(), Name: strings.Repeat("x", 64)}, {URL: good.String(), Depth: 65},
		{URL: good.String(), Depth: -1}, {URL: good.String(), Pooler: "session"},
	} {
		if _, err := Open(t.Context(), o); !errors.Is(err, ErrURL) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	password, _ := good.User.Password()
	l := open(t, Options{URL: good.String(), Logger: logger})
	if info := fmt.Sprintf("%+v", l.Info()); strings.Contains(info, password) || !strings.Contains(info, "postgres://"+at+"?db=main") {
		t.Errorf("%s", info)
	}
	if strings.Contains(lines.String(), secret) || strings.Contains(lines.String(), password) {
		t.Errorf("%s", &lines)
	}
}

// TestPoolerNotNamed: behind a pooler that nobody told of, the error says what to say.
func TestPoolerNotNamed(t *testing.T) {
	pooled, _ := servers.PgBouncer(t)
	if _, err := Open(t.Context(), Options{URL: pooled}); err == nil || !strings.Contains(err.Error(), "?pooler=transaction") {
		t.Errorf("%v", err)
	}
}

// TestStatementsThatComeAndGo: one that the server has forgotten, and one that it has and we do not know of, are not written, the error
// says what may be behind it, and the next call finds a new connection.
func TestStatementsThatComeAndGo(t *testing.T) {
	o := own(t, open(t, Options{URL: servers.Postgres(t)}))
	for state, sql := range map[string]string{
		"26000": "DEALLOCATE ALL",
		"42P05": "PREPARE stele_insert AS SELECT 1",
	} {
		c, err := o.l.flushes.take(t.Context())
		o.must(err)
		if state == "42P05" {
			clear(c.prepared[:])
			sql = "DEALLOCATE ALL; " + sql
		}
		_, err = c.pg.Exec(t.Context(), sql).ReadAll()
		o.must(err)
		o.l.flushes.give(c, true, true)
		obj := o.batch()
		a, _ := o.appendVerify(obj)
		wants(t, a, log.NotWritten, state)
		wants(t, a, log.NotWritten, "?pooler=transaction")
		o.must(o.appendVerify(obj))
	}
}

// TestContextEndsWhileWaitingForAConnection: who waits behind others is not written, and the others go on.
func TestContextEndsWhileWaitingForAConnection(t *testing.T) {
	u := servers.Postgres(t)
	o := own(t, open(t, Options{URL: u, Depth: 1}))
	locker := connect(t, u)
	locker.rows("BEGIN; LOCK TABLE stele.log IN ACCESS EXCLUSIVE MODE")
	s := connect(t, u)
	first, second := o.batch(), o.batch()
	done := make(chan error, 1)
	go func() { done <- o.append(first) }()
	until(t, "the first waits", func() bool {
		return s.get("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()") == "1"
	})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		err := o.l.Append(ctx, o.root.Instance, second)
		wants(t, err, log.NotWritten, "context canceled")
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	cancel()
	wg.Wait()
	// Closing ends both: the one that hangs is unknown.
	wg.Go(func() {
		wants(t, <-done, log.Unknown, "closed")
	})
	o.must(o.l.Close())
	wg.Wait()
	locker.rows("ROLLBACK")
	until(t, "the append that nobody waits for lands", func() bool { return s.get("SELECT count(*) FROM stele.log WHERE first_t = 1") == "1" })
}

func TestKeysThatDoNotFit(t *testing.T) {
	o := own(t, open(t, Options{URL: servers.Postgres(t)}))
	obj, err := log.Encode(log.Header{Lineage: o.root.Lineage, Claim: o.root.Claim, Epoch: 1 << 63, Kind: log.KindStart, FirstT: 1}, nil, false)
	o.must(err)
	wants(t, o.append(obj), log.Rejected, "bigint")
	a, _ := o.appendVerify(obj)
	wants(t, a, log.Rejected, "bigint")
	if _, err := o.l.Get(t.Context(), o.root.Instance, obj.Key()); !errors.Is(err, log.ErrNotFound) {
		t.Error(err)
	}
}

func TestRecent(t *testing.T) {
	inst, k := log.NewID(), func(t uint64) log.Key { return log.Key{Epoch: 2, FirstT: t} }
	r := recent{keep: 4}
	c := func(keys ...log.Key) log.Check { return log.Check{Instance: inst, Epoch: 2, Keys: keys} }
	got := func(want string, c log.Check) {
		t.Helper()
		var s []string
		for _, k := range r.covering(c) {
			s = append(s, fmt.Sprint(k.FirstT))
		}
		if strings.Join(s, " ") != want {
			t.Errorf("%v: covers %q, want %q", c.Keys, s, want)
		}
	}
	got("", c())
	got("7", c(k(7)))
	for _, n := range []uint64{3, 1, 2, 2} {
		r.add(inst, k(n))
	}
	got("3 1 2", c())
	got("2 3 1", c(k(2)))
	got("1 2 3", c(k(1), k(2))) // 1 is acknowledged
	got("3 2", c(k(3)))
	r.add(inst, log.Key{Epoch: 1, FirstT: 9})
	got("3 2", c(k(3)))
	for n := range uint64(10) {
		r.add(inst, k(10+n))
	}
	got("16 17 18 19", c())
	got("5", log.Check{Instance: log.NewID(), Epoch: 2, Keys: []log.Key{k(5)}})
	got("5", log.Check{Instance: inst, Epoch: 3, Keys: []log.Key{k(5)}})
	r.add(inst, log.Key{Epoch: 3, FirstT: 1})
	got("", c())
}

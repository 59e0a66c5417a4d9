package pg

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/steledb/stele/internal/testserver"
	"github.com/steledb/stele/log"
)

// lazy makes a server that flushes the WAL as seldom as it can, with a role that asks for no durability and no warnings.
func lazy(t *testing.T) (*testserver.Postgres, *session) {
	server := testserver.OwnPostgres(t)
	s := connect(t, server.URL())
	s.rows("ALTER SYSTEM SET wal_writer_delay = '10s'")
	s.rows("ALTER SYSTEM SET wal_writer_flush_after = '1GB'")
	s.rows("ALTER SYSTEM SET bgwriter_delay = '10s'")
	s.rows("ALTER SYSTEM SET autovacuum = off")
	s.rows("SELECT pg_reload_conf()")
	s.rows("ALTER ROLE CURRENT_USER SET synchronous_commit = off")
	s.rows("ALTER ROLE CURRENT_USER SET client_min_messages = error")
	return server, s
}

// TestSynchronousCommit: every write is in the flushed WAL when it returns, although the role says otherwise, and so is one that finds that
// it has already happened.
func TestSynchronousCommit(t *testing.T) {
	server, _ := lazy(t)
	bouncer := testserver.OwnPgBouncer(t, server)
	for name, opt := range map[string]Options{
		"direct": {URL: server.URL(), Name: "direct"}, "pgbouncer": {URL: bouncer.URL(), Name: "pooled", Pooler: Transaction},
	} {
		t.Run(name, func(t *testing.T) {
			s := connect(t, server.URL())
			o := own(t, open(t, opt))
			var before string // how far the WAL reached, unflushed
			flushed := func(what string) {
				t.Helper()
				if s.get("SELECT pg_current_wal_flush_lsn() > '%s'", before) != "t" {
					t.Errorf("%s: not flushed", what)
				}
			}
			// The server is as lazy as it was made: the same row, not durably.
			if v := s.get("SHOW synchronous_commit"); v != "off" {
				t.Fatal(v)
			}
			s.rows("CREATE TABLE IF NOT EXISTS lazy (n int)")
			unflushed := func() {
				t.Helper()
				s.rows("INSERT INTO lazy VALUES (1)")
				before = s.get("SELECT pg_current_wal_insert_lsn()")
				if s.get("SELECT pg_current_wal_flush_lsn() < '%s'", before) != "t" {
					t.Fatal("the server flushes by itself; the test would show nothing")
				}
			}
			for range 10 {
				obj := o.batch()
				for _, what := range []string{"append", "append again"} {
					unflushed()
					o.must(o.append(obj))
					flushed(what)
				}
				unflushed()
				o.must(o.appendVerify(o.batch()))
				flushed("append and verify")
				unflushed()
				o.must(o.l.CompareAndSwap(t.Context(), o.root, o.root.Next()))
				o.root = o.root.Next()
				flushed("swap")
				for range 2 {
					unflushed()
					o.must(o.l.PutBlob(t.Context(), o.root.Instance, "1-x", []byte("x")))
					flushed("put blob")
				}
			}
			unflushed()
			fresh := opt
			fresh.Name += "-2"
			l := open(t, fresh)
			o.must(l.CompareAndSwap(t.Context(), nil, log.NewRoot()))
			flushed("create")
			// Nothing of it stays in the session.
			var setting string
			r := &request{stmt: &statement{30, "probe", "SELECT current_setting('synchronous_commit') || current_setting('client_min_messages')"},
				row: func(v [][]byte) error { setting = string(v[0]); return nil }}
			_, err := l.lease.do(t.Context(), r)
			o.must(err, r.err)
			if setting != "offerror" {
				t.Errorf("afterwards the session has %q", setting)
			}
		})
	}
}

// TestStricterSettingStays: remote_apply is not weakened, and what is weaker than on is raised.
func TestStricterSettingStays(t *testing.T) {
	url := servers.Postgres(t)
	s := connect(t, url)
	for set, want := range map[string]string{"off": "on", "local": "on", "remote_write": "on", "on": "on", "remote_apply": "remote_apply"} {
		s.rows("SET synchronous_commit = %s", set)
		if got := s.get("SELECT current_setting('synchronous_commit') FROM (SELECT 1 FROM %s) s", durably); got != want {
			t.Errorf("%s becomes %s", set, got)
		}
	}
}

// TestCommitWithAWarningIsUnknown: a commit that gave up waiting for a standby may not be on it. Appending the same bytes waits for what
// the first append did not.
func TestCommitWithAWarningIsUnknown(t *testing.T) {
	server, s := lazy(t)
	bouncer := testserver.OwnPgBouncer(t, server)
	for name, opt := range map[string]Options{
		"direct": {URL: server.URL(), Name: "direct"}, "pgbouncer": {URL: bouncer.URL(), Name: "pooled", Pooler: Transaction},
	} {
		t.Run(name, func(t *testing.T) {
			o := own(t, open(t, opt))
			obj, root := o.batch(), o.root.Next()
			release := hold(s)
			for what, write := range map[string]func() error{
				"append":            func() error { return o.append(obj) },
				"append and verify": func() error { a, _ := o.appendVerify(obj); return a },
				"swap":              func() error { return o.l.CompareAndSwap(t.Context(), o.root, root) },
				"put blob":          func() error { return o.l.PutBlob(t.Context(), o.root.Instance, "1-x", nil) },
			} {
				done := make(chan error, 1)
				go func() { done <- write() }()
				until(t, what+" waits", func() bool { return len(s.waiting()) == 1 })
				s.rows("SELECT pg_cancel_backend(%s)", s.waiting()[0][0])
				wants(t, <-done, log.Unknown, "the commit answered with a warning: canceling wait for synchronous replication")
			}
			// It is there for all to see, and not known to be durable: no nil before a commit of one's own.
			done := make(chan error, 1)
			go func() { done <- o.append(obj) }()
			until(t, "the second append waits", func() bool { return len(s.waiting()) == 1 })
			select {
			case err := <-done:
				t.Fatalf("an append of what is not known to be durable returned %v", err)
			default:
			}
			release()
			o.must(<-done)
		})
	}
}

// TestDeadlineAbandonsAndCancelsNothing: a context ends while a commit waits. The call returns, the server is not told, the commit goes on
// waiting, and so does whoever appends the same bytes.
func TestDeadlineAbandonsAndCancelsNothing(t *testing.T) {
	server, s := lazy(t)
	o := own(t, open(t, Options{URL: server.URL()}))
	obj := o.batch()
	release := hold(s)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		a, _ := o.l.AppendVerify(ctx, obj, o.check(obj.Key()))
		done <- a
	}()
	until(t, "the commit waits", func() bool { return len(s.waiting()) == 1 })
	first := s.waiting()[0][0]
	cancel()
	err := <-done
	wants(t, err, log.Unknown, "context canceled")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	go func() { done <- o.append(obj) }()
	until(t, "another session waits", func() bool {
		return s.get("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type IN ('Lock', 'IPC') AND query LIKE '%%INSERT INTO stele.log%%'") == "2"
	})
	if w := s.waiting(); len(w) != 1 || w[0][0] != first {
		t.Errorf("the first commit does not wait any more: %v", w)
	}
	release()
	o.must(<-done)
}

// TestFsyncOff: a server that keeps nothing is refused, also by a handle that was opened when it did.
func TestFsyncOff(t *testing.T) {
	server := testserver.OwnPostgres(t)
	l := open(t, Options{URL: server.URL()})
	if d := l.Info().Durability; d != "WAL flushed" {
		t.Errorf("durability %q", d)
	}
	c := clusterOf(t, server)
	stop := c.start(t, "full_page_writes=off")
	if d := open(t, Options{URL: server.URL()}).Info().Durability; d != "WAL flushed; full_page_writes is off" {
		t.Errorf("durability %q", d)
	}
	stop()
	c.start(t, "fsync=off")
	if _, err := Open(t.Context(), Options{URL: server.URL()}); !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), "fsync is off") {
		t.Errorf("opened with %v", err)
	}
	_ = l.PutBlob(t.Context(), log.NewID(), "1-x", nil) // finds that its connection is gone
	wants(t, l.PutBlob(t.Context(), log.NewID(), "1-x", nil), log.NotWritten, "fsync is off")
}

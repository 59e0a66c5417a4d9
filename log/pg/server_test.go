package pg

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/internal/testserver"
	"github.com/steledb/stele/log"
)

// TestStandbyIsNoStore: a server in recovery is not opened, of several hosts the primary is taken, and once it is promoted it serves.
func TestStandbyIsNoStore(t *testing.T) {
	server, primary := testserver.OwnPostgres(t), servers.Postgres(t)
	open(t, Options{URL: server.URL()}).Close()
	c := clusterOf(t, server)
	c.standby(t)
	c.start(t)
	if _, err := Open(t.Context(), Options{URL: server.URL()}); !errors.Is(err, errNotPrimary) {
		t.Errorf("%v", err)
	}
	both, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	both.Host = c.server.Addr() + "," + server.Addr()
	if _, err := Open(t.Context(), Options{URL: both.String()}); !errors.Is(err, errNotPrimary) {
		t.Errorf("%v", err)
	}

	// The same user and password on both, and the standby first.
	p, err := url.Parse(primary)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := p.User.Password()
	s := connect(t, server.URL())
	until(t, "promoted", func() bool { return s.get("SELECT pg_promote()") == "t" })
	s.rows("ALTER ROLE CURRENT_USER PASSWORD '%s'", password)
	s.rows(`CREATE DATABASE "%s"`, strings.TrimPrefix(p.Path, "/"))
	open(t, Options{URL: strings.Replace(primary, p.Host, server.Addr(), 1)})
	if p.User.Username() != "stele" {
		testserver.Lacking(t, "the shared server's user is another")
	}
	for _, hosts := range []string{server.Addr() + "," + p.Host, p.Host + "," + server.Addr()} {
		u := strings.Replace(primary, p.Host, hosts, 1)
		l := open(t, Options{URL: u, Name: "a"})
		if loc := l.Info().Location; !strings.Contains(loc, hosts) {
			t.Errorf("location %q", loc)
		}
	}
}

// TestStandbyBehindAPooler: a pooler keeps connections to servers that change. What a standby answers is no verdict, and no root.
func TestStandbyBehindAPooler(t *testing.T) {
	server := testserver.OwnPostgres(t)
	bouncer := testserver.OwnPgBouncer(t, server)
	o := own(t, open(t, Options{URL: bouncer.URL(), Pooler: Transaction}))
	obj := o.batch()
	o.must(o.appendVerify(obj))
	c := clusterOf(t, server)
	c.standby(t)
	c.start(t)
	calls := map[string]func() error{
		"verify": func() error { return o.l.Verify(t.Context(), o.check(obj.Key())) },
		"root":   func() error { _, err := o.l.Root(t.Context()); return err },
		"age":    func() error { _, _, err := o.l.RootAge(t.Context()); return err },
		"get":    func() error { _, err := o.l.Get(t.Context(), o.root.Instance, obj.Key()); return err },
		"list": func() error {
			for _, err := range o.l.List(t.Context(), o.root.Instance, obj.Key()) {
				return err
			}
			return nil
		},
		"read": func() error {
			for _, err := range o.l.Read(t.Context(), o.root.Instance, obj.Key()) {
				return err
			}
			return nil
		},
		"blob":   func() error { _, err := o.l.GetBlob(t.Context(), o.root.Instance, "1-x"); return err },
		"append": func() error { return o.append(obj) },
	}
	for name, call := range calls {
		err := call()
		until(t, name+" reaches the standby", func() bool {
			if err = call(); err == nil {
				t.Fatalf("%s: no error", name)
			}
			return errors.Is(err, errNotPrimary) || strings.Contains(err.Error(), "read-only")
		})
		if errors.Is(err, log.ErrNotOwner) || errors.Is(err, log.ErrRolledBack) || errors.Is(err, log.ErrNotFound) || errors.Is(err, log.ErrNoRoot) ||
			log.OutcomeOf(err) == log.Rejected {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := connect(t, server.URL())
	s.rows("SELECT pg_promote()")
	until(t, "it serves again", func() bool { return o.append(obj) == nil })
	o.must(o.l.Verify(t.Context(), o.check(obj.Key())))
}

// TestServerDiesUnderAppends: the server is killed and started, and sessions are terminated, while appends run. Each append ends with
// nil or an outcome; whatever returned nil is there, what was not written was not, and retries of the same bytes settle the rest.
func TestServerDiesUnderAppends(t *testing.T) {
	server := testserver.OwnPostgres(t)
	bouncer := testserver.OwnPgBouncer(t, server)
	for name, opt := range map[string]Options{
		"direct": {URL: server.URL(), Name: "direct"}, "pgbouncer": {URL: bouncer.URL(), Name: "pooled", Pooler: Transaction},
	} {
		t.Run(name, func(t *testing.T) {
			o := own(t, open(t, opt))
			var mu sync.Mutex
			var objs []*log.Object
			appended, seen := 0, map[log.Outcome]int{}
			count := func(n func() int) int {
				mu.Lock()
				defer mu.Unlock()
				return n()
			}
			ended := make(chan struct{})
			var wg sync.WaitGroup
			// flush appends one object, trying until it is there and fenced.
			flush := func(obj *log.Object) bool {
				for {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					a, v := o.l.AppendVerify(ctx, obj, o.check(obj.Key()))
					cancel()
					if a != nil && log.OutcomeOf(a) == log.Rejected || a == nil && (errors.Is(v, log.ErrNotOwner) || errors.Is(v, log.ErrRolledBack)) {
						t.Errorf("%s: append %v, verify %v", obj.Key(), a, v)
						return false
					}
					mu.Lock()
					if a != nil {
						seen[log.OutcomeOf(a)]++
					} else if v == nil {
						appended++
					}
					mu.Unlock()
					if a == nil && v == nil {
						return true
					}
				}
			}
			for range 8 {
				wg.Go(func() {
					for {
						select {
						case <-ended:
							return
						default:
						}
						mu.Lock()
						obj := o.batch()
						objs = append(objs, obj)
						mu.Unlock()
						if !flush(obj) {
							return
						}
					}
				})
			}
			more := func() {
				t.Helper()
				from := count(func() int { return appended })
				until(t, "appends go on", func() bool { return count(func() int { return appended }) > from+200 })
			}
			rounds := 3
			if opt.Pooler == Transaction {
				rounds = 1 // PgBouncer waits 15 s (server_login_retry) before it tries a server again that it could not reach
			}
			for range rounds {
				more()
				s := connect(t, server.URL())
				s.rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'")
				_ = s.pg.Close(t.Context())
				more()
				failures := func() int { return seen[log.NotWritten] + seen[log.Unknown] }
				before := count(failures)
				if err := server.Kill(); err != nil {
					t.Fatal(err)
				}
				until(t, "appends fail", func() bool { return count(failures) > before+20 })
				if err := server.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			more()
			close(ended)
			wg.Wait()
			t.Logf("outcomes on the way: %v", seen)
			i := 1
			for k, err := range o.l.List(t.Context(), o.root.Instance, log.StartKey(1)) {
				if err != nil || k != objs[i-1].Key() {
					t.Fatalf("at %d: %s, %v", i, k, err)
				}
				i++
			}
			if i != len(objs)+1 {
				t.Errorf("%d objects are there", i-1)
			}
		})
	}
}

// TestLeaseWaitsForNobody: while every append and every read of a handle hangs, its root is swapped and read with its age.
func TestLeaseWaitsForNobody(t *testing.T) {
	u := servers.Postgres(t)
	o := own(t, open(t, Options{URL: u}))
	s, locker := connect(t, u), connect(t, u)
	locker.rows("BEGIN; LOCK TABLE stele.log IN ACCESS EXCLUSIVE MODE")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 2 * o.l.Info().Depth {
		obj := o.batch()
		wg.Go(func() { _ = o.l.Append(ctx, o.root.Instance, obj) })
		wg.Go(func() {
			for range o.l.Read(ctx, o.root.Instance, log.Key{}) {
			}
		})
	}
	stuck := fmt.Sprint(o.l.Info().Depth + 2)
	until(t, "all of them hang", func() bool {
		return s.get("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()") == stuck
	})
	for range 20 {
		next := o.root.Next()
		o.must(o.l.CompareAndSwap(t.Context(), o.root, next))
		if got, _, err := o.l.RootAge(t.Context()); err != nil || *got != *next {
			t.Fatalf("%+v, %v", got, err)
		}
		o.root = next
	}
	if n := s.get("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'stele' AND datname = current_database()"); n != fmt.Sprint(o.l.Info().Depth+3) {
		t.Errorf("%s connections", n)
	}
	cancel()
	wg.Wait()
	locker.rows("ROLLBACK")
	o.must(o.appendVerify(o.batch()))
}

// TestOneLossCostsOneCall: when all sessions of a pool are lost, the first call finds out, and the next one succeeds.
func TestOneLossCostsOneCall(t *testing.T) {
	u := servers.Postgres(t)
	o := own(t, open(t, Options{URL: u}))
	s, locker := connect(t, u), connect(t, u)
	locker.rows("BEGIN; LOCK TABLE stele.log IN ACCESS EXCLUSIVE MODE")
	var wg sync.WaitGroup
	for range o.l.Info().Depth {
		obj := o.batch()
		wg.Go(func() {
			if err := o.append(obj); err != nil {
				t.Error(err)
			}
		})
	}
	until(t, "all of them hang", func() bool {
		return s.get("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()") == fmt.Sprint(o.l.Info().Depth)
	})
	locker.rows("ROLLBACK")
	wg.Wait()
	const sessions = "FROM pg_stat_activity WHERE application_name = 'stele' AND datname = current_database()"
	s.rows("SELECT pg_terminate_backend(pid) " + sessions)
	until(t, "they have ended", func() bool { return s.get("SELECT count(*) "+sessions) == "0" })
	obj := o.batch()
	if a, _ := o.appendVerify(obj); a == nil || log.OutcomeOf(a) == log.Rejected {
		t.Errorf("%v", a)
	}
	o.must(o.appendVerify(obj))
}

// TestOneCallerThatGivesUpCostsOneConnection: its own.
func TestOneCallerThatGivesUpCostsOneConnection(t *testing.T) {
	u := servers.Postgres(t)
	o := own(t, open(t, Options{URL: u, Depth: 3}))
	s, locker := connect(t, u), connect(t, u)
	waiting := func(n int) {
		until(t, "they hang", func() bool {
			return s.get("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()") == fmt.Sprint(n)
		})
	}
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, callers := range []int{3, 1} {
		locker.rows("BEGIN; LOCK TABLE stele.root IN ACCESS EXCLUSIVE MODE")
		for range callers {
			wg.Go(func() {
				if err := o.l.Verify(ctx, o.check()); callers == 3 && err != nil || callers == 1 && !errors.Is(err, context.Canceled) {
					t.Errorf("%d callers: %v", callers, err)
				}
			})
		}
		waiting(callers)
		if callers == 1 {
			cancel()
			wg.Wait()
		}
		locker.rows("ROLLBACK")
		wg.Wait()
	}
	o.l.flushes.mu.Lock()
	defer o.l.flushes.mu.Unlock()
	if n := len(o.l.flushes.idle); n != 2 {
		t.Errorf("%d connections are left of 3", n)
	}
}

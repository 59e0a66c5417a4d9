package pg

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/steledb/stele/log"
)

// TestTablesAreMadeOnce: many processes open a fresh database at once; all succeed, and find each other's roots.
func TestTablesAreMadeOnce(t *testing.T) {
	ways(t, func(t *testing.T, opt Options, direct string) {
		var wg sync.WaitGroup
		logs := make([]*Log, 16)
		for i := range logs {
			wg.Go(func() {
				o := opt
				o.Name = fmt.Sprintf("db-%d", i)
				l, err := Open(t.Context(), o)
				if err == nil {
					err = l.CompareAndSwap(t.Context(), nil, log.NewRoot())
				}
				if err != nil {
					t.Errorf("%d: %v", i, err)
				}
				logs[i] = l
			})
		}
		wg.Wait()
		for _, l := range logs {
			if l != nil {
				_ = l.Close()
			}
		}
		s := connect(t, direct)
		if n, v := s.get("SELECT count(*) FROM stele.root"), s.get("SELECT version FROM stele.meta"); n != "16" || v != "1" {
			t.Errorf("%s roots, version %s", n, v)
		}
		if st := s.get("SELECT attstorage FROM pg_attribute WHERE attrelid = 'stele.log'::regclass AND attname = 'payload'"); st != "e" {
			t.Errorf("the payload's storage is %q", st)
		}
	})
}

func TestNewerSchemaIsRefused(t *testing.T) {
	u := servers.Postgres(t)
	open(t, Options{URL: u})
	s := connect(t, u)
	s.rows("UPDATE stele.meta SET version = 2")
	_, err := Open(t.Context(), Options{URL: u})
	if !errors.Is(err, ErrSchema) || !strings.Contains(err.Error(), "version 2") || !strings.Contains(err.Error(), "use a newer one") {
		t.Errorf("%v", err)
	}
	s.rows("DELETE FROM stele.meta")
	if _, err := Open(t.Context(), Options{URL: u}); !errors.Is(err, ErrSchema) {
		t.Errorf("%v", err)
	}
}

// TestRoleWithoutRights: who may not make the tables is told what to do; doing it helps; a reader needs SELECT alone.
func TestRoleWithoutRights(t *testing.T) {
	u := servers.Postgres(t)
	admin := connect(t, u)
	as := func(role string) string {
		parsed, err := url.Parse(u)
		if err != nil {
			t.Fatal(err)
		}
		database := strings.TrimPrefix(parsed.Path, "/")
		role += strings.ReplaceAll(strings.TrimPrefix(database, "stele-test-"), "-", "_")
		admin.rows("CREATE ROLE %s LOGIN PASSWORD 'x'", role)
		t.Cleanup(func() { admin.rows("DROP OWNED BY %s; DROP ROLE %s", role, role) })
		parsed.User = url.UserPassword(role, "x")
		return parsed.String()
	}
	role := func(u string) string { p, _ := url.Parse(u); return p.User.Username() }
	app, reader := as("app_"), as("reader_")
	refused := func(u, what string) {
		t.Helper()
		_, err := Open(t.Context(), Options{URL: u})
		if !errors.Is(err, ErrSchema) || !strings.Contains(err.Error(), "permission denied for "+what) || !strings.Contains(err.Error(), "GRANT USAGE ON SCHEMA stele") {
			t.Errorf("%v", err)
		}
	}
	refused(app, "database")
	admin.rows(Schema)
	refused(app, "schema")
	admin.rows("GRANT USAGE ON SCHEMA stele TO %s, %s", role(app), role(reader))
	refused(app, "table")
	admin.rows("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA stele TO %s", role(app))
	admin.rows("GRANT SELECT ON ALL TABLES IN SCHEMA stele TO %s", role(reader))
	o := own(t, open(t, Options{URL: app}))
	obj := o.batch()
	o.must(o.appendVerify(obj))
	o.must(o.append(obj))
	o.must(o.l.PutBlob(t.Context(), o.root.Instance, "1-x", nil), o.l.Delete(t.Context(), o.root.Instance, log.MaxKey))
	o.must(o.append(obj))

	r := open(t, Options{URL: reader})
	if got, err := r.Root(t.Context()); err != nil || *got != *o.root {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := r.Get(t.Context(), o.root.Instance, obj.Key()); err != nil {
		t.Error(err)
	}
	o.must(r.Verify(t.Context(), o.check(obj.Key())))
	wants(t, r.Append(t.Context(), o.root.Instance, obj), log.Rejected, "rights")
	wants(t, r.CompareAndSwap(t.Context(), o.root, o.root.Next()), log.Rejected, "rights")

	// A role that may only read is no standby.
	admin.rows("ALTER ROLE %s SET default_transaction_read_only = on", role(reader))
	r = open(t, Options{URL: reader})
	wants(t, r.Append(t.Context(), o.root.Instance, obj), log.NotWritten, "read-only")
}

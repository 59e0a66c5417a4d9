package config_test

import (
	"context"
	"strings"
	"testing"

	"github.com/steledb/stele/config"
	"github.com/steledb/stele/internal/testserver"
)

// TestPostgres: a database in PostgreSQL is where its URL says, for whoever opens it next, directly or through a pooler, and options arrive.
func TestPostgres(t *testing.T) {
	var servers testserver.Shared
	t.Cleanup(func() {
		if err := servers.Close(); err != nil {
			t.Error(err)
		}
	})
	pooled, direct := servers.PgBouncer(t)
	with := func(url, query string) string {
		if strings.Contains(url, "?") {
			return url + "&" + query
		}
		return url + "?" + query
	}
	x, other := open(t, with(direct, "db=one")), open(t, with(pooled, "pooler=transaction&db=two"))
	document(t, x, "one")
	document(t, other, "two")
	r, err := config.OpenReadOnly(t.Context(), with(pooled, "pooler=transaction&db=one"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(context.Background())
	if got := docs(r.DB()); got != "one" {
		t.Errorf("a reader beside the owner sees %q", got)
	}
	for _, x := range []interface{ Close(context.Context) error }{x, other} {
		if err := x.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := docs(open(t, with(direct, "db=two")).DB()); got != "two" {
		t.Errorf("opened again it holds %q", got)
	}
	l, err := config.OpenLog(t.Context(), with(direct, "db=three&depth=3"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if info := l.Info(); info.Depth != 3 || info.Backend != "pg" || !info.Durable || !strings.HasSuffix(info.Location, "?db=three") {
		t.Errorf("%+v", info)
	}
}

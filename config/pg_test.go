package config_test

import (
	"context"
	"strings"
	"testing"

	"github.com/steledb/stele/config"
)

// TestPostgres: a database in PostgreSQL is where its URL says, for whoever opens it next, directly or through a pooler, and options arrive.
func TestPostgres(t *testing.T) {
	pooled, direct := servers.PgBouncer(t)
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

// with adds options to a URL.
func with(url, query string) string {
	switch {
	case query == "":
		return url
	case strings.Contains(url, "?"):
		return url + "&" + query
	}
	return url + "?" + query
}

// TestDepth: the transactor's depth is the store's too, unless the URL says otherwise.
func TestDepth(t *testing.T) {
	url := servers.Postgres(t)
	for _, c := range []struct {
		query string
		depth int
		want  int
	}{{"", 0, 4}, {"", 9, 9}, {"depth=3", 9, 3}, {"", 1000, 64}} {
		opt := quiet()
		opt.Depth, opt.TakeOver = c.depth, true
		x, err := config.Open(t.Context(), with(url, c.query), opt)
		if err != nil {
			t.Fatal(err)
		}
		if got := x.Info().Depth; got != c.want {
			t.Errorf("depth %d, %q: %d connections for flushes", c.depth, c.query, got)
		}
		if err := x.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

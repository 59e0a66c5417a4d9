package config_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/steledb/stele/config"
	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
	"github.com/steledb/stele/internal/testserver"
	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/pg"
	"github.com/steledb/stele/transactor"
	"github.com/steledb/stele/tx"
)

var servers testserver.Shared

func TestMain(m *testing.M) { goleak.VerifyTestMain(servers.Main(m)) }

// diskTemp is an empty directory on a local disk, which goes away with t.
func diskTemp(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = "."
	}
	for _, parent := range []string{os.TempDir(), cache, "."} {
		if ok, _, err := config.DurableDir(parent); err != nil || !ok || os.MkdirAll(parent, 0o755) != nil {
			continue
		}
		dir, err := os.MkdirTemp(parent, "config-test-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		return dir
	}
	t.Fatal("there is no directory on a local disk")
	return ""
}

func quiet() transactor.Options {
	return transactor.Options{Logger: slog.New(slog.DiscardHandler)}
}

func open(t *testing.T, url string) *transactor.Transactor {
	t.Helper()
	x, err := config.Open(t.Context(), url, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close(context.Background()) })
	return x
}

func document(t *testing.T, x *transactor.Transactor, doc string) *tx.Report {
	t.Helper()
	r, err := x.Transact(t.Context(), tx.Data{tx.Map{"db/doc": doc}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// docs is every user entity's :db/doc.
func docs(d db.DB) string {
	var all []string
	for x := range d.Datoms(db.AEVT, datom.Keyword("db/doc")) {
		if x.E.Part() == datom.PartUser {
			all = append(all, x.V.Text())
		}
	}
	return strings.Join(all, " ")
}

// TestOpen: a database is where its URL says, for whoever opens it next, and databases of one store do not meet.
func TestOpen(t *testing.T) {
	dir := diskTemp(t)
	for name, urls := range map[string][2]string{
		"fs":   {"fs:" + dir + "?roll-size=64KiB", "fs:" + dir + "?db=other"},
		"path": {filepath.Join(dir, "plain"), filepath.Join(dir, "plain") + "?db=other"},
		"mem":  {"mem:" + t.Name(), "mem:" + t.Name() + "?db=other"},
	} {
		t.Run(name, func(t *testing.T) {
			x, other := open(t, urls[0]), open(t, urls[1])
			document(t, x, "one")
			document(t, other, "two")
			r, err := config.OpenReadOnly(t.Context(), urls[0])
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close(context.Background())
			if got := docs(r.DB()); got != "one" {
				t.Errorf("a reader beside the owner sees %q", got)
			}
			for _, x := range []*transactor.Transactor{x, other} {
				if err := x.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if got := docs(open(t, urls[0]).DB()); got != "one" {
				t.Errorf("opened again it holds %q", got)
			}
			if got := docs(open(t, urls[1]).DB()); got != "two" {
				t.Errorf("the other one holds %q", got)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(dir, "plain", "other", "ROOT")); err != nil {
		t.Error(err)
	}
}

func TestOpenLog(t *testing.T) {
	dir := diskTemp(t)
	for url, want := range map[string]log.Info{
		"fs:" + dir:                   {Backend: "fs", Durable: true},
		dir:                           {Backend: "fs", Durable: true},
		"mem:" + t.Name():             {Backend: "mem"},
		"mem:" + t.Name() + "?db=two": {Backend: "mem"},
	} {
		l, err := config.OpenLog(t.Context(), url)
		if err != nil {
			t.Errorf("%q: %v", url, err)
			continue
		}
		if info := l.Info(); info.Backend != want.Backend || info.Durable != want.Durable {
			t.Errorf("%q: %+v", url, info)
		}
		if _, err := l.Root(t.Context()); !errors.Is(err, log.ErrNoRoot) {
			t.Errorf("%q: a database that nobody made has a root: %v", url, err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestDelay: every call takes as long as the URL says.
func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := config.OpenLog(t.Context(), "mem:"+t.Name()+"?delay=2ms")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		begin := time.Now()
		for range 3 {
			if _, err := l.Root(t.Context()); !errors.Is(err, log.ErrNoRoot) {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); took != 6*time.Millisecond {
			t.Errorf("three calls took %s", took)
		}
	})
}

// TestOptionsArrive: what an option says is what the backend does.
func TestOptionsArrive(t *testing.T) {
	dir := diskTemp(t)
	for query, files := range map[string]int{"?db=small&roll-size=64KiB": 2, "?db=large": 1} {
		x := open(t, "fs:"+dir+query)
		for range 3 {
			document(t, x, strings.Repeat("text ", 10_000))
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(query, "?db="), "&")
		found, err := filepath.Glob(filepath.Join(dir, name, "*", "*.log"))
		if err != nil || (len(found) > 1) != (files > 1) {
			t.Errorf("%s: %d files, %v", query, len(found), err)
		}
	}
	const tmpfs = "/dev/shm"
	if durable, _, err := config.DurableDir(tmpfs); err != nil || durable {
		return // it is none here
	}
	if _, err := config.OpenLog(t.Context(), "fs:"+tmpfs+"/none"); err == nil {
		t.Error("a file system that keeps nothing was taken unasked")
	}
	l, err := config.OpenLog(t.Context(), "fs:"+tmpfs+"/none?non-local=true")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if l.Info().Durable {
		t.Error("and called durable")
	}
}

func TestOpenRefuses(t *testing.T) {
	for url, want := range map[string]error{
		"":                           config.ErrURL,
		"fs:x?db=UPPER":              config.ErrURL,
		"postgres://u:secret@h/d?db": config.ErrURL,
		"postgres://u:secret@h:x/d":  pg.ErrURL,
		"s3://bucket/x?token=secret": config.ErrURL,
	} {
		_, err1 := config.OpenLog(t.Context(), url)
		_, err2 := config.Open(t.Context(), url, quiet())
		_, err3 := config.OpenReadOnly(t.Context(), url)
		for _, err := range []error{err1, err2, err3} {
			if !errors.Is(err, want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%q: %v", url, err)
			}
		}
	}
	if _, err := config.OpenReadOnly(t.Context(), "mem:"+t.Name()); !errors.Is(err, transactor.ErrNoDatabase) {
		t.Errorf("read-only, of a database that is not there: %v", err)
	}
	opt := quiet()
	opt.MustExist = true
	if _, err := config.Open(t.Context(), "fs:"+diskTemp(t), opt); !errors.Is(err, transactor.ErrNoDatabase) {
		t.Errorf("MustExist: %v", err)
	}
}

func TestRedacted(t *testing.T) {
	for url, want := range map[string]string{
		"fs:data?db=x":             "fs:data?db=x",
		"data":                     "data",
		"mem:x?delay=2ms":          "mem:x?delay=2ms",
		"postgres://u:secret@h/d":  "postgres:…",
		"S3://key:secret@bucket/d": "s3:…",
		"fs:x?password=secret":     "fs:…",
	} {
		if got := config.Redacted(url); got != want {
			t.Errorf("%q is shown as %q, want %q", url, got, want)
		}
	}
}

func TestWithDB(t *testing.T) {
	for url, want := range map[string]string{
		"fs:data":                       "fs:data?db=new",
		"data?db=old":                   "data?db=new",
		"mem:x?delay=2ms&db=old":        "mem:x?delay=2ms&db=new",
		"mem:x?d%62=old&delay=2ms":      "mem:x?delay=2ms&db=new",
		"fs:a%3Fb?roll-size=1MiB&db=xy": "fs:a%3Fb?roll-size=1MiB&db=new",
	} {
		if got, err := config.WithDB(url, "new"); got != want || err != nil {
			t.Errorf("%q becomes %q, %v; want %q", url, got, err, want)
		}
	}
	for _, c := range [][2]string{{"fs:data", "NEW"}, {"fs:data", ""}, {"pg:x", "new"}, {"", "new"}} {
		if _, err := config.WithDB(c[0], c[1]); !errors.Is(err, config.ErrURL) {
			t.Errorf("%q with %q: %v", c[0], c[1], err)
		}
	}
}

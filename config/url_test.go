package config

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/pg"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		url   string
		place string
		want  settings
	}{
		{"data", "data", settings{db: "main"}},
		{"./data", "./data", settings{db: "main"}},
		{"/var/lib/stele", "/var/lib/stele", settings{db: "main"}},
		{"/var/100%/x", "/var/100%/x", settings{db: "main"}},
		{"//srv/data", "//srv/data", settings{db: "main"}},
		{"./a:b", "./a:b", settings{db: "main"}},
		{"data?db=orders", "data", settings{db: "orders"}},
		{"fs:data", "data", settings{db: "main"}},
		{"FS:data", "data", settings{db: "main"}},
		{"fs:../data", "../data", settings{db: "main"}},
		{"fs:/data", "/data", settings{db: "main"}},
		{"fs:///data", "/data", settings{db: "main"}},
		{"fs:a:b", "a:b", settings{db: "main"}},
		{"fs:50%25%3F", "50%?", settings{db: "main"}},
		{"fs:data?", "data", settings{db: "main"}},
		{"fs:data?db=a.b_c-9", "data", settings{db: "a.b_c-9"}},
		{"fs:data?db=" + strings.Repeat("x", 63), "data", settings{db: strings.Repeat("x", 63)}},
		{"fs:data?roll-size=16MiB&db=x", "data", settings{db: "x", rollSize: 16 << 20}},
		{"fs:data?roll-size=65536", "data", settings{db: "main", rollSize: 65536}},
		{"fs:data?roll-size=4GiB&non-local=true", "data", settings{db: "main", rollSize: 4 << 30, nonLocal: true}},
		{"fs:data?non-local=false", "data", settings{db: "main"}},
		{"mem:x", "x", settings{db: "main"}},
		{"mem:x?delay=2ms", "x", settings{db: "main", delay: 2 * time.Millisecond}},
		{"mem:x?delay=0&db=y", "x", settings{db: "y"}},
		{"postgres://u:p@h1,h2:5433/x", "postgres://u:p@h1,h2:5433/x", settings{db: "main"}},
		{"postgres://u:p%3F@h/x?sslmode=disable&db=y&options=-c%20a%3Db&depth=4", "postgres://u:p%3F@h/x?sslmode=disable&options=-c%20a%3Db", settings{db: "y", depth: 4}},
		{"POSTGRESQL://h/x?pooler=transaction", "postgresql://h/x", settings{db: "main", pooler: pg.Transaction}},
		{"mem:x?d%65lay=1m", "x", settings{db: "main", delay: time.Minute}},
	} {
		s, err := parse(c.url)
		if err != nil || s.place != c.place || s.settings != c.want {
			t.Errorf("%q: %q %+v, %v; want %q %+v", c.url, s.place, s.settings, err, c.place, c.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ url, want string }{
		{"", "it is empty; it must be fs:DIR, mem:NAME, postgres://…, s3://BUCKET/PREFIX, or a directory"},
		{"fs:", "it names no place; it is written fs:DIR"},
		{"?db=x", "it names no place; it is written fs:DIR"},
		{"fs://", "what follows fs:// names a host"},
		{"fs://srv/data", "what follows fs:// names a host"},
		{"fs:%zz", "a percent sign is written %25"},
		{"fs:%00", "there is a zero byte in it"},
		{"mem:", "it names no place; it is written mem:NAME"},
		{"pg:x", `there is no store "pg:"; it must be fs:DIR, mem:NAME, postgres://…, s3://BUCKET/PREFIX, or a directory`},
		{"file:///x", `there is no store "file:"`},
		{"postgres:data", "it names no server; it is written postgres://…"},
		{"postgres://u@h/x?pooler=session", `option pooler is "session"; it must be transaction`},
		{"postgres://u@h/x?depth=0", `option depth is "0"; it must be a number from 1 to 64`},
		{"postgres://u@h/x?depth=65", `option depth is "65"`},
		{"postgres://u@h/x?db=x&db=y", "option db is given twice"},
		{"fs:data?dbname=x", `fs: stores have no option "dbname"; they have db, roll-size, non-local`},
		{"mem:x?roll-size=1GiB", `mem: stores have no option "roll-size"; they have db, delay`},
		{"fs:data?delay=2ms", `fs: stores have no option "delay"; they have db, roll-size, non-local`},
		{"fs:data?db=x&db=y", "option db is given twice"},
		{"fs:data?db=x&db=x", "option db is given twice"},
		{"fs:data?db=", `option db is ""; it must be a name: [a-z0-9][a-z0-9._-]{0,62}`},
		{"fs:data?db", `option db is ""`},
		{"fs:data?db=../x", `option db is "../x"`},
		{"fs:data?db=Orders", `option db is "Orders"`},
		{"fs:data?db=" + strings.Repeat("x", 64), "option db is "},
		{"fs:data?db=%zz", `option db is "%zz"`},
		{"fs:data?roll-size=1", `option roll-size is "1"; it must be a size from 64KiB to 4GiB, as in 16MiB`},
		{"fs:data?roll-size=5GiB", `option roll-size is "5GiB"`},
		{"fs:data?roll-size=16MB", `option roll-size is "16MB"`},
		{"fs:data?roll-size=-1", `option roll-size is "-1"`},
		{"fs:data?roll-size=", `option roll-size is ""`},
		{"fs:data?roll-size=999999999999GiB", "option roll-size is "},
		{"fs:data?non-local=yes", `option non-local is "yes"; it must be true or false`},
		{"mem:x?delay=2", `option delay is "2"; it must be a duration from 0 to 1m, as in 2ms`},
		{"mem:x?delay=-1ms", `option delay is "-1ms"`},
		{"mem:x?delay=2m", `option delay is "2m"`},
	} {
		_, err := parse(c.url)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v; want %q", c.url, err, c.want)
			continue
		}
		if !errors.Is(err, ErrURL) && !errors.Is(err, ErrNotBuilt) {
			t.Errorf("%q: %v wraps neither ErrURL nor ErrNotBuilt", c.url, err)
		}
	}
}

func TestParseKeepsSecrets(t *testing.T) {
	for _, url := range []string{
		"postgres://app:hunter2@db.example/x?sslmode=disable&db=X",
		"postgresql://app@db.example/x?password=hunter2&pooler=x",
		"postgres:app:hunter2@db.example",
		"s3://key:hunter2@bucket/x",
		"mysql://app:hunter2@db.example/x",
		"fs://app:hunter2@srv/x",
		"fs:x?password=hunter2",
		"mem:x?token=hunter2&delay=1ms",
	} {
		_, err := parse(url)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", url, err)
		}
	}
}

// TestTakeOptions: what is not ours stays as it was written, for a driver.
func TestTakeOptions(t *testing.T) {
	own, foreign, err := takeOptions("sslmode=disable&db=x&options=-c%20a%3Db&application_name=y", []option{dbOption})
	if err != nil || len(own) != 1 || own[0].value != "x" ||
		strings.Join(foreign, "&") != "sslmode=disable&options=-c%20a%3Db&application_name=y" {
		t.Errorf("%v %q %v", own, foreign, err)
	}
}

func FuzzParse(f *testing.F) {
	for _, url := range []string{
		"", "data", "fs:data?db=x&roll-size=1MiB", "fs:///a%20b?non-local=true", "mem:x?delay=2ms", "postgres://u:p@h/x", "a:b", "fs:?", "%", "fs:x?=&&=%",
	} {
		f.Add(url)
	}
	f.Fuzz(func(t *testing.T, url string) {
		s, err := parse(url)
		if err != nil {
			if !errors.Is(err, ErrURL) && !errors.Is(err, ErrNotBuilt) {
				t.Errorf("%q: %v wraps neither ErrURL nor ErrNotBuilt", url, err)
			}
			return
		}
		if s.place == "" || s.backend.open == nil || log.CheckName(s.db) != nil {
			t.Errorf("%q: %+v", url, s)
		}
		if s.delay < 0 || s.delay > time.Minute || s.rollSize != 0 && (s.rollSize < 64<<10 || s.rollSize > 4<<30) {
			t.Errorf("%q: %+v", url, s.settings)
		}
	})
}

package pg

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/steledb/stele/log"
)

// TestPagesAreBounded: a page ends behind the object with which it has enough bytes, or objects; together they are the log.
func TestPagesAreBounded(t *testing.T) {
	ways(t, func(t *testing.T, opt Options, direct string) {
		o := own(t, open(t, opt))
		var objs []*log.Object
		add := func(n, size int) {
			for range n {
				obj := o.next(log.KindBatch, 1, strings.Repeat("x", size))
				objs = append(objs, obj)
				o.must(o.append(obj))
			}
		}
		add(5, pageBytes/2)
		add(1, 8*pageBytes)
		add(pageSize+1, 10)
		var pages []int
		for after, more := log.StartKey(1), true; more; {
			var page []*log.Object
			var err error
			page, after, more, err = o.l.readPage(t.Context(), o.root.Instance, after)
			o.must(err)
			for _, got := range page {
				if got.Hash() != objs[0].Hash() {
					t.Fatalf("%s where %s should be", got.Key(), objs[0].Key())
				}
				objs = objs[1:]
			}
			pages = append(pages, len(page))
		}
		// Half a page and a little: two are enough.
		if want := []int{2, 2, 2, pageSize, 1}; !slices.Equal(pages, want) || len(objs) > 0 {
			t.Errorf("pages of %v objects, want %v; %d are left", pages, want, len(objs))
		}
	})
}

// TestDamagedRowsAreFound: a row whose bytes or hash are not those of its object.
func TestDamagedRowsAreFound(t *testing.T) {
	u := servers.Postgres(t)
	s := connect(t, u)
	for what, sql := range map[string]string{
		"does not decode":    `UPDATE stele.log SET payload = set_byte(payload, 130, 255 - get_byte(payload, 130)) WHERE first_t = 2`,
		"its row says":       `UPDATE stele.log SET hash = sha256('x') WHERE first_t = 2`,
		"stored under this":  `UPDATE stele.log l SET payload = o.payload, hash = o.hash FROM stele.log o WHERE l.first_t = 2 AND o.first_t = 3`,
		"no object has such": `UPDATE stele.log SET first_t = -2 WHERE first_t = 2`,
	} {
		o := own(t, open(t, Options{URL: u, Name: strings.ReplaceAll(strings.ToLower(what), " ", "-")}))
		for range 3 {
			o.must(o.append(o.batch()))
		}
		s.rows("%s", sql)
		var keys []log.Key
		var err error
		for obj, e := range o.l.Read(t.Context(), o.root.Instance, log.Key{}) {
			if err = e; e == nil {
				keys = append(keys, obj.Key())
			}
		}
		var ce *log.CorruptError
		if !errors.As(err, &ce) || !strings.Contains(ce.Error(), what) || ce.Location != o.l.info.Location {
			t.Errorf("read: %v", err)
		}
		if what == "no object has such" { // it stands before all others of its epoch
			s.rows("DELETE FROM stele.log")
			continue
		}
		if len(keys) != 2 || ce.Key != (log.Key{Epoch: 1, FirstT: 2}) {
			t.Errorf("%s: read %v before %s", what, keys, ce.Key)
		}
		if _, err := o.l.Get(t.Context(), o.root.Instance, log.Key{Epoch: 1, FirstT: 2}); !errors.As(err, &ce) {
			t.Errorf("get: %v", err)
		}
		s.rows("DELETE FROM stele.log")
	}
	o := own(t, open(t, Options{URL: u, Name: "root"}))
	s.rows(`UPDATE stele.root SET bytes = set_byte(bytes, 9, 255 - get_byte(bytes, 9)) WHERE name = 'root'`)
	for _, err := range []error{o.l.Verify(t.Context(), o.check()), func() error { _, err := o.l.Root(t.Context()); return err }()} {
		if !errors.Is(err, log.ErrCorrupt) {
			t.Errorf("%v", err)
		}
	}
}

// TestNothingIsScanned: every statement finds its rows by index, as it is planned on a connection of ours, for tables that are small, that
// have grown, and that have been analyzed.
func TestNothingIsScanned(t *testing.T) {
	u := servers.Postgres(t)
	o := own(t, open(t, Options{URL: u}))
	s := connect(t, u)
	statements := []*statement{insertObject, fence, readRoot, createRoot, swapRoot, getObject, listKeys, readPage, deleteObjects, putBlob, getBlob, deleteBlobs}
	check := func(when string, settings ...string) {
		t.Helper()
		for _, generic := range append(settings, "plan_cache_mode = force_custom_plan") {
			for _, st := range statements {
				plan := explain(t, o.l, generic, st)
				lines := strings.Split(plan, "\n")
				for i, line := range lines {
					if strings.Contains(line, "using log_pkey") && (i+1 == len(lines) || !strings.Contains(lines[i+1], "first_t")) {
						t.Errorf("%s, %s, %s reads a whole epoch:\n%s", when, generic, st.name, plan)
					}
				}
				// A bitmap is of a whole instance: good enough where all of it goes.
				if strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "Hash") || strings.Contains(plan, "Sort") ||
					strings.Contains(plan, "Bitmap") && st != deleteBlobs {
					t.Errorf("%s, %s, %s:\n%s", when, generic, st.name, plan)
				}
			}
		}
	}
	const generic = "plan_cache_mode = force_generic_plan"
	check("with empty tables", generic)
	s.rows("VACUUM ANALYZE stele.log, stele.root, stele.blob")
	check("with empty tables, analyzed", generic)
	s.rows(`INSERT INTO stele.log SELECT ('00000000-0000-0000-0000-' || lpad((n %% 3)::text, 12, '0'))::uuid, 1, n, sha256(n::text::bytea), repeat('x', 300)::bytea
		FROM generate_series(1, 20000) n`)
	s.rows(`INSERT INTO stele.blob SELECT gen_random_uuid(), n::text, '' FROM generate_series(1, 5000) n`)
	s.rows(`INSERT INTO stele.root SELECT n::text, '', now() FROM generate_series(1, 5000) n`)
	check("with tables that have grown", generic)
	s.rows("VACUUM ANALYZE stele.log, stele.root, stele.blob")
	check("with large tables", generic)
	check("as behind a pooler, which plans anew and may scan", "enable_seqscan = on")
}

// explain is a statement's plan on one of l's connections.
func explain(t *testing.T, l *Log, setting string, st *statement) string {
	t.Helper()
	c, err := l.others.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer l.others.give(c, true, true)
	exec := func(sql string) (lines []string) {
		t.Helper()
		res, err := c.pg.Exec(context.WithoutCancel(t.Context()), sql).ReadAll()
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		for _, row := range res[len(res)-1].Rows {
			lines = append(lines, string(row[0]))
		}
		return lines
	}
	args := map[*statement]string{
		insertObject:  `'00000000-0000-0000-0000-000000000001', 7, 7, '', ''`,
		fence:         `'main', '00000000-0000-0000-0000-000000000001', '{1,1,1}', '{1,2,4}'`,
		readRoot:      `'main'`,
		createRoot:    `'main', ''`,
		swapRoot:      `'main', '', ''`,
		getObject:     `'00000000-0000-0000-0000-000000000001', 1, 4`,
		listKeys:      `'00000000-0000-0000-0000-000000000001', 1, 4, 4096`,
		readPage:      `'00000000-0000-0000-0000-000000000001', 1, 4, 512, 1048576`,
		deleteObjects: `'00000000-0000-0000-0000-000000000001', 1, 4, 1000`,
		putBlob:       `'00000000-0000-0000-0000-000000000001', 'x', ''`,
		getBlob:       `'00000000-0000-0000-0000-000000000001', 'x'`,
		deleteBlobs:   `'00000000-0000-0000-0000-000000000001', 1000`,
	}[st]
	exec("SET " + setting)
	exec("PREPARE explained AS " + st.sql)
	defer exec("DEALLOCATE explained")
	return strings.Join(exec("EXPLAIN (COSTS off) EXECUTE explained("+args+")"), "\n")
}

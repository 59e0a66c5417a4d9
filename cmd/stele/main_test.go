package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stele runs the command and returns what it printed.
func stele(t *testing.T, in string, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), args, strings.NewReader(in), &o, &e)
	return code, o.String(), e.String()
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const schema = `[{:db/ident :p/id :db/valueType :db.type/string :db/cardinality :db.cardinality/one :db/unique :db.unique/value}
 {:db/ident :p/n :db/valueType :db.type/long :db/cardinality :db.cardinality/one}]
`

func TestTransactAndCount(t *testing.T) {
	store := "mem:" + t.Name()
	file := write(t, "people.edn", schema+`[{:p/id "a" :p/n 1}] [{:p/id "b"}]`+"\n"+`{:p/id "c" :p/n 3} [:db/add "x" :p/n 4]`)
	code, out, errs := stele(t, "", "transact", "-store", store, file)
	if code != 0 || !regexp.MustCompile(`^5 transactions, \d+ datoms, [\d.]+ seconds, \d+ datoms/s\n$`).MatchString(out) {
		t.Fatalf("%d: %s%s", code, out, errs)
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"6\n", nil},
		{"{:p/id 3\n :p/n 3}\n", []string{"--by", "attribute"}},
		{"{\n  \"p/id\": 3,\n  \"p/n\": 3\n}\n", []string{"-by", "attribute", "-o", "json"}},
	} {
		code, out, errs := stele(t, "", append([]string{"count", "--store=" + store}, c.args...)...)
		if code != 0 || out != c.want {
			t.Errorf("count %v: %d, %q, want %q; %s", c.args, code, out, c.want, errs)
		}
	}
}

func TestTransactStopsAtTheFirstRefusal(t *testing.T) {
	store := "mem:" + t.Name()
	var text strings.Builder
	text.WriteString(schema)
	for i := range 50 {
		fmt.Fprintf(&text, "[{:p/id \"p%d\"}\n", i)
		if i == 30 {
			text.WriteString("{:p/id \"p7\"}\n")
		}
		text.WriteString("]\n")
	}
	file := write(t, "data.edn", text.String())
	code, out, errs := stele(t, "", "transact", "-store", store, file)
	if code != 1 || !strings.HasPrefix(out, "31 transactions,") {
		t.Errorf("%d: %s", code, out)
	}
	for _, want := range []string{file, "line 64", "transaction 32", "form 2", "unique-conflict", `"p7"`} {
		if !strings.Contains(errs, want) {
			t.Errorf("%q does not say %s", errs, want)
		}
	}
	if _, out, _ = stele(t, "", "count", "-store", store); out != "30\n" {
		t.Errorf("%s facts, not what stands before the refusal", out)
	}
}

func TestTransactRefusesWhatIsNoTransaction(t *testing.T) {
	store := "mem:" + t.Name()
	code, out, errs := stele(t, schema+"[{:p/id \"a\"}]\n[{:p/id \"b\"", "transact", "-store", store)
	if code != 1 || !strings.HasPrefix(out, "2 transactions,") || !strings.Contains(errs, "standard input") || !strings.Contains(errs, "line 4") {
		t.Errorf("%d: %s%s", code, out, errs)
	}
}

func TestAtomicPerFile(t *testing.T) {
	store := "mem:" + t.Name()
	a := write(t, "a.edn", schema)
	b := write(t, "b.edn", `[{:p/id "a"}] {:p/id "b"} [[:db/add "x" :p/id "a"]]`)
	code, out, errs := stele(t, "", "transact", "-store", store, "--atomic-per", "file", a, b)
	if code != 1 || !strings.HasPrefix(out, "1 transactions,") || !strings.Contains(errs, "unique-conflict") {
		t.Errorf("%d: %s%s", code, out, errs)
	}
	b = write(t, "b.edn", `[{:p/id "a"}] {:p/id "b"}`)
	if code, out, errs = stele(t, "", "transact", "-store", store, "-atomic-per=file", b); code != 0 || !strings.HasPrefix(out, "1 transactions, 3 datoms") {
		t.Errorf("%d: %s%s", code, out, errs)
	}
}

func TestInputsByName(t *testing.T) {
	store := "mem:" + t.Name()
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	io.WriteString(z, schema)
	z.Close()
	gz := write(t, "schema.edn.gz", zipped.String())
	js := write(t, "people.json", `[{"p/id": "a", "p/n": 1}, {"p/id": "b"}]`+"\n"+`[["db/add", "x", "p/id", "c"]]`)
	code, out, errs := stele(t, `[{:p/id "d"}]`, "transact", "-store", store, gz, js, "-")
	if code != 0 || !strings.HasPrefix(out, "4 transactions,") {
		t.Errorf("%d: %s%s", code, out, errs)
	}
	if code, _, errs = stele(t, `[{"p/id": "e"}]`, "transact", "-store", store, "-format", "json"); code != 0 {
		t.Errorf("%d: %s", code, errs)
	}
	if _, out, _ = stele(t, "", "count", "-store", store); out != "6\n" {
		t.Errorf("%s facts", out)
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{0, "Usage: stele", []string{"--help"}},
		{0, "Usage: stele", nil},
		{0, "--atomic-per", []string{"transact", "--help"}},
		{2, "store", []string{"transact"}},
		{2, "nonsense", []string{"nonsense"}},
		{2, "by", []string{"count", "-store", "mem:x", "--by", "entity"}},
		{2, "unknown flag", []string{"count", "-stroe", "mem:x"}},
		{1, "no-such-file", []string{"transact", "-store", "mem:x", "no-such-file"}},
		{1, "bad store URL", []string{"count", "-store", "ftp://x"}},
		{1, "no such database", []string{"count", "-store", "mem:TestUsage"}},
	} {
		code, out, errs := stele(t, "", c.args...)
		if code != c.code || !strings.Contains(out+errs, c.says) {
			t.Errorf("stele %s: status %d, want %d, and %q in:\n%s%s", strings.Join(c.args, " "), code, c.code, c.says, out, errs)
		}
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	in, feed := io.Pipe()
	done := make(chan int)
	var out, errs bytes.Buffer
	go func() { done <- run(ctx, []string{"transact", "-store", "mem:" + t.Name()}, in, &out, &errs) }()
	io.WriteString(feed, schema+"[{:p/id \"a\"}]\n")
	cancel() // nobody writes any more, and nobody closes the input
	code := <-done
	feed.Close()
	if code != 130 || !strings.Contains(errs.String(), "interrupted") {
		t.Errorf("%d: %s%s", code, out.String(), errs.String())
	}
}

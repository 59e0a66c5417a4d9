package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/steledb/stele/config"
)

// dataFile is a file of the real data set, from $STELE_TEST_DATA or from ../shared/data beside the repository.
func dataFile(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("STELE_TEST_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "data")
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("the real data set is not here: no %s in $STELE_TEST_DATA or ../shared/data", name)
	}
	return path
}

// The releases of 1968 to 1973 load as they are, count as the real Datomic counts them, and load only once.
func TestRealData(t *testing.T) {
	data, want := dataFile(t, "mbrainz.edn.gz"), dataFile(t, "mbrainz-counts.edn")
	counts, err := os.ReadFile(want)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if durable, _, err := config.DurableDir(dir); err != nil || !durable {
		if dir, err = os.MkdirTemp(".", "mbrainz"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
	}
	store := "fs:" + dir
	code, out, errs := stele(t, "", "transact", "-store", store, data)
	if code != 0 || !strings.HasPrefix(out, "18 transactions, 226595 datoms,") {
		t.Fatalf("%d: %s%s", code, out, errs)
	}
	t.Log(strings.TrimSpace(out))
	same := func(when string) {
		t.Helper()
		if code, out, errs := stele(t, "", "count", "-store", store, "--by", "attribute", "-o", "edn"); code != 0 || out != string(counts) {
			t.Errorf("%s: %d: the counts differ from the real Datomic's: %s\n%s", when, code, errs, out)
		}
	}
	same("after the load")

	// The batches carry facts that make each importable once.
	code, out, errs = stele(t, "", "transact", "-store", store, data)
	if code != 1 || !strings.HasPrefix(out, "1 transactions,") {
		t.Errorf("a second load: %d: %s%s", code, out, errs)
	}
	if !regexp.MustCompile(`line 2: transaction 2, form \d+: unique-conflict: :mbrainz.initial-import/batch-id "enums-1" .*\b13194139533315\b`).MatchString(errs) {
		t.Errorf("a second load does not name what is in the way: %s", errs)
	}
	same("after the refused load")

	// Without them it changes nothing.
	plain := filepath.Join(t.TempDir(), "plain.edn")
	if err := os.WriteFile(plain, withoutBatchIDs(t, data), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, errs = stele(t, "", "transact", "-store", store, plain); code != 0 || !strings.HasPrefix(out, "18 transactions, 18 datoms,") {
		t.Errorf("the same facts again: %d: %s%s", code, out, errs)
	}
	same("after the same facts again")
}

// withoutBatchIDs is the data without its "datomic.tx" maps' facts but the instants.
func withoutBatchIDs(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	maps := regexp.MustCompile(`\{:db/id "datomic\.tx"[^{}]*\}`)
	if n := len(maps.FindAll(text, -1)); n != 17 {
		t.Fatalf("%d maps about the transaction, not 17", n)
	}
	return bytes.ReplaceAll(maps.ReplaceAll(text, nil), []byte("\n\n"), []byte("\n"))
}

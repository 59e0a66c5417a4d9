package fs_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/steledb/stele/log/fs"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		os.Exit(child(dir))
	}
	goleak.VerifyTestMain(m)
}

// diskDir is a new directory on a file system that keeps what is synced.
func diskDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if ok, _, err := fs.Durable(dir); err == nil && ok {
		return dir
	}
	dir, err := os.MkdirTemp(".", ".test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if ok, name, err := fs.Durable(dir); err != nil || !ok {
		t.Fatalf("neither the temporary directory nor %s lies on a local disk, but on %s: %v", dir, name, err)
	}
	return dir
}

package config

import (
	"net/url"
	"strings"
	"testing"

	"github.com/steledb/stele/internal/testserver"
	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/logtest"
)

// TestCopies copies a log between every two backends: here all of them may be imported.
func TestCopies(t *testing.T) {
	var servers testserver.Shared
	t.Cleanup(func() {
		if err := servers.Close(); err != nil {
			t.Error(err)
		}
	})
	at := func(place func(t *testing.T) string) func(t *testing.T) func() log.Log {
		return func(t *testing.T) func() log.Log {
			store := place(t)
			return func() log.Log {
				l, err := OpenLog(t.Context(), store)
				if err != nil {
					t.Fatal(err)
				}
				return l
			}
		}
	}
	s3 := func(client string) func(t *testing.T) string {
		return func(t *testing.T) string { return servers.S3(t) + "&client=" + client }
	}
	logtest.Copies(t,
		logtest.Backend{Name: "mem", New: at(func(t *testing.T) string { return "mem:" + url.PathEscape(strings.ReplaceAll(t.TempDir(), "/", "-")) })},
		logtest.Backend{Name: "fs", New: at(func(t *testing.T) string { return "fs:" + t.TempDir() + "?non-local=true" }), OneWriter: true},
		logtest.Backend{Name: "pg", New: at(func(t *testing.T) string { return servers.Postgres(t) })},
		logtest.Backend{Name: "s3 (aws)", New: at(s3("aws"))},
		logtest.Backend{Name: "s3 (minio)", New: at(s3("minio"))},
	)
}

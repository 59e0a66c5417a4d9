package config

import (
	"testing"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/fs"
	"github.com/steledb/stele/log/logtest"
	"github.com/steledb/stele/log/mem"
)

// TestCopies copies a log between every two backends: here all of them may be imported.
func TestCopies(t *testing.T) {
	logtest.Copies(t,
		logtest.Backend{Name: "mem", New: func(t *testing.T) func() log.Log {
			s := mem.NewServer()
			return func() log.Log { return s.Open("main", mem.Options{}) }
		}},
		logtest.Backend{Name: "fs", OneWriter: true, New: func(t *testing.T) func() log.Log {
			dir := t.TempDir()
			return func() log.Log {
				l, err := fs.Open(t.Context(), fs.Options{Dir: dir, AllowNonLocal: true})
				if err != nil {
					t.Fatal(err)
				}
				return l
			}
		}},
	)
}

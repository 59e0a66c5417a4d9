package fs_test

import (
	"testing"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/fs"
	"github.com/steledb/stele/log/logtest"
)

func TestConformance(t *testing.T) {
	logtest.Run(t, logtest.Backend{
		Name:      "fs",
		OneWriter: true,
		New: func(t *testing.T) func() log.Log {
			dir := diskDir(t)
			return func() log.Log {
				l, err := fs.Open(t.Context(), fs.Options{Dir: dir})
				if err != nil {
					t.Fatal(err)
				}
				return l
			}
		},
	})
}

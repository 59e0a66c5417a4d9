package mem_test

import (
	"testing"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/logtest"
	"github.com/steledb/stele/log/mem"
)

func TestConformance(t *testing.T) {
	logtest.Run(t, logtest.Backend{
		Name: "mem",
		New: func(t *testing.T) func() log.Log {
			s := mem.NewServer()
			return func() log.Log { return s.Open("main", mem.Options{}) }
		},
	})
}

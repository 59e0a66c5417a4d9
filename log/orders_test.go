package log_test

import (
	"testing"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/logtest"
	"github.com/steledb/stele/log/mem"
)

// TestOrders_L1_L4_L5_L8 plays every order of landing.
func TestOrders_L1_L4_L5_L8(t *testing.T) {
	logtest.Orders(t, logtest.Backend{Name: "mem", New: func(t *testing.T) func() log.Log {
		s := mem.NewServer()
		return func() log.Log { return s.Open("main", mem.Options{}) }
	}})
}

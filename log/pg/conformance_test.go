package pg

import (
	"testing"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/logtest"
)

func TestConformance(t *testing.T) {
	logtest.Run(t, logtest.Backend{
		Name: "pg", Server: servers.PostgresServer,
		New: func(t *testing.T) func() log.Log { return opener(t, Options{URL: servers.Postgres(t)}) },
	})
}

func TestConformanceThroughPgBouncer(t *testing.T) {
	logtest.Run(t, logtest.Backend{
		Name: "pg behind PgBouncer", Server: servers.PostgresServer,
		New: func(t *testing.T) func() log.Log {
			pooled, _ := servers.PgBouncer(t)
			return opener(t, Options{URL: pooled, Pooler: Transaction})
		},
	})
}

func opener(t *testing.T, o Options) func() log.Log {
	return func() log.Log {
		l, err := Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
}

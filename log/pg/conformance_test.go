package pg_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/steledb/stele/internal/testserver"
	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/logtest"
	"github.com/steledb/stele/log/pg"
)

var servers testserver.Shared

func TestMain(m *testing.M) { goleak.VerifyTestMain(servers.Main(m)) }

func TestConformance(t *testing.T) {
	logtest.Run(t, logtest.Backend{
		Name: "pg", Server: servers.PostgresServer,
		New: func(t *testing.T) func() log.Log { return opener(t, pg.Options{URL: servers.Postgres(t)}) },
	})
}

func TestConformanceThroughPgBouncer(t *testing.T) {
	logtest.Run(t, logtest.Backend{
		Name: "pg (pooler)", Server: servers.PostgresServer,
		New: func(t *testing.T) func() log.Log {
			pooled, _ := servers.PgBouncer(t)
			return opener(t, pg.Options{URL: pooled, Pooler: pg.Transaction})
		},
	})
}

func opener(t *testing.T, o pg.Options) func() log.Log {
	return func() log.Log {
		l, err := pg.Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
}

package s3_test

import (
	"net/url"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/internal/testserver"
	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/s3"
)

var servers testserver.Shared

func TestMain(m *testing.M) { goleak.VerifyTestMain(servers.Main(m)) }

// clients are what every test of behaviour runs with.
var clients = []string{s3.AWS, s3.MinIO}

// eachClient runs f with each client, in an empty place of its own.
func eachClient(t *testing.T, f func(t *testing.T, o s3.Options)) {
	for _, client := range clients {
		t.Run(client, func(t *testing.T) { f(t, place(t, client)) })
	}
}

// place is an empty place for a database.
func place(t testing.TB, client string) s3.Options {
	t.Helper()
	u, err := url.Parse(servers.S3(t))
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	return s3.Options{Bucket: u.Host, Prefix: strings.Trim(u.Path, "/"), Endpoint: q.Get("endpoint"), Region: q.Get("region"), Client: client}
}

// open opens a handle that is closed when the test ends.
func open(t testing.TB, o s3.Options) *s3.Log {
	t.Helper()
	l, err := s3.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// transactions is one of t, with a fact; a start has none.
func transactions(kind log.Kind, t uint64, text string) []*datom.Tx {
	if kind == log.KindStart {
		return nil
	}
	instant := 1_700_000_000_000 + int64(t)
	return []*datom.Tx{{T: t, Instant: instant, Next: datom.NextIDs{Part: 10, Seq: 5000 + t}, Datoms: []datom.Datom{
		{E: datom.TxID(t), A: 50, V: datom.InstantMilli(instant), T: t, Added: true},
		{E: datom.MakeID(datom.PartUser, 5000+t), A: 2100, V: datom.String(text), T: t, Added: true},
	}}}
}

package s3_test

import (
	"net/url"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/steledb/stele/internal/testserver"
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

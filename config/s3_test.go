package config

import (
	"strings"
	"testing"

	"github.com/steledb/stele/internal/testserver"
)

func TestParseS3(t *testing.T) {
	for _, c := range []struct {
		url, place string
		want       settings
	}{
		{"s3://bucket", "bucket", settings{db: "main"}},
		{"S3://bucket/", "bucket/", settings{db: "main"}},
		{"s3://bucket/a/b%20c?db=x", "bucket/a/b c", settings{db: "x"}},
		{"s3://bucket/p?endpoint=http://127.0.0.1:9000&region=eu-central-1&client=minio&depth=4", "bucket/p",
			settings{depth: 4, db: "main", endpoint: "http://127.0.0.1:9000", region: "eu-central-1", client: "minio"}},
		{"s3://bucket/p?endpoint=https%3A%2F%2Fs3.example.org&client=aws", "bucket/p", settings{db: "main", endpoint: "https://s3.example.org", client: "aws"}},
	} {
		s, err := parse(c.url)
		if err != nil || s.place != c.place || s.settings != c.want {
			t.Errorf("%q: %q, %+v, %v", c.url, s.place, s.settings, err)
		}
		if got := Redacted(c.url); got != c.url {
			t.Errorf("%q is shown as %q", c.url, got)
		}
	}
	for _, c := range []struct{ url, want string }{
		{"s3:bucket", "it names no bucket; it is written s3://BUCKET/PREFIX"},
		{"s3:///prefix", "it names no bucket"},
		{"s3://", "it names no bucket"},
		{"s3://key:hunter2@bucket/x", "credentials come from the environment"},
		{"s3://hunter2@bucket/x", "credentials come from the environment"},
		{"s3://127.0.0.1:9000/bucket", "a host is the option endpoint"},
		{"s3://bucket/x?endpoint=http://key:hunter2@127.0.0.1:9000", "option endpoint is something else"},
		{"s3://bucket/x?endpoint=127.0.0.1:9000", "option endpoint is something else; it must be http:// or https://"},
		{"s3://bucket/x?endpoint=http://hunter2%", "option endpoint is something else, where a % is not followed"},
		{"s3://bucket/x?client=boto", "option client is \"boto\"; it must be aws or minio"},
		{"s3://bucket/x?region=a%20b", "option region is \"a b\""},
		{"s3://bucket/x?secret-key=hunter2", "stores have no option \"secret-key\"; they have db, endpoint, region, client, depth"},
	} {
		_, err := parse(c.url)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v; want %q", c.url, err, c.want)
		}
		if got := Redacted(c.url); strings.Contains(got, "hunter2") {
			t.Errorf("%q is shown as %q", c.url, got)
		}
	}
}

// TestOpenS3: what a URL says arrives: bucket, prefix, name, endpoint, client.
func TestOpenS3(t *testing.T) {
	var servers testserver.Shared
	t.Cleanup(func() {
		if err := servers.Close(); err != nil {
			t.Error(err)
		}
	})
	base := servers.S3(t)
	for _, client := range []string{"aws", "minio"} {
		l, err := OpenLog(t.Context(), base+"&db=orders&depth=4&client="+client)
		if err != nil {
			t.Fatal(err)
		}
		place, endpoint, _ := strings.Cut(base, "?endpoint=")
		if info := l.Info(); info.Backend != "s3" || !info.Durable || info.Depth != 4 || info.Location != place+"/orders at "+endpoint {
			t.Errorf("%+v", info)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

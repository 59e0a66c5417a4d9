package config

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/fs"
	"github.com/steledb/stele/log/mem"
	"github.com/steledb/stele/log/pg"
	"github.com/steledb/stele/log/s3"
)

// backend is one kind of store.
type backend struct {
	schemes []string
	form    string // how its URLs are written, for messages
	remote  bool   // a server: what stands behind scheme:// is its driver's, and so are options that are not ours
	// bucket: "//" is followed by a bucket and maybe a path, not by an absolute path.
	bucket  bool
	options []option // its own, beside dbOption
	// open makes a log; nil: this version does not have the backend.
	open func(context.Context, store, *slog.Logger) (log.Log, error)
}

// option is an option in a URL.
type option struct {
	name  string
	takes string // what its value is, for messages
	hide  bool   // a wrong value is not shown: there may be a password in it
	set   func(*settings, string) bool
}

// settings are what options can say. Each backend reads its own; zero is the default.
type settings struct {
	db       string        // never empty
	delay    time.Duration // mem
	rollSize int64         // fs, bytes
	nonLocal bool          // fs
	pooler   pg.Pooler     // pg
	depth    int           // pg, s3
	endpoint string        // s3
	region   string        // s3
	client   string        // s3
}

// backends are all there is to know of stores outside their packages.
func backends() []*backend {
	return []*backend{
		{
			schemes: []string{"fs"}, form: "fs:DIR",
			options: []option{
				{name: "roll-size", takes: "a size from 64KiB to 4GiB, as in 16MiB", set: func(s *settings, v string) (ok bool) {
					s.rollSize, ok = parseSize(v)
					return ok && s.rollSize >= 64<<10 && s.rollSize <= 4<<30
				}},
				{name: "non-local", takes: "true or false", set: func(s *settings, v string) bool {
					s.nonLocal = v == "true"
					return v == "true" || v == "false"
				}},
			},
			open: openFS,
		},
		{
			schemes: []string{"mem"}, form: "mem:NAME",
			options: []option{
				{name: "delay", takes: "a duration from 0 to 1m, as in 2ms", set: func(s *settings, v string) bool {
					d, err := time.ParseDuration(v)
					s.delay = d
					return err == nil && d >= 0 && d <= time.Minute
				}},
			},
			open: openMem,
		},
		{
			schemes: []string{"postgres", "postgresql"}, form: "postgres://…", remote: true,
			options: []option{
				{name: "pooler", takes: "transaction", set: func(s *settings, v string) bool {
					s.pooler = pg.Pooler(v)
					return s.pooler == pg.Transaction
				}},
				depthOption,
			},
			open: openPG,
		},
		{
			schemes: []string{"s3"}, form: "s3://BUCKET/PREFIX", bucket: true,
			options: []option{
				{name: "endpoint", takes: "http:// or https://, a host and maybe a port; credentials come from the environment", hide: true,
					set: func(s *settings, v string) bool {
						s.endpoint = v
						return s3.CheckEndpoint(v) == nil
					}},
				{name: "region", takes: "a region, as in eu-central-1", set: func(s *settings, v string) bool {
					s.region = v
					return s3.CheckRegion(v) == nil
				}},
				{name: "client", takes: s3.AWS + " or " + s3.MinIO, set: func(s *settings, v string) bool {
					s.client = v
					return v == s3.AWS || v == s3.MinIO
				}},
				depthOption,
			},
			open: openS3,
		},
	}
}

// dbOption is the option of every backend.
var dbOption = option{name: "db", takes: "a name: [a-z0-9][a-z0-9._-]{0,62}", set: func(s *settings, v string) bool {
	s.db = v
	return log.CheckName(v) == nil
}}

// depthOption is that of the stores behind a network.
var depthOption = option{name: "depth", takes: "a number from 1 to 64", set: func(s *settings, v string) bool {
	n, err := strconv.Atoi(v)
	s.depth = n
	return err == nil && n >= 1 && n <= maxDepth
}}

// maxDepth bounds the connections of one handle.
const maxDepth = 64

func openFS(ctx context.Context, s store, logger *slog.Logger) (log.Log, error) {
	return fs.Open(ctx, fs.Options{Dir: s.place, Name: s.db, RollSize: s.rollSize, AllowNonLocal: s.nonLocal, Logger: logger})
}

func openPG(ctx context.Context, s store, logger *slog.Logger) (log.Log, error) {
	return pg.Open(ctx, pg.Options{URL: s.place, Name: s.db, Pooler: s.pooler, Depth: s.depth, Logger: logger})
}

// memory is what mem: URLs share: a database that is closed can be opened again, so something must keep it.
var memory = mem.NewServer()

func openMem(_ context.Context, s store, _ *slog.Logger) (log.Log, error) {
	return memory.Open(s.place+"/"+s.db, mem.Options{Delay: s.delay}), nil
}

func openS3(ctx context.Context, s store, logger *slog.Logger) (log.Log, error) {
	bucket, prefix, _ := strings.Cut(s.place, "/")
	return s3.Open(ctx, s3.Options{Bucket: bucket, Prefix: strings.TrimSuffix(prefix, "/"), Name: s.db,
		Endpoint: s.endpoint, Region: s.region, Client: s.client, Depth: s.depth, Logger: logger})
}

// parseSize reads a number of bytes, or of KiB, MiB or GiB.
func parseSize(v string) (int64, bool) {
	unit := int64(1)
	for i, suffix := range []string{"KiB", "MiB", "GiB"} {
		if n, ok := strings.CutSuffix(v, suffix); ok {
			v, unit = n, 1<<(10*(i+1))
		}
	}
	var n int64
	if len(v) == 0 || len(v) > 12 {
		return 0, false
	}
	for _, c := range []byte(v) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	if n > (1<<62)/unit {
		return 0, false
	}
	return n * unit, true
}

// known lists the stores of this version, for messages.
func known() string {
	var forms []string
	for _, b := range backends() {
		if b.open != nil {
			forms = append(forms, b.form)
		}
	}
	return fmt.Sprintf("%s, or a directory", strings.Join(forms, ", "))
}

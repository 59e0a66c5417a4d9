// Package config is the one place that knows store URLs and the backends behind them: it turns a URL into a log, or into an
// open database.
//
// # Store URLs
//
//	fs:DIR, or DIR alone       a directory on a local disk; also fs:///absolute/DIR
//	s3://BUCKET/PREFIX         a bucket of S3 or of what speaks like it, which must be there; the prefix may be left out
//	mem:NAME                   memory; everybody in this process who says the same NAME shares it, until the process ends
//	postgres://…               PostgreSQL; USER:PASSWORD@HOST:PORT/DATABASE, several hosts, and the options of the driver (pgx), as in
//	                           "postgres://app@db1,db2/app?sslmode=verify-full&db=orders"
//
// Options follow a question mark, each at most once, as in "fs:data?db=orders&roll-size=16MiB":
//
//	db=NAME                    the database in the store, [a-z0-9][a-z0-9._-]{0,62}; "main" if it is not given
//	roll-size=SIZE             fs: the size from which on a log file is followed by another: bytes, or KiB, MiB, GiB; 64MiB
//	non-local=true             fs: take a file system that keeps nothing after a crash or whose locks do not hold, and have no durability
//	endpoint=URL               s3: the store, if it is not AWS, as in http://127.0.0.1:9000
//	region=NAME                s3: the bucket's region, if the environment does not say it
//	client=aws, client=minio   s3: the SDK that speaks with the store
//	delay=DURATION             mem: how long every call to the store takes, as in 2ms
//	pooler=transaction         postgres: a pooler stands between, which gives a server connection for one transaction at a time (PgBouncer)
//	depth=N                    postgres, s3: how many flushes are in flight, each on a connection of its own, 1 to 64; 4
//
// Credentials for s3 come from where the AWS tools look for them: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE and the shared
// files, the machine's role; with an endpoint also MINIO_ACCESS_KEY and MINIO_SECRET_KEY, or MINIO_ROOT_USER and MINIO_ROOT_PASSWORD.
//
// After "fs:", "mem:" and in a prefix, %XX stands for a byte; a directory alone is taken as it is written, up to a question mark. Errors
// never hold a URL's user, password or unknown options' values.
package config

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/fs"
	"github.com/steledb/stele/transactor"
)

var (
	// ErrURL: the store URL is malformed; the error says how, and what would be right.
	ErrURL = errors.New("bad store URL")
	// ErrNotBuilt: the URL names a kind of store that this version does not have.
	ErrNotBuilt = errors.New("this version of Stele has no such store")
)

// OpenLog opens the log of the database that url names. The database need not exist: that is for its root to say. An error
// wraps ErrURL or ErrNotBuilt, or says why the store cannot be used.
func OpenLog(ctx context.Context, url string) (log.Log, error) {
	return openLog(ctx, url, 0, nil)
}

// openLog opens the log with so many flushes in flight, unless the URL says how many, or 0.
func openLog(ctx context.Context, url string, depth int, logger *slog.Logger) (log.Log, error) {
	s, err := parse(url)
	if err != nil {
		return nil, err
	}
	if s.depth == 0 {
		s.depth = min(depth, maxDepth)
	}
	return s.backend.open(ctx, s, logger)
}

// Open opens the database that url names for writing: see [transactor.Open]. Options.Depth, if it is set and the URL does not say otherwise, is also how many
// connections the store keeps for flushes.
func Open(ctx context.Context, url string, opt transactor.Options) (*transactor.Transactor, error) {
	l, err := openLog(ctx, url, max(opt.Depth, 0), logger(opt))
	if err != nil {
		return nil, err
	}
	return transactor.Open(ctx, l, opt)
}

// OpenReadOnly opens the database that url names for reading, beside its owner: see [transactor.OpenReadOnly].
func OpenReadOnly(ctx context.Context, url string) (*transactor.Reader, error) {
	l, err := openLog(ctx, url, 0, slog.Default())
	if err != nil {
		return nil, err
	}
	return transactor.OpenReadOnly(ctx, l)
}

func logger(opt transactor.Options) *slog.Logger {
	if opt.Logger == nil {
		return slog.Default()
	}
	return opt.Logger
}

// Redacted is url as it may be shown: as it is where nothing in it can be a secret, or else its scheme alone.
func Redacted(url string) string {
	if s, err := parse(url); err != nil || s.backend.remote {
		scheme, _, _ := cutScheme(url)
		return scheme + ":…"
	}
	return url
}

// WithDB is url with another database of the same store.
func WithDB(url, db string) (string, error) {
	s, err := parse(url)
	if err != nil {
		return "", err
	}
	if !dbOption.set(&s.settings, db) {
		return "", bad("option %s is %q; it must be %s", dbOption.name, db, dbOption.takes)
	}
	place, query, _ := strings.Cut(url, "?")
	_, rest, err := takeOptions(query, []option{dbOption})
	if err != nil {
		return "", err
	}
	return place + "?" + strings.Join(append(rest, dbOption.name+"="+db), "&"), nil
}

// DurableDir reports whether dir, or what of its parents is there, lies on a file system that keeps what is synced and on which locks
// hold, and that file system's name.
func DurableDir(dir string) (durable bool, fsName string, err error) { return fs.Durable(dir) }

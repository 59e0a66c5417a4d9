package config

import (
	"context"
	"errors"
	"log/slog"

	"github.com/steledb/stele/log"
)

// Create makes the database that url names, which must not be there, and leaves it without an owner. Over a deleted one it makes a new database. See [log.Create].
func Create(ctx context.Context, url string) error {
	return with(ctx, url, func(l log.Log) error {
		_, err := log.Create(ctx, l)
		return err
	})
}

// Delete deletes the database that url names: a tombstone stays. See [log.Delete].
func Delete(ctx context.Context, url string, opt log.DeleteOptions) error {
	return with(ctx, url, func(l log.Log) error { return log.Delete(ctx, l, opt) })
}

// Copy copies the database that one URL names to where another one does, and where there must be none. Its owner may go on working. See [log.Copy].
func Copy(ctx context.Context, from, to string, opt log.CopyOptions) error {
	return with(ctx, from, func(source log.Log) error {
		return with(ctx, to, func(target log.Log) error {
			_, err := log.Copy(ctx, source, target, opt)
			return err
		})
	})
}

// with hands the log that url names to f, and closes it.
func with(ctx context.Context, url string, f func(log.Log) error) error {
	l, err := openLog(ctx, url, 0, slog.Default())
	if err != nil {
		return err
	}
	return errors.Join(f(l), l.Close())
}

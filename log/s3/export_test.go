package s3

import (
	"context"
	"crypto/sha256"
	"iter"
)

// Keys lists everything in the bucket below a prefix.
func (l *Log) Keys(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for e, err := range l.listing(ctx, prefix, "") {
			if !yield(e.key, err) {
				return
			}
		}
	}
}

const (
	Tries         = tries
	MaxFetches    = maxFetches
	MaxFetchBytes = maxFetchBytes
	ControlConns  = controlConns
)

// Remove deletes a key.
func (l *Log) Remove(ctx context.Context, key string) error { return l.data.remove(ctx, []string{key}) }

// Put writes a key.
func (l *Log) Put(ctx context.Context, key string, b []byte) error {
	_, err := l.data.put(ctx, key, b, sha256.Sum256(b), absent)
	return err
}

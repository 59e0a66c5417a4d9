package pg

import (
	"context"
	"fmt"
	"strings"

	"github.com/steledb/stele/log"
)

const (
	// maxBlob bounds a blob: a value of a gigabyte is more than the server takes, and it holds it in memory more than once.
	maxBlob = 256 << 20
	// deleteSize is how many rows one statement deletes.
	deleteSize = 1000
)

// PutBlob writes a blob: an INSERT.
func (l *Log) PutBlob(ctx context.Context, inst log.ID, name string, b []byte) error {
	if err := l.enter(ctx); err != nil {
		return err
	}
	defer l.calls.Done()
	if err := checkBlobName(name); err != nil {
		return log.WithOutcome(log.Rejected, err)
	}
	if len(b) > maxBlob {
		return log.WithOutcome(log.Rejected, fmt.Errorf("blob %s has %d bytes, more than %d", name, len(b), maxBlob))
	}
	if b == nil {
		b = []byte{} // nil is null
	}
	r := &request{stmt: putBlob, params: [][]byte{inst[:], []byte(name), b}}
	return l.write(ctx, "put blob "+name, r)
}

func checkBlobName(name string) error {
	if name == "" || len(name) > log.MaxRootText || strings.ContainsRune(name, 0) {
		return fmt.Errorf("a blob cannot be called %q", name)
	}
	return nil
}

// write runs one request that writes, beside the flushes.
func (l *Log) write(ctx context.Context, doing string, r *request) error {
	sent, err := l.others.do(ctx, r)
	if r.err != nil {
		err = r.err
	}
	if err != nil {
		return l.writeErr(ctx, doing, sent, err)
	}
	return nil
}

// GetBlob reads a blob.
func (l *Log) GetBlob(ctx context.Context, inst log.ID, name string) ([]byte, error) {
	if err := l.enter(ctx); err != nil {
		return nil, err
	}
	defer l.calls.Done()
	var b []byte
	if checkBlobName(name) == nil {
		r := &request{stmt: getBlob, params: [][]byte{inst[:], []byte(name)}, row: func(row [][]byte) error {
			if err := onPrimary(row); err != nil || row[1] == nil {
				return err
			}
			b = append([]byte{}, row[1]...)
			return nil
		}}
		if _, err := l.others.do(ctx, r); err != nil && r.err == nil {
			r.err = err
		}
		if r.err != nil {
			return nil, l.readErr(ctx, "get blob "+name, r.err)
		}
	}
	if b == nil {
		return nil, fmt.Errorf("blob %q: %w", name, log.ErrNotFound)
	}
	return b, nil
}

// Delete removes the objects up to a key, lowest first, some at a time, and with MaxKey the blobs too. What it has removed may be there
// again after a crash of the server: it waits for nothing.
func (l *Log) Delete(ctx context.Context, inst log.ID, upTo log.Key) error {
	if err := l.enter(ctx); err != nil {
		return err
	}
	defer l.calls.Done()
	var room [16]byte
	putKey(room[:], clamp(upTo))
	few := bigint(deleteSize)
	if err := l.deleteAll(ctx, deleteObjects, inst[:], room[:8], room[8:], few); err != nil || upTo != log.MaxKey {
		return err
	}
	return l.deleteAll(ctx, deleteBlobs, inst[:], few)
}

// deleteAll runs a statement that deletes at most deleteSize rows until it finds none.
func (l *Log) deleteAll(ctx context.Context, stmt *statement, params ...[]byte) error {
	for {
		r := &request{stmt: stmt, params: params}
		if err := l.write(ctx, "delete", r); err != nil || r.affected == 0 {
			return err
		}
	}
}

package pg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/steledb/stele/log"
)

const (
	listSize  = 4096    // keys in a page
	pageSize  = 512     // objects in a page
	pageBytes = 1 << 20 // how many bytes a page has before its last object
)

// stored is a row of an object.
type stored struct {
	key         log.Key
	hash, bytes []byte
}

// decode makes an object of a row. An error is a *log.CorruptError.
func (l *Log) decode(s stored) (*log.Object, error) {
	o, err := log.Decode(s.bytes)
	corrupt := func(reason string) error {
		return &log.CorruptError{Location: l.info.Location, Key: s.key, Reason: reason, Err: err}
	}
	switch {
	case err != nil:
		return nil, corrupt("the object does not decode")
	case o.Key() != s.key:
		return nil, corrupt(fmt.Sprintf("object %s is stored under this key", o.Key()))
	}
	if h := o.Hash(); !bytes.Equal(h[:], s.hash) {
		return nil, corrupt(fmt.Sprintf("its chain hash is %s, its row says %x", h, s.hash))
	}
	return o, nil
}

// Get reads one object by its key.
func (l *Log) Get(ctx context.Context, inst log.ID, k log.Key) (*log.Object, error) {
	if err := l.enter(ctx); err != nil {
		return nil, err
	}
	defer l.calls.Done()
	s := stored{key: k}
	if storable(k) {
		var room [16]byte
		putKey(room[:], k)
		r := &request{stmt: getObject, params: [][]byte{inst[:], room[:8], room[8:]}, row: func(row [][]byte) error {
			if err := onPrimary(row); err != nil || row[1] == nil {
				return err
			}
			s.hash, s.bytes = bytes.Clone(row[1]), bytes.Clone(row[2])
			return nil
		}}
		if _, err := l.others.do(ctx, r); err != nil && r.err == nil {
			r.err = err
		}
		if r.err != nil {
			return nil, l.readErr(ctx, "get "+k.String(), r.err)
		}
	}
	if s.hash == nil {
		return nil, fmt.Errorf("object %s: %w", k, log.ErrNotFound)
	}
	return l.decode(s)
}

// List yields the keys behind after, page by page.
func (l *Log) List(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[log.Key, error] {
	return func(yield func(log.Key, error) bool) {
		for page, err := range prefetched(ctx, after, func(ctx context.Context, after log.Key) ([]log.Key, log.Key, bool, error) {
			return l.listPage(ctx, inst, after)
		}) {
			for _, k := range page {
				if ctx.Err() != nil {
					err = context.Cause(ctx)
					break
				}
				if !yield(k, nil) {
					return
				}
			}
			if err != nil {
				yield(log.Key{}, err)
				return
			}
		}
	}
}

// Read yields the objects behind after. The next page is read while this one is handed out.
func (l *Log) Read(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[*log.Object, error] {
	return func(yield func(*log.Object, error) bool) {
		for page, err := range prefetched(ctx, after, func(ctx context.Context, after log.Key) ([]*log.Object, log.Key, bool, error) {
			return l.readPage(ctx, inst, after)
		}) {
			for _, o := range page {
				if ctx.Err() != nil {
					err = context.Cause(ctx)
					break
				}
				if !yield(o, nil) {
					return
				}
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// prefetched yields pages. fetch reads the one behind a key, and says which key is its last and whether another may follow. While the
// caller works on a page, the next one is read; no connection is held longer than that takes. A page may come with the error that
// ends it.
func prefetched[T any](ctx context.Context, after log.Key, fetch func(context.Context, log.Key) ([]T, log.Key, bool, error)) iter.Seq2[[]T, error] {
	return func(yield func([]T, error) bool) {
		type page struct {
			entries []T
			last    log.Key
			more    bool
			err     error
		}
		ctx, cancel := context.WithCancel(ctx)
		next := make(chan page)
		ended := make(chan struct{})
		defer func() { cancel(); <-ended }()
		go func() {
			defer close(ended)
			defer close(next)
			for p := (page{last: after, more: true}); p.more && p.err == nil; {
				p.entries, p.last, p.more, p.err = fetch(ctx, p.last)
				select {
				case next <- p:
				case <-ctx.Done():
					return
				}
			}
		}()
		for p := range next {
			if !yield(p.entries, p.err) {
				return
			}
		}
		if ctx.Err() != nil {
			yield(nil, context.Cause(ctx))
		}
	}
}

func (l *Log) listPage(ctx context.Context, inst log.ID, after log.Key) (keys []log.Key, last log.Key, more bool, err error) {
	last = after
	err = l.page(ctx, listKeys, inst, after, [][]byte{bigint(listSize)}, func(k log.Key, _ [][]byte) error {
		keys, last = append(keys, k), k
		return nil
	})
	return keys, last, len(keys) == listSize, err
}

func (l *Log) readPage(ctx context.Context, inst log.ID, after log.Key) (objs []*log.Object, last log.Key, more bool, err error) {
	last = after
	size := 0
	err = l.page(ctx, readPage, inst, after, [][]byte{bigint(pageSize), bigint(pageBytes)}, func(k log.Key, row [][]byte) error {
		o, err := l.decode(stored{k, row[3], bytes.Clone(row[4])})
		if err != nil {
			return err
		}
		size += o.Size()
		objs, last = append(objs, o), k
		return nil
	})
	return objs, last, len(objs) == pageSize || size >= pageBytes, err
}

// page reads one page, on a connection that it holds no longer. row sees the rows that hold something, and their keys.
func (l *Log) page(ctx context.Context, stmt *statement, inst log.ID, after log.Key, limits [][]byte, row func(log.Key, [][]byte) error) error {
	if err := l.enter(ctx); err != nil {
		return err
	}
	defer l.calls.Done()
	var room [16]byte
	last := after
	putKey(room[:], clamp(after))
	r := &request{stmt: stmt, params: append([][]byte{inst[:], room[:8], room[8:]}, limits...), row: func(v [][]byte) error {
		if err := onPrimary(v); err != nil || v[1] == nil {
			return err
		}
		k, err := keyOf(v[1], v[2])
		if err == nil && k.Compare(last) <= 0 {
			err = fmt.Errorf("the server's answer is out of order: %s behind %s", k, last)
		}
		if err != nil {
			return err
		}
		last = k
		return row(k, v)
	}}
	_, err := l.others.do(ctx, r)
	if r.err != nil {
		err = r.err
	}
	var ce *log.CorruptError
	if errors.As(err, &ce) {
		ce.Location = l.info.Location
		return err
	}
	if err != nil {
		return l.readErr(ctx, "read behind "+after.String(), err)
	}
	return nil
}

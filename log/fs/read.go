package fs

import (
	"context"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"iter"

	"github.com/steledb/stele/log"
)

const (
	pageSize  = 512       // objects whose places are looked up at once
	chunkSize = 256 << 10 // bytes that are read at once, unless one object is larger
	prefetch  = 2         // chunks that are decoded ahead
)

// Get reads one object by its key.
func (l *Log) Get(ctx context.Context, inst log.ID, k log.Key) (*log.Object, error) {
	ctx, end, err := l.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	for try := 0; ; try++ {
		in, err := l.look(ctx, inst)
		if err != nil {
			return nil, err
		}
		p, ok, err := in.find(k)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, fmt.Errorf("object %s: %w", k, log.ErrNotFound)
		}
		objs, err := readChunk(l.fsys, []located{p})
		if errors.Is(err, iofs.ErrNotExist) && try < 3 {
			continue // sealed and deleted
		}
		if err != nil {
			return nil, err
		}
		return objs[0], nil
	}
}

// List yields the keys behind after.
func (l *Log) List(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[log.Key, error] {
	return func(yield func(log.Key, error) bool) {
		ctx, end, err := l.begin(ctx)
		if err != nil {
			yield(log.Key{}, err)
			return
		}
		defer end()
		for page, err := range l.pages(ctx, inst, after) {
			if err != nil {
				yield(log.Key{}, err)
				return
			}
			for i := range page {
				if !yield(page[i].objectKey(), nil) {
					return
				}
			}
		}
	}
}

// pages yields the places of the objects behind after, in key order, up to the highest that was there when it began.
func (l *Log) pages(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[[]located, error] {
	return func(yield func([]located, error) bool) {
		in, err := l.look(ctx, inst)
		if err != nil {
			yield(nil, err)
			return
		}
		last, ok := in.last()
		for ok && after.Compare(last) < 0 {
			if ctx.Err() != nil {
				yield(nil, context.Cause(ctx))
				return
			}
			page, err := in.next(after, pageSize)
			if err != nil {
				yield(nil, err)
				return
			}
			for len(page) > 0 && page[len(page)-1].objectKey().Compare(last) > 0 {
				page = page[:len(page)-1]
			}
			if len(page) == 0 {
				return
			}
			after = page[len(page)-1].objectKey()
			if !yield(page, nil) {
				return
			}
		}
	}
}

// Read yields the objects behind after. A goroutine reads and decodes ahead while the caller works. It alone is the call under way that Close waits for: the
// caller may take its time over an object, and may close the handle itself.
func (l *Log) Read(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[*log.Object, error] {
	return func(yield func(*log.Object, error) bool) {
		if err := l.enter(ctx); err != nil {
			yield(nil, err)
			return
		}
		type result struct {
			objs []*log.Object
			err  error
		}
		ctx, cancel := context.WithCancelCause(ctx)
		closing := context.AfterFunc(l.life, func() { cancel(log.ErrClosed) })
		defer closing()
		results := make(chan result, prefetch)
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			defer close(results)
			defer l.calls.Done()
			send := func(r result) bool {
				select {
				case results <- r:
					return true
				case <-ctx.Done():
					return false
				}
			}
			for page, err := range l.pages(ctx, inst, after) {
				if err != nil {
					send(result{err: err})
					return
				}
				for len(page) > 0 {
					n := chunk(page)
					objs, err := readChunk(l.fsys, page[:n])
					if errors.Is(err, iofs.ErrNotExist) {
						err = nil // sealed and deleted
					}
					if !send(result{objs, err}) || err != nil {
						return
					}
					page = page[n:]
				}
			}
		}()
		defer func() { <-stopped }()
		defer cancel(nil)
		for r := range results {
			for _, o := range r.objs {
				if ctx.Err() != nil {
					yield(nil, context.Cause(ctx))
					return
				}
				if !yield(o, nil) {
					return
				}
			}
			if r.err != nil {
				yield(nil, r.err)
				return
			}
		}
		if ctx.Err() != nil {
			yield(nil, context.Cause(ctx))
		}
	}
}

// chunk is how many of the places lie one behind the other and are worth one read.
func chunk(page []located) int {
	n, size := 1, page[0].length()
	for n < len(page) {
		last, p := &page[n-1], &page[n]
		gap := p.at - last.at - last.length() // a mark
		size += gap + p.length()
		if p.file != last.file || gap < 0 || gap > headSize || size > chunkSize {
			break
		}
		n++
	}
	return n
}

// readChunk reads and decodes objects that lie one behind the other in a file. With an error come the objects before it.
func readChunk(fsys FS, places []located) ([]*log.Object, error) {
	f := places[0].file
	h, err := fsys.Open(f.path, readOnly)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	first, last := &places[0], &places[len(places)-1]
	b := make([]byte, last.at+last.length()-first.at)
	n, err := h.ReadAt(b, first.at)
	if n < len(b) && err != nil && err != io.EOF {
		return nil, err
	}
	b = b[:n]
	objs := make([]*log.Object, 0, len(places))
	for i := range places {
		p := &places[i]
		from, to := p.at-first.at+headSize, p.at-first.at+headSize+int64(p.size)
		pad := p.at - first.at + p.length()
		if pad > int64(len(b)) {
			return objs, f.corrupt(p.at, p.objectKey(), "the file ends before the object does")
		}
		o, err := log.Decode(b[from:to:to])
		switch {
		case err != nil:
			c := f.corrupt(p.at, p.objectKey(), "the object does not decode").(*log.CorruptError)
			c.Err = err
			return objs, c
		case o.Key() != p.objectKey():
			return objs, f.corrupt(p.at, p.objectKey(), fmt.Sprintf("object %s is stored under this key", o.Key()))
		case o.Hash() != p.hash:
			return objs, f.corrupt(p.at, p.objectKey(), fmt.Sprintf("its chain hash is %s, its frame says %s", o.Hash(), p.hash))
		case !isZero(b[to:pad]):
			return objs, f.corrupt(p.at, p.objectKey(), "the bytes behind it are not zeros")
		}
		objs = append(objs, o)
	}
	return objs, nil
}

package s3

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"

	"github.com/steledb/stele/log"
)

const (
	// maxFetches and maxFetchBytes bound what Read holds ahead of its caller, in objects and in bytes as the listing says them; a
	// single larger object is fetched alone.
	maxFetches    = 16
	maxFetchBytes = 32 << 20
)

// keyed is an object's key and its size as the listing says it.
type keyed struct {
	key  log.Key
	size int64
}

// keys lists the objects behind after. What is no object's key is passed over: it is not ours. It yields an error if ctx ends.
func (l *Log) keys(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[keyed, error] {
	return func(yield func(keyed, error) bool) {
		prefix := l.objectKeys(inst)
		start := ""
		if after != (log.Key{}) {
			start = prefix + after.String()
		}
		for e, err := range l.listing(ctx, prefix, start) {
			if err != nil {
				yield(keyed{}, err)
				return
			}
			k, err := log.ParseKey(strings.TrimPrefix(e.key, prefix))
			if err != nil {
				continue
			}
			if !yield(keyed{k, e.size}, nil) {
				return
			}
		}
	}
}

// listing is the store's list, which goes on behind the last entry where a page fails, and ends with an error if ctx does.
func (l *Log) listing(ctx context.Context, prefix, after string) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		for try := 0; ; try++ {
			var failed error
			for e, err := range l.data.list(ctx, prefix, after) {
				if err != nil {
					failed = err
					break
				}
				if !yield(e, nil) {
					return
				}
				after, try = e.key, 0
			}
			switch {
			case ctx.Err() != nil:
				yield(entry{}, unanswered(ctx, "LIST", prefix, ctx.Err()))
				return
			case failed == nil:
				return
			case !kindOf(failed).retriable(), try+1 == tries, pause(ctx, try) != nil:
				yield(entry{}, failed)
				return
			}
		}
	}
}

// List yields the keys behind after, a page at a time.
func (l *Log) List(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[log.Key, error] {
	return func(yield func(log.Key, error) bool) {
		ctx, end, err := l.begin(ctx)
		if err != nil {
			yield(log.Key{}, err)
			return
		}
		defer end()
		for k, err := range l.keys(ctx, inst, after) {
			if !yield(k.key, err) || err != nil {
				return
			}
		}
	}
}

// fetch is an object on its way.
type fetch struct {
	size int64
	done chan struct{} // closed once the rest is set
	obj  *log.Object   // nil without an error: it was deleted meanwhile
	err  error
}

// Read yields the objects behind after. One goroutine lists and starts fetches, within the bounds; the fetches run beside each other;
// the caller takes them in the order of the listing, and gives their room back.
func (l *Log) Read(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[*log.Object, error] {
	return func(yield func(*log.Object, error) bool) {
		ctx, end, err := l.begin(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		defer end()
		ctx, cancel := context.WithCancel(ctx)
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		fetches := make(chan *fetch, maxFetches)
		freed := make(chan int64, maxFetches)
		running.Go(func() {
			defer close(fetches)
			l.fetchAll(ctx, inst, after, fetches, freed, &running)
		})
		for f := range fetches {
			<-f.done
			switch {
			case f.err != nil:
				yield(nil, f.err)
				return
			case f.obj != nil && !yield(f.obj, nil):
				return
			}
			f.obj = nil
			freed <- f.size
		}
		if ctx.Err() != nil {
			yield(nil, unanswered(ctx, "READ", l.objectKeys(inst), ctx.Err()))
		}
	}
}

// fetchAll starts a fetch for each key behind after and sends them in order. freed gives back the sizes of what was taken.
func (l *Log) fetchAll(ctx context.Context, inst log.ID, after log.Key, fetches chan<- *fetch, freed <-chan int64, running *sync.WaitGroup) {
	held, bytes := 0, int64(0)
	for k, err := range l.keys(ctx, inst, after) {
		f := &fetch{size: k.size, done: make(chan struct{})}
		for err == nil && (held == maxFetches || held > 0 && bytes+f.size > maxFetchBytes) {
			select {
			case size := <-freed:
				held--
				bytes -= size
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			f.err = err
			close(f.done)
		} else {
			held++
			bytes += f.size
			running.Go(func() {
				defer close(f.done)
				f.obj, f.err = l.object(ctx, inst, k.key)
				if errors.Is(f.err, log.ErrNotFound) {
					f.err = nil // listed, and then deleted: it is sealed
				}
			})
		}
		select {
		case fetches <- f:
		case <-ctx.Done():
			<-f.done
			return
		}
	}
}

// Delete removes objects in batches, lowest first.
func (l *Log) Delete(ctx context.Context, inst log.ID, upTo log.Key) error {
	ctx, end, err := l.beginWrite(ctx)
	if err != nil {
		return err
	}
	defer end()
	prefix, last := l.objectKeys(inst), ""
	if upTo == log.MaxKey {
		prefix = l.instanceKeys(inst)
	}
	for {
		batch, goOn := make([]string, 0, maxRemove), false
		for e, err := range l.listing(ctx, prefix, last) {
			if err != nil {
				return err
			}
			if upTo != log.MaxKey {
				k, err := log.ParseKey(strings.TrimPrefix(e.key, prefix))
				if err != nil {
					continue // not ours
				}
				if k.Compare(upTo) > 0 {
					break
				}
			}
			batch = append(batch, e.key)
			if goOn = len(batch) == maxRemove; goOn {
				last = e.key
				break
			}
		}
		if err := asking(ctx, func() error { return l.data.remove(ctx, batch) }); err != nil {
			return err
		}
		if !goOn {
			return nil
		}
	}
}

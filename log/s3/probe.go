package s3

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/log"
)

// ErrUnfit: the store does not keep what a log needs of it. The error says what it ignored.
var ErrUnfit = errors.New("this store cannot keep a log")

const (
	// probers write at once in each race of a probe: one of them may win.
	probers = 12
	// cleanTimeout bounds how long a probe may take to put away what it wrote.
	cleanTimeout = 10 * time.Second
)

// proven are the buckets that passed a probe of this process. A probe costs requests, and programs open many databases in one
// bucket.
var proven = struct {
	sync.Mutex
	buckets map[string]*provenBucket
}{buckets: map[string]*provenBucket{}}

// provenBucket is locked, by a send, while somebody probes it.
type provenBucket struct {
	busy chan struct{}
	ok   bool
}

// examine looks whether the bucket is there and may be read, and then whether the store is fit.
func (l *Log) examine(ctx context.Context, s site, probes string) error {
	_, err := l.Root(ctx)
	var corrupt *log.CorruptError
	switch {
	case err == nil, errors.Is(err, log.ErrNoRoot), errors.As(err, &corrupt):
	case kindOf(err) == noBucket:
		return fmt.Errorf("there is no bucket %q at %s: make it first, as in: aws s3api create-bucket --bucket %s", s.bucket, s, s.bucket)
	default:
		return err
	}
	proven.Lock()
	key := s.bucket + " at " + s.String()
	b := proven.buckets[key]
	if b == nil {
		b = &provenBucket{busy: make(chan struct{}, 1)}
		proven.buckets[key] = b
	}
	proven.Unlock()
	select {
	case b.busy <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-b.busy }()
	if b.ok {
		return nil
	}
	err = l.probe(ctx, probes+log.NewID().String()+"/")
	switch {
	case err == nil:
		b.ok = true
		return nil
	case kindOf(err) == denied:
		// What only reads needs no more than it may.
		l.readOnly = err
		l.logger.Warn("the bucket cannot be written to with these credentials; the database can only be read", slog.Any("error", err))
		return nil
	}
	return err
}

// probe finds out whether the store holds both conditions, also when several write at once: some check first and write then. Its keys lie
// under prefix.
//
//  1. probers create one object, each with other bytes, and one request creates a root, which is read
//  2. the object must be one of theirs, the listing must show it and the root; probers replace the root they know; a write under
//     the ETag of an older root, one where nothing is, and one more create, must all be refused
//  3. the root must be the winner's
func (l *Log) probe(ctx context.Context, prefix string) (err error) {
	object, root, nowhere := prefix+"object", prefix+"root", prefix+"nowhere"
	defer func() {
		if kindOf(err) != denied { // nothing was written then
			l.clean(ctx, object, root, nowhere)
		}
	}()

	var won winner
	var rootTag string
	err = together(
		func() error { return won.race(ctx, l.data, object, absent) },
		func() (err error) {
			if rootTag, err = probePut(ctx, l.control, root, "a root", absent); err != nil {
				return err
			}
			// Something in between may answer from memory what is read a second time, and fences read the root again and again.
			_, _, err = get(ctx, l.control, root, 1<<10)
			if err != nil && kindOf(err) == missing {
				err = fmt.Errorf("%w: a GET does not show what a PUT has just written", ErrUnfit)
			}
			return err
		},
	)
	if err == nil {
		err = won.verdict("If-None-Match", "create one object")
	}
	if err != nil {
		return err
	}

	var swapped winner
	listed := map[string]bool{}
	err = together(
		func() error {
			return mustFail(ctx, l.data, object, absent, "If-None-Match: an object was created where one was")
		},
		func() error {
			return mustFail(ctx, l.data, nowhere, condition(rootTag), "If-Match: an object was replaced where none was")
		},
		func() error { return won.isAt(ctx, l.data, object) },
		func() error { return swapped.race(ctx, l.control, root, condition(rootTag)) },
		func() error {
			return asking(ctx, func() error {
				for e, err := range l.data.list(ctx, prefix, "") {
					if err != nil {
						return err
					}
					listed[e.key] = true
				}
				return ctx.Err()
			})
		},
	)
	switch {
	case err != nil:
		return err
	case !listed[object] || !listed[root]:
		return fmt.Errorf("%w: a LIST does not show what a PUT has just written", ErrUnfit)
	}
	if err := swapped.verdict("If-Match", "replace one object"); err != nil {
		return err
	}
	return together(
		func() error {
			return mustFail(ctx, l.control, root, condition(rootTag), "If-Match: an object was replaced that was not the one named")
		},
		func() error { return swapped.isAt(ctx, l.control, root) },
	)
}

// together runs fs beside each other and returns the first error, in their order.
func together(fs ...func() error) error {
	errs := make([]error, len(fs))
	var wg sync.WaitGroup
	for i, f := range fs {
		wg.Go(func() { errs[i] = f() })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// probePut writes a text under a condition, again where the store asks for it. The error of a put that was lost leaves open what became of it.
func probePut(ctx context.Context, st store, key, text string, when condition) (etag string, err error) {
	for try := 0; ; try++ {
		etag, err = st.put(ctx, key, []byte(text), sha256.Sum256([]byte(text)), when)
		if k := kindOf(err); err == nil || k != again && k != unsent || try+1 == tries || pause(ctx, try) != nil {
			return etag, err
		}
	}
}

// mustFail writes where the condition does not hold.
func mustFail(ctx context.Context, st store, key string, when condition, ignored string) error {
	_, err := probePut(ctx, st, key, "must not be written", when)
	switch k := kindOf(err); {
	case err == nil:
		return fmt.Errorf("%w: it ignored %s", ErrUnfit, ignored)
	case k == unmet, k == missing && when != absent:
		return nil
	case k == refused:
		return fmt.Errorf("%w: it does not take conditions: %w", ErrUnfit, err)
	default:
		return err
	}
}

// winner is what became of a race.
type winner struct {
	mu    sync.Mutex
	texts []string // of those that were told they had won
	all   []string
	lost  error // of a put without an answer: it may have won
}

// race lets all probers put at once.
func (w *winner) race(ctx context.Context, st store, key string, when condition) error {
	var racers []func() error
	for i := range probers {
		text := fmt.Sprintf("prober %d", i)
		w.all = append(w.all, text)
		racers = append(racers, func() error {
			_, err := probePut(ctx, st, key, text, when)
			w.mu.Lock()
			defer w.mu.Unlock()
			switch k := kindOf(err); {
			case err == nil:
				w.texts = append(w.texts, text)
			case k == lost:
				w.lost = err
			case k == refused:
				return fmt.Errorf("%w: it does not take conditions: %w", ErrUnfit, err)
			case k != unmet && k != again:
				return err
			}
			return nil
		})
	}
	return together(racers...)
}

// verdict says whether the race had one winner.
func (w *winner) verdict(header, doing string) error {
	switch {
	case len(w.texts) > 1:
		return fmt.Errorf("%w: it does not hold %s: %d of %d writers at once were told that they alone had come to %s", ErrUnfit, header, len(w.texts), probers, doing)
	case len(w.texts) == 0 && w.lost == nil:
		return fmt.Errorf("%w: of %d writers at once that wanted to %s under %s none could", ErrUnfit, probers, doing, header)
	}
	return nil
}

// isAt says whether what is stored is the winner's.
func (w *winner) isAt(ctx context.Context, st store, key string) error {
	b, _, err := get(ctx, st, key, 1<<10)
	switch {
	case err == nil, errors.Is(err, errTooLarge):
	case kindOf(err) == missing && len(w.texts) == 0:
		return w.lost
	case kindOf(err) == missing:
		return fmt.Errorf("%w: a GET does not show what a PUT has just written", ErrUnfit)
	default:
		return err
	}
	want := w.texts
	if w.lost != nil {
		want = w.all
	}
	if !slices.Contains(want, string(b)) {
		return fmt.Errorf("%w: what it holds is not what the one writer wrote that had won", ErrUnfit)
	}
	return nil
}

// clean puts away what a probe wrote.
func (l *Log) clean(ctx context.Context, keys ...string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
	defer cancel()
	if err := asking(ctx, func() error { return l.data.remove(ctx, keys) }); err != nil {
		l.logger.Warn("what a probe wrote could not be removed", slog.String("key", keys[0]), slog.Any("error", err))
	}
}

package s3

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/steledb/stele/log"
)

// The clients.
const (
	AWS   = "aws"   // aws-sdk-go-v2
	MinIO = "minio" // minio-go
)

const (
	defaultClient = MinIO
	defaultDepth  = 4
	maxDepth      = 256

	// How many idle connections are kept: for appends, fences and reads, and for the root.
	dataConns    = 128
	controlConns = 4
)

// Options say where a database is.
type Options struct {
	Bucket string // must be there
	Prefix string // of every key; "" is none. No slash at its ends.
	Name   string // the database, [a-z0-9][a-z0-9._-]{0,62}; "" is "main"
	// Endpoint of a store that is not AWS, as in http://127.0.0.1:9000: a scheme, a host and a port. Keys then go into the path, and so does the
	// bucket. "" is what AWS_ENDPOINT_URL_S3 says, or AWS.
	Endpoint string
	Region   string // "" is what the environment says; with an endpoint and nothing there, us-east-1
	Client   string // AWS or MinIO; "" is the one that measured better
	Depth    int    // appends in flight, up to 256; 0 is 4
	Logger   *slog.Logger
}

// Log is a handle on one database in a bucket. It may be used by any number of goroutines.
type Log struct {
	info   log.Info
	where  string // for errors about objects
	base   string // of every key of this database
	logger *slog.Logger

	// Two pools of connections, so that what keeps a lease does not wait behind appends.
	data, control store
	closeIdle     func()
	// readOnly is why this handle cannot write: it may not. Nil if it can.
	readOnly error

	life context.Context
	die  context.CancelCauseFunc

	mu     sync.Mutex
	closed bool
	calls  int

	root rootCache
}

var _ log.Log = (*Log)(nil)

// Open opens a handle on a database, which need not exist: that is for its root to say. It finds out whether the store keeps what
// this backend needs of it, once in a process for each bucket, and fails if not.
func Open(ctx context.Context, o Options) (*Log, error) {
	l, err := open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("s3: %w", err)
	}
	return l, nil
}

func open(ctx context.Context, o Options) (*Log, error) {
	o.Name = cmp.Or(o.Name, "main")
	o.Client = cmp.Or(o.Client, defaultClient)
	o.Depth = cmp.Or(o.Depth, defaultDepth)
	if err := errors.Join(checkBucket(o.Bucket), checkPrefix(o.Prefix), log.CheckName(o.Name)); err != nil {
		return nil, err
	}
	if o.Region != "" {
		if err := CheckRegion(o.Region); err != nil {
			return nil, err
		}
	}
	if o.Depth < 1 || o.Depth > maxDepth {
		return nil, fmt.Errorf("a depth of %d is not from 1 to %d", o.Depth, maxDepth)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s, err := findSite(ctx, o)
	if err != nil {
		return nil, err
	}
	l := &Log{base: below(o.Prefix, o.Name), logger: o.Logger}
	l.where = "s3://" + o.Bucket + "/" + l.base[:len(l.base)-1]
	l.info = log.Info{
		Backend:    "s3",
		Location:   l.where + " at " + s.String(),
		Durability: "the store's: a PUT that was answered",
		Durable:    true,
		Depth:      o.Depth,
		Compress:   true,
	}
	var closeData, closeControl func()
	if l.data, closeData, err = s.open(o.Client, dataConns); err != nil {
		return nil, err
	}
	if l.control, closeControl, err = s.open(o.Client, controlConns); err != nil {
		return nil, err
	}
	l.closeIdle = func() { closeData(); closeControl() }
	l.life, l.die = context.WithCancelCause(context.Background())
	err = l.examine(ctx, s, below(o.Prefix, probeName))
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// Info describes the store.
func (l *Log) Info() log.Info { return l.info }

// usable says why a call cannot begin.
func (l *Log) usable(ctx context.Context) error {
	if l.life.Err() != nil {
		return log.ErrClosed
	}
	return ctx.Err()
}

// begin is how every call begins: its context ends when the handle is closed. end must be called.
func (l *Log) begin(ctx context.Context) (_ context.Context, end func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, nil, log.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	l.calls++
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.life, func() { cancel(log.ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		l.mu.Lock()
		l.calls--
		last := l.closed && l.calls == 0
		l.mu.Unlock()
		if last {
			l.closeIdle()
		}
	}, nil
}

// beginWrite is begin for what writes; its errors say that nothing was written.
func (l *Log) beginWrite(ctx context.Context) (_ context.Context, end func(), err error) {
	if ctx, end, err = l.begin(ctx); err != nil {
		return nil, nil, log.WithOutcome(log.NotWritten, err)
	}
	if l.readOnly != nil {
		end()
		return nil, nil, log.WithOutcome(log.Rejected, fmt.Errorf("this handle only reads: %w", l.readOnly))
	}
	return ctx, end, nil
}

// Close ends the handle: calls under way end, and connections are closed.
func (l *Log) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.die(log.ErrClosed)
	l.closeIdle() // the last call that ends does so again
	return nil
}

// Lock does nothing: what proves ownership is the root.
func (l *Log) Lock(ctx context.Context, wait bool) (unlock func() error, err error) {
	if err := l.usable(ctx); err != nil {
		return nil, err
	}
	return func() error { return nil }, nil
}

// Adopt does nothing: a PUT is all or nothing.
func (l *Log) Adopt(ctx context.Context, inst log.ID, head log.Pos, unfenced []*log.Object) (repairs []string, err error) {
	return nil, l.usable(ctx)
}

const (
	// tries is how often one call asks the store before it leaves the rest to its caller.
	tries = 4
	// A pause is between half of it and all of it, and doubles.
	firstPause = 20 * time.Millisecond
	longPause  = time.Second
)

// pause waits before try+1, or until ctx ends.
func pause(ctx context.Context, try int) error {
	d := min(firstPause<<try, longPause)
	t := time.NewTimer(d/2 + rand.N(d/2))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// asking calls f, which reads, until it succeeds or fails in a way that another try will not change.
func asking(ctx context.Context, f func() error) error {
	for try := 0; ; try++ {
		err := f()
		if err == nil || !kindOf(err).retriable() || try+1 == tries || ctx.Err() != nil || pause(ctx, try) != nil {
			return err
		}
	}
}

// get reads what is at a key through st.
func get(ctx context.Context, st store, key string, limit int) (b []byte, etag string, err error) {
	err = asking(ctx, func() (err error) { b, etag, err = st.get(ctx, key, limit); return err })
	return b, etag, err
}

package transactor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/steledb/stele/db"
	"github.com/steledb/stele/log"
)

// Reader is a database opened read-only: it takes no lease, deposes nobody, and shows what is proven to be in the log of every
// owner to come (L8). All methods may be called concurrently.
type Reader struct {
	log      log.Log
	info     log.Info
	witness  *log.Witness
	instance atomic.Pointer[log.ID]
	value    atomic.Pointer[db.DB]
	marks    marks
	closed   atomic.Bool

	mu     sync.Mutex // of the reading
	reader *log.Reader
	replay *replay
	counts ReaderStats
}

// ReaderStats counts what a reader has done since it was opened.
type ReaderStats struct {
	Syncs        uint64 // that succeeded
	Objects      uint64 // read and proven
	Transactions uint64 // in them
}

// OpenReadOnly opens the database behind l for reading, at what is proven now. If nothing is proven yet, because its first owner
// is only just beginning, it waits until ctx ends. ErrNoDatabase: there is none. l belongs to the reader from the call on: it is closed
// by Close, or before OpenReadOnly returns an error. ctx bounds the opening only.
func OpenReadOnly(ctx context.Context, l log.Log) (*Reader, error) {
	r := &Reader{log: l, info: l.Info(), witness: new(log.Witness), replay: &replay{stage: db.NewStage(db.Empty())}}
	r.reader = log.NewReader(l, log.ReaderOptions{Witness: r.witness})
	empty := db.Empty()
	r.value.Store(&empty)
	for try := 0; ; try++ {
		d, err := r.Sync(ctx)
		if err == nil && d.BasisT() == 0 {
			err = pause(ctx, backoff(try))
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("opening %s read-only: %w", r.info.Location, err), r.Close(ctx))
		}
		if d.BasisT() > 0 {
			return r, nil
		}
	}
}

// DB is the value as of the last Sync. It never waits.
func (r *Reader) DB() db.DB { return *r.value.Load() }

// Sync reads the root and what is new in the log, and returns a value that holds everything acknowledged before the call — unless
// a new owner has taken over and not yet begun: then the value is what was proven before. The value is never older than one returned
// before. log.ErrRolledBack and log.ErrCorrupt are lasting; DB goes on to show what was proven.
func (r *Reader) Sync(ctx context.Context) (db.DB, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed.Load() {
		return db.DB{}, ErrClosed
	}
	st, err := r.reader.Sync(ctx, func(o *log.Object) error {
		if err := r.replay.object(o); err != nil {
			return err
		}
		r.marks.passed(log.HeadOf(o))
		r.counts.Objects++
		r.counts.Transactions += uint64(o.Count)
		return nil
	})
	value := r.replay.stage.Snapshot() // what was handed out is proven, also before an error
	r.value.Store(&value)
	if err != nil {
		return db.DB{}, err
	}
	r.instance.Store(&st.Root.Instance)
	r.counts.Syncs++
	return value, nil
}

// Info describes the store.
func (r *Reader) Info() log.Info { return r.info }

// Stats counts what was read since the reader was opened.
func (r *Reader) Stats() ReaderStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts
}

// Close ends the reader and closes the store. Values that it has shown stay good. A second Close does nothing.
func (r *Reader) Close(context.Context) error {
	if r.closed.Swap(true) {
		return nil
	}
	err := r.log.Close()
	r.mu.Lock() // a Sync under way has ended
	defer r.mu.Unlock()
	r.replay.stage.Wait()
	return err
}

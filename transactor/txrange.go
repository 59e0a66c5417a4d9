package transactor

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sort"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/log"
)

// TxRange yields the committed transactions with from <= t < to, in order, from the log; to = 0 means up to what DB shows
// now. It reads what the range spans and little more, in bounded memory, and disturbs nobody. An error ends it; so does a store that does not
// answer in time. It may be used again, and then begins again.
func (x *Transactor) TxRange(ctx context.Context, from, to uint64) iter.Seq2[*datom.Tx, error] {
	return txRange(ctx, x.log, x.witness, x.term.Load().check.Instance, &x.marks, x.opt.StoreTimeout, x.DB().BasisT(), from, to)
}

// TxRange yields the transactions with from <= t < to, in order, from the log; to = 0 means up to what DB shows now. See
// [Transactor.TxRange].
func (r *Reader) TxRange(ctx context.Context, from, to uint64) iter.Seq2[*datom.Tx, error] {
	return txRange(ctx, r.log, r.witness, *r.instance.Load(), &r.marks, r.patience, r.DB().BasisT(), from, to)
}

// rangeBuffer is how many bytes of objects are read ahead of a range's consumer.
const rangeBuffer = 1 << 20

func txRange(ctx context.Context, l log.Log, w *log.Witness, inst log.ID, m *marks, patience time.Duration, basis, from, to uint64) iter.Seq2[*datom.Tx, error] {
	if to == 0 || to > basis+1 {
		to = basis + 1
	}
	first := max(from, 1)
	return func(yield func(*datom.Tx, error) bool) {
		from := first // each time anew
		ctx, v := newVigil(ctx, patience)
		defer v.stop()
		var txs []*datom.Tx
		stopped := false
		each := func(o *log.Object) (err error) {
			if o.Kind == log.KindBatch && o.LastT() < from {
				return nil
			}
			if txs, err = o.AppendTxs(txs[:0]); err != nil {
				return err
			}
			for _, t := range txs {
				if t.T < from || t.T >= to {
					continue
				}
				v.rest() // the consumer may take its time
				if !yield(t, nil) {
					stopped = true
					return errEnough
				}
				v.alive()
				from = t.T + 1
			}
			if from >= to {
				return errEnough
			}
			return nil
		}
		r := log.NewReader(lively{l, v.alive}, log.ReaderOptions{From: m.before(from), Instance: inst, Witness: w, Buffer: rangeBuffer})
		for try := 0; from < to && !stopped; try++ {
			st, err := r.Sync(ctx, each)
			switch {
			case errors.Is(err, errEnough):
			case err != nil:
				yield(nil, timedOut(ctx, err))
				return
			case !st.Waiting && from < to:
				yield(nil, fmt.Errorf("%w: t = %d to %d are not in it", log.ErrRolledBack, from, to-1))
				return
			case st.Waiting: // a new owner has taken over and not yet begun: what is in the log is known once it has
				v.rest()
				if err := pause(ctx, backoff(try)); err != nil {
					yield(nil, err)
					return
				}
				v.alive()
			}
		}
	}
}

var errEnough = errors.New("enough")

// marks remembers places on the chain, one every so many transactions or objects, so that a range is found without reading
// what lies before it.
type marks struct {
	mu      sync.Mutex
	heads   []log.Head
	skipped int
	bytes   atomic.Int64 // of heads
}

// markEvery is how many objects lie between two marks.
const markEvery = 256

// reset forgets everything.
func (m *marks) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heads, m.skipped = nil, 0
	m.bytes.Store(0)
}

// passed is told of every object that is proven to be on the chain, in order.
func (m *marks) passed(h log.Head) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.skipped++; m.skipped >= markEvery {
		m.skipped = 0
		m.heads = append(m.heads, h)
		m.bytes.Store(int64(cap(m.heads)) * int64(unsafe.Sizeof(h)))
	}
}

// before is the last mark before transaction t, or the beginning.
func (m *marks) before(t uint64) log.Head {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := sort.Search(len(m.heads), func(i int) bool { return m.heads[i].LastT >= t })
	if i == 0 {
		return log.Head{}
	}
	return m.heads[i-1]
}

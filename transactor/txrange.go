package transactor

import (
	"context"
	"errors"
	"iter"
	"sort"
	"sync"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/log"
)

// TxRange yields the committed transactions with from <= t < to, in order, from the log; to = 0 means up to what DB shows
// now. It reads what the range spans and little more, in bounded memory, and disturbs nobody. An error ends it.
func (x *Transactor) TxRange(ctx context.Context, from, to uint64) iter.Seq2[*datom.Tx, error] {
	return txRange(ctx, x.log, &x.marks, x.DB().BasisT(), from, to)
}

// TxRange yields the transactions with from <= t < to, in order, from the log; to = 0 means up to what DB shows now. See
// [Transactor.TxRange].
func (r *Reader) TxRange(ctx context.Context, from, to uint64) iter.Seq2[*datom.Tx, error] {
	return txRange(ctx, r.log, &r.marks, r.DB().BasisT(), from, to)
}

// rangeBuffer is how many bytes of objects are read ahead of a range's consumer.
const rangeBuffer = 1 << 20

func txRange(ctx context.Context, l log.Log, m *marks, basis, from, to uint64) iter.Seq2[*datom.Tx, error] {
	if to == 0 || to > basis+1 {
		to = basis + 1
	}
	return func(yield func(*datom.Tx, error) bool) {
		if from >= to {
			return
		}
		stop := errors.New("enough")
		var txs []*datom.Tx
		r := log.NewReader(l, log.ReaderOptions{From: m.before(from), Buffer: rangeBuffer})
		_, err := r.Sync(ctx, func(o *log.Object) (err error) {
			if o.Kind == log.KindBatch && o.LastT() < from {
				return nil
			}
			if o.FirstT >= to {
				return stop
			}
			if txs, err = o.AppendTxs(txs[:0]); err != nil {
				return err
			}
			for _, t := range txs {
				if t.T >= from && t.T < to && !yield(t, nil) {
					return stop
				}
			}
			if o.LastT()+1 >= to {
				return stop
			}
			return nil
		})
		if err != nil && !errors.Is(err, stop) {
			yield(nil, err)
		}
	}
}

// marks remembers places on the chain, one every so many transactions or objects, so that a range is found without reading
// what lies before it.
type marks struct {
	mu      sync.Mutex
	heads   []log.Head
	skipped int
}

// markEvery is how many objects lie between two marks.
const markEvery = 256

// passed is told of every object that is proven to be on the chain, in order.
func (m *marks) passed(h log.Head) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.skipped++; m.skipped >= markEvery {
		m.skipped = 0
		m.heads = append(m.heads, h)
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

package transactor

import (
	"context"

	"github.com/steledb/stele/datom"
)

// repeats is how many reports of originals are read from the log at once.
const repeats = 8

// repeat answers a resubmission with its original's report (P8), which is read from the log, apart from the pipeline. What the resubmission was
// judged against is durable and fenced, so the original is in the log.
func (x *Transactor) repeat(f *Future) {
	p := f.prep
	x.work.Add(1)
	go func() {
		defer x.work.Done()
		var delta []datom.Datom
		err := x.turn(func() error {
			return x.retry(x.ctx, func(ctx context.Context) error {
				for t, err := range x.TxRange(ctx, p.Original, p.Original+1) {
					if err != nil {
						return err
					}
					delta = t.Datoms
				}
				return nil
			})
		})
		x.queue.answered(f.share)
		if err != nil {
			f.answer(nil, &RepeatError{T: p.Original, Err: err})
			return
		}
		signal(x.reported)
		f.answer(p.Repeat(x.DB(), delta), nil) // not the value from before, which would be kept while others are read
	}()
}

// turn runs f when it is its turn to read, or fails once x is out of time.
func (x *Transactor) turn(f func() error) error {
	select {
	case x.repeating <- struct{}{}:
		defer func() { <-x.repeating }()
		return f()
	case <-x.ctx.Done():
		return context.Cause(x.ctx)
	}
}

package transactor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
	"github.com/steledb/stele/log"
	"github.com/steledb/stele/tx"
)

// Open takes over the database behind l and returns its transactor, which works until Close. It creates a missing database
// unless Options.MustExist, waits until another owner has released its lease or let it run out (or, on a store with a lock, has
// ended) as long as ctx lasts, unless Options.NoWait or TakeOver, always takes a new epoch, and recovers by replaying the log. The lease is renewed
// from the moment it is taken. ctx bounds the opening only.
//
// l belongs to the transactor from the call on: it is closed by Close, or before Open returns an error.
func Open(ctx context.Context, l log.Log, opt Options) (*Transactor, error) {
	x, e, err := open(ctx, l, opt)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	go x.run(e)
	return x, nil
}

func open(ctx context.Context, l log.Log, opt Options) (_ *Transactor, _ *epoch, err error) {
	if err := opt.Validate(); err != nil {
		return nil, nil, fmt.Errorf("options: %w", err)
	}
	info := l.Info()
	opt = opt.withDefaults(info.Depth)
	x := &Transactor{
		opt: opt, log: l, info: info,
		stats:   newRecorder(),
		witness: new(log.Witness),
		ended:   make(chan struct{}),

		repeating: make(chan struct{}, repeats),
		reported:  make(chan struct{}, 1),
	}
	x.account.budget, x.account.window, x.account.marks = int64(opt.MemoryBudget), &x.feed.bytes, &x.marks.bytes
	x.queue = newQueue(opt.QueueTransactions, opt.QueueBytes, &x.account)
	x.ctx, x.cancel = context.WithCancelCause(context.Background())

	unlock, err := l.Lock(ctx, false)
	switch {
	case errors.Is(err, log.ErrOwned) && opt.TakeOver:
		err = fmt.Errorf("%w; here the lock decides, and TakeOver cannot depose its holder: stop it", err)
	case errors.Is(err, log.ErrOwned) && !opt.NoWait:
		opt.Logger.Info("waiting for the database's owner", "store", info.Location, "owner", err)
		unlock, err = l.Lock(ctx, true)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("opening %s: %w", info.Location, err)
	}
	x.unlock = unlock
	defer func() {
		if err != nil {
			leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			x.vacate(leaving, err)
			cancel()
			x.cancel(err)
			err = errors.Join(fmt.Errorf("opening %s: %w", info.Location, err), unlock())
		}
	}()

	if err := x.examine(ctx); err != nil {
		return nil, nil, err
	}
	var root *log.Root
	var head log.Head
	var value db.DB
	var r *replay
	for try := 0; ; try++ {
		root, err = x.acquire(ctx, x.vacancy)
		if err != nil {
			return nil, nil, err
		}
		r = &replay{stage: db.NewStage(db.Empty())}
		x.marks.reset()
		head, err = x.begin(ctx, root, func(o *log.Object) error {
			x.marks.passed(log.HeadOf(o))
			return r.object(o)
		})
		if err == nil {
			if value = r.stage.Snapshot(); value.BasisT() == 0 {
				if head, value, err = x.bootstrap(ctx, root, head, r.stage); err != nil {
					err = fmt.Errorf("creating the database: %w", err)
				}
			}
		}
		if err == nil {
			break
		}
		r.stage.Wait()
		if errors.Is(err, log.ErrNotOwner) && !opt.TakeOver {
			continue // somebody was faster: wait again
		}
		if mustEnd(err) || final(err) || try >= opt.Retries || pause(ctx, backoff(try)) != nil {
			return nil, nil, err
		}
	}
	r.stage.Trim()
	x.value.Store(&value)
	x.fenced.Store(value.BasisT())
	x.feed.begin(value.BasisT())
	x.install(head)
	e := x.newEpoch(root, head, value, r.stage)
	x.enter(e)
	return x, e, nil
}

// examine creates a missing database, and looks at what can be looked at before anybody is deposed.
func (x *Transactor) examine(ctx context.Context) error {
	var root *log.Root
	read := func(ctx context.Context) (err error) { root, err = x.witness.RootToOpen(ctx, x.log); return err }
	err := x.retry(ctx, read)
	if errors.Is(err, log.ErrNoRoot) && !x.opt.MustExist {
		first := log.NewRoot()
		err = x.retry(ctx, func(ctx context.Context) error { return x.log.CompareAndSwap(ctx, nil, first) })
		if err != nil && !errors.Is(err, log.ErrConflict) { // whoever lost reads the winner's
			return fmt.Errorf("creating the database: %w", err)
		}
		err = x.retry(ctx, read)
	}
	if err != nil {
		return err
	}
	if root.Format > log.FormatVersion {
		return fmt.Errorf("the log is written in format %d; this version of Stele knows formats up to %d: use a newer one", root.Format, log.FormatVersion)
	}
	return nil
}

// bootstrap commits t = 1, which installs everything built in.
func (x *Transactor) bootstrap(ctx context.Context, root *log.Root, head log.Head, stage *db.Stage) (log.Head, db.DB, error) {
	first := db.Bootstrap()
	o, err := log.Encode(x.header(root, log.KindBatch, head), []*datom.Tx{first}, x.info.Compress)
	if err != nil {
		return head, db.DB{}, err
	}
	if err := x.put(ctx, o, checkOf(root)); err != nil {
		return head, db.DB{}, err
	}
	stage.Apply(first)
	head, err = head.Follow(o)
	return head, stage.Snapshot(), err
}

// env is what a transaction is prepared in, now.
func (x *Transactor) env(ctx context.Context) tx.Env {
	return tx.Env{
		Context:     ctx,
		Timeout:     x.opt.FunctionTimeout,
		Now:         x.opt.Clock().UnixMilli(),
		Functions:   x.opt.Functions,
		AttrPreds:   x.opt.Predicates.Attr,
		EntityPreds: x.opt.Predicates.Entity,
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/steledb/stele/config"
	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
	"github.com/steledb/stele/log"
	"github.com/steledb/stele/tx"
)

// floor measures the same level with less of the library: the log alone, and everything on one goroutine. Each has a
// database of its own in the same store, which is deleted afterwards. nil, if ctx ends.
func (b *bench) floor(ctx context.Context, clients int, batchMean float64) (*floorResult, error) {
	lim := b.limits()
	size := max(int(math.Round(batchMean)), 1)
	f := &floorResult{}

	what := plural(clients, "client") + ", the log alone"
	b.p.step("%s: measuring", what)
	err := b.withLog(ctx, func(o *ownedLog) error {
		l := newBare(o, b.w, size, lim.depth)
		lp := runLoop(ctx, l, len(b.loops), clients, b.s.limit(), b.p, what, nil)
		l.stop()
		h, err := lp.latencies()
		if err != nil {
			return err
		}
		f.BareTxPerSec, f.BareP50 = float64(lp.acknowledged())/lp.seconds, micros(h.ValueAtQuantile(50))
		_, err = lp.failed()
		return err
	})
	if err != nil || ctx.Err() != nil {
		return nil, err
	}

	what = plural(clients, "client") + ", on one goroutine"
	b.p.step("%s: measuring", what)
	err = b.withLog(ctx, func(o *ownedLog) error {
		n, took, err := b.inline(ctx, o, min(lim.batch, clients))
		if err != nil || n == 0 {
			return err
		}
		sum := time.Duration(0)
		for _, d := range took {
			sum += d
		}
		slices.Sort(took)
		f.InlineTxPerSec, f.InlineP50 = float64(n)/sum.Seconds(), inMicros(took[len(took)/2])
		return nil
	})
	if err != nil || ctx.Err() != nil {
		return nil, err
	}
	return f, nil
}

// ownedLog is a log under one epoch of ours, with nothing but its start.
type ownedLog struct {
	log.Log
	root *log.Root
	head log.Pos
}

func (o *ownedLog) check() log.Check {
	return log.Check{Instance: o.root.Instance, Epoch: o.root.Epoch, Claim: o.root.Claim}
}

// next makes the next object of the chain.
func (o *ownedLog) next(txs []*datom.Tx) (*log.Object, error) {
	obj, err := log.Encode(log.Header{
		Lineage: o.root.Lineage, Claim: o.root.Claim, Epoch: o.root.Epoch, Kind: log.KindBatch, FirstT: txs[0].T, Prev: o.head,
	}, txs, o.Info().Compress)
	if err == nil {
		o.head = obj.Pos()
	}
	return obj, err
}

// withLog makes a database of its own beside the bench's, hands its log to f, and deletes it.
func (b *bench) withLog(ctx context.Context, f func(*ownedLog) error) (err error) {
	ctx = context.WithoutCancel(ctx)
	url, err := config.WithDB(b.url, fmt.Sprintf("floor-%08x", b.w.run))
	if err != nil {
		return err
	}
	l, err := config.OpenLog(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	unlock, err := l.Lock(ctx, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()

	created, err := log.Create(ctx, l)
	if err != nil {
		return err
	}
	o := &ownedLog{Log: l, root: created.Acquire(log.NewID(), "tx_throughput")}
	if err := l.CompareAndSwap(ctx, created, o.root); err != nil {
		return err
	}
	defer func() {
		tomb := o.root.Tombstone()
		if e := l.CompareAndSwap(ctx, o.root, tomb); e != nil {
			err = errors.Join(err, e)
			return
		}
		err = errors.Join(err, l.Delete(ctx, o.root.Instance, log.MaxKey))
	}()
	if _, err := l.Adopt(ctx, o.root.Instance, log.Pos{}, nil); err != nil {
		return err
	}
	start, err := log.Encode(log.Header{
		Lineage: o.root.Lineage, Claim: o.root.Claim, Epoch: o.root.Epoch, Kind: log.KindStart, FirstT: 1,
	}, nil, false)
	if err != nil {
		return err
	}
	if err := l.Append(ctx, o.root.Instance, start); err != nil {
		return err
	}
	o.head = start.Pos()
	return f(o)
}

// bare is the lane through the log alone: clients hand over datoms as they are, one goroutine puts them into objects of size
// transactions, and each object is appended and verified, at most depth of them at a time. With nothing in flight an object is closed as
// soon as nobody waits; otherwise it waits until it is full.
type bare struct {
	w     *workload
	in    chan *bareClient
	quit  chan struct{}
	ended chan struct{}
}

type bareClient struct {
	l      *bare
	m      *maker
	tx     datom.Tx
	answer chan error
}

func newBare(o *ownedLog, w *workload, size, depth int) *bare {
	l := &bare{w: w, in: make(chan *bareClient, maxClients), quit: make(chan struct{}), ended: make(chan struct{})}
	go l.run(o, size, depth)
	return l
}

// stop ends the lane, once no client is in it any more.
func (l *bare) stop() {
	close(l.quit)
	<-l.ended
}

func (l *bare) client(level, i int) clientLane {
	return &bareClient{l: l, m: l.w.maker(level, i), answer: make(chan error, 1)}
}

func (c *bareClient) commit(_ context.Context, n uint64) (t uint64, fatal bool, err error) {
	c.m.datoms(&c.tx, n)
	c.l.in <- c
	err = <-c.answer
	return c.tx.T, true, err
}

// datoms are what transaction n comes to, with made-up ids.
func (m *maker) datoms(x *datom.Tx, n uint64) {
	w := m.w
	x.Datoms = x.Datoms[:0]
	x.Instant = time.Now().UnixMilli()
	x.Next = datom.NextIDs{Part: 64, Seq: datom.FirstSeq + n&(1<<40-1)}
	add := func(e datom.ID, a datom.ID, v datom.Value, added bool) {
		x.Datoms = append(x.Datoms, datom.Datom{E: e, A: a, V: v, Added: added})
	}
	const attr datom.ID = 3000
	if w.shape == shapeUpdate {
		e := m.old()
		for i := range w.texts {
			add(e, attr+datom.ID(i), datom.String(w.text(n, i)), false)
			add(e, attr+datom.ID(i), datom.String(w.text(n, i)), true)
		}
	} else {
		e := datom.MakeID(datom.PartUser, datom.FirstSeq+n&(1<<40-1))
		add(e, attr, datom.String(w.key(n)), true)
		for i := range w.texts {
			add(e, attr+1+datom.ID(i), datom.String(w.text(n, i)), true)
		}
	}
	add(datom.TxID(0), db.AttrTxInstant, datom.InstantMilli(x.Instant), true)
}

// renumber gives a transaction its t.
func renumber(x *datom.Tx, t uint64) {
	x.T = t
	for i := range x.Datoms {
		x.Datoms[i].T = t
	}
	x.Datoms[len(x.Datoms)-1].E = datom.TxID(t)
}

func (l *bare) run(o *ownedLog, size, depth int) {
	defer close(l.ended)
	flying := 0
	landed := make(chan struct{}, depth)
	t := uint64(0)
	txs := make([]*datom.Tx, 0, size)
	check := o.check()
	batch := make([]*bareClient, 0, size)
	for {
		if len(batch) == 0 {
			select {
			case c := <-l.in:
				batch = append(batch, c)
			case <-landed:
				flying--
			case <-l.quit:
				return
			}
			continue
		}
		if len(batch) < size {
			select {
			case c := <-l.in:
				batch = append(batch, c)
				continue
			default:
			}
			if flying > 0 {
				select {
				case c := <-l.in:
					batch = append(batch, c)
				case <-landed:
					flying--
				}
				continue
			}
		}
		if flying == depth {
			<-landed
			flying--
		}
		txs = txs[:0]
		for _, c := range batch {
			t++
			renumber(&c.tx, t)
			txs = append(txs, &c.tx)
		}
		obj, err := o.next(txs)
		if err != nil {
			for _, c := range batch {
				c.answer <- err
			}
			batch = batch[:0]
			continue
		}
		flying++
		go func(clients []*bareClient) {
			appendErr, verifyErr := o.AppendVerify(context.Background(), obj, check)
			landed <- struct{}{}
			if appendErr == nil {
				appendErr = verifyErr
			}
			for _, c := range clients {
				c.answer <- appendErr
			}
		}(batch)
		batch = make([]*bareClient, 0, size)
	}
}

// inline commits batches of transactions on this goroutine, one after the other: compile, prepare, apply, publish, encode,
// append and verify. It returns how many transactions, and what each batch took.
func (b *bench) inline(ctx context.Context, o *ownedLog, batch int) (n int, took []time.Duration, err error) {
	value := b.x.DB() // what updates change is there
	if b.w.shape == shapeInsert {
		value = db.Empty()
	}
	stage := db.NewStage(value)
	defer stage.Wait()
	var prep tx.Preparer
	work := context.WithoutCancel(ctx)
	var txs []*datom.Tx
	prepare := func(data tx.Data) error {
		req, err := tx.Compile(stage.Schema(), data, tx.DefaultLimits)
		if err != nil {
			return err
		}
		p, err := prep.Prepare(stage, req, &tx.Env{Context: work, Now: time.Now().UnixMilli()})
		if err != nil {
			return err
		}
		stage.Apply(&p.Tx)
		txs = append(txs, &p.Tx)
		return nil
	}
	flush := func() error {
		value = stage.Snapshot()
		obj, err := o.next(txs)
		if err != nil {
			return err
		}
		txs = txs[:0]
		appendErr, verifyErr := o.AppendVerify(work, obj, o.check())
		return errors.Join(appendErr, verifyErr)
	}
	if b.w.shape == shapeInsert {
		first := db.Bootstrap()
		stage.Apply(first)
		txs = append(txs, first)
		for _, step := range []func() error{flush, func() error { return prepare(b.w.schema()) }, flush} {
			if err := step(); err != nil {
				return 0, nil, err
			}
		}
	}
	makers := make([]*maker, batch)
	for i := range makers {
		makers[i] = b.w.maker(len(b.loops), i)
	}
	lim := b.s.limit()
	for begun, seq := time.Now(), 0; ctx.Err() == nil; seq++ {
		if lim.transactions > 0 && n >= lim.transactions || lim.transactions == 0 && time.Since(begun) >= lim.duration {
			break
		}
		begin := time.Now()
		for i, m := range makers {
			if err := prepare(m.make(number(len(b.loops), i, seq))); err != nil {
				return n, took, err
			}
		}
		if err := flush(); err != nil {
			return n, took, err
		}
		n += batch
		took = append(took, time.Since(begin))
	}
	return n, took, nil
}

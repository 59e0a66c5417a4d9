package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"runtime"
	"strings"
	"time"
)

// sweep measures each level in turn and prints what it showed.
func sweep(ctx context.Context, s *settings, stdout io.Writer, p *progress) (err error) {
	storeURL, note := s.store, ""
	if storeURL == "" {
		var remove func() error
		if storeURL, note, remove, err = freshStore(); err != nil {
			return err
		}
		defer func() {
			if err != nil {
				p.note("the database was left in %s", storeURL)
				return
			}
			err = remove()
		}()
	}
	if s.delay > 0 {
		behind, stop, farErr := far(storeURL, s.delay)
		if farErr != nil {
			return farErr
		}
		defer func() { err = errors.Join(err, stop()) }()
		storeURL = behind
	}
	b, err := openBench(ctx, s, storeURL, p)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if s.preload > 0 {
		if n, err := b.preload(ctx, s.preload); err != nil {
			return err
		} else if n < s.preload {
			p.note("%s of %s entities were loaded", grouped(int64(n)), grouped(int64(s.preload)))
			return nil
		}
	}
	sync, err := b.diskTime(ctx)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("measuring the disk: %w", err)
	}
	t := &table{w: stdout, floor: s.floor, plain: s.floor && b.network()}
	if !s.json {
		p.done()
		b.conditions(stdout, note, sync)
	}
	emit := func(r *result) error {
		p.done()
		if s.json {
			return printJSON(stdout, r)
		}
		t.row(r)
		return nil
	}
	if err := b.rounds(ctx, sync, emit); err != nil {
		return err
	}
	if len(b.loops) == 0 {
		return nil
	}
	rep, err := b.reopen(ctx)
	if err != nil {
		return err
	}
	text := rep.String()
	if s.json {
		p.note("%s", text)
	} else {
		p.done()
		fmt.Fprintf(stdout, "\n%s\n", text)
	}
	return nil
}

// rounds measures all levels, once or several times in turn, and emits a result for each.
func (b *bench) rounds(ctx context.Context, sync time.Duration, emit func(*result) error) error {
	s := b.s
	byLevel := make([][]*result, len(s.levels))
	for round := range s.rounds {
		for i, clients := range s.levels {
			if ctx.Err() != nil {
				break
			}
			r, err := b.level(ctx, clients)
			if r == nil {
				return err
			}
			r.SyncTime = inMicros(sync)
			if s.floor && err == nil && ctx.Err() == nil {
				r.Floor, err = b.floor(ctx, clients, r.BatchMean)
			}
			if r.Floor != nil && b.network() && err == nil && ctx.Err() == nil {
				r.Floor.PlainTxPerSec, r.Floor.PlainP50, err = b.plainly(ctx, clients)
			}
			byLevel[i] = append(byLevel[i], r)
			if s.rounds == 1 || err != nil {
				err = errors.Join(err, emit(r))
			} else {
				b.p.note("round %d of %d, %s: %s tx/s, p50 %s", round+1, s.rounds, plural(clients, "client"), grouped(int64(r.TxPerSec)), span(r.P50))
			}
			if err != nil {
				return err
			}
		}
	}
	if s.rounds == 1 {
		return nil
	}
	for _, rs := range byLevel {
		if len(rs) == 0 {
			continue
		}
		if err := emit(medians(rs)); err != nil {
			return err
		}
	}
	return nil
}

// network reports whether the store is behind a network.
func (b *bench) network() bool { return b.info.Backend == "pg" || b.info.Backend == "s3" }

// diskTime is the disk's own time for a write and a sync, where the store is a directory.
func (b *bench) diskTime(ctx context.Context) (d time.Duration, err error) {
	if b.info.Backend != "fs" {
		return 0, nil
	}
	b.p.step("measuring the disk")
	return syncTime(ctx, b.info.Location, syncSize)
}

// conditions prints what a number means nothing without.
func (b *bench) conditions(w io.Writer, note string, sync time.Duration) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-12s%s\n", name, fmt.Sprintf(format, args...))
	}
	durable := "durable: " + b.info.Durability
	if !b.info.Durable {
		durable = "NOT DURABLE: a crash of the machine loses what was acknowledged"
	}
	if note != "" {
		durable += "; " + note
	}
	line("machine", "%s %s/%s, %d CPUs", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0))
	line("store", "%s (%s)", b.info.Location, durable)
	if sync > 0 {
		line("disk", "%s for a write of %d KiB and fdatasync, by itself", span(inMicros(sync)), syncSize>>10)
	}
	via := ""
	if b.s.delay > 0 {
		via = fmt.Sprintf(", through a proxy that adds %s each way", b.s.delay)
	}
	line("round trip", "%s for a fence, idle%s", span(inMicros(b.fence)), via)
	lim := b.limits()
	line("transactor", "batches of at most %d transactions and %s bytes, at most %d in flight", lim.batch, grouped(int64(lim.batchBytes)), lim.depth)
	what := "a new entity with a unique key"
	switch {
	case b.w.shape == shapeUpdate:
		what = fmt.Sprintf("%s of a random one of %s old entities changed", plural(len(b.w.texts), "text"), grouped(int64(len(b.w.olds))))
	case len(b.w.texts) > 0:
		what += " and " + plural(len(b.w.texts), "text")
	}
	line("transaction", "%s: %s beside the instant", what, plural(b.w.datoms, "datom"))
	limit := fmt.Sprintf("%s a level", b.s.duration)
	if b.s.transactions > 0 {
		limit = fmt.Sprintf("%s transactions a level", grouped(int64(b.s.transactions)))
	}
	if b.s.rounds > 1 {
		limit += fmt.Sprintf(", medians of %d rounds in turn", b.s.rounds)
	}
	line("loop", "closed: each client waits for its answer; %s", limit)
	fmt.Fprintln(w)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%s %ss", grouped(int64(n)), what)
}

func (r *replayed) String() string {
	us := inMicros(r.took)
	return strings.Join([]string{
		fmt.Sprintf("opened again by replay in %s: %s transactions, %s each", span(us), grouped(int64(r.transactions)), span(us/float64(r.transactions))),
		fmt.Sprintf("every acknowledged transaction is there; %s datoms take %s MB of heap, %d bytes each",
			grouped(r.datoms), grouped(r.heap>>20), r.heap/max(r.datoms, 1)),
	}, "\n")
}

// fileURL is the URL of a directory.
func fileURL(dir string) string { return "fs:" + (&url.URL{Path: dir}).EscapedPath() }

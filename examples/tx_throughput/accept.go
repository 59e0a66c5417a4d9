package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"time"
)

const (
	acceptRounds = 3
	acceptDelay  = 2 * time.Millisecond
)

// ratio is one promise: a measured value and its bound.
type ratio struct {
	Name   string  `json:"ratio"`
	Value  float64 `json:"value"`
	Bound  float64 `json:"bound"`
	AtMost bool    `json:"at_most"` // else at least
	Holds  bool    `json:"holds"`
	Of     string  `json:"of"` // the numbers behind it
}

func atMost(name string, value, bound float64, of string) ratio {
	return ratio{name, value, bound, true, value <= bound, of}
}

func atLeast(name string, value, bound float64, of string) ratio {
	return ratio{name, value, bound, false, value >= bound, of}
}

// measured are the medians that the ratios are made of.
type measured struct {
	delayed1, delayed256 *result // on mem with a delay
	mem256, fs256        *result
	sync                 float64 // µs for one write and fdatasync
}

// ratios are the promises of docs/perf-targets.md.
func (m *measured) ratios() []ratio {
	calls := 2 * inMicros(acceptDelay)
	perSync := 128 / (m.sync / 1e6)
	bound := min(m.mem256.TxPerSec, perSync)
	rate := func(v float64) string { return grouped(int64(v)) }
	return []ratio{
		atMost("mem, 2 ms: p50 at 1 / two store calls", m.delayed1.P50/calls, 1.2,
			fmt.Sprintf("%s / %s", span(m.delayed1.P50), span(calls))),
		atLeast("mem, 2 ms: tx/s at 256 / at 1", m.delayed256.TxPerSec/m.delayed1.TxPerSec, 50,
			fmt.Sprintf("%s / %s", rate(m.delayed256.TxPerSec), rate(m.delayed1.TxPerSec))),
		atMost("mem, 2 ms: p50 at 256 / at 1", m.delayed256.P50/m.delayed1.P50, 3,
			fmt.Sprintf("%s / %s", span(m.delayed256.P50), span(m.delayed1.P50))),
		atLeast("fs: tx/s at 256 / min(mem at 256, 128 per fdatasync)", m.fs256.TxPerSec/bound, 0.6,
			fmt.Sprintf("%s / min(%s, %s)", rate(m.fs256.TxPerSec), rate(m.mem256.TxPerSec), rate(perSync))),
	}
}

// accept measures what the ratios need, in three rounds in turn, and prints them. An error says that one does not hold.
func accept(ctx context.Context, s *settings, stdout io.Writer, p *progress) (err error) {
	fsURL, note, remove, err := freshStore()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	name := fmt.Sprintf("mem:accept-%08x", rand.Uint32())
	var benches []*bench
	defer func() {
		for _, b := range benches {
			err = errors.Join(err, b.close())
		}
	}()
	open := func(url string) (*bench, error) {
		b, err := openBench(ctx, s, url, p)
		if err == nil {
			benches = append(benches, b)
		}
		return b, err
	}
	delayed, err := open(fmt.Sprintf("%s-delayed?delay=%s", name, acceptDelay))
	if err != nil {
		return err
	}
	memory, err := open(name)
	if err != nil {
		return err
	}
	disk, err := open(fsURL)
	if err != nil {
		return err
	}
	if !disk.info.Durable {
		return fmt.Errorf("%s is not durable", fsURL)
	}

	steps := []struct {
		b       *bench
		clients int
		results []*result
	}{{b: delayed, clients: 1}, {b: delayed, clients: 256}, {b: memory, clients: 256}, {b: disk, clients: 256}}
	var syncs []time.Duration
	for round := range acceptRounds {
		for i := range steps {
			st := &steps[i]
			r, err := st.b.level(ctx, st.clients)
			if err != nil {
				return err
			}
			if st.b == disk && r.Objects > 0 {
				d, err := syncTime(ctx, disk.info.Location, int(r.ObjectBytes/r.Objects))
				if err != nil && ctx.Err() == nil {
					return fmt.Errorf("measuring the disk: %w", err)
				}
				r.SyncTime = inMicros(d)
				syncs = append(syncs, d)
			}
			if ctx.Err() != nil {
				return nil // half of a comparison says nothing
			}
			st.results = append(st.results, r)
			p.note("round %d of %d, %s, %s: %s tx/s, p50 %s", round+1, acceptRounds, st.b.url, plural(st.clients, "client"), grouped(int64(r.TxPerSec)), span(r.P50))
		}
	}
	for _, b := range benches {
		if _, err := b.reopen(ctx); err != nil {
			return err
		}
	}
	m := &measured{
		delayed1: medians(steps[0].results), delayed256: medians(steps[1].results),
		mem256: medians(steps[2].results), fs256: medians(steps[3].results),
		sync: median(syncs, inMicros),
	}
	ratios := m.ratios()
	p.done()
	if !s.json {
		fmt.Fprintf(stdout, "machine     %s %s/%s, %d CPUs\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0))
		fmt.Fprintf(stdout, "disk        %s for a write of %s bytes (a batch) and fdatasync, by itself; %s\n", span(m.sync),
			grouped(m.fs256.ObjectBytes/max(m.fs256.Objects, 1)), note)
		fmt.Fprintf(stdout, "round trip  %s on mem with a delay of %s; %s on fs\n", span(inMicros(delayed.fence)), acceptDelay, span(inMicros(disk.fence)))
		fmt.Fprintf(stdout, "loop        closed, inserts of %s, %s a level; medians of %d rounds in turn\n\n", plural(s.datoms, "datom"), s.duration, acceptRounds)
		for _, st := range steps {
			fmt.Fprintf(stdout, "%s\n", st.b.url)
			(&table{w: stdout}).row(medians(st.results))
		}
	}
	return printRatios(stdout, s, ratios)
}

// printRatios prints them, and returns an error if one does not hold.
func printRatios(stdout io.Writer, s *settings, ratios []ratio) (err error) {
	if s.json {
		for _, r := range ratios {
			if err := printJSON(stdout, r); err != nil {
				return err
			}
		}
	} else {
		fmt.Fprintf(stdout, "\n%-54s  %8s  %8s  %5s  %s\n", "ratio", "measured", "bound", "holds", "of")
		for _, r := range ratios {
			sign, holds := "≥", "NO"
			if r.AtMost {
				sign = "≤"
			}
			if r.Holds {
				holds = "yes"
			}
			fmt.Fprintf(stdout, "%-54s  %8.2f  %s %6.2f  %5s  %s\n", r.Name, r.Value, sign, r.Bound, holds, r.Of)
		}
	}
	for _, r := range ratios {
		if !r.Holds {
			err = errors.Join(err, fmt.Errorf("%s is %.2f; the bound is %.2f", r.Name, r.Value, r.Bound))
		}
	}
	return err
}

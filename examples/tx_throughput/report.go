package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/steledb/stele/config"
	"github.com/steledb/stele/transactor"
)

// result is what a level showed. Times are in microseconds.
type result struct {
	Store        string  `json:"store"`
	Durable      bool    `json:"durable"`
	Durability   string  `json:"durability"`
	Shape        string  `json:"shape"`
	Datoms       int     `json:"datoms"` // of each transaction
	Preload      int     `json:"preload"`
	Rounds       int     `json:"rounds"`
	GoVersion    string  `json:"go"`
	CPUs         int     `json:"cpus"`
	Depth        int     `json:"depth"`
	MaxBatch     int     `json:"max_batch"`
	Concurrency  int     `json:"concurrency"`
	Transactions int64   `json:"transactions"`
	Seconds      float64 `json:"seconds"`
	TxPerSec     float64 `json:"tx_per_sec"`
	DatomsPerSec float64 `json:"datoms_per_sec"`
	P50          float64 `json:"p50_us"`
	P90          float64 `json:"p90_us"`
	P99          float64 `json:"p99_us"`
	Max          float64 `json:"max_us"`
	BatchMean    float64 `json:"batch_mean"`
	BatchPeak    int64   `json:"batch_peak"`
	Objects      int64   `json:"objects"`
	ObjectBytes  int64   `json:"object_bytes"`
	Fences       int64   `json:"fences"`
	InFlightPeak int64   `json:"inflight_peak"`
	QueueP50     float64 `json:"queue_p50_us"`  // from admission to the batch's close
	AppendP50    float64 `json:"append_p50_us"` // until it was durable and fenced
	AnswerP50    float64 `json:"answer_p50_us"` // until those before it were, and it was answered
	FenceP50     float64 `json:"fence_us"`      // a round trip to the store, idle
	SyncTime     float64 `json:"disk_sync_us"`  // the disk's own for one write and fdatasync; 0 where there is no disk
	Errors       int     `json:"errors"`

	Floor *floorResult `json:"floor,omitempty"`
}

// floorResult is what a level reaches with less of the library.
type floorResult struct {
	BareTxPerSec   float64 `json:"bare_tx_per_sec"`
	BareP50        float64 `json:"bare_p50_us"`
	InlineTxPerSec float64 `json:"inline_tx_per_sec"`
	InlineP50      float64 `json:"inline_p50_us"`              // of a batch
	PlainTxPerSec  float64 `json:"plain_tx_per_sec,omitempty"` // behind a network: one plain operation for each transaction
	PlainP50       float64 `json:"plain_p50_us,omitempty"`
}

// result puts together what a loop and the transactor saw of a level.
func (b *bench) result(lp *loop, st transactor.Stats) (*result, error) {
	h, err := lp.latencies()
	if err != nil {
		return nil, err
	}
	lim := b.limits()
	n := lp.acknowledged()
	r := &result{
		Store: config.Redacted(b.url), Durable: b.info.Durable, Durability: b.info.Durability,
		Shape: b.w.shape, Datoms: b.w.datoms, Preload: len(b.w.olds), Rounds: 1,
		GoVersion: runtime.Version(), CPUs: runtime.GOMAXPROCS(0),
		Depth: lim.depth, MaxBatch: lim.batch,
		Concurrency: len(lp.clients), Transactions: n, Seconds: lp.seconds,
		TxPerSec: float64(n) / lp.seconds, DatomsPerSec: float64(n) * float64(b.w.datoms) / lp.seconds,
		BatchPeak: st.BatchPeak, Objects: int64(st.Objects), ObjectBytes: int64(st.ObjectBytes),
		Fences: int64(st.Fences), InFlightPeak: st.InFlightPeak,
		QueueP50: inMicros(st.Queue.P50), AppendP50: inMicros(st.Append.P50), AnswerP50: inMicros(st.Wait.P50),
		FenceP50: inMicros(b.fence),
	}
	if h.TotalCount() > 0 {
		r.P50, r.P90, r.P99, r.Max = micros(h.ValueAtQuantile(50)), micros(h.ValueAtQuantile(90)), micros(h.ValueAtQuantile(99)), micros(h.Max())
	}
	if st.Objects > 0 {
		r.BatchMean = float64(st.Transactions) / float64(st.Objects)
	}
	r.Errors, _ = lp.failed()
	return r, nil
}

func inMicros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// medians is the median of each number of several results of one level.
func medians(rs []*result) *result {
	m := *rs[0]
	m.Rounds = len(rs)
	number := func(of func(*result) *float64) {
		*of(&m) = median(rs, func(r *result) float64 { return *of(r) })
	}
	count := func(of func(*result) *int64) {
		*of(&m) = int64(math.Round(median(rs, func(r *result) float64 { return float64(*of(r)) })))
	}
	number(func(r *result) *float64 { return &r.Seconds })
	number(func(r *result) *float64 { return &r.TxPerSec })
	number(func(r *result) *float64 { return &r.DatomsPerSec })
	number(func(r *result) *float64 { return &r.P50 })
	number(func(r *result) *float64 { return &r.P90 })
	number(func(r *result) *float64 { return &r.P99 })
	number(func(r *result) *float64 { return &r.Max })
	number(func(r *result) *float64 { return &r.BatchMean })
	number(func(r *result) *float64 { return &r.QueueP50 })
	number(func(r *result) *float64 { return &r.AppendP50 })
	number(func(r *result) *float64 { return &r.AnswerP50 })
	count(func(r *result) *int64 { return &r.Transactions })
	count(func(r *result) *int64 { return &r.BatchPeak })
	count(func(r *result) *int64 { return &r.Objects })
	count(func(r *result) *int64 { return &r.ObjectBytes })
	count(func(r *result) *int64 { return &r.Fences })
	count(func(r *result) *int64 { return &r.InFlightPeak })
	for _, r := range rs[1:] {
		m.Errors += r.Errors
	}
	rs = slices.DeleteFunc(slices.Clone(rs), func(r *result) bool { return r.Floor == nil }) // interrupted before
	if m.Floor = nil; len(rs) > 0 {
		m.Floor = new(floorResult)
		number(func(r *result) *float64 { return &r.Floor.BareTxPerSec })
		number(func(r *result) *float64 { return &r.Floor.BareP50 })
		number(func(r *result) *float64 { return &r.Floor.InlineTxPerSec })
		number(func(r *result) *float64 { return &r.Floor.InlineP50 })
		number(func(r *result) *float64 { return &r.Floor.PlainTxPerSec })
		number(func(r *result) *float64 { return &r.Floor.PlainP50 })
	}
	return &m
}

// median of some number of each; of an even count the mean of the two in the middle.
func median[T any](xs []T, of func(T) float64) float64 {
	var v []float64
	for _, x := range xs {
		v = append(v, of(x))
	}
	slices.Sort(v)
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

// table prints results as lines under a heading.
type table struct {
	w     io.Writer
	floor bool
	plain bool
	begun bool
}

// column is a heading and its width; numbers stand to the right.
type column struct {
	name  string
	width int
	value func(*result) string
}

func (t *table) columns() []column {
	rate := func(v float64) string { return grouped(int64(math.Round(v))) }
	cols := []column{
		{"clients", 7, func(r *result) string { return strconv.Itoa(r.Concurrency) }},
		{"tx/s", 9, func(r *result) string { return rate(r.TxPerSec) }},
		{"datoms/s", 11, func(r *result) string { return rate(r.DatomsPerSec) }},
		{"p50", 8, func(r *result) string { return span(r.P50) }},
		{"p90", 8, func(r *result) string { return span(r.P90) }},
		{"p99", 8, func(r *result) string { return span(r.P99) }},
		{"max", 8, func(r *result) string { return span(r.Max) }},
		{"batch", 7, func(r *result) string { return fmt.Sprintf("%.1f", r.BatchMean) }},
		{"peak", 5, func(r *result) string { return strconv.FormatInt(r.BatchPeak, 10) }},
		{"objects", 9, func(r *result) string { return grouped(r.Objects) }},
		{"fences", 9, func(r *result) string { return grouped(r.Fences) }},
		{"flying", 6, func(r *result) string { return strconv.FormatInt(r.InFlightPeak, 10) }},
		{"errors", 6, func(r *result) string { return strconv.Itoa(r.Errors) }},
	}
	if t.floor {
		cell := func(of func(*floorResult) string) func(*result) string {
			return func(r *result) string {
				if r.Floor == nil {
					return "-"
				}
				return of(r.Floor)
			}
		}
		cols = append(cols,
			column{"bare tx/s", 11, cell(func(f *floorResult) string { return rate(f.BareTxPerSec) })},
			column{"p50", 8, cell(func(f *floorResult) string { return span(f.BareP50) })},
			column{"inline tx/s", 11, cell(func(f *floorResult) string { return rate(f.InlineTxPerSec) })},
		)
		if t.plain {
			cols = append(cols,
				column{"plain tx/s", 11, cell(func(f *floorResult) string { return rate(f.PlainTxPerSec) })},
				column{"p50", 8, cell(func(f *floorResult) string { return span(f.PlainP50) })},
			)
		}
	}
	return cols
}

// row prints one result, below the heading if it is the first.
func (t *table) row(r *result) {
	cols := t.columns()
	line := func(cell func(column) string) {
		var b strings.Builder
		for i, c := range cols {
			if i > 0 {
				b.WriteString("  ")
			}
			fmt.Fprintf(&b, "%*s", c.width, cell(c))
		}
		fmt.Fprintln(t.w, b.String())
	}
	if !t.begun {
		t.begun = true
		line(func(c column) string { return c.name })
	}
	line(func(c column) string { return c.value(r) })
}

// printJSON prints one object on a line.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// grouped is a number with a comma between each three digits.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// span is a time in microseconds, to three digits, in the unit that suits it.
func span(us float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1e6, "s"}, {1e3, "ms"}, {1, "µs"}} {
		if v := us / u.size; v >= 1 || u.size == 1 {
			switch {
			case v >= 99.95:
				return fmt.Sprintf("%.0f %s", v, u.name)
			case v >= 9.995:
				return fmt.Sprintf("%.1f %s", v, u.name)
			default:
				return fmt.Sprintf("%.2f %s", v, u.name)
			}
		}
	}
	return ""
}

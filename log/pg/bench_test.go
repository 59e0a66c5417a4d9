package pg

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/log"
)

// BenchmarkFlush compares, on one connection, the INSERT of one object alone (the plainest statement that puts the same row into the same
// table), an append and a fence in two trips, and both in one. The object holds one transaction. They take turns, so that a noisy
// machine is noisy for all.
//
//	go test ./log/pg -run '^$' -bench Flush -benchtime 2000x
func BenchmarkFlush(b *testing.B) {
	for _, pooler := range []Pooler{Direct, Transaction} {
		opt := Options{Depth: 1, Pooler: pooler}
		name := "direct"
		if pooler == Transaction {
			name = "pgbouncer"
			opt.URL, _ = servers.PgBouncer(b)
		} else {
			opt.URL = servers.Postgres(b)
		}
		o := own(b, open(b, opt))
		b.Run(name, func(b *testing.B) {
			bare := &statement{29, "bare", "INSERT INTO stele.log (db_id, epoch, first_t, hash, payload) VALUES ($1, $2, $3, $4, $5)"}
			size := 0
			// As a transactor's, a fence covers the object before, which is acknowledged, and the new one.
			check := func(obj *log.Object) log.Check {
				return o.check(log.Key{Epoch: obj.Epoch, FirstT: obj.FirstT - 1}, obj.Key())
			}
			kinds := []struct {
				name  string
				flush func(obj *log.Object)
				took  []time.Duration
			}{
				{name: "bare", flush: func(obj *log.Object) {
					in, err := newInsertion(&o.root.Instance, obj)
					o.must(err)
					in.stmt = bare
					_, err = o.l.flushes.do(b.Context(), &in.request)
					o.must(err, in.err)
				}},
				{name: "two-trips", flush: func(obj *log.Object) {
					o.must(o.append(obj), o.l.Verify(b.Context(), check(obj)))
				}},
				{name: "one-trip", flush: func(obj *log.Object) { o.must(o.l.AppendVerify(b.Context(), obj, check(obj))) }},
			}
			for b.Loop() {
				for i := range kinds {
					obj := o.batch()
					size = obj.Size()
					begin := time.Now()
					kinds[i].flush(obj)
					kinds[i].took = append(kinds[i].took, time.Since(begin))
				}
			}
			for _, k := range kinds {
				slices.Sort(k.took)
				b.ReportMetric(float64(k.took[len(k.took)/2].Microseconds()), k.name+"-p50-µs")
			}
			b.ReportMetric(float64(size), "object-bytes")
		})
	}
}

// BenchmarkAppendVerify is throughput and allocations at a depth.
func BenchmarkAppendVerify(b *testing.B) {
	for _, depth := range []int{1, 2, 4, 8, 16} {
		b.Run(fmt.Sprintf("depth=%d", depth), func(b *testing.B) {
			o := own(b, open(b, Options{URL: servers.Postgres(b), Depth: depth}))
			objs := make([]*log.Object, b.N)
			for i := range objs {
				objs[i] = o.batch()
			}
			b.ReportAllocs()
			b.ResetTimer()
			work := make(chan *log.Object)
			done := make(chan struct{})
			var mu sync.Mutex
			var acked uint64
			durable := make([]bool, b.N+2)
			for range depth {
				go func() {
					defer func() { done <- struct{}{} }()
					for obj := range work {
						// As a transactor does, it names the last object that is acknowledged: durable, and all before it.
						mu.Lock()
						c := o.check(log.Key{Epoch: obj.Epoch, FirstT: acked}, obj.Key())
						mu.Unlock()
						if a, v := o.l.AppendVerify(b.Context(), obj, c); a != nil || v != nil {
							b.Error(a, v)
						}
						mu.Lock()
						for durable[obj.FirstT] = true; durable[acked+1]; acked++ {
						}
						mu.Unlock()
					}
				}()
			}
			for _, obj := range objs {
				work <- obj
			}
			close(work)
			for range depth {
				<-done
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
		})
	}
}

package db

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/datom"
)

// load makes transactions of the shape of docs/decisions/0001: a new entity with a unique string key of 16 to 24 bytes, in
// random order, and a text of 24 bytes, and the transaction's instant.
type load struct {
	rng *rand.Rand
	n   uint64 // entities
	t   uint64
}

func newLoad() *load { return &load{rng: rand.New(rand.NewPCG(1, 2)), t: 2} }

const benchSeq = 10000

func benchEntity(i uint64) datom.ID { return datom.MakeID(datom.PartUser, benchSeq+i) }

func benchKey(i uint64) string {
	var b [24]byte
	h := mix(i)
	copy(b[16:], "abcdefgh")
	hex(b[:16], h)
	return string(b[:16+h%9])
}

func benchNote(i uint64) datom.Value {
	var b [24]byte
	copy(b[:], "a text of ______")
	hex(b[8:], i)
	return datom.String(string(b[:]))
}

func hex(b []byte, n uint64) {
	for i := range 16 {
		b[i] = "0123456789abcdef"[n>>(60-4*i)&15]
	}
}

func (l *load) begin() *datom.Tx {
	l.t++
	ms := 1_700_000_000_000 + int64(l.t/16)
	return &datom.Tx{T: l.t, Instant: ms, Next: datom.NextIDs{Part: FirstPart, Seq: benchSeq + l.n}, Datoms: append(make([]datom.Datom, 0, 3),
		datom.Datom{E: datom.TxID(l.t), A: AttrTxInstant, V: datom.InstantMilli(ms), T: l.t, Added: true})}
}

func (l *load) insert() *datom.Tx {
	tx := l.begin()
	e := benchEntity(l.n)
	tx.Datoms = append(tx.Datoms,
		datom.Datom{E: e, A: aName, V: datom.String(benchKey(l.n)), T: l.t, Added: true},
		datom.Datom{E: e, A: aNote, V: benchNote(l.n), T: l.t, Added: true})
	l.n++
	tx.Next.Seq++
	return tx
}

// stageWith is a stage that holds n inserts.
func stageWith(n int) (*Stage, *load) {
	s, l := NewStage(Empty()), newLoad()
	s.Apply(Bootstrap())
	s.Apply(userSchema(2))
	for i := range n {
		s.Apply(l.insert())
		if i%20000 == 19999 {
			s.Snapshot()
		}
	}
	s.Snapshot()
	s.Wait()
	return s, l
}

// sizesToBench is 100 k and, with STELE_BENCH=1M, a million transactions.
func sizesToBench() []int {
	if n, err := strconv.Atoi(os.Getenv("STELE_BENCH")); err == nil {
		return []int{n}
	}
	return []int{100_000}
}

type shape struct {
	name string
	do   func(s *Stage, l *load) *datom.Tx
}

func shapes() []shape {
	return []shape{
		{"insert", func(s *Stage, l *load) *datom.Tx {
			tx := l.insert()
			if _, ok := s.Lookup(aName, tx.Datoms[1].V); ok {
				panic("not unique")
			}
			return tx
		}},
		{"update", func(s *Stage, l *load) *datom.Tx {
			tx := l.begin()
			i := l.rng.Uint64N(l.n)
			e := benchEntity(i)
			old, _, ok := s.One(e, aNote)
			if !ok {
				return tx
			}
			tx.Datoms = append(tx.Datoms,
				datom.Datom{E: e, A: aNote, V: old, T: l.t},
				datom.Datom{E: e, A: aNote, V: benchNote(i + l.t<<20), T: l.t, Added: true})
			return tx
		}},
		{"retract", func(s *Stage, l *load) *datom.Tx {
			tx := l.begin()
			e := benchEntity(l.rng.Uint64N(l.n))
			for f := range s.Facts(e) {
				f.T, f.Added = l.t, false
				tx.Datoms = append(tx.Datoms, f)
			}
			return tx
		}},
	}
}

// BenchmarkTx is the cost of one transaction in the stage: its reads, Apply, and its share of a snapshot. thread-ns/op is processor
// time of the writer's thread, cpu-ns/op of everything, merges in the background and garbage collection included; the
// slowest batches are the writer's processor time too.
func BenchmarkTx(b *testing.B) {
	for _, n := range sizesToBench() {
		s, from := stageWith(n)
		base := s.Snapshot()
		for _, sh := range shapes() {
			for _, batch := range []int{1, 64, 256} {
				b.Run(fmt.Sprintf("%s/n=%d/b=%d", sh.name, n, batch), func(b *testing.B) {
					s.Reset(base)
					l := &load{from.rng, from.n, from.t}
					lat := make([]time.Duration, 0, 1<<16)
					old := make([]DB, 16) // old values that somebody holds
					runtime.GC()
					i, k := 0, 0
					runtime.LockOSThread() // so that there is a thread to measure
					defer runtime.UnlockOSThread()
					cpu, thread := cpuTime(), threadTime()
					start := thread
					b.ReportAllocs()
					for b.Loop() {
						s.Apply(sh.do(s, l))
						if i++; i == batch {
							old[k%16] = s.Snapshot()
							i, k = 0, k+1
							now := threadTime()
							lat = append(lat, now-start)
							start = now
						}
					}
					b.StopTimer()
					b.ReportMetric(float64(threadTime()-thread)/float64(b.N), "thread-ns/op")
					s.Snapshot()
					s.Wait()
					b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N), "cpu-ns/op")
					runtime.KeepAlive(old)
					slices.Sort(lat)
					b.ReportMetric(float64(lat[len(lat)*999/1000].Microseconds()), "p99.9-us/batch")
					b.ReportMetric(float64(lat[len(lat)-1].Microseconds()), "max-us/batch")
				})
			}
		}
	}
}

// BenchmarkReplay is bulk recovery: Apply, and a snapshot every 64 k datoms.
func BenchmarkReplay(b *testing.B) {
	for _, n := range sizesToBench() {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			l := newLoad()
			txs := make([]*datom.Tx, n)
			for i := range txs {
				txs[i] = l.insert()
			}
			runtime.GC()
			cpu := cpuTime()
			b.ResetTimer()
			for range b.N {
				s := NewStage(Empty())
				s.Apply(Bootstrap())
				s.Apply(userSchema(2))
				for i, tx := range txs {
					s.Apply(tx)
					if i%21845 == 21844 {
						s.Snapshot()
					}
				}
				s.Snapshot()
				s.Wait()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(3*n), "ns/datom")
			b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N)/float64(3*n), "cpu-ns/datom")
		})
	}
}

func heap() uint64 {
	runtime.GC()
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkHeap is the live heap of a value, in all indexes, and with what the stage keeps beside it.
func BenchmarkHeap(b *testing.B) {
	for _, n := range sizesToBench() {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for range b.N {
				before := heap()
				s, _ := stageWith(n)
				d := s.Snapshot()
				both := heap()
				runtime.KeepAlive(s)
				s = nil
				one := heap()
				runtime.KeepAlive(d)
				b.ReportMetric(float64(one-before)/float64(3*n), "B/datom")
				b.ReportMetric(float64(both-before)/float64(3*n), "B/datom+stage")
			}
		})
	}
}

// BenchmarkRead is reads of a value, alone and beside a writer that inserts and updates.
func BenchmarkRead(b *testing.B) {
	for _, n := range sizesToBench() {
		s, l := stageWith(n)
		// A few batches more, so that every kind of run is there.
		for range 300 {
			for range 64 {
				s.Apply(l.insert())
			}
			s.Snapshot()
		}
		d := s.Snapshot()
		reads := func(b *testing.B, d func() DB) {
			rng := rand.New(rand.NewPCG(3, 4))
			report := func(b *testing.B, from uint64) { // 0 where nobody writes
				b.ReportMetric(float64(d().BasisT()-from)/b.Elapsed().Seconds(), "writes/s")
			}
			b.Run("lookup", func(b *testing.B) {
				defer report(b, d().BasisT())
				for b.Loop() {
					if _, ok := d().Lookup(aName, datom.String(benchKey(rng.Uint64N(uint64(n))))); !ok {
						b.Fatal("missing")
					}
				}
			})
			b.Run("miss", func(b *testing.B) {
				defer report(b, d().BasisT())
				for b.Loop() {
					if _, ok := d().Lookup(aName, datom.String(benchKey(1<<40+rng.Uint64()))); ok {
						b.Fatal("found")
					}
				}
			})
			b.Run("entity", func(b *testing.B) {
				defer report(b, d().BasisT())
				for b.Loop() {
					k := 0
					for range d().Datoms(EAVT, benchEntity(rng.Uint64N(uint64(n)))) {
						k++
					}
					if k != 2 {
						b.Fatal(k)
					}
				}
			})
			b.Run("scan", func(b *testing.B) {
				defer report(b, d().BasisT())
				k := 0
				for b.Loop() {
					for range d().Datoms(AEVT, aNote) {
						k++
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(k), "ns/datom")
			})
			b.Run("asof-entity", func(b *testing.B) {
				defer report(b, d().BasisT())
				for b.Loop() {
					k := 0
					for range d().AsOf(uint64(n/2)).Datoms(EAVT, benchEntity(rng.Uint64N(uint64(n)/3))) {
						k++
					}
					if k != 2 {
						b.Fatal(k)
					}
				}
			})
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			reads(b, func() DB { return d })
			b.Run("stage-hit", func(b *testing.B) {
				rng := rand.New(rand.NewPCG(3, 4))
				for b.Loop() {
					if _, ok := s.Lookup(aName, datom.String(benchKey(rng.Uint64N(uint64(n))))); !ok {
						b.Fatal("missing")
					}
				}
			})
			b.Run("stage-miss", func(b *testing.B) {
				rng := rand.New(rand.NewPCG(3, 4))
				for b.Loop() {
					if _, ok := s.Lookup(aName, datom.String(benchKey(1<<40+rng.Uint64()))); ok {
						b.Fatal("found")
					}
				}
			})
			b.Run("stage-one", func(b *testing.B) {
				rng := rand.New(rand.NewPCG(3, 4))
				for b.Loop() {
					if _, _, ok := s.One(benchEntity(rng.Uint64N(uint64(n))), aNote); !ok {
						b.Fatal("missing")
					}
				}
			})
		})
		// The same beside a writer that publishes batches of 64, inserts and updates by turns, as fast as it can.
		b.Run(fmt.Sprint(n)+"/beside-a-writer", func(b *testing.B) {
			var newest atomic.Pointer[DB]
			newest.Store(&d)
			stop, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				all := shapes()
				for {
					select {
					case <-stop:
						return
					default:
					}
					for k := range 64 {
						s.Apply(all[k%2].do(s, l))
					}
					d := s.Snapshot()
					newest.Store(&d)
				}
			}()
			reads(b, func() DB { return *newest.Load() })
			close(stop)
			<-done
		})
		s.Wait()
	}
}

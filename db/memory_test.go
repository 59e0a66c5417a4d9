package db

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/steledb/stele/datom"
)

// reachable is the bytes of all runs of the snapshots, each chunk counted once.
func reachable(snaps ...*snapshot) (n int64) {
	chunks, runs := map[unsafe.Pointer]bool{}, map[*run]bool{}
	for _, s := range snaps {
		for _, parts := range s.ix {
			for _, p := range parts {
				for _, r := range p.runs {
					if runs[r] {
						continue
					}
					runs[r] = true
					n += r.directory() + held(r.filter)
					for _, c := range r.chunks {
						if !chunks[unsafe.Pointer(&c[0])] {
							chunks[unsafe.Pointer(&c[0])] = true
							n += int64(cap(c))
						}
					}
				}
			}
		}
	}
	return n
}

// checkMemory compares a stage's account with what its newest snapshot reaches, and with what last does that it does not. It returns the
// snapshot for the next time.
func checkMemory(t interface{ Fatalf(string, ...any) }, s *Stage, last *snapshot) *snapshot {
	now := s.Snapshot().s
	m := s.Memory()
	if got, want := m.Value-now.schema.bytes(), reachable(now); got != want {
		t.Fatalf("the account says that the runs take %d bytes; they take %d", got, want)
	}
	if last != nil {
		if old := reachable(last, now) - reachable(now); m.Replaced < old {
			t.Fatalf("the account says that %d bytes were replaced; the value before holds %d of its own", m.Replaced, old)
		}
	}
	if again := s.Memory(); again.Replaced != 0 || again.Value != m.Value {
		t.Fatalf("told twice: %+v", again)
	}
	return now
}

// liveHeap is what a collection leaves.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestP5_AccountedIsMeasured: what a stage says that it takes is what the garbage collector finds.
func TestP5_AccountedIsMeasured(t *testing.T) {
	text := strings.Repeat("a stele is inscribed once ", 8)
	for _, shape := range []struct {
		name  string
		attr  datom.ID
		value func(i int) datom.Value
	}{
		{"long", aTags, func(i int) datom.Value { return datom.Long(int64(mix(uint64(i)) >> 20)) }},
		{"text", aNote, func(i int) datom.Value { return datom.String(fmt.Sprint(mix(uint64(i)), text)) }},
		{"unique", aName, func(i int) datom.Value { return datom.String(benchKey(uint64(i))) }},
	} {
		for _, n := range []int{10_000, 100_000} {
			t.Run(fmt.Sprint(shape.name, n), func(t *testing.T) {
				before := liveHeap()
				s, l := NewStage(Empty()), newLoad()
				s.Apply(Bootstrap())
				s.Apply(userSchema(2))
				for i := range n / 2 { // with its instant, two datoms each
					tx := l.begin()
					tx.Datoms = append(tx.Datoms, datom.Datom{E: benchEntity(uint64(i)), A: shape.attr, V: shape.value(i), T: tx.T, Added: true})
					s.Apply(tx)
					if i%200 == 0 {
						s.Snapshot()
					}
				}
				checkMemory(t, s, nil)
				s.Wait()
				s.finish(true)
				m := s.Memory()
				measured := liveHeap() - before
				accounted := m.Value + m.Unique + m.Scratch
				t.Logf("measured %d, accounted %d (%+.1f%%): %+v", measured, accounted, 100*float64(accounted-measured)/float64(measured), m)
				if accounted < measured*8/10 || accounted > measured*12/10 {
					t.Errorf("more than 20%% apart")
				}
				runtime.KeepAlive(s)
			})
		}
	}
}

// TestP5_MergesAreBounded: a merge reads no more than the account says that it may, and only one is at work, also behind a Reset.
func TestP5_MergesAreBounded(t *testing.T) {
	s, l := stageWith(30_000)
	more := func() {
		for range 3000 {
			s.Apply(l.insert())
		}
		s.Snapshot()
	}
	merges := 0
	for range 20 {
		s.finish(true)
		most := s.Memory().Merge
		if more(); s.job != nil {
			merges++
			if n := s.job.bytes() / 2; n > most+most/4 { // what came since was not known
				t.Errorf("a merge of %d bytes, and %d were said", n, most)
			}
		}
	}
	if merges == 0 {
		t.Fatal("nothing was merged")
	}
	s.finish(true)
	busy := &job{done: make(chan struct{}), in: []*run{{bytes: 1 << 20}}}
	s.job = busy
	s.Reset(s.Snapshot())
	if m := s.Memory(); m.Merge < 2<<20 {
		t.Errorf("%+v with a merge of before at work", m)
	}
	for range 10 {
		if more(); s.job != nil {
			t.Fatal("two merges at once")
		}
	}
	last := s.Memory().Merge
	close(busy.done)
	if with, without := last, s.Memory().Merge; with-without != 2<<20 {
		t.Errorf("%d with a merge of before at work, %d without", with, without)
	}
	if more(); s.job == nil {
		t.Error("no merge any more")
	}
	s.Wait()
}

func TestTrim(t *testing.T) {
	s, l := stageWith(20_000)
	long := s.Memory().Scratch
	s.Trim()
	if m := s.Memory(); m.Scratch > long/4 || m.Scratch > 1<<20 {
		t.Errorf("%d bytes of scratch, trimmed %d", long, m.Scratch)
	}
	s.Apply(l.insert())
	s.Trim() // with something in the overlay
	s.Apply(l.insert())
	d := s.Snapshot()
	for i := range uint64(20_002) {
		if _, ok := d.Lookup(aName, datom.String(benchKey(i))); !ok {
			t.Fatalf("entity %d is gone", i)
		}
	}
	s.Wait()
}

package transactor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/fs"
	"github.com/steledb/stele/log/fs/crashfs"
)

// A machine loses its power at every call to its disk, in a workload that makes a database, fills several files, and opens it again and
// again; whatever subset of what was not synced survives, the database opens and holds every acknowledged transaction, once. It
// loses its power again while it recovers.
func TestL1_L2_L6_L10_PowerLossAtEveryCall(t *testing.T) {
	const statesPerCall = 3
	crashes, states := 0, 0
	for k := 0; ; k++ {
		m := crashfs.New()
		m.CrashAt(k)
		acked := crashWorkload(m)
		if !m.Off() {
			break
		}
		crashes++
		for seed := range statesPerCall {
			after := m.Crash(crashfs.Random(uint64(k*statesPerCall + seed)))
			// Again, at some call of the recovery.
			after.CrashAt((k*7 + seed*13) % 40)
			if x, err := openCrash(after); err == nil {
				x.Close(context.Background())
			}
			if after.Off() {
				after = after.Crash(crashfs.Random(uint64(k + seed)))
			}
			after.CrashAt(-1)
			checkAfterCrash(t, after, acked, fmt.Sprintf("power lost at call %d, state %d", k, seed))
			states++
			if t.Failed() {
				return
			}
		}
	}
	if crashes < 100 {
		t.Errorf("only %d calls to crash at; the workload is too small", crashes)
	}
	t.Logf("%d crashes, %d states of the disk, every acknowledged transaction there", crashes, states)
}

func openCrash(m *crashfs.Machine) (*Transactor, error) {
	quiet := slog.New(slog.DiscardHandler)
	l, err := fs.Open(context.Background(), fs.Options{Dir: "/data", RollSize: 4 << 10, Prealloc: 4 << 10, FS: m.Process(), Logger: quiet})
	if err != nil {
		return nil, err
	}
	return Open(context.Background(), l, Options{MaxBatch: 4, Depth: 2, Retries: -1, MaxEpochs: 1, MaxOutage: time.Millisecond, Logger: quiet})
}

// crashWorkload transacts over several lives of a database, until the machine is off, and returns who was acknowledged.
func crashWorkload(m *crashfs.Machine) (acked []string) {
	for life := range 3 {
		x, err := openCrash(m)
		if err != nil {
			return acked
		}
		if life == 0 {
			if _, err := x.Transact(context.Background(), people); err != nil {
				x.Close(context.Background())
				return acked
			}
		}
		var names []string
		var futures []*Future
		for i := range 24 {
			name := fmt.Sprintf("%d-%d", life, i)
			if f, err := x.Submit(context.Background(), person(name, i)); err == nil {
				names, futures = append(names, name), append(futures, f)
			}
			if i%6 == 5 { // some alone, some together
				futures[len(futures)-1].Wait(context.Background())
			}
		}
		for i, f := range futures {
			if _, err := f.Wait(context.Background()); err == nil {
				acked = append(acked, names[i])
			}
		}
		x.Close(context.Background())
	}
	return acked
}

func checkAfterCrash(t *testing.T, m *crashfs.Machine, acked []string, when string) {
	t.Helper()
	x, err := openCrash(m)
	if err != nil {
		t.Errorf("%s: %v", when, err)
		return
	}
	defer func() {
		if err := x.Close(context.Background()); err != nil {
			t.Errorf("%s: closing: %v", when, err)
		}
	}()
	d := x.DB()
	for _, name := range acked {
		if number(t, d, name) < 0 {
			t.Errorf("%s: %s was acknowledged and is gone", when, name)
		}
	}
	if d.BasisT() > 1 {
		mustTransact(t, x, person("after", 1))
	}
	_, err = log.NewReader(x.log, log.ReaderOptions{}).Sync(context.Background(), func(*log.Object) error { return nil })
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("%s: the chain: %v", when, err)
	}
}

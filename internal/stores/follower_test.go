package stores

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/config"
	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/transactor"
)

// follower is a read-only open of the database in this process, with a subscription from the beginning, while other processes own it.
type follower struct {
	r      *transactor.Reader
	cancel context.CancelFunc
	ended  chan struct{}

	mu    sync.Mutex
	last  uint64
	names map[string]uint64 // by the transaction of this name: its t
}

// follow opens store read-only, and sees that no report is missing and none comes twice, whoever owns the database.
func follow(t *testing.T, store string) *follower {
	t.Helper()
	r, err := config.OpenReadOnly(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &follower{r: r, cancel: cancel, ended: make(chan struct{}), names: map[string]uint64{}}
	go func() {
		defer close(f.ended)
		for report, err := range r.Subscribe(ctx, 1) {
			if err != nil {
				if ctx.Err() == nil {
					t.Errorf("the subscription has ended: %v", err)
				}
				return
			}
			f.mu.Lock()
			if report.T != f.last+1 {
				t.Errorf("t = %d is reported behind t = %d", report.T, f.last)
			}
			f.last = report.T
			name, _ := report.DBAfter.Schema().Entid(datom.Keyword("k/name"))
			for _, d := range report.TxData {
				if d.A == name && name != 0 {
					f.names[d.V.Text()] = report.T
				}
			}
			f.mu.Unlock()
		}
	}()
	t.Cleanup(f.end)
	return f
}

func (f *follower) end() {
	f.cancel()
	<-f.ended
	f.r.Close(context.Background())
}

// settle waits until the follower has everything, which b says what it is, and ends it.
func (f *follower) settle(t *testing.T, b *balance) {
	t.Helper()
	missing := func() (n int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		b.mu.Lock()
		defer b.mu.Unlock()
		for name, outcome := range b.outcomes {
			if f.names[name] == 0 && outcome == "ack" {
				n++
			}
		}
		return n
	}
	for deadline := time.Now().Add(time.Minute); missing() > 0 && time.Now().Before(deadline); {
		time.Sleep(50 * time.Millisecond) // it looks by itself
	}
	f.end()
	if n := missing(); n > 0 {
		t.Errorf("%d transactions were acknowledged and not reported; the follower is at t = %d (%v)", n, f.last, f.r.Behind())
	}
	for name, t0 := range f.names {
		if b.outcomes[name] == "not" {
			t.Errorf("%s was answered as not committed, and reported as t = %d", name, t0)
		}
	}
	t.Logf("a follower was told of %d transactions, in order", f.last)
}

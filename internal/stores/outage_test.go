package stores

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/config"
	"github.com/steledb/stele/internal/testserver"
	"github.com/steledb/stele/transactor"
)

// server is a store's server that a test kills.
type server interface {
	Kill() error
	Start(context.Context) error
}

// TestP7_P10_AServerThatDiesUnderLoad: the server is killed at once, without a chance to end in good order, and started again after a while, while 32 goroutines transact. Every
// call has its answer within its deadline, the transactor goes on by itself, and the balance holds.
func TestP7_P10_AServerThatDiesUnderLoad(t *testing.T) {
	t.Run("pg", func(t *testing.T) {
		s := testserver.OwnPostgres(t)
		outages(t, s, s.URL())
	})
	t.Run("s3", func(t *testing.T) {
		s := testserver.OwnMinIO(t)
		environ(t, s.Environ())
		outages(t, s, s.URL())
	})
}

// environ sets the environment for the length of a test.
func environ(t *testing.T, vars []string) {
	t.Helper()
	for _, v := range vars {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
}

func outages(t *testing.T, s server, store string) {
	x, err := config.Open(t.Context(), store, transactor.Options{StoreTimeout: 2 * time.Second, Lease: lease, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close(context.Background())
	if _, err := x.Transact(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	b := newBalance()
	stop := make(chan struct{})
	var work sync.WaitGroup
	for w := range 32 {
		work.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				name := fmt.Sprintf("%d/%d", w, i)
				ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
				_, err := x.Transact(ctx, request(name))
				cancel()
				b.note(name, outcome(err))
				var pending *transactor.PendingError
				if errors.As(err, &pending) {
					t.Errorf("%s has no answer within its deadline", name)
				}
			}
		})
	}
	resumes := func(doing string) {
		t.Helper()
		before := b.acks.Load()
		for deadline := time.Now().Add(30 * time.Second); b.acks.Load() < before+100; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: the transactor does not go on; it has ended: %v", doing, x.Err())
			}
		}
	}
	resumes("at first")
	for i := range 3 {
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(1+i) * time.Second) // the outage
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		resumes(fmt.Sprint("after outage ", i+1))
	}
	close(stop)
	work.Wait()
	if err := x.Close(t.Context()); err != nil {
		t.Error(err)
	}
	b.audit(t, store, true)
}

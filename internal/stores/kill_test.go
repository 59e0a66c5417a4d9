package stores

import (
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/steledb/stele/config"
)

// each runs f on a store of each kind that processes can share, at the same time.
func each(t *testing.T, f func(t *testing.T, store string)) {
	for _, s := range []struct {
		name  string
		store func(*testing.T) string
	}{
		{"fs", func(t *testing.T) string { return "fs:" + diskDir(t) }},
		{"pg", func(t *testing.T) string { return servers.Postgres(t) }},
		{"s3", func(t *testing.T) string { return servers.S3(t) }},
	} {
		t.Run(s.name, func(t *testing.T) {
			store := s.store(t)
			t.Parallel()
			f(t, store)
		})
	}
}

// diskDir is an empty directory on a real disk, which goes away with t.
func diskDir(t *testing.T) string {
	t.Helper()
	for _, parent := range []string{os.TempDir(), "."} {
		if ok, _, err := config.DurableDir(parent); err == nil && ok {
			dir, err := os.MkdirTemp(parent, "stores-")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			return dir
		}
	}
	t.Fatal("there is no directory on a real disk")
	return ""
}

// TestL1_L2_SIGKILL: a process transacts from 64 goroutines and is killed at a random moment, fifty times on one database. After each kill
// everything that it had printed is there, nothing is there twice, and in the end the chain verifies.
func TestL1_L2_SIGKILL(t *testing.T) {
	const rounds = 50
	each(t, func(t *testing.T, store string) {
		b := newBalance()
		for round := range rounds {
			c := start(t, store, fmt.Sprint("round", round), 64, b)
			c.within(t, time.Minute, c.opened, "becoming the owner")
			time.Sleep(rand.N(100 * time.Millisecond)) // the moment of the kill
			c.kill()
			b.audit(t, store, round%10 == 9)
		}
		if n := b.acks.Load(); n < rounds {
			t.Errorf("only %d transactions were acknowledged in %d rounds; the test proves little", n, rounds)
		}
	})
}

// TestL1_L3_L5_L9_TwoProcessesCompete: two processes want one database; thirty times one of them, at random, is killed and another
// started in its place, or stopped for longer than the lease and woken up. Whenever one is gone, the other goes on. A third process, this one, follows, and is told
// of every transaction once, in order.
func TestL1_L3_L5_L8_L9_TwoProcessesCompete(t *testing.T) {
	const rounds = 30
	each(t, func(t *testing.T, store string) {
		b := newBalance()
		born := 0
		spawn := func() *child {
			born++
			return start(t, store, fmt.Sprint("process", born), 16, b)
		}
		both := [2]*child{spawn(), spawn()}
		// serving waits until somebody acknowledges something that was submitted from now on.
		serving := func(doing string, alive *child) {
			t.Helper()
			served := make(chan struct{})
			before := b.acks.Load()
			go func() {
				defer close(served)
				for deadline := time.Now().Add(30 * time.Second); b.acks.Load() < before+20 && time.Now().Before(deadline); {
					time.Sleep(5 * time.Millisecond)
				}
			}()
			alive.within(t, time.Minute, served, doing)
			if b.acks.Load() < before+20 {
				alive.kill()
				t.Fatalf("%s: nobody serves; %s says: %s", doing, alive.name, alive.stderr.String())
			}
		}
		serving("at first", both[0])
		f := follow(t, store)
		kills, stops := 0, 0
		for range rounds {
			i := rand.IntN(2)
			victim, other := both[i], both[1-i]
			if rand.IntN(2) == 0 {
				kills++
				victim.kill()
				both[i] = spawn()
				serving("after a kill", other)
				continue
			}
			stops++
			victim.cmd.Process.Signal(syscall.SIGSTOP)
			if store[:3] != "fs:" { // there the lock decides: nobody takes over from an owner that is only stopped
				time.Sleep(lease + rand.N(lease))
				serving("while one is stopped", other)
			} else {
				time.Sleep(rand.N(lease))
			}
			victim.cmd.Process.Signal(syscall.SIGCONT)
			time.Sleep(rand.N(lease / 2)) // it finds out what has become of it, at some time
		}
		for _, c := range both {
			c.kill()
		}
		t.Logf("%d kills, %d stops, %d processes", kills, stops, born)
		b.audit(t, store, true)
		f.settle(t, b)
	})
}

package stores

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/steledb/stele/internal/netfault"
	"github.com/steledb/stele/internal/testserver"
	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/mem"
	"github.com/steledb/stele/transactor"
)

var soakFor = flag.Duration("soak", 10*time.Second, "how long TestSoak runs on each backend")

// TestSoak: on every backend at the same time, processes compete for one database while everything goes wrong that can: they are killed and
// stopped, the network between them and the server is slow, silent, cut or gone, and the server dies. In the end the balance holds. `make soak` runs it for ten minutes.
func TestSoak(t *testing.T) {
	t.Run("mem", func(t *testing.T) {
		t.Parallel()
		soakMemory(t)
	})
	t.Run("fs", func(t *testing.T) {
		store := "fs:" + diskDir(t)
		t.Parallel()
		soak(t, store, nil, nil)
	})
	t.Run("pg", func(t *testing.T) {
		s := testserver.OwnPostgres(t)
		t.Parallel()
		proxy := listen(t, s.Addr())
		u, err := url.Parse(s.URL())
		if err != nil {
			t.Fatal(err)
		}
		u.Host = proxy.Addr()
		soak(t, u.String(), proxy, s)
	})
	t.Run("s3", func(t *testing.T) {
		s := testserver.OwnMinIO(t)
		for _, v := range s.Environ() { // all servers of one process have the same, so they may stay set
			name, value, _ := strings.Cut(v, "=")
			if err := os.Setenv(name, value); err != nil {
				t.Fatal(err)
			}
		}
		t.Parallel()
		proxy := listen(t, s.Addr())
		soak(t, s.URLAt(proxy.Addr(), "soak"), proxy, s)
	})
}

func listen(t *testing.T, addr string) *netfault.Proxy {
	t.Helper()
	proxy, err := netfault.Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	return proxy
}

// soak lets two processes compete for store, and makes their lives hard.
func soak(t *testing.T, store string, network *netfault.Proxy, s server) {
	b := newBalance()
	born := 0
	spawn := func() *child {
		born++
		return start(t, store, fmt.Sprint("process", born), 8, b)
	}
	both := [2]*child{spawn(), spawn()}
	serving := func(doing string) {
		t.Helper()
		before := b.acks.Load()
		for deadline := time.Now().Add(time.Minute); b.acks.Load() < before+20; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				for _, c := range both {
					c.kill()
				}
				t.Fatalf("after %s nobody serves; %s says: %s\n%s says: %s", doing, both[0].name, both[0].stderr.String(), both[1].name, both[1].stderr.String())
			}
		}
	}
	serving("the beginning")
	count := map[string]int{}
	for end := time.Now().Add(*soakFor); time.Now().Before(end); {
		i := rand.IntN(2)
		what := misfortune(both[i], network, s, func() { both[i] = spawn() })
		count[what]++
		if rand.IntN(3) == 0 {
			serving(what)
		}
	}
	if network != nil {
		network.Set(netfault.Faults{})
	}
	serving("the end")
	for _, c := range both {
		c.kill()
	}
	t.Logf("%d processes; %v", born, count)
	b.audit(t, store, true)
}

// misfortune is one thing that goes wrong; it returns its name once it is over.
func misfortune(victim *child, network *netfault.Proxy, s server, replace func()) string {
	short := func() { time.Sleep(20*time.Millisecond + rand.N(500*time.Millisecond)) }
	n := 2
	if network != nil {
		n = 9
	}
	switch rand.IntN(n) {
	case 0:
		victim.kill()
		replace()
		return "a kill"
	case 1:
		victim.cmd.Process.Signal(syscall.SIGSTOP)
		time.Sleep(rand.N(2 * lease))
		victim.cmd.Process.Signal(syscall.SIGCONT)
		return "a stop"
	case 2:
		network.Set(netfault.Both(netfault.Link{Delay: rand.N(20 * time.Millisecond)}))
		short()
		network.Set(netfault.Faults{})
		return "a slow network"
	case 3, 4:
		network.Reset()
		return "a reset"
	case 5:
		network.Set(netfault.Faults{Down: netfault.Link{Drop: true}})
		short()
		network.Set(netfault.Faults{})
		return "lost replies"
	case 6:
		network.Set(netfault.Faults{Up: netfault.Link{Hold: true}})
		short()
		network.Set(netfault.Faults{})
		return "late requests"
	case 7:
		network.Refuse()
		network.Reset()
		short()
		if err := network.Accept(); err != nil {
			return err.Error()
		}
		return "no network"
	default:
		if rand.IntN(4) > 0 {
			short()
			return "peace"
		}
		err := s.Kill()
		short()
		if err = errors.Join(err, s.Start(context.Background())); err != nil {
			return err.Error()
		}
		return "a dead server"
	}
}

// soakMemory is the same within one process, on memory, whose calls fail before and after they are done, are delivered twice, or never return, while
// owners are deposed, frozen and thawed.
func soakMemory(t *testing.T) {
	server := mem.NewServer()
	errFault := errors.New("a fault")
	hook := func(c mem.Call) mem.Fault {
		switch rand.IntN(200) {
		case 0:
			return mem.Fault{Fail: errFault}
		case 1:
			return mem.Fault{Lose: errFault}
		case 2:
			return mem.Fault{Twice: true}
		case 3:
			return mem.Fault{Fail: log.WithOutcome(log.NotWritten, errFault)}
		}
		return mem.Fault{}
	}
	b := newBalance()
	type owner struct {
		x *transactor.Transactor
		l *mem.Log
	}
	var mu sync.Mutex
	var owners []owner
	open := func() {
		opt := options(fmt.Sprint("owner", len(owners)))
		opt.TakeOver, opt.StoreTimeout, opt.Logger = true, time.Second, slog.New(slog.DiscardHandler)
		for {
			l := server.Open("main", mem.Options{Hook: hook})
			x, err := transactor.Open(t.Context(), l, opt)
			if err != nil {
				continue
			}
			mu.Lock()
			owners = append(owners, owner{x, l})
			mu.Unlock()
			return
		}
	}
	open()
	for {
		if _, err := owners[0].x.Transact(t.Context(), schema); err == nil {
			break
		}
	}
	stop := make(chan struct{})
	var work sync.WaitGroup
	for w := range 8 {
		work.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				mu.Lock()
				o := owners[len(owners)-1-min(rand.IntN(4)/3, len(owners)-1)] // the newest, or the one before
				mu.Unlock()
				name := fmt.Sprintf("%d/%d", w, i)
				_, err := o.x.Transact(context.Background(), request(name))
				b.note(name, outcome(err))
				if err != nil {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	for end := time.Now().Add(*soakFor); time.Now().Before(end); {
		time.Sleep(rand.N(300 * time.Millisecond))
		if rand.IntN(2) == 0 {
			o := owners[len(owners)-1]
			o.l.Freeze()
			open()
			time.Sleep(rand.N(100 * time.Millisecond))
			o.l.Thaw()
			continue
		}
		open()
	}
	close(stop)
	for _, o := range owners {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		o.x.Close(ctx)
		cancel()
	}
	work.Wait()
	t.Logf("%d owners", len(owners))
	opt := options("audit")
	opt.TakeOver, opt.Logger = true, slog.New(slog.DiscardHandler)
	x, err := transactor.Open(t.Context(), server.Open("main", mem.Options{}), opt)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close(context.Background())
	b.judge(t, x.DB())
}

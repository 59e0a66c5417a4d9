package stores

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/steledb/stele/config"
	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
	"github.com/steledb/stele/internal/testserver"
	"github.com/steledb/stele/log"
	"github.com/steledb/stele/transactor"
	"github.com/steledb/stele/tx"
)

var servers testserver.Shared

func TestMain(m *testing.M) {
	if store := os.Getenv(victimStore); store != "" {
		if err := victim(store); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(servers.Main(m))
}

// What a victim is told.
const (
	victimStore   = "STELE_TEST_VICTIM_STORE"
	victimName    = "STELE_TEST_VICTIM_NAME"
	victimWorkers = "STELE_TEST_VICTIM_WORKERS"
)

// lease is short, so that tests of takeovers are.
const lease = time.Second

var schema = tx.Data{
	tx.Map{"db/ident": datom.Keyword("k/name"), "db/valueType": datom.Keyword("db.type/string"), "db/cardinality": datom.Keyword("db.cardinality/one")},
	tx.Map{"db/ident": datom.Keyword("p/id"), "db/valueType": datom.Keyword("db.type/string"), "db/cardinality": datom.Keyword("db.cardinality/one"),
		"db/unique": datom.Keyword("db.unique/identity")},
}

// request asserts a fresh person, and the same name of the transaction itself, where nothing keeps it unique.
func request(name string) tx.Data {
	return tx.Data{tx.Map{"p/id": name}, tx.Map{"db/id": tx.TxEntity, "k/name": name}}
}

func options(name string) transactor.Options {
	return transactor.Options{MaxBatch: 64, Owner: name, Lease: lease, StoreTimeout: 5 * time.Second, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}
}

// victim transacts from many goroutines and prints what becomes of each transaction — "ack", "not" or "unknown" and its name — until it is killed. When it
// is deposed it opens the database again, and waits for its turn.
func victim(store string) error {
	var out sync.Mutex
	say := func(line string) {
		out.Lock()
		defer out.Unlock()
		io.WriteString(os.Stdout, line+"\n") // one write a line: what was printed had been answered
	}
	workers, err := strconv.Atoi(os.Getenv(victimWorkers))
	if err != nil {
		return err
	}
	name := os.Getenv(victimName)
	for term := 0; ; term++ {
		ctx := context.Background()
		x, err := config.Open(ctx, store, options(name))
		if err != nil { // the store is out of reach, in a soak: whatever looks after a process would start it again
			fmt.Fprintln(os.Stderr, err)
			time.Sleep(lease / 10)
			continue
		}
		say("open " + strconv.FormatUint(x.DB().BasisT(), 10))
		if x.DB().Schema().AttrByIdent("k/name") == nil {
			if _, err := x.Transact(ctx, schema); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
		var work sync.WaitGroup
		for w := range workers {
			work.Go(func() {
				for i := 0; ; i++ {
					name := fmt.Sprintf("%s/%d/%d/%d", name, term, w, i)
					_, err := x.Transact(ctx, request(name))
					say(outcome(err) + " " + name)
					if err != nil {
						return
					}
				}
			})
		}
		work.Wait()
		fmt.Fprintln(os.Stderr, "the term has ended:", x.Close(ctx))
	}
}

// outcome is what an answer says of a transaction.
func outcome(err error) string {
	var pending *transactor.PendingError
	switch {
	case err == nil:
		return "ack"
	case errors.Is(err, transactor.ErrUnknownOutcome), errors.As(err, &pending):
		return "unknown"
	default:
		return "not"
	}
}

// balance is what a test knows of the transactions it has submitted.
type balance struct {
	mu       sync.Mutex
	outcomes map[string]string
	acks     atomic.Int64
}

func newBalance() *balance { return &balance{outcomes: map[string]string{}} }

func (b *balance) note(name, outcome string) {
	b.mu.Lock()
	b.outcomes[name] = outcome
	b.mu.Unlock()
	if outcome == "ack" {
		b.acks.Add(1)
	}
}

// audit opens the database and sees that what was acknowledged is there, once, that what was answered as not committed is not, and that
// nothing is there twice; and, if asked, a reader proves the chain from its beginning.
func (b *balance) audit(t *testing.T, store string, chain bool) {
	t.Helper()
	opt := options("audit")
	opt.Logger = slog.New(slog.DiscardHandler)
	opt.TakeOver = !strings.HasPrefix(store, "fs:")
	x, err := config.Open(t.Context(), store, opt)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close(context.Background())
	d := x.DB()
	b.judge(t, d)
	if err := x.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if chain {
		verify(t, store, d.BasisT())
	}
}

// judge is audit on a value.
func (b *balance) judge(t *testing.T, d db.DB) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	times := map[string]int{}
	if d.Schema().AttrByIdent("k/name") != nil {
		for f, err := range d.History().Datoms(db.AEVT, datom.Keyword("k/name")) {
			if err != nil {
				t.Fatal(err)
			}
			times[f.V.Text()]++
		}
	}
	count, resolved := map[string]int{}, 0
	for name, outcome := range b.outcomes {
		count[outcome]++
		switch n := times[name]; {
		case outcome == "ack" && n == 0:
			t.Errorf("%s was acknowledged and is lost", name)
		case outcome == "unknown" && n > 0:
			resolved++
		case outcome == "not" && n > 0:
			t.Errorf("%s was answered as not committed and is there", name)
		}
		if _, err := d.Entid(db.LookupRef{Attr: datom.Keyword("p/id"), Value: name}); outcome == "ack" && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, n := range times {
		if n > 1 {
			t.Errorf("%s is there %d times", name, n)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	t.Logf("submitted %d, acknowledged %d, refused %d, unknown %d (of which %d are there, and %d are not), lost 0, doubled 0; in the database %d",
		len(b.outcomes), count["ack"], count["not"], count["unknown"], resolved, count["unknown"]-resolved, len(times))
}

// verify proves the chain from its beginning, as a reader does.
func verify(t *testing.T, store string, basis uint64) {
	t.Helper()
	l, err := config.OpenLog(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	last := uint64(0)
	_, err = log.NewReader(l, log.ReaderOptions{}).Sync(t.Context(), func(o *log.Object) error {
		last = o.LastT()
		return nil
	})
	if err != nil || last != basis {
		t.Fatalf("the chain ends at t = %d, the database at %d: %v", last, basis, err)
	}
}

// child is a victim's process.
type child struct {
	cmd    *exec.Cmd
	name   string
	opened chan struct{} // a token for each time that it has become the owner
	ended  chan struct{} // closed once its output has been read to its end
	stderr bytes.Buffer
}

// start starts a victim whose answers go into b.
func start(t *testing.T, store, name string, workers int, b *balance) *child {
	t.Helper()
	c := &child{name: name, opened: make(chan struct{}, 1000), ended: make(chan struct{})}
	c.cmd = exec.Command(os.Args[0])
	c.cmd.Env = append(os.Environ(), victimStore+"="+store, victimName+"="+name, victimWorkers+"="+strconv.Itoa(workers))
	c.cmd.Stderr = &c.stderr
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.ended)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			what, name, _ := strings.Cut(lines.Text(), " ")
			switch what {
			case "open":
				c.opened <- struct{}{}
			case "ack", "not", "unknown":
				b.note(name, what)
			}
		}
	}()
	t.Cleanup(func() { c.kill() })
	return c
}

// kill ends the process at once and waits until its output has been read.
func (c *child) kill() {
	c.cmd.Process.Kill()
	<-c.ended
	_ = c.cmd.Wait()
}

// within waits for what done tells, or ends the test with what c says.
func (c *child) within(t *testing.T, d time.Duration, done <-chan struct{}, what string) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
	case <-c.ended:
		_ = c.cmd.Wait()
		t.Fatalf("%s: %s has ended: %s", what, c.name, c.stderr.String())
	case <-timer.C:
		c.kill()
		t.Fatalf("%s: not within %v; %s says: %s", what, d, c.name, c.stderr.String())
	}
}

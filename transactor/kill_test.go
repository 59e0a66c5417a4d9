package transactor

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/fs"
	"github.com/steledb/stele/tx"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(killDir); dir != "" {
		if err := victim(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

const (
	killDir     = "STELE_TEST_KILL_DIR"
	killRounds  = 50
	killWorkers = 64
)

// victim transacts from many goroutines and prints each acknowledgement, until it is killed. Round and worker and number make
// a transaction's name; it is asserted of a fresh person, and of the transaction itself, where nothing keeps it unique.
func victim(dir string) error {
	l, err := openFS(dir)
	if err != nil {
		return err
	}
	x, err := Open(context.Background(), l, Options{MaxBatch: 64, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	var out sync.Mutex
	say := func(line string) {
		out.Lock()
		defer out.Unlock()
		io.WriteString(os.Stdout, line+"\n") // one write a line: what was printed was acknowledged
	}
	say("open " + strconv.FormatUint(x.DB().BasisT(), 10))
	if x.DB().BasisT() == 1 {
		schema := append(tx.Data{tx.Map{"db/ident": datom.Keyword("k/name"), "db/valueType": datom.Keyword("db.type/string"), "db/cardinality": datom.Keyword("db.cardinality/one")}}, people...)
		if _, err := x.Transact(context.Background(), schema); err != nil {
			return err
		}
	}
	var workers sync.WaitGroup
	for w := range killWorkers {
		workers.Go(func() {
			for i := 0; ; i++ {
				name := fmt.Sprintf("%s/%d/%d", os.Getenv("STELE_TEST_KILL_ROUND"), w, i)
				_, err := x.Transact(context.Background(), tx.Data{
					tx.Map{"p/id": name, "p/n": int64(i)},
					tx.Map{"db/id": tx.TxEntity, "k/name": name},
				})
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					return
				}
				say(name)
			}
		})
	}
	workers.Wait()
	return x.Close(context.Background())
}

func openFS(dir string) (log.Log, error) { return fs.Open(context.Background(), fs.Options{Dir: dir}) }

// A child transacts from 64 goroutines and is killed with SIGKILL at a random moment, fifty times on one database. After each kill
// everything that it had printed is there, nothing is there twice, and the chain verifies.
func TestL1_L2_SIGKILL(t *testing.T) {
	dir := t.TempDir()
	acked := make(map[string]bool)
	for round := range killRounds {
		for _, name := range killOne(t, dir, round) {
			acked[name] = true
		}
		l, err := openFS(dir)
		if err != nil {
			t.Fatal(err)
		}
		x, err := Open(context.Background(), l, Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		d := x.DB()
		times := make(map[string]int)
		if d.Schema().AttrByIdent("k/name") != nil {
			for f := range d.History().Datoms(db.AEVT, datom.Keyword("k/name")) {
				times[f.V.Text()]++
			}
		}
		lost, doubled := 0, 0
		for name := range acked {
			if times[name] == 0 || number(t, d, name) < 0 {
				lost++
			}
		}
		for _, n := range times {
			if n > 1 {
				doubled++
			}
		}
		if lost > 0 || doubled > 0 {
			t.Fatalf("round %d: of %d acknowledged transactions %d are lost, %d are there twice", round, len(acked), lost, doubled)
		}
		if err := x.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		if round%10 == 9 {
			verifyChain(t, dir, d.BasisT())
		}
	}
	if len(acked) < killRounds {
		t.Errorf("only %d transactions were acknowledged in %d rounds; the test proves little", len(acked), killRounds)
	}
	t.Logf("%d rounds, %d transactions acknowledged, all there, once", killRounds, len(acked))
}

// killOne runs a victim for a little while and returns what it acknowledged.
func killOne(t *testing.T, dir string, round int) (acked []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), killDir+"="+dir, "STELE_TEST_KILL_ROUND="+strconv.Itoa(round))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	opened := false
	for lines.Scan() {
		if line := lines.Text(); !strings.HasPrefix(line, "open ") {
			acked = append(acked, line)
			continue
		}
		opened = true
		kill := time.AfterFunc(rand.N(60*time.Millisecond), func() { cmd.Process.Kill() })
		defer kill.Stop()
	}
	err = cmd.Wait()
	if !opened || ctx.Err() != nil {
		t.Fatalf("round %d: the child: %v\n%s", round, err, stderr.String())
	}
	return acked
}

func verifyChain(t *testing.T, dir string, basis uint64) {
	t.Helper()
	l, err := openFS(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	chain := chainOf(t, l)
	if last := chain[len(chain)-1]; last.LastT() != basis {
		t.Fatalf("the chain ends at t = %d, the database at %d", last.LastT(), basis)
	}
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/steledb/stele/config"
	"github.com/steledb/stele/internal/testserver"
	"github.com/steledb/stele/transactor"
	"github.com/steledb/stele/tx"
)

var servers testserver.Shared

func TestMain(m *testing.M) { goleak.VerifyTestMain(servers.Main(m)) }

// diskTemp is an empty directory on a local disk, which goes away with t.
func diskTemp(t *testing.T) string {
	t.Helper()
	dir, _, err := diskDir(candidates(), config.DurableDir)
	if err != nil {
		t.Fatal(err)
	}
	if dir, err = os.MkdirTemp(dir, "tx-throughput-test-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// stores are the URLs of fresh stores.
func stores(t *testing.T) map[string]string {
	return map[string]string{
		"mem":     "mem:" + t.Name(),
		"delayed": "mem:" + t.Name() + "-delayed?delay=100us",
		"fs":      fileURL(diskTemp(t)),
	}
}

func runs(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	if status := run(t.Context(), args, &out, &errs); status != 0 {
		t.Fatalf("%q: status %d\n%s%s", args, status, out.String(), errs.String())
	}
	return out.String(), errs.String()
}

func results(t *testing.T, stdout string) (rs []result) {
	t.Helper()
	for line := range strings.Lines(stdout) {
		var r result
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()
		if err := d.Decode(&r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		rs = append(rs, r)
	}
	return rs
}

func TestRun(t *testing.T) {
	for name, url := range stores(t) {
		for _, shape := range []string{"insert", "update"} {
			t.Run(name+"/"+shape, func(t *testing.T) {
				args := []string{"-store", url, "-concurrency", "1,5", "-transactions", "120", "-datoms", "4", "-shape", shape, "-json"}
				if shape == "update" {
					args = append(args, "-preload", "700")
				}
				stdout, stderr := runs(t, args...)
				rs := results(t, stdout)
				if len(rs) != 2 {
					t.Fatal(stdout)
				}
				for i, r := range rs {
					clients := []int{1, 5}[i]
					switch {
					case r.Concurrency != clients, r.Transactions != 120, r.Errors != 0, r.Store != url, r.Durable != (name == "fs"):
					case r.TxPerSec <= 0, r.DatomsPerSec < 3.99*r.TxPerSec, r.DatomsPerSec > 4.01*r.TxPerSec:
					case r.P50 <= 0, r.P90 < r.P50, r.P99 < r.P90, r.Max < r.P99, r.Max > r.Seconds*1e6*1.01:
					case r.Objects < int64(120/clients), r.Objects > 120, r.Fences < r.Objects, r.InFlightPeak < 1:
					case r.BatchMean < 1, r.BatchPeak > int64(clients), r.BatchMean > float64(r.BatchPeak):
					case clients == 1 && (r.BatchPeak != 1 || r.Objects != 120):
					default:
						continue
					}
					t.Errorf("%+v", r)
				}
				for _, want := range []string{"1 client: measuring", "looking for 120 acknowledged transactions", "opened again by replay in", "every acknowledged transaction is there"} {
					if !strings.Contains(stderr, want) {
						t.Errorf("stderr does not say %q:\n%s", want, stderr)
					}
				}
			})
		}
	}
}

// TestRunTable: with no store, the database is on a local disk and does not outlive the program.
func TestRunTable(t *testing.T) {
	stdout, _ := runs(t, "-concurrency", "2", "-transactions", "20", "-rounds", "3", "-max-batch", "7", "-depth", "1")
	for _, want := range []string{
		"a local disk", "(durable: fdatasync", "CPUs", "for a write of 16 KiB and fdatasync", "for a fence, idle",
		"batches of at most 7 transactions and 4,194,304 bytes, at most 1 in flight",
		"a new entity with a unique key and 1 text: 2 datoms beside the instant",
		"20 transactions a level, medians of 3 rounds in turn",
		"clients       tx/s", "\n      2  ", "opened again by replay in", "every acknowledged transaction is there",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the table does not say %q:\n%s", want, stdout)
		}
	}
	_, rest, _ := strings.Cut(stdout, "fs:")
	dir, _, _ := strings.Cut(rest, " ")
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is left behind: %v", dir, err)
	}
}

func TestRunFloor(t *testing.T) {
	for name, url := range stores(t) {
		for _, args := range []string{"-shape insert", "-shape update -preload 50"} {
			t.Run(name+"/"+args, func(t *testing.T) {
				stdout, _ := runs(t, append([]string{"-store", url, "-concurrency", "1,6", "-transactions", "60", "-floor", "-json"}, strings.Fields(args)...)...)
				for _, r := range results(t, stdout) {
					if f := r.Floor; f == nil || f.BareTxPerSec <= 0 || f.BareP50 <= 0 || f.InlineTxPerSec <= 0 || f.InlineP50 <= 0 {
						t.Errorf("%+v, floor %+v", r, f)
					}
				}
			})
		}
	}
}

// trigger is a writer that calls once when it has seen a text.
type trigger struct {
	text string
	call func()

	mu   sync.Mutex
	seen bytes.Buffer
	done bool
}

func (w *trigger) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen.Write(p)
	if !w.done && strings.Contains(w.seen.String(), w.text) {
		w.done = true
		w.call()
	}
	return len(p), nil
}

// TestInterrupt: whenever the program is told to stop, it ends, with what was measured, and says so.
func TestInterrupt(t *testing.T) {
	for _, c := range []struct {
		at, args string
		rows     bool
	}{
		{"8 clients: measuring", "-concurrency 1,8 -transactions 100", true},
		{"8 clients, the log alone: measuring", "-concurrency 8 -transactions 100 -floor", true},
		{"8 clients, on one goroutine: measuring", "-concurrency 8 -transactions 100 -floor", true},
		{"loading", "-concurrency 8 -shape update -preload 1000000", false},
		{"round 1 of 9", "-concurrency 8 -transactions 100 -rounds 9", true},
	} {
		t.Run(c.at, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stderr := &trigger{text: c.at, call: cancel}
			var stdout bytes.Buffer
			args := append([]string{"-store", "mem:" + t.Name(), "-json"}, strings.Fields(c.args)...)
			if status := run(ctx, args, &stdout, stderr); status != 0 {
				t.Errorf("status %d", status)
			}
			if !stderr.done || !strings.Contains(stderr.seen.String(), "interrupted") {
				t.Errorf("stderr: %s", stderr.seen.String())
			}
			if rows := results(t, stdout.String()); (len(rows) > 0) != c.rows {
				t.Errorf("stdout: %s", stdout.String())
			}
		})
	}
}

// TestInterruptEndsTheLoop: a loop that would run for an hour ends with its clients' answers.
func TestInterruptEndsTheLoop(t *testing.T) {
	b := open(t, &settings{levels: []int{3}, duration: time.Hour, shape: shapeInsert, datoms: 2})
	ctx, cancel := context.WithCancel(t.Context())
	l := cancelling{full{b}, cancel}
	lp := runLoop(ctx, l, 0, 3, b.s.limit(), b.p, "", nil)
	if n := lp.acknowledged(); n < cancelAfter || lp.seconds > 600 {
		t.Errorf("%d acknowledged in %f seconds", n, lp.seconds)
	}
	if n, err := lp.failed(); n > 0 {
		t.Errorf("%d failed: %v", n, err)
	}
}

// cancelling is a lane that ends the context after some transactions of its first client.
type cancelling struct {
	lane
	cancel func()
}

type cancellingClient struct {
	clientLane
	n      int
	cancel func()
}

const cancelAfter = 10

func (l cancelling) client(level, i int) clientLane {
	c := &cancellingClient{clientLane: l.lane.client(level, i), cancel: func() {}}
	if i == 0 {
		c.cancel = l.cancel
	}
	return c
}

func (c *cancellingClient) commit(ctx context.Context, n uint64) (uint64, bool, error) {
	if c.n++; c.n == cancelAfter {
		c.cancel()
	}
	return c.clientLane.commit(ctx, n)
}

// open opens a bench on a fresh store in memory.
func open(t *testing.T, s *settings) *bench {
	t.Helper()
	b, err := openBench(t.Context(), s, "mem:"+t.Name(), newProgress(&bytes.Buffer{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// TestCheckFindsWhatIsMissing: every way in which an acknowledged transaction can be wrong is found.
func TestCheckFindsWhatIsMissing(t *testing.T) {
	for _, shape := range []string{shapeInsert, shapeUpdate} {
		t.Run(shape, func(t *testing.T) {
			b := open(t, &settings{levels: []int{3}, transactions: 50, shape: shape, datoms: 4})
			if shape == shapeUpdate {
				if n, err := b.preload(t.Context(), 20); n != 20 || err != nil {
					t.Fatal(n, err)
				}
			}
			before := b.x.DB()
			if _, err := b.level(t.Context(), 3); err != nil {
				t.Fatal(err)
			}
			lp := b.loops[0]
			if err := b.check(b.x.DB(), lp); err != nil {
				t.Fatal(err)
			}
			missing := func(what string, err error) {
				t.Helper()
				if err == nil || !strings.Contains(err.Error(), "AN ACKNOWLEDGED TRANSACTION IS MISSING") {
					t.Errorf("%s: %v", what, err)
				}
			}
			missing("a database before the loop", b.check(before, lp))
			missing("all but the last transaction", b.check(b.x.DB().AsOf(b.x.DB().BasisT()-1), lp))
			i := slices.IndexFunc(lp.clients, func(c *client) bool { return c.acks.n > 0 })
			a := &lp.clients[i].acks
			first := &a.chunks[0][0]
			t0 := first.t
			first.t++
			missing("another t", b.check(b.x.DB(), lp))
			first.t = 0
			if err := b.check(b.x.DB(), lp); err != nil {
				t.Errorf("what was not acknowledged need not be there: %v", err)
			}
			first.t = t0
			if shape == shapeInsert {
				text := tx.RetractAll(tx.Ref(attrKey, b.w.key(number(0, i, 0))), b.w.texts[2])
				if _, err := b.x.Transact(t.Context(), tx.Data{text}); err != nil {
					t.Fatal(err)
				}
				missing("an entity without one of its texts", b.check(b.x.DB(), lp))
				first.t = 0
			}
			a.add(ack{t: b.x.DB().BasisT(), took: 1})
			missing("one that never was", b.check(b.x.DB(), lp))
		})
	}
}

// TestReAssertIsNoMeasurement: a report with fewer datoms than the label says ends the run.
func TestReAssertIsNoMeasurement(t *testing.T) {
	for _, shape := range []string{shapeInsert, shapeUpdate} {
		t.Run(shape, func(t *testing.T) {
			b := open(t, &settings{levels: []int{1}, transactions: 5, shape: shape, datoms: 2})
			if shape == shapeUpdate {
				if _, err := b.preload(t.Context(), 1); err != nil {
					t.Fatal(err)
				}
			}
			c := full{b}.client(0, 0)
			if _, _, err := c.commit(t.Context(), 7); err != nil {
				t.Fatal(err)
			}
			_, fatal, err := c.commit(t.Context(), 7)
			if !fatal || err == nil || !strings.Contains(err.Error(), "has 0 datoms") {
				t.Errorf("%t %v", fatal, err)
			}
		})
	}
}

// TestErrorsAreCounted: what fails is no throughput, and the run fails.
func TestErrorsAreCounted(t *testing.T) {
	b := open(t, &settings{levels: []int{2}, transactions: 100, shape: shapeInsert, datoms: 2})
	if err := b.close(); err != nil {
		t.Fatal(err)
	}
	r, err := b.level(t.Context(), 2)
	if err == nil || !strings.Contains(err.Error(), transactor.ErrClosed.Error()) {
		t.Error(err)
	}
	if r == nil || r.Errors != 2 || r.Transactions != 0 || r.TxPerSec != 0 {
		t.Errorf("%+v", r)
	}
}

func TestRunFails(t *testing.T) {
	for args, want := range map[string]string{
		"-store pg:x": `there is no store "pg:"`,
		"-store postgres://u:secret@127.0.0.1:1/d":  "connection refused",
		"-store mem:x?delay=fast":                   `option delay is "fast"`,
		"-store mem:y -transactions 1 -cpuprofile ": "",
	} {
		if want == "" {
			args += filepath.Join(diskTemp(t), "no", "such", "dir") + " -concurrency 1"
			want = "no such file or directory"
		}
		var stdout, stderr bytes.Buffer
		if status := run(t.Context(), strings.Fields(args), &stdout, &stderr); status != 1 || !strings.Contains(stderr.String(), want) ||
			strings.Contains(stderr.String(), "secret") {
			t.Errorf("%q: status %d, %s", args, status, stderr.String())
		}
	}
}

func TestCPUProfile(t *testing.T) {
	file := filepath.Join(diskTemp(t), "cpu.prof")
	runs(t, "-store", "mem:"+t.Name(), "-concurrency", "2", "-transactions", "50", "-cpuprofile", file)
	if info, err := os.Stat(file); err != nil || info.Size() == 0 {
		t.Errorf("%v %v", info, err)
	}
}

// TestAccept runs the whole comparison, briefly: what it says depends on the machine, that it says it does not.
func TestAccept(t *testing.T) {
	var stdout, stderr bytes.Buffer
	status := run(t.Context(), []string{"-accept", "-duration", "50ms"}, &stdout, &stderr)
	for _, want := range []string{"p50 at 1 / two store calls", "tx/s at 256 / at 1", "p50 at 256 / at 1", "128 per fdatasync", "≤   1.20", "≥  50.00", "≤   3.00", "≥   0.60"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("%q is not said:\n%s%s", want, stdout.String(), stderr.String())
		}
	}
	if failed := strings.Contains(stdout.String(), " NO "); failed != (status == 1) {
		t.Errorf("status %d:\n%s", status, stdout.String())
	}
}

func TestKeysAndTexts(t *testing.T) {
	w := newWorkload(shapeInsert, 3)
	seen := map[string]bool{}
	for _, level := range []int{0, 1, maxLevels - 1, preloadLevel} {
		for _, client := range []int{0, 1, maxClients - 1} {
			for seq := range 100 {
				n := number(level, client, seq)
				for _, s := range []string{w.key(n), w.text(n, 0), w.text(n, 1)} {
					if len(s) != 24 || seen[s] {
						t.Fatalf("%q of level %d, client %d, %d", s, level, client, seq)
					}
					seen[s] = true
				}
			}
		}
	}
	if newWorkload(shapeInsert, 3).key(1) == w.key(1) {
		t.Error("two runs have the same keys")
	}
}

func TestAcks(t *testing.T) {
	var a acks
	for i := range 3*acksChunk + 1 {
		a.add(ack{t: uint64(i)})
	}
	next := 0
	for i, x := range a.all {
		if i != next || x.t != uint64(i) {
			t.Fatal(i, x)
		}
		next++
	}
	if next != a.n || a.n != 3*acksChunk+1 {
		t.Error(next, a.n)
	}
}

func TestProgress(t *testing.T) {
	var lines bytes.Buffer
	p := newProgress(&lines)
	p.step("step %d", 1)
	p.tick("tick")
	p.note("note")
	p.done()
	if lines.String() != "step 1\nnote\n" {
		t.Errorf("%q", lines.String())
	}
	lines.Reset()
	p = &progress{w: &lines, terminal: true}
	p.step("measuring")
	p.tick("10")
	p.note("note")
	want := "\rmeasuring" + "\r10       " + "\r  \r" + "note\n"
	if lines.String() != want {
		t.Errorf("%q, want %q", lines.String(), want)
	}
}

// TestSyncTime: the probe writes where it is told to, and leaves nothing.
func TestSyncTime(t *testing.T) {
	dir := diskTemp(t)
	d, err := syncTime(t.Context(), dir, 4096)
	if err != nil || d <= 0 {
		t.Error(d, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
	if _, err := syncTime(t.Context(), filepath.Join(dir, "none"), 4096); err == nil {
		t.Error("a directory that is not there")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(fmt.Errorf("enough"))
	if _, err := syncTime(ctx, dir, 4096); err == nil || err.Error() != "enough" {
		t.Error(err)
	}
}

// TestNetworkStores runs the sweep and the comparison, briefly, on the real servers, near and behind a proxy.
func TestNetworkStores(t *testing.T) {
	for name, store := range map[string]string{"pg": servers.Postgres(t), "s3": servers.S3(t)} {
		t.Run(name, func(t *testing.T) {
			out, _ := runs(t, "-store", store, "-concurrency", "1,8", "-transactions", "40", "-floor", "-delay", "1ms")
			for _, part := range []string{"through a proxy that adds 1ms each way", "plain tx/s", "every acknowledged transaction is there"} {
				if !strings.Contains(out, part) {
					t.Errorf("no %q in\n%s", part, out)
				}
			}
			var stdout, stderr bytes.Buffer
			status := run(t.Context(), []string{"-accept", "-store", store, "-duration", "100ms"}, &stdout, &stderr)
			if status > 1 || strings.Count(stdout.String(), "yes")+strings.Count(stdout.String(), " NO ") < 3 || strings.Contains(stderr.String(), "secret") {
				t.Errorf("status %d\n%s\n%s", status, stdout.String(), stderr.String())
			}
			if status == 0 && strings.Contains(stdout.String(), " NO ") || status == 1 && !strings.Contains(stdout.String(), " NO ") {
				t.Errorf("status %d\n%s\n%s", status, stdout.String(), stderr.String())
			}
		})
	}
}

// TestPressure runs the whole of it, briefly: what it says depends on the machine, that it says it does not.
func TestPressure(t *testing.T) {
	var stdout, stderr bytes.Buffer
	status := run(t.Context(), []string{"-pressure", "-duration", "300ms"}, &stdout, &stderr)
	if status > 1 || strings.Count(stdout.String(), "yes")+strings.Count(stdout.String(), " NO ") != 4 || !strings.Contains(stdout.String(), "refused") {
		t.Errorf("status %d\n%s\n%s", status, stdout.String(), stderr.String())
	}
}

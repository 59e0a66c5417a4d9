package transactor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
	"github.com/steledb/stele/log/fs"
	"github.com/steledb/stele/tx"
)

// hardLimit is what docs/memory.md says that a process needs for a budget, and goMemLimit the GOMEMLIMIT that goes with a limit.
func hardLimit(budget int64) int64 { return 2*budget + 64*megabyte }
func goMemLimit(limit int64) int64 { return limit / 10 * 9 }

// endless are what is inserted without end: things of each shape, and some things whose text changes again and again.
var endless = append(slices.Clone(shapes), shape{"updates", "db.type/string", someText, 1000})

// The environment of the process that inserts without end: a shape, a directory, and the budget.
const (
	endlessShape  = "STELE_TEST_ENDLESS_SHAPE"
	endlessDir    = "STELE_TEST_ENDLESS_DIR"
	endlessBudget = "STELE_TEST_ENDLESS_BUDGET"
)

// TestP5_AHardLimitIsNeverHit: a process that inserts without end, with a budget and a limit as the manual has them, is not killed. It gets
// ErrMemoryBudget, reads on, and ends by itself; so does one that opens what the first has left. The limit is a cgroup's where one can be made; else this process watches it, and kills it
// beyond.
func TestP5_AHardLimitIsNeverHit(t *testing.T) {
	if underRace {
		t.Skip("the race detector takes several times the memory")
	}
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	const budget = 64 * megabyte
	for _, s := range endless {
		t.Run(s.name, func(t *testing.T) {
			limit, dir := hardLimit(budget), t.TempDir()
			for _, which := range []string{"filling it", "opening it full"} {
				out, peak, err := limited(t, limit, exec.Command(os.Args[0], "-test.run", "^TestEndlessInserts$", "-test.v"),
					endlessShape+"="+s.name, endlessDir+"="+dir, endlessBudget+"="+strconv.Itoa(budget), fmt.Sprint("GOMEMLIMIT=", goMemLimit(limit)))
				if peak > limit {
					t.Errorf("%s: %d bytes were resident, of %d", which, peak, limit)
				}
				if err != nil || !strings.Contains(out, "--- PASS: TestEndlessInserts") {
					t.Fatalf("%s: %v\n%s", which, err, out)
				}
				t.Logf("%s: budget %d, limit %d, peak of resident memory %d (%.2f budgets)\n%s", which, budget, limit, peak, float64(peak)/budget, out)
			}
		})
	}
}

// limited runs cmd under a hard limit of memory and returns its output and the peak of its resident memory, in bytes.
func limited(t *testing.T, limit int64, cmd *exec.Cmd, env ...string) (out string, peak int64, err error) {
	t.Helper()
	cmd.Env = append(os.Environ(), env...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	group, groupErr := memoryCgroup(t, limit)
	if groupErr == nil {
		t.Log("under a cgroup's memory.max")
		defer group.Close()
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
	} else {
		t.Logf("no cgroup (%v): watched instead", groupErr)
	}
	if err := cmd.Start(); err != nil {
		return "", 0, err
	}
	ended := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
			if peak = max(peak, residentPeak(cmd.Process.Pid)); peak > limit && groupErr != nil {
				_ = cmd.Process.Kill()
				return
			}
		}
	})
	err = cmd.Wait()
	close(ended)
	watch.Wait()
	return output.String(), peak, err
}

// residentPeak is the most memory that a process had resident so far, in bytes; 0 once it has ended. (What wait4 says of a child counts its parent's too.)
func residentPeak(pid int) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(b), "VmHWM:")
	var kb int64
	if _, err := fmt.Sscan(after, &kb); err != nil {
		return 0
	}
	return kb << 10
}

// memoryCgroup makes a cgroup (version 2) with a hard limit below this process's own, and removes it when the test ends. It takes rights, and a group whose
// children have memory limits.
func memoryCgroup(t *testing.T, limit int64) (*os.File, error) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(strings.Split(string(own), "\n"), func(s string) bool { return strings.HasPrefix(s, "0::") })
	if i < 0 {
		return nil, errors.New("no cgroup of version 2")
	}
	parent := filepath.Join("/sys/fs/cgroup", strings.TrimPrefix(strings.Split(string(own), "\n")[i], "0::"))
	control, err := os.ReadFile(filepath.Join(parent, "cgroup.subtree_control"))
	if err != nil {
		return nil, err
	}
	if !slices.Contains(strings.Fields(string(control)), "memory") {
		return nil, errors.New("the children of this process's cgroup have no memory limits")
	}
	dir := filepath.Join(parent, fmt.Sprintf("stele-test-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, "memory.max"), []byte(strconv.FormatInt(limit, 10)), 0); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "memory.swap.max"), []byte("0"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return os.Open(dir)
}

// TestEndlessInserts is the process of TestP5_AHardLimitIsNeverHit: many writers with much in flight, until the budget turns all of them away; then reads,
// while they go on trying.
func TestEndlessInserts(t *testing.T) {
	dir := os.Getenv(endlessDir)
	if dir == "" {
		t.Skip("not asked to")
	}
	budget, err := strconv.Atoi(os.Getenv(endlessBudget))
	if err != nil {
		t.Fatal(err)
	}
	s := endless[slices.IndexFunc(endless, func(s shape) bool { return s.name == os.Getenv(endlessShape) })]
	l, err := fs.Open(t.Context(), fs.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	x, err := Open(t.Context(), l, Options{MemoryBudget: budget, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer closeIn(t, x, time.Minute)
	if x.DB().Schema().AttrByIdent("x/id") == nil {
		mustTransact(t, x, things(s.valueType))
	}

	var next atomic.Int64
	next.Store(int64(x.DB().BasisT()))
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			var line []*Future
			settle := func(n int) {
				for ; len(line) > n; line = line[1:] {
					if _, err := line[0].Wait(context.Background()); err != nil {
						t.Error(err)
					}
				}
			}
			for refused := 0; refused < 100; settle(4000) {
				f, err := x.Submit(context.Background(), s.two(int(next.Add(1))), TxOptions{Wait: true})
				switch {
				case err == nil:
					line = append(line, f)
				case errors.Is(err, ErrMemoryBudget):
					refused++
				default:
					t.Error(err)
					return
				}
			}
			settle(0)
		})
	}
	wait.Wait()
	for misses := 0; misses < 20; { // what was reserved for those that were under way may have left room for some more
		misses++
		if _, err := x.Transact(context.Background(), s.two(int(next.Add(1)))); err == nil {
			misses = 0
		}
	}
	m := x.Stats().Memory
	t.Logf("full at t = %d: %+v", x.DB().BasisT(), m)
	if m.Value < m.Budget/2 {
		t.Errorf("turned away with a value of %d bytes, of %d", m.Value, m.Budget)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var turned, reads, scanned atomic.Int64
	id, _ := x.DB().Schema().Entid("x/id")
	for range 2 {
		wait.Go(func() {
			for ctx.Err() == nil {
				if _, err := x.Submit(context.Background(), s.two(int(next.Add(1)))); !errors.Is(err, ErrMemoryBudget) || errors.Is(err, ErrBusy) {
					t.Errorf("a write past the budget: %v", err)
					return
				}
				turned.Add(1)
			}
		})
		wait.Go(func() {
			for i := int64(0); ctx.Err() == nil; i = (i + 7919) % 1000 {
				d := x.DB()
				if e, ok := d.Lookup(id, datom.Long(i)); ok {
					for range d.Datoms(db.EAVT, e) {
						reads.Add(1)
					}
				}
			}
		})
	}
	wait.Go(func() {
		for ctx.Err() == nil {
			for range x.DB().Datoms(db.AEVT) {
				scanned.Add(1)
			}
		}
	})
	wait.Wait()
	if reads.Load() == 0 || scanned.Load() == 0 || turned.Load() == 0 {
		t.Errorf("turned away %d, read %d, scanned %d", turned.Load(), reads.Load(), scanned.Load())
	}
	t.Logf("turned away %d writes, read %d datoms of entities, scanned %d", turned.Load(), reads.Load(), scanned.Load())
}

// A small request that becomes a huge transaction, in a process under a hard limit: what it takes until it is refused is bounded as well.
func TestP5_AHugeRetractionUnderAHardLimit(t *testing.T) {
	if underRace || testing.Short() {
		t.Skip("it takes seconds")
	}
	const budget = 64 * megabyte
	limit, dir := hardLimit(budget), t.TempDir()
	out, peak, err := limited(t, limit, exec.Command(os.Args[0], "-test.run", "^TestHub$", "-test.v"),
		endlessDir+"="+dir, endlessBudget+"="+strconv.Itoa(budget), fmt.Sprint("GOMEMLIMIT=", goMemLimit(limit)))
	if peak > limit || err != nil || !strings.Contains(out, "--- PASS: TestHub") {
		t.Errorf("%d bytes were resident, of %d: %v\n%s", peak, limit, err, out)
	}
	t.Logf("peak %d of %d\n%s", peak, limit, out)
}

func TestHub(t *testing.T) {
	dir := os.Getenv(endlessDir)
	if dir == "" {
		t.Skip("not asked to")
	}
	budget, _ := strconv.Atoi(os.Getenv(endlessBudget))
	l, err := fs.Open(t.Context(), fs.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	x, err := Open(t.Context(), l, Options{MemoryBudget: budget, Logger: slog.New(slog.DiscardHandler), FunctionTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer closeIn(t, x, time.Minute)
	one, many := datom.Keyword("db.cardinality/one"), datom.Keyword("db.cardinality/many")
	mustTransact(t, x, tx.Data{
		tx.Map{"db/ident": datom.Keyword("h/id"), "db/valueType": datom.Keyword("db.type/long"), "db/cardinality": one, "db/unique": datom.Keyword("db.unique/identity")},
		tx.Map{"db/ident": datom.Keyword("h/parts"), "db/valueType": datom.Keyword("db.type/ref"), "db/cardinality": many, "db/isComponent": true},
		tx.Map{"db/ident": datom.Keyword("h/n"), "db/valueType": datom.Keyword("db.type/long"), "db/cardinality": one},
	})
	n := 0
	for {
		var parts []any
		for range 500 {
			n++
			parts = append(parts, tx.Map{"h/n": int64(n)})
		}
		mustTransact(t, x, tx.Data{tx.Map{"h/id": int64(1), "h/parts": parts}})
		if m := x.Stats().Memory; m.Accounted()+m.Reserved > int64(budget)*8/10 {
			break
		}
	}
	t.Logf("%d parts: %+v, resident %d", n, x.Stats().Memory, residentPeak(os.Getpid()))
	for range 3 {
		_, err := x.Transact(t.Context(), tx.Data{tx.RetractEntity(tx.Lookup{Attr: "h/id", Value: int64(1)})})
		if !errors.Is(err, ErrMemoryBudget) {
			t.Errorf("%v", err)
		}
		t.Logf("resident %d: %v", residentPeak(os.Getpid()), err)
	}
}

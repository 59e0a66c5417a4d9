//go:build unix

package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"golang.org/x/sys/unix"
)

const (
	patience    = time.Minute // for one run, by the real clock
	memoryPages = 1 << 14     // of 64 KiB, for one run: 1 GiB

)

// engine makes runs on a machine that leaves nothing to chance: this package's tests compiled to WebAssembly, a new instance for each run. It has one thread, nothing
// preempts it, its clock ticks when it is read, and its random numbers come from the seed, so that Go's own choices (which ready case a select takes, the
// order of a map's keys) are the seed's as well.
type engine struct {
	runtime wazero.Runtime
	code    wazero.CompiledModule
	env     map[string]string // of every run
}

// newEngine builds the tests, with tags.
func newEngine(t *testing.T, tags ...string) *engine {
	file := filepath.Join(t.TempDir(), "sim.wasm")
	build := exec.Command("go", "test", "-c", "-tags", strings.Join(tags, ","), "-o", file, ".")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the simulation: %v\n%s", err, out)
	}
	binary, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	e := &engine{runtime: wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithMemoryLimitPages(memoryPages))}
	t.Cleanup(func() { e.runtime.Close(ctx) })
	wasi_snapshot_preview1.MustInstantiate(ctx, e.runtime)
	if e.code, err = e.runtime.CompileModule(ctx, binary); err != nil {
		t.Fatal(err)
	}
	return e
}

// run is what came of one.
type run struct {
	seed       uint64
	transcript string
	failed     bool
	counts
}

// play makes one run.
func (e *engine) play(seed uint64) run {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	c := console{end: time.Now().Add(patience)}
	config := wazero.NewModuleConfig().WithName("").WithArgs("sim.test", "-test.run=^TestSeed$").WithStdout(&c).WithStderr(&c).
		WithEnv(seedVar, strconv.FormatUint(seed, 10)).WithEnv("GOGC", "off").
		WithRandSource(rand.NewChaCha8(key)).WithNanosleep(func(ns int64) { c.now += ns }).WithNanotime(c.tick, 1).
		WithWalltime(func() (int64, int32) { n := c.tick(); return n / 1e9, int32(n % 1e9) }, 1)
	for name, value := range e.env {
		config = config.WithEnv(name, value)
	}
	ctx := experimental.WithMemoryAllocator(context.Background(), experimental.MemoryAllocatorFunc(reserve))
	m, err := e.runtime.InstantiateModule(ctx, e.code, config)
	if m != nil {
		m.Close(ctx)
	}
	if c.late {
		c.out.WriteString(noTime + "WRONG  it does not come to rest\n")
	}
	r := run{seed: seed, transcript: c.out.String(), failed: err != nil}
	_, line, _ := strings.Cut(r.transcript, "\n"+countsMark)
	line, _, _ = strings.Cut(line, "\n")
	if err := json.Unmarshal([]byte(line), &r.counts); err != nil && !r.failed {
		r.failed = true
		r.transcript += err.Error()
	}
	return r
}

// console is what a run sees of the world: somewhere to write, and a clock. A run that goes on for too long ends when it next uses one of them.
type console struct {
	out  bytes.Buffer
	now  int64 // of the run's clock
	end  time.Time
	late bool
}

func (c *console) Write(b []byte) (int, error) {
	c.check()
	if *verbose {
		os.Stdout.Write(b)
	}
	return c.out.Write(b)
}

func (c *console) tick() int64 {
	c.check()
	c.now += int64(time.Microsecond)
	return c.now
}

func (c *console) check() {
	if c.late = time.Now().After(c.end); c.late {
		panic("it does not come to rest") // the runtime makes an error of it
	}
}

// each makes n runs, as many at a time as there are processors, and calls done with each, one at a time, in the order of their seeds, until
// it says no.
func (e *engine) each(first uint64, n int, done func(run) (more bool)) {
	workers := runtime.GOMAXPROCS(0)
	if *verbose {
		workers = 1
	}
	pending := make(chan chan run, workers) // in the order of the seeds
	over := make(chan struct{})
	var slots sync.WaitGroup
	go func() {
		defer close(pending)
		for i := range n {
			answer := make(chan run, 1)
			select {
			case pending <- answer:
			case <-over:
				return
			}
			slots.Go(func() { answer <- e.play(first + uint64(i)) })
		}
	}()
	for answer := range pending {
		if !done(<-answer) {
			break
		}
	}
	close(over)
	slots.Wait()
}

var wrongLine = regexp.MustCompile(`(?m)^ *(?:[\d.]+s)?  WRONG  (.*)$`)

// sign is the first thing that was wrong, in short.
func (r run) sign() string {
	if w := wrongLine.FindStringSubmatch(r.transcript); w != nil {
		return w[1]
	}
	if _, what, ok := strings.Cut(r.transcript, "panic: "); ok {
		what, _, _ = strings.Cut(what, "\n")
		return "panic: " + what
	}
	return "it ended"
}

// reserve is a machine's memory: what it has not touched costs nothing, and to grow copies nothing.
func reserve(_, most uint64) experimental.LinearMemory {
	b, err := unix.Mmap(-1, 0, int(most), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		panic(err)
	}
	return memory{b}
}

type memory struct{ b []byte }

func (m memory) Reallocate(size uint64) []byte {
	if size > uint64(len(m.b)) {
		return nil
	}
	return m.b[:size]
}

func (m memory) Free() { unix.Munmap(m.b) }

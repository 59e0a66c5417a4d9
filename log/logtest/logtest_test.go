package logtest_test

import (
	"context"
	"errors"
	"iter"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/logtest"
	"github.com/steledb/stele/log/mem"
)

// breakage names the sentence of the contract that TestSuite's store breaks.
const breakage = "STELE_BROKEN_STORE"

// TestSuite runs the suite on a store in memory, or on one that TestSuiteNotices asks for, which breaks a sentence of the contract.
func TestSuite(t *testing.T) {
	wrap, broken := breakages[os.Getenv(breakage)]
	logtest.Run(t, logtest.Backend{Name: "mem " + os.Getenv(breakage), New: func(t *testing.T) func() log.Log {
		s := mem.NewServer()
		shared := &shared{hidden: map[log.Key]int{}}
		return func() log.Log {
			l := log.Log(s.Open("main", mem.Options{}))
			if broken {
				l = wrap(base{l, shared})
			}
			return l
		}
	}})
}

// TestSuiteNotices runs the suite against every broken store, and sees it fail.
func TestSuiteNotices(t *testing.T) {
	for name := range breakages {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run", "^TestSuite$", "-test.timeout", "60s", "-test.failfast", "-test.v")
			cmd.Env = append(os.Environ(), breakage+"="+name)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) {
				t.Fatalf("the suite does not notice: %v", err)
			}
			var by []string
			for line := range strings.Lines(string(out)) {
				if f, ok := strings.CutPrefix(strings.TrimSpace(line), "--- FAIL: TestSuite/"); ok {
					by = append(by, strings.Fields(f)[0])
				}
			}
			if len(by) == 0 {
				t.Fatalf("no test of the suite fails, but something else does:\n%s", out)
			}
			t.Logf("noticed by %s", strings.Join(by, ", "))
		})
	}
}

// shared is what the handles of one broken store know together.
type shared struct {
	mu     sync.Mutex
	hidden map[log.Key]int
}

// base is what a broken store is made of.
type base struct {
	log.Log
	*shared
}

var breakages = map[string]func(base) log.Log{
	"append checks, then writes":         func(b base) log.Log { return overwrites{b} },
	"append again is a conflict":         func(b base) log.Log { return notIdempotent{b} },
	"append is shown later":              func(b base) log.Log { return shownLater{b} },
	"append ignores the instance":        func(b base) log.Log { return oneInstance{b} },
	"append and verify at the same time": func(b base) log.Log { return verifiesFirst{b} },
	"verify ignores the claim":           func(b base) log.Log { return anyClaim{b} },
	"swap compares versions only":        func(b base) log.Log { return versionsOnly{b} },
	"a root without its lease":           func(b base) log.Log { return losesLease{b} },
	"list includes its bound":            func(b base) log.Log { return inclusive{b} },
	"read in the order of landing":       func(b base) log.Log { return unordered{b} },
	"read stops at a thousand":           func(b base) log.Log { return stops{b} },
	"delete takes one too many":          func(b base) log.Log { return deletesMore{b} },
	"put changes what it was given":      func(b base) log.Log { return clearsBlobs{b} },
	"get ignores the context":            func(b base) log.Log { return deaf{b} },
	"close does nothing":                 func(b base) log.Log { return unclosed{b} },
	"a tombstone is no root":             func(b base) log.Log { return hidesTombstones{b} },
}

type overwrites struct{ base }

func (l overwrites) Append(ctx context.Context, inst log.ID, o *log.Object) error {
	if have, err := l.Get(ctx, inst, o.Key()); err == nil && have.Hash() != o.Hash() {
		return log.ErrConflict
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	l.Log.(*mem.Log).Replace(inst, o)
	return nil
}

func (l overwrites) AppendVerify(ctx context.Context, o *log.Object, c log.Check) (error, error) {
	return l.Append(ctx, c.Instance, o), l.Verify(ctx, c)
}

type notIdempotent struct{ base }

func (l notIdempotent) Append(ctx context.Context, inst log.ID, o *log.Object) error {
	if _, err := l.Get(ctx, inst, o.Key()); err == nil {
		return log.ErrConflict
	}
	return l.Log.Append(ctx, inst, o)
}

// shownLater: a listing lacks an object the first time.
type shownLater struct{ base }

func (l shownLater) List(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[log.Key, error] {
	return func(yield func(log.Key, error) bool) {
		for k, err := range l.Log.List(ctx, inst, after) {
			l.mu.Lock()
			l.hidden[k]++
			first := l.hidden[k] == 1
			l.mu.Unlock()
			if !first && !yield(k, err) {
				return
			}
		}
	}
}

type oneInstance struct{ base }

func (l oneInstance) Append(ctx context.Context, inst log.ID, o *log.Object) error {
	return l.Log.Append(ctx, log.ID{}, o)
}
func (l oneInstance) AppendVerify(ctx context.Context, o *log.Object, c log.Check) (error, error) {
	return l.Append(ctx, c.Instance, o), l.Verify(ctx, c)
}
func (l oneInstance) Get(ctx context.Context, inst log.ID, k log.Key) (*log.Object, error) {
	return l.Log.Get(ctx, log.ID{}, k)
}
func (l oneInstance) Read(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[*log.Object, error] {
	return l.Log.Read(ctx, log.ID{}, after)
}
func (l oneInstance) List(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[log.Key, error] {
	return l.Log.List(ctx, log.ID{}, after)
}
func (l oneInstance) Verify(ctx context.Context, c log.Check) error {
	c.Keys = nil
	return l.Log.Verify(ctx, c)
}

type verifiesFirst struct{ base }

func (l verifiesFirst) AppendVerify(ctx context.Context, o *log.Object, c log.Check) (error, error) {
	verr := l.Verify(ctx, c)
	if verr != nil {
		return verr, verr
	}
	return l.Append(ctx, c.Instance, o), nil
}

type anyClaim struct{ base }

func (l anyClaim) Verify(ctx context.Context, c log.Check) error {
	r, err := l.Root(ctx)
	if err == nil {
		c.Claim = r.Claim
	}
	return l.Log.Verify(ctx, c)
}

type versionsOnly struct{ base }

func (l versionsOnly) CompareAndSwap(ctx context.Context, old, next *log.Root) error {
	if r, err := l.Root(ctx); err == nil && old != nil && r.Version == old.Version {
		old = r
	}
	return l.Log.CompareAndSwap(ctx, old, next)
}

type losesLease struct{ base }

func (l losesLease) CompareAndSwap(ctx context.Context, old, next *log.Root) error {
	n := next.Clone()
	n.Lease = 0
	return l.Log.CompareAndSwap(ctx, old, n)
}

type inclusive struct{ base }

func (l inclusive) List(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[log.Key, error] {
	if after.FirstT > 0 {
		after.FirstT--
	}
	return l.Log.List(ctx, inst, after)
}

type unordered struct{ base }

func (l unordered) Read(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[*log.Object, error] {
	return func(yield func(*log.Object, error) bool) {
		var all []*log.Object
		for o, err := range l.Log.Read(ctx, inst, after) {
			if err != nil {
				yield(nil, err)
				return
			}
			all = append(all, o)
		}
		slices.Reverse(all)
		for _, o := range all {
			if !yield(o, nil) {
				return
			}
		}
	}
}

type stops struct{ base }

func (l stops) Read(ctx context.Context, inst log.ID, after log.Key) iter.Seq2[*log.Object, error] {
	return func(yield func(*log.Object, error) bool) {
		n := 0
		for o, err := range l.Log.Read(ctx, inst, after) {
			if n++; n > 1000 || !yield(o, err) {
				return
			}
		}
	}
}

type deletesMore struct{ base }

func (l deletesMore) Delete(ctx context.Context, inst log.ID, upTo log.Key) error {
	for k := range l.List(ctx, inst, upTo) {
		return l.Log.Delete(ctx, inst, k)
	}
	return l.Log.Delete(ctx, inst, upTo)
}

type clearsBlobs struct{ base }

func (l clearsBlobs) PutBlob(ctx context.Context, inst log.ID, name string, b []byte) error {
	defer clear(b)
	return l.Log.PutBlob(ctx, inst, name, b)
}

type deaf struct{ base }

func (l deaf) Get(ctx context.Context, inst log.ID, k log.Key) (*log.Object, error) {
	return l.Log.Get(context.WithoutCancel(ctx), inst, k)
}

type unclosed struct{ base }

func (l unclosed) Close() error { return nil }

type hidesTombstones struct{ base }

func (l hidesTombstones) Root(ctx context.Context) (*log.Root, error) {
	r, err := l.Log.Root(ctx)
	if err == nil && r.Deleted {
		return nil, log.ErrNoRoot
	}
	return r, err
}

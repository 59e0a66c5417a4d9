package s3_test

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"runtime"
	"testing"
	"time"

	"github.com/steledb/stele/internal/netfault"
	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/s3"
)

// wire is an owner's handle behind a network that fails as its tests say.
type wire struct {
	*owner
	net *netfault.Proxy
	l   *s3.Log
}

func newWire(t *testing.T, opt s3.Options) *wire {
	t.Helper()
	u, err := url.Parse(opt.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	n, err := netfault.Listen(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	w := &wire{owner: own(t, opt), net: n}
	opt.Endpoint = "http://" + n.Addr()
	w.l = open(t, opt)
	return w
}

// sending likes requests of a method for keys that end in suffix.
func sending(method, suffix string) func([]byte) bool {
	return func(b []byte) bool {
		line, _, _ := bytes.Cut(b, []byte("\r\n"))
		path, _, _ := bytes.Cut(line, []byte(" HTTP/"))
		path, _, _ = bytes.Cut(path, []byte("?"))
		return bytes.HasPrefix(path, []byte(method+" ")) && bytes.HasSuffix(path, []byte(suffix))
	}
}

// TestRoundTrips: an append is one, and one with its fence is two.
func TestRoundTrips(t *testing.T) {
	eachClient(t, func(t *testing.T, opt s3.Options) {
		w := newWire(t, opt)
		w.must(w.l.Verify(t.Context(), w.check())) // the connection is there
		before := w.net.Stats().Turns
		w.must(w.l.Append(t.Context(), w.root.Instance, w.batch()))
		if n := w.net.Stats().Turns - before; n != 1 {
			t.Errorf("an append takes %d round trips", n)
		}
		before = w.net.Stats().Turns
		aerr, verr := w.l.AppendVerify(t.Context(), w.batch(), w.check())
		w.must(errors.Join(aerr, verr))
		if n := w.net.Stats().Turns - before; n != 2 {
			t.Errorf("an append with its fence takes %d round trips", n)
		}
	})
}

// TestCutReplies: the answer to a put is cut, before its first byte and in its middle. It is settled within the call.
func TestCutReplies(t *testing.T) {
	eachClient(t, func(t *testing.T, opt s3.Options) {
		w := newWire(t, opt)
		root := w.root
		for _, after := range []int64{0, 1, 40, 200} {
			obj := w.batch()
			cut := w.net.CutReply(after, sending("PUT", obj.Key().String()))
			w.must(w.l.Append(t.Context(), w.root.Instance, obj))
			<-cut
			next := root.Next()
			cut = w.net.CutReply(after, sending("PUT", "ROOT"))
			w.must(w.l.CompareAndSwap(t.Context(), root, next))
			<-cut
			if root = next; !sameRoot(w.far.Root(t.Context()))(t, root) {
				return
			}
			cut = w.net.CutReply(after, sending("GET", "ROOT"))
			w.must(w.l.Verify(t.Context(), w.check()))
			<-cut
		}
	})
}

func sameRoot(got *log.Root, err error) func(*testing.T, *log.Root) bool {
	return func(t *testing.T, want *log.Root) bool {
		t.Helper()
		if err != nil || *got != *want {
			t.Errorf("the root is %+v, %v, want %+v", got, err, want)
			return false
		}
		return true
	}
}

// TestL1_LatePuts: puts that were given up land later. Of an object they meet their own bytes; of a root they find another one.
func TestL1_LatePuts(t *testing.T) {
	eachClient(t, func(t *testing.T, opt s3.Options) {
		w := newWire(t, opt)
		w.must(w.l.Verify(t.Context(), w.check()))
		if _, err := w.l.Root(t.Context()); err != nil {
			t.Fatal(err)
		}
		givenUp := func(what string, call func(context.Context) error) {
			t.Helper()
			ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("the test gives up"))
			defer cancel()
			if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) || log.OutcomeOf(err) != log.Unknown {
				t.Errorf("%s that got no answer: %v (%s)", what, err, log.OutcomeOf(err))
			}
		}
		up := w.net.Stats().Up
		w.net.Set(netfault.Faults{Up: netfault.Link{Hold: true}})
		obj, mine := w.batch(), w.root.Next()
		mine.Owner = "late"
		givenUp("an append", func(ctx context.Context) error { return w.l.Append(ctx, w.root.Instance, obj) })
		givenUp("a swap", func(ctx context.Context) error { return w.l.CompareAndSwap(ctx, w.root, mine) })
		// Meanwhile the append is made again elsewhere, and another changes the root.
		w.must(w.far.Append(t.Context(), w.root.Instance, obj))
		theirs := w.root.Acquire(log.NewID(), "another")
		w.must(w.far.CompareAndSwap(t.Context(), w.root, theirs))
		w.net.Set(netfault.Faults{})
		for w.net.Stats().Up == up { // what was held is delivered; the test's own time limit ends this
			runtime.Gosched()
		}
		// Whatever the server makes of it, and when: what was decided stays.
		for range 20 {
			w.must(w.l.Append(t.Context(), w.root.Instance, obj))
			if !sameRoot(w.l.Root(t.Context()))(t, theirs) {
				return
			}
			got, err := w.l.Get(t.Context(), w.root.Instance, obj.Key())
			if err != nil || got.Hash() != obj.Hash() {
				t.Fatalf("%v", err)
			}
		}
		if err := w.l.CompareAndSwap(t.Context(), w.root, mine); !errors.Is(err, log.ErrConflict) {
			t.Errorf("the late swap again: %v", err)
		}
	})
}

// TestSilentStore: a store that takes everything and says nothing holds nobody beyond their context; one that cannot be dialled has written
// nothing.
func TestSilentStore(t *testing.T) {
	eachClient(t, func(t *testing.T, opt s3.Options) {
		w := newWire(t, opt)
		w.net.Set(netfault.Faults{Down: netfault.Link{Drop: true}})
		obj := w.batch()
		for _, call := range []func(context.Context) error{
			func(ctx context.Context) error { return w.l.Append(ctx, w.root.Instance, obj) },
			func(ctx context.Context) error { return w.l.Verify(ctx, w.check()) },
			func(ctx context.Context) error { return w.l.CompareAndSwap(ctx, w.root, w.root.Next()) },
			func(ctx context.Context) error { return w.l.Delete(ctx, w.root.Instance, log.Key{}) },
			func(ctx context.Context) error { _, err := w.l.GetBlob(ctx, w.root.Instance, "1-x"); return err },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v", err)
			}
			cancel()
		}
		w.net.Refuse()
		w.net.Reset()
		for _, err := range []error{w.l.Append(t.Context(), w.root.Instance, w.batch()), w.l.CompareAndSwap(t.Context(), w.root, w.root.Next())} {
			if err == nil || log.OutcomeOf(err) != log.NotWritten {
				t.Errorf("a store that is not there: %v (%s)", err, log.OutcomeOf(err))
			}
		}
		w.net.Set(netfault.Faults{})
		w.must(w.net.Accept())
		w.must(w.l.Append(t.Context(), w.root.Instance, obj))
	})
}

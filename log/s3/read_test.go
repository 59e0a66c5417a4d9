package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/s3"
)

// fill appends n batches and returns them.
func (o *owner) fill(n int, text string) []*log.Object {
	o.t.Helper()
	objs := make([]*log.Object, n)
	for i := range objs {
		objs[i] = o.next(log.KindBatch, text)
	}
	work := make(chan *log.Object)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for obj := range work {
				if err := o.far.Append(o.t.Context(), o.root.Instance, obj); err != nil {
					o.t.Error(err)
				}
			}
		})
	}
	for _, obj := range objs {
		work <- obj
	}
	close(work)
	wg.Wait()
	if o.t.Failed() {
		o.t.FailNow()
	}
	return objs
}

func (o *owner) read(after log.Key) (keys []log.Key, err error) {
	for obj, err := range o.Read(o.t.Context(), o.root.Instance, after) {
		if err != nil {
			return keys, err
		}
		keys = append(keys, obj.Key())
	}
	return keys, nil
}

func keysOf(objs []*log.Object) (keys []log.Key) {
	for _, o := range objs {
		keys = append(keys, o.Key())
	}
	return keys
}

// TestReadIsBounded: as many objects as may be, and no more, are on their way while the caller does not ask, and they come in order whatever
// order they arrive in.
func TestReadIsBounded(t *testing.T) {
	eachClient(t, func(t *testing.T, opt s3.Options) {
		o := own(t, opt)
		objs := o.fill(3*s3.MaxFetches, "x")
		o.p.requests()
		var mu sync.Mutex
		held := map[string]chan struct{}{}
		arrived := make(chan string, len(objs))
		o.p.follow(func(r *request) *http.Response {
			if r.op == "GET" && !strings.HasSuffix(r.key, "ROOT") {
				c := make(chan struct{})
				mu.Lock()
				held[r.key[len(r.key)-33:]] = c
				mu.Unlock()
				arrived <- r.key[len(r.key)-33:]
				<-c
			}
			return pass(r)
		})
		letGo := func(k string) {
			mu.Lock()
			defer mu.Unlock()
			close(held[k])
		}
		got := make(chan []log.Key)
		go func() {
			keys, err := o.read(log.StartKey(1))
			if err != nil {
				t.Error(err)
			}
			got <- keys
		}()
		var waiting []string
		for range s3.MaxFetches {
			waiting = append(waiting, <-arrived)
		}
		// All but the first: nothing can be handed over, so nothing more is asked for.
		first := objs[0].Key().String()
		for _, k := range waiting {
			if k != first {
				letGo(k)
			}
		}
		select {
		case k := <-arrived:
			t.Errorf("%s is fetched beside %d others", k, s3.MaxFetches)
		default:
		}
		letGo(first)
		for range len(objs) - s3.MaxFetches {
			letGo(<-arrived)
		}
		if keys := <-got; !slices.Equal(keys, keysOf(objs)) {
			t.Errorf("%v", keys)
		}
	})
}

// TestReadBoundsBytes: large objects are not fetched sixteen at once.
func TestReadBoundsBytes(t *testing.T) {
	eachClient(t, func(t *testing.T, opt s3.Options) {
		o := own(t, opt)
		objs := o.fill(6, strings.Repeat("x", s3.MaxFetchBytes/4)) // a little more than a quarter each
		var mu sync.Mutex
		at, most := 0, 0
		o.p.follow(func(r *request) *http.Response {
			if r.op == "GET" {
				mu.Lock()
				at++
				most = max(most, at)
				mu.Unlock()
				defer func() { mu.Lock(); at--; mu.Unlock() }()
			}
			return pass(r)
		})
		keys, err := o.read(log.StartKey(1))
		if err != nil || !slices.Equal(keys, keysOf(objs)) {
			t.Errorf("%v, %v", keys, err)
		}
		if most > 3 {
			t.Errorf("%d of them at once", most)
		}
	})
}

// TestReadStops: a caller that stops, or whose context ends, leaves nothing behind.
func TestReadStops(t *testing.T) {
	eachClient(t, func(t *testing.T, opt s3.Options) {
		o := own(t, opt)
		o.fill(40, "x")
		before := runtime.NumGoroutine()
		n := 0
		for _, err := range o.Read(t.Context(), o.root.Instance, log.Key{}) {
			o.must(err)
			if n++; n == 3 {
				break
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		n = 0
		var last error
		for _, err := range o.Read(ctx, o.root.Instance, log.Key{}) {
			if n++; n == 3 {
				cancel()
			}
			last = err
		}
		if !errors.Is(last, context.Canceled) || n > 4+s3.MaxFetches {
			t.Errorf("after %d it ended with %v", n, last)
		}
		// The store says nothing any more.
		stuck := make(chan struct{}, 100)
		o.p.follow(func(r *request) *http.Response {
			stuck <- struct{}{}
			<-r.Context().Done()
			return nil
		})
		for _, seq := range []func(context.Context) error{
			func(ctx context.Context) (last error) {
				for _, err := range o.Read(ctx, o.root.Instance, log.Key{}) {
					last = err
				}
				return last
			},
			func(ctx context.Context) (last error) {
				for _, err := range o.List(ctx, o.root.Instance, log.Key{}) {
					last = err
				}
				return last
			},
			func(ctx context.Context) error { return o.Delete(ctx, o.root.Instance, log.MaxKey) },
		} {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() { <-stuck; cancel() }()
			if err := seq(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("a listing that was given up ended with %v", err)
			}
		}
		o.p.follow(nil)
		o.p.CloseClientConnections()
		for runtime.NumGoroutine() > before+20 { // the proxy's own; the test's time limit ends this
			runtime.Gosched()
		}
	})
}

// TestReadGoesOn: a page or an object that fails is asked for again; what was deleted behind the listing is passed over.
func TestReadGoesOn(t *testing.T) {
	eachClient(t, func(t *testing.T, opt s3.Options) {
		o := own(t, opt)
		objs := o.fill(1100, "x")
		lists, gets := script("LIST", "", pass, drop, says(503, "SlowDown"), pass, says(500, "")), script("GET", objs[7].Key().String(), drop, says(503, ""))
		o.p.follow(func(r *request) *http.Response {
			if r.op == "LIST" {
				return lists(r)
			}
			return gets(r)
		})
		gone := objs[1030]
		o.must(o.far.Remove(t.Context(), o.o.Prefix+"/main/"+o.root.Instance.String()+"/log/"+gone.Key().String()))
		want := slices.Delete(keysOf(objs), 1030, 1031)
		keys, err := o.read(log.StartKey(1))
		if err != nil || !slices.Equal(keys, want) {
			t.Errorf("%d keys, %v", len(keys), err)
		}
		o.p.follow(func(r *request) *http.Response {
			if strings.HasSuffix(r.key, objs[9].Key().String()) {
				return answer(404, "NoSuchKey", "")
			}
			return pass(r)
		})
		if keys, err = o.read(objs[1].Key()); err != nil || len(keys) != len(want)-3 {
			t.Errorf("one that was deleted meanwhile: %d keys, %v", len(keys), err)
		}
		o.p.follow(func(r *request) *http.Response {
			if r.op == "LIST" && r.URL.Query().Get("continuation-token") != "" {
				return answer(400, "InvalidArgument", "")
			}
			return pass(r)
		})
		if keys, err = o.read(log.StartKey(1)); err == nil {
			t.Errorf("a page that cannot be had: %d keys and no error", len(keys))
		}
		// A context that ends between two pages: what came is not taken for all.
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		n := 0
		var last error
		for _, err := range o.List(ctx, o.root.Instance, log.Key{}) {
			if n++; n == 10 {
				cancel()
			}
			last = err
		}
		if !errors.Is(last, context.Canceled) {
			t.Errorf("a listing that was given up behind its first page ended with %v", last)
		}
		// Deleting takes 1000 a request, and leaves what lies behind.
		o.p.follow(nil)
		o.p.requests()
		o.must(o.Delete(t.Context(), o.root.Instance, objs[1050].Key()))
		if n = count(o.p.requests(), "DELETE"); n != 2 {
			t.Errorf("%d requests for 1051 objects", n)
		}
		if keys, err = o.read(log.Key{}); err != nil || !slices.Equal(keys, keysOf(objs[1051:])) {
			t.Errorf("%d keys are left, %v", len(keys), err)
		}
		o.must(o.PutBlob(t.Context(), o.root.Instance, "1-x", []byte("x")))
		o.must(o.Delete(t.Context(), o.root.Instance, log.MaxKey))
		for key, err := range o.far.Keys(t.Context(), o.o.Prefix+"/") {
			if err != nil || !strings.HasSuffix(key, "/ROOT") {
				t.Errorf("%s is left, %v", key, err)
			}
		}
	})
}

// TestForeignKeys: what is no object's key is passed over, and stays.
func TestForeignKeys(t *testing.T) {
	eachClient(t, func(t *testing.T, opt s3.Options) {
		o := own(t, opt)
		objs := o.fill(3, "x")
		dir := o.o.Prefix + "/main/" + o.root.Instance.String() + "/log/"
		foreign := []string{dir + "0", dir + "README", dir + objs[1].Key().String() + ".bak", dir + "zz"}
		for _, k := range foreign {
			o.must(o.far.Put(t.Context(), k, []byte("foreign")))
		}
		if keys, err := o.read(log.StartKey(1)); err != nil || !slices.Equal(keys, keysOf(objs)) {
			t.Errorf("%v, %v", keys, err)
		}
		o.must(o.Delete(t.Context(), o.root.Instance, objs[2].Key()))
		var left []string
		for k, err := range o.far.Keys(t.Context(), dir) {
			o.must(err)
			left = append(left, k)
		}
		slices.Sort(foreign)
		if !slices.Equal(left, foreign) {
			t.Errorf("%v are left", left)
		}
	})
}

// endless is a body that never ends.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }
func (endless) Close() error               { return nil }

// TestHostileBodies: what a store sends is not believed, and never held beyond what may be.
func TestHostileBodies(t *testing.T) {
	eachClient(t, func(t *testing.T, opt s3.Options) {
		o := own(t, opt)
		obj := o.fill(1, "x")[0]
		fixed := func(length string, body io.ReadCloser) rule {
			return func(r *request) *http.Response {
				if r.op != "GET" {
					return pass(r)
				}
				h := http.Header{"Etag": {`"x"`}, "Last-Modified": {"Mon, 30 Nov 2026 00:00:00 GMT"}}
				if length != "" {
					h.Set("Content-Length", length)
				}
				return &http.Response{StatusCode: 200, Header: h, Body: body}
			}
		}
		reader := func(b []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(b)) }
		var before, after runtime.MemStats
		for name, c := range map[string]struct {
			rule rule
			want error
		}{
			"endless":                    {fixed("", endless{}), log.ErrCorrupt},
			"endless, of a length":       {fixed("1099511627776", endless{}), log.ErrCorrupt},
			"shorter than it says":       {fixed("67000000", reader(obj.Bytes())), errAny},
			"not an object":              {fixed("", reader([]byte("not an object"))), log.ErrCorrupt},
			"empty":                      {fixed("0", reader(nil)), log.ErrCorrupt},
			"an object of another place": {fixed("", reader(o.encode(log.KindBatch, "y").Bytes())), log.ErrCorrupt},
		} {
			o.p.follow(c.rule)
			runtime.ReadMemStats(&before)
			_, err := o.Get(t.Context(), o.root.Instance, obj.Key())
			runtime.ReadMemStats(&after)
			var ce *log.CorruptError
			switch {
			case err == nil, c.want != errAny && !errors.Is(err, c.want):
				t.Errorf("%s: %v", name, err)
			case errors.As(err, &ce) && (ce.Key != obj.Key() || !strings.HasPrefix(ce.Location, "s3://")):
				t.Errorf("%s: %+v", name, ce)
			}
			if held := int64(after.TotalAlloc - before.TotalAlloc); held > 4*log.MaxObject {
				t.Errorf("%s: %d bytes were allocated", name, held)
			}
		}
		for name, b := range map[string]io.ReadCloser{"endless": endless{}, "not a root": reader([]byte("not a root"))} {
			o.p.follow(fixed("", b))
			if _, err := o.Root(t.Context()); !errors.Is(err, log.ErrCorrupt) {
				t.Errorf("a root that is %s: %v", name, err)
			}
			if err := o.Verify(t.Context(), o.check()); !errors.Is(err, log.ErrCorrupt) {
				t.Errorf("a fence against a root that is %s: %v", name, err)
			}
		}
		// An object that does not decode ends a Read, behind those before it.
		o.p.follow(nil)
		next := o.encode(log.KindBatch, "x").Key()
		o.must(o.far.Put(t.Context(), o.o.Prefix+"/main/"+o.root.Instance.String()+"/log/"+next.String(), []byte("damage")))
		keys, err := o.read(log.StartKey(1))
		if ce := (*log.CorruptError)(nil); !slices.Equal(keys, []log.Key{obj.Key()}) || !errors.As(err, &ce) || ce.Key != next {
			t.Errorf("%v, %v", keys, err)
		}
	})
}

// TestPutBlobGivesItsBytesBack: when PutBlob has returned, also early, nobody reads the bytes.
func TestPutBlobGivesItsBytesBack(t *testing.T) {
	eachClient(t, func(t *testing.T, opt s3.Options) {
		o := own(t, opt)
		b := bytes.Repeat([]byte{1}, 8<<20)
		for i := range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			go cancel()
			_ = o.PutBlob(ctx, o.root.Instance, fmt.Sprintf("1-%d", i), b)
			clear(b) // the race detector watches
		}
	})
}

package s3_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/s3"
)

// TestProbeRefuses lets stores that are broken in one way each stand before the real one.
func TestProbeRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		broken rule
		want   string
	}{
		"ignores If-None-Match": {func(r *request) *http.Response { return r.without("If-None-Match") }, "If-None-Match"},
		"ignores If-Match":      {func(r *request) *http.Response { return r.without("If-Match") }, "If-Match"},
		"checks If-None-Match, then writes": {checkThenWrite("If-None-Match", "/object", func(have string) bool { return have == "" }),
			"does not hold If-None-Match: "},
		"checks If-Match, then writes": {checkThenWrite("If-Match", "/root", func(have string) bool { return have != "" }),
			"does not hold If-Match: "},
		"takes If-Match where nothing is": {func(r *request) *http.Response {
			if r.op == "PUT" && r.Header.Get("If-Match") != "" && strings.HasSuffix(r.key, "/nowhere") {
				return r.without("If-Match")
			}
			return pass(r)
		}, "If-Match: an object was replaced where none was"},
		"takes If-Match of any ETag": {func(r *request) *http.Response {
			if resp := pass(r); r.op != "PUT" || resp.StatusCode != 412 || !strings.HasSuffix(r.key, "/root") {
				return resp
			}
			if bytes.Contains(r.body, []byte("must not")) {
				return r.without("If-Match")
			}
			return answer(412, "PreconditionFailed", "")
		}, "If-Match: an object was replaced that was not the one named"},
		"knows no conditions": {func(r *request) *http.Response {
			if r.op == "PUT" {
				return answer(501, "NotImplemented", "A header you provided implies functionality that is not implemented")
			}
			return pass(r)
		}, "does not take conditions"},
		"lists late": {func(r *request) *http.Response {
			resp := pass(r)
			if r.op == "LIST" {
				b, _ := io.ReadAll(resp.Body)
				b = regexp.MustCompile(`(?s)<Contents>.*</Contents>`).ReplaceAll(b, nil)
				resp.Body, resp.Header = io.NopCloser(bytes.NewReader(b)), http.Header{}
			}
			return resp
		}, "a LIST does not show"},
		"reads late": {func(r *request) *http.Response {
			if r.op == "GET" {
				return answer(404, "NoSuchKey", "")
			}
			return pass(r)
		}, "a GET does not show"},
		"reads something else": {func(r *request) *http.Response {
			resp := pass(r)
			if r.op == "GET" && strings.HasSuffix(r.key, "/root") {
				resp.Body = io.NopCloser(strings.NewReader("a root"))
				resp.Header.Del("Content-Length")
			}
			return resp
		}, "is not what the one writer wrote"},
		"a cache stands before it": {cached(), "is not what the one writer wrote"},
	} {
		t.Run(name, func(t *testing.T) {
			eachClient(t, func(t *testing.T, o s3.Options) {
				p := newProxy(t, &o)
				p.follow(c.broken)
				l, err := s3.Open(t.Context(), o)
				if err == nil {
					l.Close()
				}
				if !errors.Is(err, s3.ErrUnfit) || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("open: %v; want that it names %q", err, c.want)
				}
				p.follow(nil)
				p.requests()
				l, err = s3.Open(t.Context(), o) // it was not remembered as fit
				if err != nil {
					t.Fatalf("open, once the store is as it should be: %v", err)
				}
				defer l.Close()
				if n := count(p.requests(), "PUT"); n < 10 {
					t.Errorf("%d requests to write: that is no probe", n)
				}
				none(t, l, o)
			})
		})
	}
}

// none fails if probes left anything.
func none(t *testing.T, l *s3.Log, o s3.Options) {
	t.Helper()
	for _, prefix := range []string{o.Prefix + "/"} {
		for key, err := range l.Keys(t.Context(), prefix) {
			if err != nil {
				t.Fatal(err)
			}
			t.Errorf("%s was left", key)
		}
	}
}

func count(rs []*request, op string) (n int) {
	for _, r := range rs {
		if r.op == op {
			n++
		}
	}
	return n
}

// checkThenWrite looks at the condition of header itself, lets another one look meanwhile, and then writes whatever happened between.
func checkThenWrite(header, suffix string, ok func(etag string) bool) rule {
	var mu sync.Mutex
	looked := map[string]chan struct{}{} // by key: closed once two have looked
	return func(r *request) *http.Response {
		cond := r.Header.Get(header)
		if r.op != "PUT" || cond == "" || !strings.HasSuffix(r.key, suffix) {
			return pass(r)
		}
		look := &request{Request: r.Clone(r.Context()), p: r.p, op: "GET", key: r.key}
		look.Method = http.MethodGet
		look.Header = http.Header{"X-Amz-Content-Sha256": {emptyHash}}
		resp := look.without()
		etag := resp.Header.Get("Etag")
		if resp.StatusCode != 200 {
			etag = ""
		}
		if !ok(etag) || cond != "*" && strings.Trim(cond, `"`) != strings.Trim(etag, `"`) {
			return answer(412, "PreconditionFailed", "")
		}
		mu.Lock()
		c, second := looked[r.key]
		switch {
		case !second:
			c = make(chan struct{})
			looked[r.key] = c
		case c != nil:
			close(c)
			looked[r.key] = nil
		}
		mu.Unlock()
		if c != nil {
			select {
			case <-c:
			case <-r.Context().Done():
			}
		}
		return r.without(header)
	}
}

// cached answers from memory what was read before.
func cached() rule {
	var mu sync.Mutex
	memory := map[string][]byte{}
	return func(r *request) *http.Response {
		if r.op != "GET" {
			return pass(r)
		}
		mu.Lock()
		defer mu.Unlock()
		resp := pass(r)
		if b, ok := memory[r.key]; ok {
			resp.Body, resp.StatusCode = io.NopCloser(bytes.NewReader(b)), 200
			resp.Header.Del("Content-Length")
		} else if resp.StatusCode == 200 {
			memory[r.key], _ = io.ReadAll(resp.Body)
			resp.Body = io.NopCloser(bytes.NewReader(memory[r.key]))
		}
		return resp
	}
}

const emptyHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// TestProbeOnce: a bucket is probed once in a process, also by many opens at once, and in few round trips.
func TestProbeOnce(t *testing.T) {
	eachClient(t, func(t *testing.T, o s3.Options) {
		p := newProxy(t, &o)
		logs := make([]*s3.Log, 8)
		var wg sync.WaitGroup
		for i := range logs {
			wg.Go(func() {
				l, err := s3.Open(t.Context(), o)
				if err != nil {
					t.Error(err)
					return
				}
				logs[i] = l
			})
		}
		wg.Wait()
		probes := map[string]bool{}
		for _, r := range p.requests() {
			if i := strings.Index(r.key, "/.probe/"); i >= 0 && r.op == "PUT" {
				probes[r.key[:i+len("/.probe/")+32]] = true
			}
		}
		if len(probes) != 1 {
			t.Errorf("%d probes", len(probes))
		}
		for _, l := range logs {
			if l != nil {
				none(t, l, o)
				l.Close()
			}
		}
		p.requests()
		l := open(t, o)
		if ops := p.ops(); len(ops) != 1 || ops[0] != "GET ROOT" {
			t.Errorf("another open asks %v", ops)
		}
		l.Close()
	})
}

// TestOpenRefuses: what a person gets wrong is said in words.
func TestOpenRefuses(t *testing.T) {
	eachClient(t, func(t *testing.T, good s3.Options) {
		for want, change := range map[string]func(*s3.Options){
			`there is no bucket "stele-nowhere" at http://127.0.0.1`: func(o *s3.Options) { o.Bucket = "stele-nowhere" },
			"a directory bucket":    func(o *s3.Options) { o.Bucket = "data--use1-az4--x-s3" },
			"not a bucket's name":   func(o *s3.Options) { o.Bucket = "A" },
			"not a prefix":          func(o *s3.Options) { o.Prefix = "/x" },
			"not a database's name": func(o *s3.Options) { o.Name = "../x" },
			"there is no S3 client": func(o *s3.Options) { o.Client = "boto" },
			"not from 1 to 256":     func(o *s3.Options) { o.Depth = 257 },
			"not a region":          func(o *s3.Options) { o.Region = "a b" },
			"never from a URL":      func(o *s3.Options) { o.Endpoint = "http://key:hunter2@127.0.0.1:9000" },
			"not a URL like":        func(o *s3.Options) { o.Endpoint = "127.0.0.1:9000" },
			"more than a scheme":    func(o *s3.Options) { o.Endpoint += "/minio" },
			"connection refused":    func(o *s3.Options) { o.Endpoint = "http://127.0.0.1:1" },
		} {
			o := good
			change(&o)
			l, err := s3.Open(t.Context(), o)
			if err == nil {
				l.Close()
			}
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%v; want %q", err, want)
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s3.Open(ended, good); !errors.Is(err, context.Canceled) {
			t.Errorf("open with a context that has ended: %v", err)
		}
	})
}

// TestReadOnly: who may not write reads.
func TestReadOnly(t *testing.T) {
	eachClient(t, func(t *testing.T, o s3.Options) {
		w := open(t, o)
		root := log.NewRoot()
		if err := w.CompareAndSwap(t.Context(), nil, root); err != nil {
			t.Fatal(err)
		}
		p := newProxy(t, &o)
		p.follow(func(r *request) *http.Response {
			if r.op == "PUT" || r.op == "DELETE" {
				return answer(403, "AccessDenied", "Access Denied.")
			}
			return pass(r)
		})
		var text bytes.Buffer
		o.Logger = slog.New(slog.NewTextHandler(&text, nil))
		r := open(t, o)
		if got, err := r.Root(t.Context()); err != nil || *got != *root {
			t.Errorf("root: %+v, %v", got, err)
		}
		err := r.CompareAndSwap(t.Context(), root, root.Next())
		if err == nil || log.OutcomeOf(err) != log.Rejected || !strings.Contains(err.Error(), "AccessDenied") {
			t.Errorf("swap: %v", err)
		}
		if !strings.Contains(text.String(), "can only be read") {
			t.Errorf("logged: %s", &text)
		}
	})
}

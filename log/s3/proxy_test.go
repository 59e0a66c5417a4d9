package s3_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/steledb/stele/log/s3"
)

// proxy stands between a client and the real server. It passes requests on as they are, which keeps their signatures valid, or does with
// them what its rule says.
type proxy struct {
	*httptest.Server
	t         testing.TB
	target    *url.URL
	transport *http.Transport

	mu    sync.Mutex
	rule  rule
	seen  []*request
	conns map[net.Conn]bool // open connections
	made  int               // connections so far
}

// rule answers a request. Nil: the connection is reset.
type rule func(r *request) *http.Response

// request is one that came, with its body read.
type request struct {
	*http.Request
	p      *proxy
	op     string // "PUT", "GET", "LIST" or "DELETE"
	key    string // LIST: the prefix
	body   []byte
	status int // what it was answered
}

// newProxy stands before the server of o, and makes o lead to itself.
func newProxy(t testing.TB, o *s3.Options) *proxy {
	t.Helper()
	p := unstartedProxy(t, o)
	p.Start()
	o.Endpoint = p.URL
	return p
}

// seen are the addresses that proxies have had: a store that passed its probe under one is remembered as fit in this process, and the kernel gives a
// port out again.
var seen sync.Map

// freshListener listens where no proxy has been before.
func freshListener(t testing.TB) net.Listener {
	t.Helper()
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if _, before := seen.LoadOrStore(l.Addr().String(), true); !before {
			return l
		}
		l.Close()
	}
}

func unstartedProxy(t testing.TB, o *s3.Options) *proxy {
	t.Helper()
	target, err := url.Parse(o.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, target: target, transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}, conns: map[net.Conn]bool{}}
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(p.serve))
	p.Listener.Close()
	p.Listener = freshListener(t)
	p.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	p.Config.ConnState = func(c net.Conn, s http.ConnState) {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch s {
		case http.StateNew:
			p.conns[c] = true
			p.made++
		case http.StateClosed, http.StateHijacked:
			delete(p.conns, c)
		}
	}
	t.Cleanup(func() {
		p.CloseClientConnections()
		p.Close()
		p.transport.CloseIdleConnections()
	})
	return p
}

func (p *proxy) serve(w http.ResponseWriter, hr *http.Request) {
	body, err := io.ReadAll(hr.Body)
	if err != nil {
		return
	}
	_, key, _ := strings.Cut(strings.TrimPrefix(hr.URL.Path, "/"), "/")
	r := &request{Request: hr, p: p, op: hr.Method, key: key, body: body}
	switch q := hr.URL.Query(); {
	case q.Has("list-type"):
		r.op, r.key = "LIST", q.Get("prefix")
	case q.Has("delete"):
		r.op = "DELETE"
	}
	p.mu.Lock()
	rule := p.rule
	p.seen = append(p.seen, r)
	p.mu.Unlock()
	if rule == nil {
		rule = pass
	}
	resp := rule(r)
	if resp == nil {
		reset(w)
		return
	}
	defer resp.Body.Close()
	p.mu.Lock()
	r.status = resp.StatusCode
	p.mu.Unlock()
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body)
}

func reset(w http.ResponseWriter) {
	c, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.Close()
}

// pass passes a request on as it came.
func pass(r *request) *http.Response { return r.send(r.Context(), r.Header.Clone()) }

// dropReply drops the answer of a request that was carried out.
func dropReply(r *request) *http.Response {
	pass(r).Body.Close()
	return nil
}

// drop drops a request that was not carried out.
func drop(*request) *http.Response { return nil }

func (r *request) send(ctx context.Context, h http.Header) *http.Response {
	u := *r.URL
	u.Scheme, u.Host = r.p.target.Scheme, r.p.target.Host
	out, err := http.NewRequestWithContext(ctx, r.Method, u.String(), bytes.NewReader(r.body))
	if err != nil {
		return answer(500, "Proxy", err.Error())
	}
	out.Header, out.Host, out.ContentLength = h, r.Host, int64(len(r.body))
	resp, err := r.p.transport.RoundTrip(out)
	if err != nil {
		return answer(502, "", err.Error())
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer(502, "", err.Error())
	}
	resp.Body = io.NopCloser(bytes.NewReader(b))
	return resp
}

// without passes a request on without some headers, signed anew: a server that ignores them.
func (r *request) without(names ...string) *http.Response {
	h := r.Header.Clone()
	for _, n := range append(names, "Authorization") {
		h.Del(n)
	}
	u := *r.URL
	u.Scheme, u.Host = r.p.target.Scheme, r.p.target.Host
	out, err := http.NewRequestWithContext(r.Context(), r.Method, u.String(), bytes.NewReader(r.body))
	if err != nil {
		return answer(500, "Proxy", err.Error())
	}
	out.Header, out.Host = h, r.Host
	creds := aws.Credentials{AccessKeyID: os.Getenv("AWS_ACCESS_KEY_ID"), SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY")}
	err = v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }).SignHTTP(r.Context(), creds, out,
		h.Get("X-Amz-Content-Sha256"), "s3", "us-east-1", time.Now())
	if err != nil {
		return answer(500, "Proxy", err.Error())
	}
	return r.send(r.Context(), out.Header)
}

// answer is a server's error.
func answer(status int, code, message string) *http.Response {
	body := ""
	if code != "" {
		body = fmt.Sprintf(`<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>%s</Message></Error>`, code, message)
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/xml"}}, Body: io.NopCloser(strings.NewReader(body))}
}

// follow sets the rule; nil passes everything on.
func (p *proxy) follow(r rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rule = r
}

// script is a rule for the puts of one key: each step answers one, and then all are passed on. Other requests are passed on.
func script(op, suffix string, steps ...rule) rule {
	var mu sync.Mutex
	return func(r *request) *http.Response {
		if r.op != op || !strings.HasSuffix(r.key, suffix) {
			return pass(r)
		}
		mu.Lock()
		step := pass
		if len(steps) > 0 {
			step, steps = steps[0], steps[1:]
		}
		mu.Unlock()
		return step(r)
	}
}

// says is a rule that answers with an error.
func says(status int, code string) rule {
	return func(*request) *http.Response { return answer(status, code, "as the test says") }
}

// requests takes what came since it was called last.
func (p *proxy) requests() (out []*request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out, p.seen = p.seen, nil
	return out
}

// ops is requests in short: "PUT ROOT", "GET KEY".
func (p *proxy) ops() (out []string) {
	for _, r := range p.requests() {
		name := r.key[strings.LastIndexByte(r.key, '/')+1:]
		out = append(out, strings.TrimSpace(r.op+" "+name))
	}
	return out
}

// connections is how many are open, and how many have been made.
func (p *proxy) connections() (open, made int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns), p.made
}

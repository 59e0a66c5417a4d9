package s3

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// answerTimeout bounds the wait for an answer's beginning where no context does.
const answerTimeout = time.Minute

// httpClient has a pool of connections of its own, of which idle stay open.
func (s site) httpClient(idle int) *http.Client {
	return &http.Client{
		Transport: transport{&http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
			TLSClientConfig:        s.tls,
			TLSHandshakeTimeout:    5 * time.Second,
			ResponseHeaderTimeout:  answerTimeout,
			IdleConnTimeout:        60 * time.Second,
			MaxIdleConnsPerHost:    idle,
			MaxResponseHeaderBytes: 64 << 10,
			DisableCompression:     true,
			WriteBufferSize:        writeBuffer,
			ReadBufferSize:         32 << 10,
		}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // it would not be signed for where it leads
	}
}

// writeBuffer is as much as goes out in one write, header and body.
const writeBuffer = 64 << 10

// transport sends a small body in one write with its header. net/http does so of a body that it knows to lie in memory, and the SDKs
// hide that theirs does. Such a body can also be sent again on another connection if the first was dead before a byte was written.
type transport struct{ *http.Transport }

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if b, ok := req.Context().Value(bodyKey{}).([]byte); ok && req.Body != nil && req.ContentLength == int64(len(b)) {
		req.Body.Close()
		req = req.WithContext(req.Context()) // a copy: a RoundTripper does not change its caller's
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
		req.Body, _ = req.GetBody()
	}
	resp, err := t.Transport.RoundTrip(req)
	if err != nil && !errors.Is(err, context.Canceled) {
		// Where one connection was lost, or fell silent, the idle ones may be dead too, and each would cost a call to find out.
		t.CloseIdleConnections()
	}
	return resp, err
}

type bodyKey struct{}

// payload is a request's body. It can be taken back: HTTP may still be reading it when a request has been given up.
type payload struct {
	mu sync.Mutex
	r  *bytes.Reader
}

// newPayload is b as a body, and a context for its request. What fits into one write is copied, and sent by [transport].
func newPayload(ctx context.Context, b []byte) (context.Context, *payload) {
	if len(b) < writeBuffer {
		ctx = context.WithValue(ctx, bodyKey{}, slices.Clone(b))
	}
	return ctx, &payload{r: bytes.NewReader(b)}
}

func (p *payload) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.r.Read(b)
}

func (p *payload) Seek(offset int64, whence int) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.r.Seek(offset, whence)
}

func (p *payload) takeBack() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.r.Reset(nil)
}

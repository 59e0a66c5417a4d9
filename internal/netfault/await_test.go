package netfault

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// awaitAll lets chunks of n bytes each, received at once, pass one way of a connection, and returns how long that took by the bubble's
// clock.
func awaitAll(t *testing.T, l Link, chunks, n int) time.Duration {
	p := &Proxy{changed: make(chan struct{}), open: map[*conn]struct{}{}}
	p.Set(Both(l))
	c := newConn(p, new(net.TCPConn), new(net.TCPConn))
	began := time.Now()
	for range chunks {
		if !c.up.put(chunk{data: make([]byte, n), due: began.Add(l.Delay)}, c.gone) {
			t.Fatal("no room")
		}
	}
	var passed time.Time
	for range chunks {
		k, _ := c.up.take(c.gone)
		if _, ok := c.await(c.up, k, passed); !ok {
			t.Fatal("gone")
		}
		passed = time.Now()
	}
	return time.Since(began)
}

// TestDelayIsPipelined: what was sent at once is late once, not each piece behind the other; and a rate is kept exactly.
func TestDelayIsPipelined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			link   Link
			chunks int
			want   time.Duration
		}{
			{Link{}, 100, 0},
			{Link{Delay: 5 * time.Millisecond}, 100, 5 * time.Millisecond},
			{Link{Rate: 1000}, 10, 10 * time.Second},
			{Link{Rate: 1000, Delay: time.Minute}, 10, 70 * time.Second},
		} {
			if got := awaitAll(t, c.link, c.chunks, 1000); got != c.want {
				t.Errorf("%d chunks over %+v took %v; want %v", c.chunks, c.link, got, c.want)
			}
		}
	})
}

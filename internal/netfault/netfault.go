// Package netfault is a TCP proxy that makes the network between a client and a server as bad as a test asks: slow, narrow, silent in one
// direction, cut in the middle of a reply, or gone. Bytes are real bytes on real sockets; what a client sees is what TCP shows it.
//
//	p, err := netfault.Listen(server.Addr())
//	p.Set(netfault.Both(netfault.Link{Delay: 5 * time.Millisecond}))
//	… dial p.Addr() …
//	cut := p.CutReply(0, nil) // the next request is delivered; its answer never comes
//	<-cut
//
// TCP never loses bytes and then goes on. So a connection that swallowed something under Link.Drop is reset when Drop ends, at the
// latest. What a real network does to handshakes is not simulated: connections are made at once, and only bytes are delayed.
package netfault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Link is one direction of the network.
type Link struct {
	// Delay is how much later than it was sent each byte arrives. It does not limit how many are under way.
	Delay time.Duration
	// Rate is how many bytes pass each second, on each connection; 0: as many as come.
	Rate int64
	// Hold keeps bytes back until it ends; then they are delivered, late. Past a few MiB the sender is stopped by TCP.
	Hold bool
	// Drop swallows bytes, and what else would arrive: an end of the stream, a reset.
	Drop bool
}

// Faults is the state of the network. The zero value is a good one.
type Faults struct {
	Up   Link // from the client to the server
	Down Link // from the server to the client
}

// Both is the same link in both directions.
func Both(l Link) Faults { return Faults{l, l} }

// Stats are counters since Listen.
type Stats struct {
	Conns  int64 // connections that were accepted
	Failed int64 // of these, those for which the server could not be reached
	// Turns is how often, on any connection, bytes from the server reached a client that had sent bytes since the last ones: the network
	// round trips that clients waited for. Requests that are sent behind each other, without waiting, share one.
	Turns    int64
	Up, Down int64 // bytes delivered
}

// Proxy passes connections on to one server. All methods may be called concurrently.
type Proxy struct {
	target string
	addr   string

	conns, failed, turns, up, down atomic.Int64

	mu       sync.Mutex
	listener net.Listener // nil: connections are refused
	faults   Faults
	changed  chan struct{} // closed, and made anew, when faults change
	open     map[*conn]struct{}
	cuts     []*cut // armed, in order
	closed   bool

	stop    context.CancelFunc
	ctx     context.Context // ends with Close, and with it dials
	running sync.WaitGroup
}

// cut is a reply to be cut.
type cut struct {
	after int64
	match func([]byte) bool
	done  chan struct{}
}

// Listen starts a proxy on a free loopback port, in front of target, which is host:port and need not be there yet.
func Listen(target string) (*Proxy, error) {
	if _, _, err := net.SplitHostPort(target); err != nil {
		return nil, fmt.Errorf("netfault: %w", err)
	}
	p := &Proxy{target: target, changed: make(chan struct{}), open: map[*conn]struct{}{}}
	p.ctx, p.stop = context.WithCancel(context.Background())
	// Below the ports that the kernel gives to clients, so that none of them takes it between Refuse and Accept.
	var err error
	for range 100 {
		p.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(12000+rand.IntN(20000)))
		if err = p.Accept(); err == nil {
			return p, nil
		}
	}
	p.stop()
	return nil, err
}

// Addr is host:port, for clients.
func (p *Proxy) Addr() string { return p.addr }

// Set changes the network, for open connections too: bytes that have not arrived yet are held, dropped or let go by the new state; Delay and
// Rate count for those that are sent from now on.
func (p *Proxy) Set(f Faults) {
	p.mu.Lock()
	old := p.faults
	p.faults = f
	close(p.changed)
	p.changed = make(chan struct{})
	var lost []*conn
	for c := range p.open {
		if c.lost(old, f) {
			lost = append(lost, c)
		}
	}
	p.mu.Unlock()
	for _, c := range lost {
		c.reset()
	}
}

// Faults returns what was set.
func (p *Proxy) Faults() Faults {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults
}

// state is faults and what is closed when they change.
func (p *Proxy) state() (Faults, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults, p.changed
}

// Stats returns the counters.
func (p *Proxy) Stats() Stats {
	return Stats{p.conns.Load(), p.failed.Load(), p.turns.Load(), p.up.Load(), p.down.Load()}
}

// CutReply arms one cut. The next time that a client sends something which match likes — it is shown the bytes as they came, a
// request or a piece of one, and must not keep them; nil likes anything — those bytes are delivered, after bytes of the reply to them are
// delivered, and the connection is reset: as soon as the reply comes, if after is 0. The channel is closed then, or when that connection ends
// in another way. Several cuts are used up in the order in which they were armed, one by one.
func (p *Proxy) CutReply(after int64, match func(sent []byte) bool) <-chan struct{} {
	c := &cut{after, match, make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cuts = append(p.cuts, c)
	return c.done
}

// takeCut gives the first armed cut away if it likes what was sent.
func (p *Proxy) takeCut(sent []byte) *cut {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.cuts) == 0 || p.cuts[0].match != nil && !p.cuts[0].match(sent) {
		return nil
	}
	c := p.cuts[0]
	p.cuts = p.cuts[1:]
	return c
}

// Refuse closes the port: whoever dials it is refused, until Accept. Open connections go on.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
}

// Accept takes connections again, on the same port.
func (p *Proxy) Accept() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fmt.Errorf("netfault: %w", net.ErrClosed)
	}
	if p.listener != nil {
		return nil
	}
	l, err := net.Listen("tcp4", p.addr)
	if err != nil {
		return fmt.Errorf("netfault: %w", err)
	}
	p.listener = l
	p.running.Go(func() { p.serve(l) })
	return nil
}

func (p *Proxy) serve(l net.Listener) {
	for {
		client, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, for example
			select {
			case <-p.ctx.Done():
				return
			case <-time.After(10 * time.Millisecond):
				continue
			}
		}
		p.conns.Add(1)
		p.running.Go(func() { p.connect(client.(*net.TCPConn)) })
	}
}

// connect passes one connection on, until it ends.
func (p *Proxy) connect(client *net.TCPConn) {
	server, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		p.failed.Add(1)
		_ = client.SetLinger(0)
		_ = client.Close()
		return
	}
	c := newConn(p, client, server.(*net.TCPConn))
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		c.reset()
		return
	}
	p.open[c] = struct{}{}
	p.mu.Unlock()
	c.run()
	p.mu.Lock()
	delete(p.open, c)
	p.mu.Unlock()
}

// Reset resets every open connection, on both sides. What was under way is lost.
func (p *Proxy) Reset() {
	p.mu.Lock()
	var open []*conn
	for c := range p.open {
		open = append(open, c)
	}
	p.mu.Unlock()
	for _, c := range open {
		c.reset()
	}
}

// Close closes the port, resets every connection and returns once all goroutines have ended.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Refuse()
	p.stop()
	p.Reset()
	p.running.Wait()
	return nil
}

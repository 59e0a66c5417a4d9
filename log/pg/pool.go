package pg

import (
	"context"
	"sync"

	"github.com/steledb/stele/log"
)

// pool holds up to a number of connections, made when they are needed. There are three of them, so that no kind of work waits behind
// another: flushes, the lease, and everything else.
type pool struct {
	connect func(context.Context) (*conn, error)
	slots   chan struct{} // one for each call that has or makes a connection
	closing chan struct{}

	mu     sync.Mutex
	closed bool
	idle   []*conn // the one used last is at the end, and used next
	used   map[*conn]struct{}
}

func newPool(size int, connect func(context.Context) (*conn, error)) *pool {
	return &pool{connect: connect, slots: make(chan struct{}, size), closing: make(chan struct{}), used: map[*conn]struct{}{}}
}

// do runs requests on a connection, as conn.run does. It waits for a free one until ctx ends. A request's error is the request's; err is
// that no answer came.
func (p *pool) do(ctx context.Context, reqs ...*request) (sent bool, err error) {
	c, err := p.take(ctx)
	if err != nil {
		return false, err
	}
	sent, err = c.run(ctx, reqs...)
	keep := err == nil
	for _, r := range reqs {
		keep = keep && !stale(r.err)
	}
	// A caller that gives up says nothing of the server.
	p.give(c, keep, ctx.Err() != context.Canceled)
	return sent, err
}

func (p *pool) take(ctx context.Context) (*conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.closing:
		return nil, log.ErrClosed
	}
	p.mu.Lock()
	if n := len(p.idle); n > 0 && !p.closed {
		c := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.used[c] = struct{}{}
		p.mu.Unlock()
		return c, nil
	}
	p.mu.Unlock()
	c, err := p.connect(ctx)
	if err == nil {
		p.mu.Lock()
		if p.closed {
			err = log.ErrClosed
		} else {
			p.used[c] = struct{}{}
		}
		p.mu.Unlock()
		if err != nil {
			c.close()
		}
	}
	if err != nil {
		<-p.slots
		return nil, err
	}
	return c, nil
}

// give takes a connection back. If it is of no more use, and that is the server's or the network's doing, then those that lie idle were
// probably lost with it, and are not kept either: else each would cost a call.
func (p *pool) give(c *conn, keep, theirs bool) {
	p.mu.Lock()
	delete(p.used, c)
	var drop []*conn
	switch {
	case p.closed, !keep && !theirs:
		drop = []*conn{c}
	case keep:
		p.idle = append(p.idle, c)
	default:
		drop = append(p.idle, c)
		p.idle = nil
	}
	p.mu.Unlock()
	for _, c := range drop {
		c.close()
	}
	<-p.slots
}

// close closes all connections; calls that use one fail.
func (p *pool) close() {
	p.mu.Lock()
	idle := p.idle
	if !p.closed {
		p.closed = true
		close(p.closing)
	}
	p.idle = nil
	for c := range p.used {
		_ = c.raw.Close()
	}
	p.mu.Unlock()
	for _, c := range idle {
		c.close()
	}
}

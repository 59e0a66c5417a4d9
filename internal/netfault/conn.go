package netfault

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// conn is one client's connection and the one to the server behind it.
//
// Each direction has a goroutine that receives and one that delivers, and a delay line between them:
//
//	client ─▶ receive ─▶ line ─▶ deliver ─▶ server
//	client ◀─ deliver ◀─ line ◀─ receive ◀─ server
type conn struct {
	p        *Proxy
	up, down *way

	asked    atomic.Bool         // the client sent something since the last bytes that it was given
	taken    atomic.Pointer[cut] // the cut that is this connection's end
	replying atomic.Bool         // what the server sends from now on is the reply to cut

	once sync.Once
	gone chan struct{} // closed by reset
}

// way is one direction of a conn.
type way struct {
	*line
	from, to *net.TCPConn
	link     func(Faults) Link
	lost     atomic.Bool // something was swallowed
}

func newConn(p *Proxy, client, server *net.TCPConn) *conn {
	return &conn{
		p:    p,
		up:   &way{line: newLine(), from: client, to: server, link: func(f Faults) Link { return f.Up }},
		down: &way{line: newLine(), from: server, to: client, link: func(f Faults) Link { return f.Down }},
		gone: make(chan struct{}),
	}
}

// run returns when both directions have ended.
func (c *conn) run() {
	var wg sync.WaitGroup
	for _, w := range []*way{c.up, c.down} {
		wg.Go(func() { c.receive(w) })
		wg.Go(func() { c.deliver(w) })
	}
	wg.Wait()
	_ = c.up.from.Close()
	_ = c.up.to.Close()
	if cut := c.taken.Load(); cut != nil {
		close(cut.done)
	}
}

// reset ends the connection as a crash would: both sides get a RST.
func (c *conn) reset() {
	c.once.Do(func() {
		close(c.gone)
		for _, side := range []*net.TCPConn{c.up.from, c.up.to} {
			_ = side.SetLinger(0)
			_ = side.Close()
		}
	})
}

// lost reports whether the change from old to f ends a Drop that swallowed something of this connection.
func (c *conn) lost(old, f Faults) bool {
	for _, w := range []*way{c.up, c.down} {
		if w.link(old).Drop && !w.link(f).Drop && w.lost.Load() {
			return true
		}
	}
	return false
}

// chunk is what was received at once.
type chunk struct {
	data []byte
	due  time.Time
	cut  bool  // up: the reply to this is to be cut; down: the connection ends behind this
	end  error // io.EOF: the stream ended here; another error: it broke
}

const maxChunk = 32 << 10

// receive reads until the stream ends and puts what it reads into the line.
func (c *conn) receive(w *way) {
	buf := make([]byte, maxChunk)
	for {
		n, err := w.from.Read(buf)
		faults, _ := c.p.state()
		due := time.Now().Add(w.link(faults).Delay)
		if n > 0 {
			k := chunk{data: bytes.Clone(buf[:n]), due: due}
			if w == c.up {
				c.asked.Store(true)
				k.cut = c.takeCut(k.data)
			} else {
				c.shorten(&k)
			}
			if !w.put(k, c.gone) || w == c.down && k.cut {
				return
			}
		}
		if err != nil {
			w.put(chunk{due: due, end: err}, c.gone)
			return
		}
	}
}

// takeCut reports whether the reply to what the client sent is to be cut.
func (c *conn) takeCut(sent []byte) bool {
	if c.taken.Load() != nil {
		return false
	}
	cut := c.p.takeCut(sent)
	c.taken.Store(cut)
	return cut != nil
}

// shorten ends a piece of the reply that is to be cut where the cut is.
func (c *conn) shorten(k *chunk) {
	if !c.replying.Load() {
		return
	}
	cut := c.taken.Load()
	if n := int64(len(k.data)); cut.after > n {
		cut.after -= n // nobody else touches it now
		return
	}
	k.data, k.cut = k.data[:cut.after], true
}

// deliver writes what the line holds, each chunk when it is due.
func (c *conn) deliver(w *way) {
	var passed time.Time // when the last chunk had passed, at the link's rate
	for {
		k, ok := w.take(c.gone)
		if !ok {
			return
		}
		l, ok := c.await(w, k, passed)
		if !ok {
			return
		}
		passed = time.Now()
		switch {
		case l.Drop:
			w.lost.Store(true)
			if f, _ := c.p.state(); !w.link(f).Drop { // it ended just now, and Set may not have seen the mark
				c.reset()
			}
			continue // behind an end of the stream there is only gone
		case w.lost.Load(): // Drop has ended, and Set is about to reset this connection
			c.reset()
			return
		case errors.Is(k.end, io.EOF):
			_ = w.to.CloseWrite()
			return
		case k.end != nil:
			c.reset()
			return
		}
		// Counted before, so that whoever has the bytes finds them counted.
		if w == c.up {
			c.p.up.Add(int64(len(k.data)))
			if k.cut {
				c.replying.Store(true)
			}
		} else {
			c.p.down.Add(int64(len(k.data)))
			if len(k.data) > 0 && c.asked.CompareAndSwap(true, false) {
				c.p.turns.Add(1)
			}
		}
		if _, err := w.to.Write(k.data); err != nil || w == c.down && k.cut {
			c.reset()
			return
		}
	}
}

// await returns when k is to be delivered or dropped, by the state of the link then. False: the connection is gone.
func (c *conn) await(w *way, k chunk, passed time.Time) (Link, bool) {
	for {
		faults, changed := c.p.state()
		l := w.link(faults)
		if l.Drop {
			return l, true
		}
		due := k.due
		if l.Rate > 0 {
			if passed.After(due) {
				due = passed
			}
			due = due.Add(time.Duration(float64(len(k.data)) / float64(l.Rate) * float64(time.Second)))
		}
		wait := time.Until(due)
		if wait <= 0 && !l.Hold {
			return l, true
		}
		var timer *time.Timer
		var fired <-chan time.Time
		if !l.Hold {
			timer = time.NewTimer(wait)
			fired = timer.C
		}
		gone := false
		select {
		case <-fired:
		case <-changed:
		case <-c.gone:
			gone = true
		}
		if timer != nil {
			timer.Stop()
		}
		if gone {
			return l, false
		}
	}
}

// line is a queue of chunks, bounded by bytes: a sender that fills it is stopped, as TCP stops it.
type line struct {
	mu     sync.Mutex
	chunks []chunk
	bytes  int
	more   chan struct{} // has a token when there may be chunks
	less   chan struct{} // has a token when there may be room
}

const maxLine = 8 << 20

func newLine() *line { return &line{more: make(chan struct{}, 1), less: make(chan struct{}, 1)} }

// put waits for room. False: gone was closed.
func (l *line) put(k chunk, gone <-chan struct{}) bool {
	for {
		l.mu.Lock()
		if l.bytes < maxLine {
			l.chunks = append(l.chunks, k)
			l.bytes += size(k)
			l.mu.Unlock()
			signal(l.more)
			return true
		}
		l.mu.Unlock()
		select {
		case <-l.less:
		case <-gone:
			return false
		}
	}
}

// take waits for a chunk. False: gone was closed.
func (l *line) take(gone <-chan struct{}) (chunk, bool) {
	for {
		l.mu.Lock()
		if len(l.chunks) > 0 {
			k := l.chunks[0]
			l.chunks[0] = chunk{}
			l.chunks = l.chunks[1:]
			l.bytes -= size(k)
			l.mu.Unlock()
			signal(l.less)
			return k, true
		}
		l.mu.Unlock()
		select {
		case <-l.more:
		case <-gone:
			return chunk{}, false
		}
	}
}

func size(k chunk) int { return len(k.data) + 128 }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

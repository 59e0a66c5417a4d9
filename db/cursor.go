package db

import "bytes"

// cursor is a position in a run. key is nil once there is none.
type cursor struct {
	key []byte
	ch  chunk
	n   int // keys in ch
	i   int
	c   int // number of ch
	r   *run
}

func (c *cursor) load(n int) {
	c.c, c.ch = n, c.r.chunks[n]
	c.n = c.ch.len()
}

// seek goes to the first key not below key.
func (c *cursor) seek(key []byte) {
	if bytes.Compare(c.r.last, key) < 0 {
		c.key = nil
		return
	}
	c.load(c.r.find(key))
	c.i = c.ch.seek(key, c.n)
	if c.i == c.n {
		c.load(c.c + 1) // there is one: the run's last key is not below key
		c.i = 0
	}
	c.key = c.ch.key(c.i, c.n)
	if c.r.upTo != 0 {
		c.skip()
	}
}

// seekBack goes to the last key below key.
func (c *cursor) seekBack(key []byte) {
	if bytes.Compare(c.r.first, key) >= 0 {
		c.key = nil
		return
	}
	c.load(c.r.find(key))
	c.i = c.ch.seek(key, c.n) - 1
	if c.i < 0 { // the chunk begins at key: there is one before
		c.load(c.c - 1)
		c.i = c.n - 1
	}
	c.key = c.ch.key(c.i, c.n)
	if c.r.upTo != 0 {
		c.skipBack()
	}
}

func (c *cursor) next() {
	c.step()
	if c.r.upTo != 0 {
		c.skip()
	}
}

func (c *cursor) step() {
	if c.i++; c.i == c.n {
		if c.c+1 == len(c.r.chunks) {
			c.key = nil
			return
		}
		c.load(c.c + 1)
		c.i = 0
	}
	c.key = c.ch.key(c.i, c.n)
}

func (c *cursor) prev() {
	c.stepBack()
	if c.r.upTo != 0 {
		c.skipBack()
	}
}

func (c *cursor) stepBack() {
	if c.i--; c.i < 0 {
		if c.c == 0 {
			c.key = nil
			return
		}
		c.load(c.c - 1)
		c.i = c.n - 1
	}
	c.key = c.ch.key(c.i, c.n)
}

func (c *cursor) skip() {
	for c.key != nil {
		if t, _ := keyT(c.key); t <= c.r.upTo {
			return
		}
		c.step()
	}
}

func (c *cursor) skipBack() {
	for c.key != nil {
		if t, _ := keyT(c.key); t <= c.r.upTo {
			return
		}
		c.stepBack()
	}
}

// merger walks several runs as one, in either direction.
type merger struct {
	order []*cursor // by key, the next one first
	back  bool
	buf   [8]cursor
	refs  [8]*cursor
}

// seek places the merger at the first key not below from. Runs that have no key with the prefix from there on are left
// out: a merger is for keys with that prefix only.
func (m *merger) seek(runs []*run, from, prefix []byte) {
	m.begin(len(runs))
	cs := m.buf[:]
	if len(runs) > len(cs) {
		cs = make([]cursor, len(runs))
	}
	var entity uint64 // the hash of the one entity asked for, where runs have filters
	for i, r := range runs {
		if r.filter != nil && len(prefix) > 0 {
			if entity == 0 {
				e, _ := decodeID(prefix)
				entity = mix(uint64(e))
			}
			if !r.mayHave(entity) {
				continue
			}
		}
		c := &cs[i]
		c.r = r
		c.seek(from)
		if c.key != nil && bytes.HasPrefix(c.key, prefix) {
			m.insert(c)
		}
	}
}

// seekBack places the merger at the last key below to, going backwards.
func (m *merger) seekBack(runs []*run, to, prefix []byte) {
	m.begin(len(runs))
	m.back = true
	cs := m.buf[:]
	if len(runs) > len(cs) {
		cs = make([]cursor, len(runs))
	}
	for i, r := range runs {
		c := &cs[i]
		c.r = r
		c.seekBack(to)
		if c.key != nil && bytes.HasPrefix(c.key, prefix) {
			m.insert(c)
		}
	}
}

func (m *merger) begin(n int) {
	m.order = m.refs[:0]
	if n > len(m.refs) {
		m.order = make([]*cursor, 0, n)
	}
}

func (m *merger) insert(c *cursor) {
	m.order = append(m.order, nil)
	copy(m.order[1:], m.order)
	m.order[0] = c
	m.sink()
}

// sink moves the first cursor to where its key belongs.
func (m *merger) sink() {
	o := m.order
	for i := 0; i+1 < len(o); i++ {
		if c := bytes.Compare(o[i].key, o[i+1].key); c == 0 || c < 0 != m.back {
			return
		}
		o[i], o[i+1] = o[i+1], o[i]
	}
}

// key is the key that the merger is at; nil at the end.
func (m *merger) key() []byte {
	if len(m.order) == 0 {
		return nil
	}
	return m.order[0].key
}

// next goes one key on.
func (m *merger) next() {
	c := m.order[0]
	if m.back {
		c.prev()
	} else {
		c.next()
	}
	if c.key == nil {
		m.order = m.order[1:]
		return
	}
	if len(m.order) > 1 {
		m.sink()
	}
}

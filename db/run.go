package db

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sort"
)

// chunk is a few kilobytes of a run, without pointers, so that the garbage collector never looks inside:
//
//	number of keys     2 bytes, little-endian, like all numbers here
//	common prefix      2 bytes: how many bytes the chunk's keys share
//	heads              of every 16th key, if there are 32 or more: 8 bytes behind the common prefix, big-endian, so that a
//	                   search touches few cache lines
//	keys               sorted, one after the other
//	ends               2 bytes for each key, from the first key's start on
//
// A key that is larger than a chunk is a chunk of its own, which has neither heads nor ends.
//
// Its capacity is what the allocator gave for it: the memory that it takes (memory.go).
type chunk []byte

const (
	chunkHead = 4
	headSize  = 8
	headEvery = 16
	headsFrom = 32
	perKey    = 2
)

func (c chunk) len() int { return int(binary.LittleEndian.Uint16(c)) }

// heads is how many heads a chunk of n keys has.
func heads(n int) int {
	if n < headsFrom {
		return 0
	}
	return (n + headEvery - 1) / headEvery
}

// chunkSize is how many bytes a chunk of n keys of together size bytes takes.
func chunkSize(n, size int) int { return chunkHead + headSize*heads(n) + size + perKey*n }

// end is where the i-th of n keys ends, from the first key's start on.
func (c chunk) end(i, n int) int {
	if n == 1 {
		return len(c) - chunkHead
	}
	return int(binary.LittleEndian.Uint16(c[len(c)-perKey*(n-i):]))
}

// key is the i-th of the chunk's n keys.
func (c chunk) key(i, n int) []byte {
	if n == 1 {
		return c[chunkHead:]
	}
	ends := c[len(c)-perKey*n:]
	base := chunkHead + headSize*heads(n)
	end := base + int(binary.LittleEndian.Uint16(ends[perKey*i:]))
	start := base
	if i > 0 {
		start += int(binary.LittleEndian.Uint16(ends[perKey*(i-1):]))
	}
	return c[start:end:end]
}

// keys is the bytes of keys i to j, j excluded, where i < j.
func (c chunk) keys(i, j, n int) []byte {
	base := chunkHead + headSize*heads(n)
	start := base
	if i > 0 {
		start += c.end(i-1, n)
	}
	return c[start : base+c.end(j-1, n)]
}

// search is the first of the keys from i to j that is not below key; j if there is none.
func (c chunk) search(key []byte, i, j, n int) int {
	for i < j {
		m := int(uint(i+j) >> 1)
		if bytes.Compare(c.key(m, n), key) < 0 {
			i = m + 1
		} else {
			j = m
		}
	}
	return i
}

// seek is search in the whole chunk, by its heads.
func (c chunk) seek(key []byte, n int) int {
	k := heads(n)
	if k == 0 {
		return c.search(key, 0, n, n)
	}
	p := int(binary.LittleEndian.Uint16(c[2:]))
	first := c[chunkHead+headSize*k:]
	if len(key) < p || string(key[:p]) != string(first[:p]) {
		if bytes.Compare(key, first[:p]) <= 0 {
			return 0
		}
		return n
	}
	h := head8(key[p:])
	// The keys with the head h lie behind the last head below it, and before the first head above it.
	lo, hi := 0, k
	for lo < hi {
		m := int(uint(lo+hi) >> 1)
		if binary.BigEndian.Uint64(c[chunkHead+headSize*m:]) < h {
			lo = m + 1
		} else {
			hi = m
		}
	}
	for hi < k && binary.BigEndian.Uint64(c[chunkHead+headSize*hi:]) == h {
		hi++
	}
	i, j := 0, n
	if lo > 0 {
		i = (lo-1)*headEvery + 1
	}
	if hi < k {
		j = hi * headEvery
	}
	return c.search(key, i, j, n)
}

func newChunk(size int) chunk { return slices.Grow(chunk(nil), size)[:size] }

// makeChunk puts a chunk together.
func makeChunk(keys []byte, ends []uint16) chunk {
	n := len(ends)
	if n == 1 {
		c := newChunk(chunkHead + len(keys))
		binary.LittleEndian.PutUint16(c, 1)
		copy(c[chunkHead:], keys)
		return c
	}
	k := heads(n)
	c := newChunk(chunkSize(n, len(keys)))
	binary.LittleEndian.PutUint16(c, uint16(n))
	copy(c[chunkHead+headSize*k:], keys)
	tail := c[len(c)-perKey*n:]
	for i, e := range ends {
		binary.LittleEndian.PutUint16(tail[perKey*i:], e)
	}
	if k > 0 {
		p := commonPrefix(c.key(0, n), c.key(n-1, n))
		binary.LittleEndian.PutUint16(c[2:], uint16(p))
		for i := range k {
			binary.BigEndian.PutUint64(c[chunkHead+headSize*i:], head8(c.key(i*headEvery, n)[p:]))
		}
	}
	return c
}

// head is 16 bytes of a chunk's first key, behind the run's common prefix: what a search in the directory compares.
type head struct{ hi, lo uint64 }

func makeHead(k []byte) head {
	if len(k) >= 16 {
		return head{binary.BigEndian.Uint64(k), binary.BigEndian.Uint64(k[8:])}
	}
	var b [16]byte
	copy(b[:], k)
	return head{binary.BigEndian.Uint64(b[:]), binary.BigEndian.Uint64(b[8:])}
}

func (h head) less(o head) bool { return h.hi < o.hi || h.hi == o.hi && h.lo < o.lo }

// run is a sorted sequence of distinct keys in chunks. It is immutable, and shares chunks with the runs it was merged from.
type run struct {
	chunks      []chunk
	heads       []head // of each chunk, if there are several
	prefix      int    // how many bytes all keys share
	first, last []byte // the first and the last key
	n           int    // keys
	bytes       int64  // memory that it keeps alive, chunks that it shares included
	minT, maxT  uint64 // no key lies outside; the bounds may be wider than need be
	upTo        uint64 // if not 0: keys of later transactions are to be passed over
	filter      filter // of small EAVT runs
	one         [1]chunk
}

// find is the chunk that holds the first key not below key, or the chunk before it.
func (r *run) find(key []byte) int {
	if len(r.chunks) == 1 {
		return 0
	}
	p := r.prefix
	if len(key) < p {
		if bytes.Compare(key, r.first[:p]) <= 0 {
			return 0
		}
		return len(r.chunks) - 1
	}
	if c := bytes.Compare(key[:p], r.first[:p]); c != 0 {
		if c < 0 {
			return 0
		}
		return len(r.chunks) - 1
	}
	h := makeHead(key[p:])
	// The chunks whose head is h lie in [i, j): theirs must be compared in full.
	i, j := 0, len(r.heads)
	for i < j {
		m := int(uint(i+j) >> 1)
		if r.heads[m].less(h) {
			i = m + 1
		} else {
			j = m
		}
	}
	if i < len(r.heads) && r.heads[i] == h {
		j = i + sort.Search(len(r.heads)-i, func(k int) bool { return h.less(r.heads[i+k]) })
		i += sort.Search(j-i, func(k int) bool {
			c := r.chunks[i+k]
			return bytes.Compare(c.key(0, c.len()), key) > 0
		})
	}
	return max(i-1, 0)
}

// builder makes runs of keys that are added in order, one run after the other. Its memory stays with it.
type builder struct {
	target int // bytes of a chunk
	chunks []chunk
	buf    []byte // keys of the next chunk
	ends   []uint16
	n      int
	bytes  int64 // of chunks
	made   int64 // bytes of all that was allocated here for runs, since somebody last asked
}

// builders is what a merge needs: one for what stays current, one for what goes to history, and its cursors.
type builders struct {
	cur, hist builder
	in        []*run
	cursors   []cursor
	order     []*cursor
}

func newBuilders(target int) *builders {
	return &builders{cur: builder{target: target}, hist: builder{target: target}}
}

// add appends one key.
func (b *builder) add(key []byte) {
	if n := len(b.ends); n > 0 && chunkSize(n+1, len(b.buf)+len(key)) > b.target {
		b.flush()
	}
	b.buf = append(b.buf, key...)
	b.ends = append(b.ends, uint16(len(b.buf)))
	b.n++
}

// pending is the size of the chunk in making.
func (b *builder) pending() int { return chunkSize(len(b.ends), len(b.buf)) }

func (b *builder) flush() {
	if len(b.ends) == 0 {
		return
	}
	c := makeChunk(b.buf, b.ends)
	b.chunks = append(b.chunks, c)
	b.bytes += int64(cap(c))
	b.made += int64(cap(c))
	b.buf, b.ends = b.buf[:0], b.ends[:0]
	if cap(b.buf) > 4*b.target { // a large value was here
		b.buf = nil
	}
}

// addRange appends keys i to j of a chunk of n.
func (b *builder) addRange(c chunk, i, j, n int) {
	for i < j {
		start := 0
		if i > 0 {
			start = c.end(i-1, n)
		}
		// As many as fit, in one copy.
		room := b.target - chunkHead
		base := len(b.buf) - start
		m := i
		for m < j {
			end := base + c.end(m, n)
			if k := len(b.ends) + 1; end+perKey*k+headSize*heads(k) > room {
				break
			}
			b.ends = append(b.ends, uint16(end))
			m++
		}
		if m == i {
			b.add(c.key(i, n))
			i++
			continue
		}
		b.buf = append(b.buf, c.keys(i, m, n)...)
		b.n += m - i
		i = m
	}
}

// addChunk appends all of a chunk: by pointer where no chunk comes out less than half full.
func (b *builder) addChunk(c chunk) {
	n := c.len()
	half := b.target / 2
	switch {
	case len(c) < half:
		b.addRange(c, 0, n, n)
	case len(b.ends) == 0 || b.pending() >= half:
		b.flush()
		b.chunks = append(b.chunks, c)
		b.bytes += int64(cap(c))
		b.n += n
	case b.pending()+len(c) <= b.target || n == 1:
		b.addRange(c, 0, n, n)
	default: // two chunks of about the same size, so that what follows can be taken by pointer again
		want := (b.pending() + len(c)) / 2
		size := b.pending()
		i := 0
		for i < n && size < want {
			size += len(c.key(i, n)) + 2
			i++
		}
		b.addRange(c, 0, i, n)
		b.flush()
		b.addRange(c, i, n, n)
		b.flush()
	}
}

// run is what was added; nil if nothing was.
func (b *builder) run(minT, maxT uint64) *run {
	b.flush()
	if b.n == 0 {
		return nil
	}
	r := &run{n: b.n, minT: minT, maxT: maxT}
	if len(b.chunks) == 1 {
		r.one[0] = b.chunks[0]
		r.chunks = r.one[:]
	} else {
		r.chunks = make([]chunk, len(b.chunks))
		copy(r.chunks, b.chunks)
	}
	c := r.chunks[0]
	r.first = c.key(0, c.len())
	c = r.chunks[len(r.chunks)-1]
	r.last = c.key(c.len()-1, c.len())
	r.prefix = commonPrefix(r.first, r.last)
	if len(r.chunks) > 1 {
		r.heads = make([]head, len(r.chunks))
		for i, c := range r.chunks {
			r.heads[i] = makeHead(c.key(0, c.len())[r.prefix:])
		}
	}
	r.bytes = b.bytes + r.directory()
	b.made += r.directory()
	clear(b.chunks)
	b.chunks, b.n, b.bytes = b.chunks[:0], 0, 0
	return r
}

func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for ; i+8 <= n; i += 8 {
		if binary.LittleEndian.Uint64(a[i:]) != binary.LittleEndian.Uint64(b[i:]) {
			break
		}
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

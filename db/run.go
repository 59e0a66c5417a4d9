package db

import (
	"bytes"
	"encoding/binary"
	"sort"
)

// chunk is a few kilobytes of a run: the sorted keys one after the other, then the end of each as 2 little-endian bytes,
// then their number in 2. It has no pointers, so the garbage collector never looks inside. A key larger than a chunk is
// a chunk of its own, whose end is not read.
type chunk []byte

func (c chunk) len() int { return int(binary.LittleEndian.Uint16(c[len(c)-2:])) }

// key is the i-th of the chunk's n keys.
func (c chunk) key(i, n int) []byte {
	if n == 1 {
		return c[: len(c)-4 : len(c)-4]
	}
	ends := c[len(c)-2-2*n:]
	end := int(binary.LittleEndian.Uint16(ends[2*i:]))
	start := 0
	if i > 0 {
		start = int(binary.LittleEndian.Uint16(ends[2*i-2:]))
	}
	return c[start:end:end]
}

// keys is the bytes of keys i to j, j excluded.
func (c chunk) keys(i, j, n int) []byte {
	if i >= j {
		return nil
	}
	if n == 1 {
		return c[:len(c)-4]
	}
	start := 0
	if i > 0 {
		start = c.end(i-1, n)
	}
	return c[start:c.end(j-1, n)]
}

func (c chunk) end(i, n int) int {
	if n == 1 {
		return len(c) - 4
	}
	return int(binary.LittleEndian.Uint16(c[len(c)-2-2*n+2*i:]))
}

// search is the first of the keys from i on that is not below key; n if there is none.
func (c chunk) search(key []byte, i, n int) int {
	j := n
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
	minT, maxT  uint64 // no key lies outside; the bounds may be wider than need be
	upTo        uint64 // if not 0: keys of later transactions are to be passed over
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
}

const chunkTrailer = 2

// builders is what a merge needs: one for what stays current, one for what goes to history.
type builders struct{ cur, hist builder }

func newBuilders(target int) *builders {
	return &builders{builder{target: target}, builder{target: target}}
}

// add appends one key.
func (b *builder) add(key []byte) {
	if len(b.ends) > 0 && len(b.buf)+len(key)+2*len(b.ends)+2+chunkTrailer > b.target {
		b.flush()
	}
	b.buf = append(b.buf, key...)
	b.ends = append(b.ends, uint16(len(b.buf)))
	b.n++
}

// pending is the size of the chunk in making.
func (b *builder) pending() int { return len(b.buf) + 2*len(b.ends) + chunkTrailer }

func (b *builder) flush() {
	if len(b.ends) == 0 {
		return
	}
	for _, e := range b.ends {
		b.buf = binary.LittleEndian.AppendUint16(b.buf, e)
	}
	b.buf = binary.LittleEndian.AppendUint16(b.buf, uint16(len(b.ends)))
	b.chunks = append(b.chunks, bytes.Clone(b.buf))
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
		room := b.target - b.pending()
		m := i
		base := len(b.buf) - start
		for m < j && c.end(m, n)-start+2*(m-i+1) <= room {
			b.ends = append(b.ends, uint16(base+c.end(m, n)))
			m++
		}
		if m == i {
			b.add(c.key(i, n))
			i++
			continue
		}
		b.buf = append(b.buf, c[start:c.end(m-1, n)]...)
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
	clear(b.chunks)
	b.chunks, b.n = b.chunks[:0], 0
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

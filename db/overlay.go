package db

import (
	"hash/maphash"

	"github.com/steledb/stele/datom"
)

// overlay is a batch's datoms that no snapshot holds yet, in the order they came, and hash chains through them so that the
// next transaction sees them. The chains are made when somebody first asks: a replay never does.
type overlay struct {
	log   []entry
	arena []byte // the EAVT keys of log, one after the other
	ends  []int
	seed  maphash.Seed

	linked int                // so many of log are in the chains
	heads  [numChains][]int32 // 1 + the newest entry of a bucket
}

const (
	byE   = iota
	byEAV // the one fact
	byAV  // of unique attributes
	byRef // of ref values
	numChains
)

type entry struct {
	d    *datom.Datom
	next [numChains]int32 // 1 + the next older entry of the bucket; 0: none
}

const minBuckets = 512

func (o *overlay) reset() {
	if roomy(len(o.arena), cap(o.arena)) {
		o.log, o.arena, o.ends = nil, nil, nil
	}
	clear(o.log)
	o.log, o.arena, o.ends = o.log[:0], o.arena[:0], o.ends[:0]
	if o.linked == 0 {
		return
	}
	o.linked = 0
	for i, h := range o.heads {
		if len(h) > 64*minBuckets {
			o.heads[i] = nil
			continue
		}
		clear(h)
	}
}

// roomy reports whether memory that is kept for the next batch is far more than this one needed: after a replay, say.
func roomy(used, kept int) bool { return kept > 64<<10 && used < kept/16 }

func (o *overlay) add(d *datom.Datom) {
	o.log = append(o.log, entry{d: d})
	o.arena = appendKey(o.arena, EAVT, d)
	o.ends = append(o.ends, len(o.arena))
}

// parts is where an entry's key has its attribute, its value and its t.
func (o *overlay) parts(i int) (e, a, v, t []byte) {
	start := 0
	if i > 0 {
		start = o.ends[i-1]
	}
	k := o.arena[start:o.ends[i]]
	n := 1 + int(k[0])
	m := n + 1 + int(k[n])
	return k[:n], k[n:m], k[m : len(k)-tLen], k[len(k)-tLen:]
}

func (o *overlay) hashE(e datom.ID) uint64 { return mix(uint64(e)) }

// hashV is the hash of an encoded value.
func (o *overlay) hashV(v []byte) uint64 { return maphash.Bytes(o.seed, v) }

func hashAV(a datom.ID, v uint64) uint64     { return mix(v + uint64(a)) }
func hashEAV(e, a datom.ID, v uint64) uint64 { return mix(v + mix(uint64(a)) + uint64(e)) }

// link brings the chains up to date.
func (o *overlay) link(unique func(datom.ID) bool) {
	if o.linked == len(o.log) {
		return
	}
	if len(o.heads[0]) < len(o.log) {
		n := minBuckets
		for n < 2*len(o.log) {
			n *= 2
		}
		for i := range o.heads {
			o.heads[i] = make([]int32, n)
		}
		o.linked = 0
	}
	for i := o.linked; i < len(o.log); i++ {
		x := &o.log[i]
		_, _, v, _ := o.parts(i)
		h := o.hashV(v)
		o.chain(x, i, byE, o.hashE(x.d.E))
		o.chain(x, i, byEAV, hashEAV(x.d.E, x.d.A, h))
		if unique(x.d.A) {
			o.chain(x, i, byAV, hashAV(x.d.A, h))
		}
		if x.d.V.Kind() == datom.KindRef {
			o.chain(x, i, byRef, o.hashE(x.d.V.Ref()))
		}
	}
	o.linked = len(o.log)
}

func (o *overlay) chain(x *entry, i, c int, h uint64) {
	head := &o.heads[c][h&uint64(len(o.heads[c])-1)]
	x.next[c] = *head
	*head = int32(i + 1)
}

// from is 1 + the newest entry of the bucket of h.
func (o *overlay) from(c int, h uint64) int32 {
	if len(o.log) == 0 {
		return 0
	}
	return o.heads[c][h&uint64(len(o.heads[c])-1)]
}

// fact is 1 + the newest entry about a fact; 0 if there is none. h is the value's hash.
func (o *overlay) fact(e, a datom.ID, v datom.Value, h uint64) int32 {
	i := o.from(byEAV, hashEAV(e, a, h))
	for ; i != 0; i = o.log[i-1].next[byEAV] {
		if d := o.log[i-1].d; d.E == e && d.A == a && d.V == v {
			return i
		}
	}
	return 0
}

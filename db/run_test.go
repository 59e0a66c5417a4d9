package db

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"pgregory.net/rapid"
)

// drawKeys draws keys of the shapes that searching must cope with: long common prefixes, equal heads, one a prefix of
// another, some larger than a chunk. No key ends in the middle of another's t: they are what a run holds, but for their meaning.
func drawKeys(t *rapid.T) [][]byte {
	seed := rapid.Uint64().Draw(t, "seed")
	rng := rand.New(rand.NewPCG(seed, 1))
	n := rapid.IntRange(1, 400).Draw(t, "n")
	prefix := bytes.Repeat([]byte{7}, rapid.IntRange(0, 30).Draw(t, "prefix"))
	width := rapid.IntRange(1, 12).Draw(t, "width")
	letters := rapid.IntRange(2, 256).Draw(t, "letters")
	set := map[string]bool{}
	for range n {
		k := slices.Clone(prefix)
		for range rng.IntN(width) + 1 {
			k = append(k, byte(rng.IntN(letters)))
		}
		if rng.IntN(50) == 0 {
			k = append(k, bytes.Repeat([]byte{byte(rng.IntN(letters))}, rng.IntN(2000))...)
		}
		set[string(k)] = true
	}
	var keys [][]byte
	for k := range set {
		keys = append(keys, []byte(k))
	}
	slices.SortFunc(keys, bytes.Compare)
	return keys
}

func runOf(keys [][]byte, target int) *run {
	b := newBuilders(target).cur
	for _, k := range keys {
		b.add(k)
	}
	return b.run(0, 0)
}

func keysOf(r *run) (keys [][]byte) {
	if r == nil {
		return nil
	}
	for _, c := range r.chunks {
		for i := range c.len() {
			keys = append(keys, c.key(i, c.len()))
		}
	}
	return keys
}

func equalKeys(a, b [][]byte) bool { return slices.EqualFunc(a, b, bytes.Equal) }

func drawTarget(t *rapid.T) int {
	return rapid.SampledFrom([]int{64, 500, 1500, 8192}).Draw(t, "target")
}

func TestRunSeeks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys, target := drawKeys(t), drawTarget(t)
		r := runOf(keys, target)
		if !equalKeys(keysOf(r), keys) || r.n != len(keys) {
			t.Fatal("the run does not hold its keys")
		}
		for range 50 {
			probe := slices.Clone(rapid.SampledFrom(keys).Draw(t, "probe"))
			switch rapid.IntRange(0, 5).Draw(t, "change") {
			case 1:
				probe = probe[:rapid.IntRange(0, len(probe)).Draw(t, "cut")]
			case 2:
				probe = append(probe, rapid.Byte().Draw(t, "more"))
			case 3:
				probe[rapid.IntRange(0, len(probe)-1).Draw(t, "at")] += rapid.SampledFrom([]byte{1, 255}).Draw(t, "by")
			}
			want := sort.Search(len(keys), func(i int) bool { return bytes.Compare(keys[i], probe) >= 0 })
			c := cursor{r: r}
			c.seek(probe)
			for i := want; i < min(want+3, len(keys)); i++ {
				if !bytes.Equal(c.key, keys[i]) {
					t.Fatalf("seek %x, %d on: %x, want %x", probe, i-want, c.key, keys[i])
				}
				c.next()
			}
			if want > len(keys)-3 && c.key != nil {
				t.Fatalf("seek %x: %x behind the end", probe, c.key)
			}
			c = cursor{r: r}
			c.seekBack(probe)
			for i := want - 1; i >= max(want-3, 0); i-- {
				if !bytes.Equal(c.key, keys[i]) {
					t.Fatalf("seek back %x: %x, want %x", probe, c.key, keys[i])
				}
				c.prev()
			}
			if want < 3 && c.key != nil {
				t.Fatalf("seek back %x: %x before the beginning", probe, c.key)
			}
		}
	})
}

func TestMergeIsTheUnion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys, target := drawKeys(t), drawTarget(t)
		parts := rapid.IntRange(1, 5).Draw(t, "runs")
		stretch := rapid.IntRange(1, 100).Draw(t, "stretch") // neighbours are often in the same run
		split := make([][][]byte, parts)
		at := 0
		for i, k := range keys {
			if i%stretch == 0 {
				at = rapid.IntRange(0, parts-1).Draw(t, "run")
			}
			split[at] = append(split[at], k)
		}
		var runs []*run
		for _, ks := range split {
			if len(ks) > 0 {
				runs = append(runs, runOf(ks, target))
			}
		}
		cur, hist := mergeRuns(runs, false, newBuilders(target))
		if !equalKeys(keysOf(cur), keys) || hist != nil || cur.n != len(keys) {
			t.Fatal("the merge is not the union")
		}
		longest := 0
		for _, k := range keys {
			longest = max(longest, len(k))
		}
		for i, c := range cur.chunks {
			if len(c) > target && c.len() > 1 {
				t.Fatalf("a chunk of %d keys has %d bytes", c.len(), len(c))
			}
			if i > 0 && longest < target/8 && len(cur.chunks[i-1])+len(c) < target/2 {
				t.Fatalf("chunks of %d and %d bytes beside each other", len(cur.chunks[i-1]), len(c))
			}
		}
	})
}

// A merge takes chunks over where nothing lies between their keys, so that appending costs no copy of what is there.
func TestMergeSharesChunks(t *testing.T) {
	var old, more [][]byte
	for i := range 100000 {
		old = append(old, fmt.Appendf(nil, "key %08d", i))
	}
	for i := range 1000 {
		more = append(more, fmt.Appendf(nil, "key %08d", 100000+i))
	}
	a, b := runOf(old, 8192), runOf(more, 8192)
	merged, _ := mergeRuns([]*run{b, a}, false, newBuilders(8192))
	shared := 0
	for i, c := range a.chunks {
		if &merged.chunks[i][0] == &c[0] {
			shared++
		}
	}
	if shared < len(a.chunks)-1 {
		t.Errorf("%d of %d chunks shared", shared, len(a.chunks))
	}
	// In the middle, too, a few new keys cost a few chunks.
	mid := runOf([][]byte{[]byte("key 00050000x")}, 8192)
	merged, _ = mergeRuns([]*run{mid, a}, false, newBuilders(8192))
	have := map[*byte]bool{}
	for _, c := range merged.chunks {
		have[&c[0]] = true
	}
	shared = 0
	for _, c := range a.chunks {
		if have[&c[0]] {
			shared++
		}
	}
	if shared < len(a.chunks)-3 { // the one that it splits, the next, and the last, which is small
		t.Errorf("one key in the middle: %d of %d chunks shared", shared, len(a.chunks))
	}
}

func TestSorter(t *testing.T) {
	var s sorter
	rapid.Check(t, func(t *rapid.T) {
		keys := drawKeys(t)
		sequences := rapid.IntRange(1, 12).Draw(t, "sequences") // ascending ones, shuffled together
		at := make([]int, sequences)
		var shuffled [][]byte
		for len(shuffled) < len(keys) {
			q := rapid.IntRange(0, sequences-1).Draw(t, "from")
			lo, hi := q*len(keys)/sequences, (q+1)*len(keys)/sequences
			for n := rapid.IntRange(1, 50).Draw(t, "stretch"); n > 0 && lo+at[q] < hi; n-- {
				shuffled = append(shuffled, keys[lo+at[q]])
				at[q]++
			}
		}
		if rapid.Bool().Draw(t, "random") {
			rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 2))
			rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		}
		var arena []byte
		var ends []int
		for _, k := range shuffled {
			arena = append(arena, k...)
			ends = append(ends, len(arena))
		}
		var got [][]byte
		for _, i := range s.sort(arena, ends) {
			got = append(got, keyAt(arena, ends, int(i)))
		}
		if !equalKeys(got, keys) {
			t.Fatalf("not sorted: %x", got)
		}
	})
}

func TestSeen(t *testing.T) {
	var s seen
	rng := rand.New(rand.NewPCG(5, 6))
	var added []uint64
	for range 200_000 {
		h := rng.Uint64()
		added = append(added, h)
		s.add(h)
	}
	for _, h := range added {
		if !s.has(h) {
			t.Fatalf("%x was added", h)
		}
	}
	wrong := 0
	for range 200_000 {
		if s.has(rng.Uint64()) {
			wrong++
		}
	}
	if wrong > 200 {
		t.Errorf("%d of 200,000 misses were taken for hits", wrong)
	}
}

func TestLayered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l layered[int, int]
		want := map[int]int{}
		for i := range rapid.IntRange(0, 200).Draw(t, "steps") {
			old, had := l, len(want)
			more := map[int]int{}
			for range rapid.IntRange(0, 3).Draw(t, "entries") {
				k := rapid.IntRange(0, 100).Draw(t, "key")
				more[k], want[k] = i, i
			}
			l = l.with(more)
			if had == 0 {
				if _, ok := old.get(1); ok {
					t.Fatal("the old map changed")
				}
			}
		}
		for k := range 101 {
			got, ok := l.get(k)
			if w, in := want[k]; ok != in || got != w {
				t.Fatalf("%d is %d, %t; want %d, %t", k, got, ok, w, in)
			}
		}
		if len(l.layers) > 9 {
			t.Fatalf("%d layers", len(l.layers))
		}
	})
}

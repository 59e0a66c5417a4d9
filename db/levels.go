package db

// sizes are the dimensions of the indexes. Tests make them tiny, so that small databases have every level.
type sizes struct {
	chunk  int // bytes of a chunk
	l0     int // keys from which on a run is frozen: merged into the levels, in the background
	fan    int // how much larger each level may be than the one above it
	frozen int // frozen runs of one part that make the writer wait
}

func defaultSizes() sizes { return sizes{chunk: 8192, l0: 8192, fan: 8, frozen: 24} }

// limit is how many keys level i may hold before it is merged into the next.
func (sz sizes) limit(i int) int {
	n := sz.l0
	for range i + 1 {
		n *= sz.fan
	}
	return n
}

// part is the current or the history part of an index: runs, newest first. A part is immutable; so are its slices.
type part struct {
	l0     []*run // small runs, merged by the writer
	frozen []*run // runs that wait to be merged into the levels
	levels []*run // L1, L2, …; an empty level is nil
	runs   []*run // all of the above: what readers merge
	bytes  int64  // of all runs
}

func makePart(l0, frozen, levels []*run) *part {
	p := &part{levels: levels}
	i := len(l0)
	j := i + len(frozen)
	n := j
	for _, r := range levels {
		if r != nil {
			n++
		}
	}
	p.runs = append(append(make([]*run, 0, n), l0...), frozen...)
	p.l0, p.frozen = p.runs[:i:i], p.runs[i:j:j] // and not what these were cut from, which may hold on to more
	for _, r := range levels {
		if r != nil {
			p.runs = append(p.runs, r)
		}
	}
	for _, r := range p.runs {
		p.bytes += r.bytes
	}
	return p
}

// push adds a run that is newer than all others. Like a carry in a binary counter, it swallows the newest runs that are not
// larger than what was gathered so far, in one merge; a run that is too large for that is frozen at once, in front of the
// small ones. What a merge moves to history is returned. With filtered, the runs get filters: it is the current part of EAVT.
func (p *part) push(r *run, annihilate, filtered bool, sz sizes, with *builders) (*part, *run) {
	in, size := with.in[:0], r.n
	if size < sz.l0 {
		in = append(in, r)
	}
	k := 0
	for k < len(p.l0) && p.l0[k].n < 2*size {
		size += p.l0[k].n
		in = append(in, p.l0[k])
		k++
	}
	var merged, hist *run
	switch len(in) {
	case 0:
	case 1:
		merged = in[0]
	default:
		merged, hist = mergeRuns(in, annihilate, with)
	}
	clear(in)
	with.in = in
	if filtered && merged != nil {
		merged.addFilter(&with.cur)
	}
	if filtered && r.n >= sz.l0 {
		r.addFilter(&with.cur)
	}
	l0, frozen := p.l0[k:], p.frozen
	switch {
	case merged == nil:
	case merged.n >= sz.l0 || r.n >= sz.l0:
		frozen = append([]*run{merged}, frozen...)
	default:
		l0 = append([]*run{merged}, l0...)
	}
	if r.n >= sz.l0 {
		frozen = append([]*run{r}, frozen...)
	}
	return makePart(l0, frozen, p.levels), hist
}

// runsAfter is the runs that may hold keys of transactions after t.
func runsAfter(runs []*run, t uint64) []*run {
	var out []*run
	for _, r := range runs {
		if r.maxT > t && (r.upTo == 0 || r.upTo > t) {
			out = append(out, r)
		}
	}
	return out
}

// job is a merge of a part's frozen runs into its levels, on a goroutine of its own. It reads immutable runs only.
type job struct {
	ix     Index
	part   int // 0: current, 1: history
	frozen int // how many runs were taken, the oldest ones
	level  int // where the result goes; the levels above it were taken
	in     []*run
	cur    *run
	hist   *run
	made   int64 // bytes that were allocated for them
	done   chan struct{}
}

// plan is the job that a part needs, or nil. It takes all frozen runs, and level after level while the result is too large for
// the level that it would go to.
func (p *part) plan(sz sizes) *job {
	if len(p.frozen) == 0 {
		return nil
	}
	j := &job{frozen: len(p.frozen), in: append([]*run(nil), p.frozen...), done: make(chan struct{})}
	size := 0
	for _, r := range p.frozen {
		size += r.n
	}
	for ; j.level < len(p.levels); j.level++ {
		if r := p.levels[j.level]; r != nil {
			size += r.n
			j.in = append(j.in, r)
		}
		if size <= sz.limit(j.level) {
			return j
		}
	}
	for size > sz.limit(j.level) {
		j.level++
	}
	return j
}

// over reports whether the job has its result.
func (j *job) over() bool {
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

func (j *job) run(sz sizes) {
	defer close(j.done)
	with := newBuilders(sz.chunk)
	j.cur, j.hist = mergeRuns(j.in, j.part == 0, with)
	if j.ix == EAVT && j.part == 0 && j.cur != nil {
		j.cur.addFilter(&with.cur)
	}
	j.made = with.made()
}

// install puts a job's result in the place of what it was made from.
func (p *part) install(j *job) *part {
	levels := make([]*run, max(len(p.levels), j.level+1))
	for i := j.level + 1; i < len(p.levels); i++ {
		levels[i] = p.levels[i]
	}
	levels[j.level] = j.cur
	return makePart(p.l0, p.frozen[:len(p.frozen)-j.frozen], levels)
}

// buildRun sorts a batch's keys into a run. Pairs of an assertion and the retraction that ended it are put into hist.
// The keys lie one after the other in arena; ends holds the end of each.
func buildRun(arena []byte, ends []int, annihilate bool, minT, maxT uint64, sorter *sorter, with *builders) (cur, hist *run) {
	if len(ends) == 0 {
		return nil, nil
	}
	b, h := &with.cur, &with.hist
	var held []byte // a key that the next one may annihilate
	for _, i := range sorter.sort(arena, ends) {
		k := keyAt(arena, ends, int(i))
		if held != nil {
			if keyAdded(k) && string(group(k)) == string(group(held)) {
				h.add(held)
				h.add(k)
				held = nil
				continue
			}
			b.add(held)
			held = nil
		}
		if annihilate && !keyAdded(k) {
			held = k
			continue
		}
		b.add(k)
	}
	if held != nil {
		b.add(held)
	}
	return b.run(minT, maxT), h.run(minT, maxT)
}

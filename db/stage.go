package db

import (
	"hash/maphash"
	"slices"
	"sync"

	"github.com/steledb/stele/datom"
)

// Stage makes the next database values: it takes transactions one by one, answers questions about the state after them, and
// publishes that state as a DB once per batch. It belongs to one goroutine at a time; what it publishes is anybody's.
//
// Between two snapshots the transactions lie in a small overlay. A snapshot sorts them once per index and adds them as
// a run. Large merges run on a goroutine that ends by itself; Wait waits for it.
//
// The iterators of a Stage must be finished before the next call of Apply, Snapshot, View or Reset.
type Stage struct {
	sz      sizes
	base    *snapshot // what has been flushed
	schema  *Schema
	t       uint64
	instant int64
	next    datom.NextIDs
	recent  []txMeta
	over    overlay
	seen    *seen // nil: not every unique value of the base is known
	lineage *lineage
	flushed int // datoms since the stage was made
	job     *job
	stray   *job // it was begun before Reset, and may still be at work
	jobs    sync.WaitGroup
	spare   scratch

	told      int64 // bytes of the value that Memory told of last
	installed int64 // bytes made by the merges in the background that were installed since then
}

// scratch is memory that one flush leaves to the next.
type scratch struct {
	arena  []byte
	ends   []int
	key    []byte
	sorter sorter
	build  *builders
	attrs  [attrSlots]*Attribute // of the schema, by the lower bits of their ids
}

const attrSlots = 64

// keepRecent is how many transactions a snapshot knows without looking into its indexes.
const keepRecent = 1024

// NewStage starts on a database value, whose views (AsOf, Since, History) are ignored. A stage on the Empty value, through which
// the whole log is replayed, knows every unique value, so that a lookup of a new one is free; any other looks into the index.
func NewStage(d DB) *Stage { return newStage(d, defaultSizes()) }

func newStage(d DB, sz sizes) *Stage {
	s := &Stage{sz: sz, over: overlay{seed: maphash.MakeSeed()}, spare: scratch{build: newBuilders(sz.chunk)}}
	s.Reset(d)
	return s
}

// Reset drops everything that was applied and starts again on a database value.
func (s *Stage) Reset(d DB) {
	base := d.snap().rebased(d.basis)
	switch {
	case base.t == 0:
		s.seen, s.lineage = new(seen), new(lineage)
	case base.lineage == nil || base.lineage != s.lineage:
		s.seen, s.lineage = nil, nil
	}
	s.base = base
	s.t, s.instant, s.next = base.t, base.instant, base.next
	s.setSchema(base.schema)
	s.recent = slices.Clip(base.recent)
	s.over.reset()
	if s.job != nil {
		s.job, s.stray = nil, s.job // its result is of no use; it ends by itself
	}
	s.told, s.installed = base.bytes(), 0
	s.spare.build.made()
}

// Schema is the schema after the last transaction applied.
func (s *Stage) Schema() *Schema { return s.schema }

// BasisT is the t of the last transaction applied.
func (s *Stage) BasisT() uint64 { return s.t }

// Instant is the :db/txInstant of the last transaction applied, in milliseconds since 1970.
func (s *Stage) Instant() int64 { return s.instant }

// NextIDs is the id allocator after the last transaction applied.
func (s *Stage) NextIDs() datom.NextIDs { return s.next }

// Apply advances the stage by one transaction, whose t must be BasisT()+1 and whose datoms must be exact: each asserts what did not
// hold or retracts what did. It keeps tx.Datoms, which must not be changed any longer.
func (s *Stage) Apply(tx *datom.Tx) {
	schema := false
	for i := range tx.Datoms {
		d := &tx.Datoms[i]
		s.over.add(d)
		schema = schema || schemaAttr(d.A)
	}
	s.t, s.instant, s.next = tx.T, tx.Instant, tx.Next
	if len(s.recent) >= 4*keepRecent {
		s.recent = append(make([]txMeta, 0, 5*keepRecent), s.recent[len(s.recent)-keepRecent:]...)
	}
	s.recent = append(s.recent, txMeta{tx.T, tx.Instant, tx.Next})
	if schema {
		s.alter(tx.Datoms)
	}
}

// alter brings the schema up to date, and the AVET index with it.
func (s *Stage) alter(datoms []datom.Datom) {
	old := s.schema
	next, attrs := old.advance(datoms, s.Facts)
	if !attrs {
		s.setSchema(next)
		return
	}
	var enter, leave, unique []datom.ID
	for a := range next.Attributes() {
		was := old.Attr(a.ID)
		if a.InAVET() && (was == nil || !was.InAVET()) {
			enter = append(enter, a.ID)
		}
		if a.Unique != NotUnique && (was == nil || was.Unique == NotUnique) {
			unique = append(unique, a.ID)
		}
	}
	for a := range old.Attributes() {
		if is := next.Attr(a.ID); a.InAVET() && (is == nil || !is.InAVET()) {
			leave = append(leave, a.ID)
		}
	}
	if len(enter)+len(leave)+len(unique) > 0 {
		s.flush() // by the old schema
	}
	s.setSchema(next)
	s.base = s.base.copy(next)
	for _, a := range leave {
		s.dropFromAVET(a)
	}
	for _, a := range enter {
		s.addToAVET(a)
	}
	for _, a := range unique {
		s.addToSeen(a)
	}
}

// copy is the snapshot under another schema, to be changed before it is published.
func (s *snapshot) copy(schema *Schema) *snapshot {
	n := *s
	n.schema = schema
	return &n
}

// Snapshot publishes the state after the last transaction applied.
func (s *Stage) Snapshot() DB {
	s.flush()
	return DB{s: s.base, basis: s.base.t}
}

// View is the staged value. It publishes what has been applied, like Snapshot.
func (s *Stage) View() DB { return s.Snapshot() }

// Trim gives back the memory that one batch leaves to the next, for when what comes next will be smaller: after a replay. What was applied since the
// last snapshot stays.
func (s *Stage) Trim() {
	s.spare = scratch{build: newBuilders(s.sz.chunk), attrs: s.spare.attrs}
	if len(s.over.log) == 0 {
		s.over = overlay{seed: s.over.seed}
	}
}

// Wait waits until no merge runs in the background. It may be called from any goroutine once the stage is not used any more.
func (s *Stage) Wait() { s.jobs.Wait() }

// flush moves the overlay into the indexes.
func (s *Stage) flush() {
	if s.t == s.base.t && s.schema == s.base.schema {
		return
	}
	n := &snapshot{
		ix: s.base.ix, schema: s.schema, t: s.t, instant: s.instant, next: s.next, lineage: s.lineage,
		recent: s.recent[max(0, len(s.recent)-keepRecent):len(s.recent):len(s.recent)],
	}
	first := s.base.t + 1
	s.base = n
	if len(s.over.log) == 0 {
		return
	}
	s.finish(false)
	s.flushed += len(s.over.log)
	for ix := range Index(numIndexes) {
		arena, ends := s.keys(ix)
		cur, hist := buildRun(arena, ends, true, first, s.t, &s.spare.sorter, s.spare.build)
		s.push(ix, 0, cur)
		s.push(ix, 1, hist)
	}
	if s.seen != nil {
		s.see()
	}
	if roomy(len(s.over.arena), cap(s.spare.arena)) {
		s.spare = scratch{build: s.spare.build, attrs: s.spare.attrs}
	}
	s.over.reset()
	s.merge()
}

// keys is the batch's keys for an index, in memory that lives until the next call.
func (s *Stage) keys(ix Index) (arena []byte, ends []int) {
	if ix == EAVT {
		return s.over.arena, s.over.ends
	}
	arena, ends = s.spare.arena[:0], s.spare.ends[:0]
	if cap(arena) < len(s.over.arena) {
		arena = make([]byte, 0, len(s.over.arena))
	}
	for i := range s.over.log {
		e, a, v, t := s.over.parts(i)
		switch ix {
		case AEVT:
			arena = append(append(append(append(arena, a...), e...), v...), t...)
		case AVET:
			if at := s.attr(s.over.log[i].d.A); at == nil || !at.InAVET() {
				continue
			}
			arena = append(append(append(append(arena, a...), v...), e...), t...)
		case VAET:
			if datom.Kind(v[0]) != datom.KindRef {
				continue
			}
			arena = append(append(append(append(arena, v[1:]...), a...), e...), t...)
		}
		ends = append(ends, len(arena))
	}
	s.spare.arena, s.spare.ends = arena, ends
	return arena, ends
}

// see adds the batch's unique values to those that were ever seen.
func (s *Stage) see() {
	for i := range s.over.log {
		d := s.over.log[i].d
		if d.Added && s.isUnique(d.A) {
			_, _, v, _ := s.over.parts(i)
			s.seen.add(hashAV(d.A, s.over.hashV(v)))
		}
	}
}

func (s *Stage) isUnique(a datom.ID) bool {
	at := s.attr(a)
	return at != nil && at.Unique != NotUnique
}

// attr is s.schema.Attr, at a cost that every datom can bear.
func (s *Stage) attr(a datom.ID) *Attribute {
	slot := &s.spare.attrs[a%attrSlots]
	if *slot == nil || (*slot).ID != a {
		*slot = s.schema.Attr(a)
	}
	return *slot
}

// setSchema makes the schema that of the stage.
func (s *Stage) setSchema(schema *Schema) {
	if s.schema != schema {
		s.schema, s.spare.attrs = schema, [attrSlots]*Attribute{}
	}
}

// push adds a run to a part of the base.
func (s *Stage) push(ix Index, part int, r *run) {
	if r == nil {
		return
	}
	p, hist := s.base.ix[ix][part].push(r, part == 0, ix == EAVT && part == 0, s.sz, s.spare.build)
	s.base.ix[ix][part] = p
	s.push(ix, 1, hist)
}

// merge starts a merge in the background if there is one to do and none is running, and waits for merges as long as too much is
// waiting for them. A stage that has seen little starts none: it may be about to be forgotten.
func (s *Stage) merge() {
	if s.flushed < s.sz.l0 {
		return
	}
	for {
		var most *part
		j := -1
		for i := range 2 * numIndexes {
			p := s.base.ix[i/2][i%2]
			if len(p.frozen) > 0 && (most == nil || len(p.frozen) > len(most.frozen)) {
				most, j = p, i
			}
		}
		if most == nil {
			return
		}
		if s.stray != nil { // one merge at a time, which bounds their memory
			if !s.stray.over() && len(most.frozen) <= s.sz.frozen {
				return
			}
			<-s.stray.done
			s.stray = nil
		}
		if s.job == nil {
			s.job = most.plan(s.sz)
			s.job.ix, s.job.part = Index(j/2), j%2
			run, sz := s.job, s.sz
			s.jobs.Go(func() { run.run(sz) })
		}
		if len(most.frozen) <= s.sz.frozen {
			return
		}
		s.finish(true)
	}
}

// finish installs the result of a merge in the background, if there is one, or with wait, when there is.
func (s *Stage) finish(wait bool) {
	if s.job == nil {
		return
	}
	if !wait && !s.job.over() {
		return
	}
	j := s.job
	<-j.done
	s.job = nil
	s.installed += j.made
	s.base.ix[j.ix][j.part] = s.base.ix[j.ix][j.part].install(j)
	s.push(j.ix, 1, j.hist)
}

// addToAVET puts every datom of an attribute, of any time, into the AVET index.
func (s *Stage) addToAVET(a datom.ID) {
	prefix := datom.AppendID(nil, a)
	build := func(part int) (cur, hist *run) {
		var arena []byte
		var ends []int
		walk(s.base.ix[AEVT][part].runs, prefix, prefix, everything, func(k []byte) bool {
			d := decodeKey(AEVT, k)
			arena = appendKey(arena, AVET, &d)
			ends = append(ends, len(arena))
			return true
		})
		return buildRun(arena, ends, part == 0, 0, s.base.t, &s.spare.sorter, s.spare.build)
	}
	cur, ended := build(0)
	hist, _ := build(1)
	s.push(AVET, 0, cur)
	s.push(AVET, 1, ended)
	s.push(AVET, 1, hist)
}

// dropFromAVET takes every datom of an attribute out of the AVET index.
func (s *Stage) dropFromAVET(a datom.ID) {
	s.finish(true)
	prefix := datom.AppendID(nil, a)
	drop := func(runs []*run, keepPlace bool) (out []*run) {
		for _, r := range runs {
			if r != nil {
				r = r.without(prefix, &s.spare.build.cur)
			}
			if r != nil || keepPlace {
				out = append(out, r)
			}
		}
		return out
	}
	for i, p := range s.base.ix[AVET] {
		s.base.ix[AVET][i] = makePart(drop(p.l0, false), drop(p.frozen, false), drop(p.levels, true))
	}
}

// addToSeen notes every value that an attribute ever had.
func (s *Stage) addToSeen(a datom.ID) {
	if s.seen == nil {
		return
	}
	prefix := datom.AppendID(nil, a)
	for part := range 2 {
		walk(s.base.ix[AEVT][part].runs, prefix, prefix, everything, func(k []byte) bool {
			_, n := decodeID(k[len(prefix):])
			s.seen.add(hashAV(a, s.over.hashV(k[len(prefix)+n:len(k)-tLen])))
			return true
		})
	}
}

// everything is the window that shows all keys.
var everything = window{top: 1<<64 - 1, history: true}

package db

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/steledb/stele/datom"
	"pgregory.net/rapid"
)

// The model: every datom ever, in one slice; every question is answered by looking at all of them.
type model struct {
	datoms []datom.Datom
	t      uint64
}

// view is a model's answer to an index read, in the index's order.
func (m *model) view(ix Index, schema *Schema, since, top uint64, history bool) []datom.Datom {
	type fact struct {
		e, a datom.ID
		v    datom.Value
	}
	var out []datom.Datom
	newest := map[fact]datom.Datom{}
	for _, d := range m.datoms {
		if d.T > top || d.T > m.t {
			continue
		}
		if ix == AVET && (schema.Attr(d.A) == nil || !schema.Attr(d.A).InAVET()) {
			continue
		}
		if ix == VAET && d.V.Kind() != datom.KindRef {
			continue
		}
		if history {
			if d.T > since {
				out = append(out, d)
			}
			continue
		}
		if old, ok := newest[fact{d.E, d.A, d.V}]; !ok || d.T > old.T {
			newest[fact{d.E, d.A, d.V}] = d
		}
	}
	for _, d := range newest {
		if d.Added && d.T > since {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(x, y datom.Datom) int { return compareDatoms(ix, x, y) })
	return out
}

func compareDatoms(ix Index, x, y datom.Datom) int {
	e, a, v := cmp.Compare(x.E, y.E), cmp.Compare(x.A, y.A), datom.Compare(x.V, y.V)
	t := cmp.Compare(y.T, x.T)
	switch ix {
	case EAVT:
		return cmp.Or(e, a, v, t)
	case AEVT:
		return cmp.Or(a, e, v, t)
	case AVET:
		return cmp.Or(a, v, e, t)
	default:
		return cmp.Or(v, a, e, t)
	}
}

func collect(t interface {
	Helper()
	Fatal(...any)
}, seq iter.Seq2[datom.Datom, error]) []datom.Datom {
	t.Helper()
	var out []datom.Datom
	for d, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, d)
	}
	return out
}

const (
	userAttr = datom.ID(datom.FirstSeq) + 500
	aName    = userAttr + iota - 1 // string, one, unique identity
	aNote                          // string, one
	aTags                          // long, many, indexed
	aRefs                          // ref, many
	aCode                          // long, one, unique value
	aLate                          // string, many; indexed and not, in turns
)

func userSchema(t uint64) *datom.Tx {
	tx := &datom.Tx{T: t, Instant: int64(t), Next: datom.NextIDs{Part: FirstPart, Seq: 10000}}
	add := func(e, a datom.ID, v datom.Value) {
		tx.Datoms = append(tx.Datoms, datom.Datom{E: e, A: a, V: v, T: t, Added: true})
	}
	attr := func(id datom.ID, name string, typ, card datom.ID) {
		add(id, AttrIdent, datom.KeywordValue(datom.Keyword(name)))
		add(id, AttrValueType, datom.Ref(typ))
		add(id, AttrCardinality, datom.Ref(card))
	}
	attr(aName, "x/name", TypeString, CardinalityOne)
	add(aName, AttrUnique, datom.Ref(UniqueIdentityID))
	attr(aNote, "x/note", TypeString, CardinalityOne)
	attr(aTags, "x/tags", TypeLong, CardinalityMany)
	add(aTags, AttrIndex, datom.Bool(true))
	attr(aRefs, "x/refs", TypeRef, CardinalityMany)
	attr(aCode, "x/code", TypeLong, CardinalityOne)
	add(aCode, AttrUnique, datom.Ref(UniqueValueID))
	attr(aLate, "x/late", TypeString, CardinalityMany)
	add(datom.TxID(t), AttrTxInstant, datom.InstantMilli(int64(t)))
	return tx
}

func entityID(i int) datom.ID { return datom.MakeID(datom.PartUser, uint64(3000+i)) }

type world struct {
	model   model
	stage   *Stage
	indexed bool // aLate
	sz      sizes
}

func (w *world) apply(tx *datom.Tx) {
	tx.Next = datom.NextIDs{Part: FirstPart, Seq: 10000 + tx.T}
	w.stage.Apply(tx)
	w.model.datoms = append(w.model.datoms, tx.Datoms...)
	w.model.t = tx.T
}

// randomTx draws an exact delta.
func (w *world) randomTx(r *rapid.T) *datom.Tx {
	t := w.model.t + 1
	tx := &datom.Tx{T: t, Instant: int64(t / 3)}
	tx.Datoms = append(tx.Datoms, datom.Datom{E: datom.TxID(t), A: AttrTxInstant, V: datom.InstantMilli(int64(t / 3)), T: t, Added: true})
	all := w.model.view(EAVT, w.stage.Schema(), 0, t, false)
	current := map[datom.Datom]bool{}
	for _, d := range all {
		d.T = t
		current[d] = true
	}
	put := func(d datom.Datom) {
		d.T = t
		if at := w.stage.Schema().Attr(d.A); d.Added && !at.Many {
			for old := range current {
				if old.E == d.E && old.A == d.A {
					if old.V == d.V {
						return
					}
				}
			}
			for old := range current {
				if old.E == d.E && old.A == d.A {
					for _, x := range tx.Datoms {
						if x.E == d.E && x.A == d.A {
							return
						}
					}
					old.Added = false
					tx.Datoms = append(tx.Datoms, old)
					old.Added = true
					delete(current, old)
				}
			}
		}
		key := d
		key.Added = true
		if current[key] == d.Added {
			return
		}
		for _, x := range tx.Datoms {
			if x.E == d.E && x.A == d.A && x.V == d.V {
				return
			}
		}
		if at := w.stage.Schema().Attr(d.A); d.Added && at.Unique != NotUnique {
			for x := range current {
				if x.A == d.A && x.V == d.V {
					return
				}
			}
		}
		if d.Added {
			current[key] = true
		} else {
			delete(current, key)
		}
		tx.Datoms = append(tx.Datoms, d)
	}
	for range rapid.IntRange(1, 8).Draw(r, "datoms") {
		if rapid.IntRange(0, 3).Draw(r, "retract") == 0 {
			var old []datom.Datom
			for _, d := range all {
				if d.E.Part() == datom.PartUser {
					old = append(old, d)
				}
			}
			if len(old) > 0 {
				d := rapid.SampledFrom(old).Draw(r, "old")
				d.Added = false
				put(d)
			}
			continue
		}
		d := datom.Datom{E: entityID(rapid.IntRange(0, 12).Draw(r, "e")), Added: true}
		d.A = rapid.SampledFrom([]datom.ID{aName, aNote, aTags, aRefs, aCode, aLate}).Draw(r, "a")
		n := rapid.IntRange(0, 9).Draw(r, "v")
		d.V = w.value(d.A, n)
		put(d)
	}
	return tx
}

func (w *world) value(a datom.ID, n int) datom.Value {
	switch a {
	case aTags, aCode:
		return datom.Long(int64(n*70 - 100))
	case aRefs:
		return datom.Ref(entityID(n))
	default:
		s := fmt.Sprintf("v%d", n)
		if n == 3 {
			s = string(bytes.Repeat([]byte("long\x00"), 60)) // larger than a test's chunk
		}
		return datom.String(s)
	}
}

// check compares a value with the model, in every index and view.
func (w *world) check(t *rapid.T, d DB, basis uint64) {
	m := &model{w.model.datoms, basis}
	if d.BasisT() != basis {
		t.Fatalf("basis %d, want %d", d.BasisT(), basis)
	}
	at := rapid.Uint64Range(0, basis+1).Draw(t, "as of")
	since := rapid.Uint64Range(0, basis).Draw(t, "since")
	for ix := range Index(numIndexes) {
		for _, v := range []struct {
			name       string
			db         DB
			since, top uint64
			history    bool
		}{
			{"now", d, 0, basis, false},
			{"asof", d.AsOf(at), 0, at, false},
			{"since", d.Since(since), since, basis, false},
			{"both", d.AsOf(at).Since(since), since, at, false},
			{"history", d.History(), 0, basis, true},
			{"history of both", d.AsOf(at).Since(since).History(), since, at, true},
		} {
			want := m.view(ix, d.Schema(), v.since, v.top, v.history)
			got := collect(t, v.db.Datoms(ix))
			if !slices.Equal(got, want) {
				t.Fatalf("%s %s of t=%d (as of %d, since %d):\ngot  %v\nwant %v", ix, v.name, basis, at, since, got, want)
			}
			got = collect(t, v.db.SeekBack(ix))
			slices.Reverse(got)
			if !slices.Equal(got, want) {
				t.Fatalf("%s %s backwards of t=%d (as of %d, since %d):\ngot  %v\nwant %v", ix, v.name, basis, at, since, got, want)
			}
			w.checkFrom(t, v.db, ix, want)
		}
	}
	wantInst := int64(0)
	for _, x := range w.model.datoms {
		if x.A == AttrTxInstant && x.T == basis {
			wantInst = x.V.InstantMilli()
		}
	}
	if d.Instant() != wantInst {
		t.Fatalf("instant of t=%d is %d, want %d", basis, d.Instant(), wantInst)
	}
}

// checkFrom compares reads that begin at a drawn datom, or beside one.
func (w *world) checkFrom(t *rapid.T, d DB, ix Index, all []datom.Datom) {
	e := entityID(rapid.IntRange(0, 13).Draw(t, "from e"))
	a := rapid.SampledFrom([]datom.ID{aName, aNote, aTags, aRefs, aCode, aLate}).Draw(t, "from a")
	if ix == AVET && !d.Schema().Attr(a).InAVET() {
		a = aTags
	}
	if ix == VAET {
		a = aRefs
	}
	v := w.value(a, rapid.IntRange(0, 10).Draw(t, "from v"))
	tt := rapid.Uint64Range(1, w.model.t+1).Draw(t, "from t")
	n := rapid.IntRange(1, 4).Draw(t, "components")
	var comps []any
	switch ix {
	case EAVT:
		comps = []any{e, a, v, tt}
	case AEVT:
		comps = []any{a, e, v, tt}
	case AVET:
		comps = []any{a, v, e, tt}
	case VAET:
		comps = []any{v, a, e, tt}
	}
	comps = comps[:n]
	probe := datom.Datom{E: e, A: a, V: v, T: tt}
	// cmpTo is the order of a datom against the components given.
	cmpTo := func(x datom.Datom) int {
		y := probe
		order := map[Index]string{EAVT: "eavt", AEVT: "aevt", AVET: "avet", VAET: "vaet"}[ix]
		for _, c := range order[n:] {
			switch c {
			case 'e':
				y.E = x.E
			case 'a':
				y.A = x.A
			case 'v':
				y.V = x.V
			case 't':
				y.T = x.T
			}
		}
		return compareDatoms(ix, x, y)
	}
	var exact, from, back []datom.Datom
	for _, x := range all {
		c := cmpTo(x)
		if c == 0 {
			exact = append(exact, x)
		}
		if c >= 0 {
			from = append(from, x)
		}
		if c <= 0 {
			back = append(back, x)
		}
	}
	slices.Reverse(back)
	for _, q := range []struct {
		name string
		got  []datom.Datom
		want []datom.Datom
	}{
		{"Datoms", collect(t, d.Datoms(ix, comps...)), exact},
		{"Seek", collect(t, d.Seek(ix, comps...)), from},
		{"SeekBack", collect(t, d.SeekBack(ix, comps...)), back},
	} {
		if !slices.Equal(q.got, q.want) {
			t.Fatalf("%s %s %v:\ngot  %v\nwant %v", q.name, ix, comps, q.got, q.want)
		}
	}
	if ix == AVET {
		hi := w.value(a, rapid.IntRange(0, 10).Draw(t, "to v"))
		var want []datom.Datom
		for _, x := range all {
			if x.A == a && datom.Compare(x.V, v) >= 0 && datom.Compare(x.V, hi) < 0 {
				want = append(want, x)
			}
		}
		if got := collect(t, d.IndexRange(a, v, hi)); !slices.Equal(got, want) {
			t.Fatalf("range %v to %v:\ngot  %v\nwant %v", v, hi, got, want)
		}
	}
}

// checkStage compares point reads of the stage with the model.
func (w *world) checkStage(t *rapid.T) {
	all := w.model.view(EAVT, w.stage.Schema(), 0, w.model.t, false)
	where := func(keep func(datom.Datom) bool) []datom.Datom {
		var out []datom.Datom
		for _, d := range all {
			if keep(d) {
				out = append(out, d)
			}
		}
		return out
	}
	sorted := func(seq iter.Seq[datom.Datom]) []datom.Datom {
		out := slices.Collect(seq)
		slices.SortFunc(out, func(x, y datom.Datom) int { return compareDatoms(EAVT, x, y) })
		return out
	}
	same := func(what string, got, want []datom.Datom) {
		if !slices.Equal(got, want) {
			t.Fatalf("stage %s at t=%d:\ngot  %v\nwant %v", what, w.model.t, got, want)
		}
	}
	for i := range 14 {
		e := entityID(i)
		same("facts", sorted(w.stage.Facts(e)), where(func(d datom.Datom) bool { return d.E == e }))
		same("referrers", sorted(w.stage.Referrers(e)), where(func(d datom.Datom) bool { return d.V == datom.Ref(e) }))
		for _, a := range []datom.ID{aName, aNote, aCode} {
			v, tt, ok := w.stage.One(e, a)
			want := where(func(d datom.Datom) bool { return d.E == e && d.A == a })
			if ok != (len(want) == 1) || ok && (want[0].V != v || want[0].T != tt) {
				t.Fatalf("stage One(%d, %d) = %v %d %t, want %v", e, a, v, tt, ok, want)
			}
		}
		for _, a := range []datom.ID{aName, aNote, aTags, aRefs, aLate} {
			var got []datom.Datom
			for v := range w.stage.Values(e, a) {
				got = append(got, datom.Datom{E: e, A: a, V: v})
			}
			slices.SortFunc(got, func(x, y datom.Datom) int { return compareDatoms(EAVT, x, y) })
			want := where(func(d datom.Datom) bool { return d.E == e && d.A == a })
			for i := range want {
				want[i].T, want[i].Added = 0, false
			}
			same("values", got, want)
			for n := range 11 {
				v := w.value(a, n)
				if got, want := w.stage.Has(e, a, v), len(where(func(d datom.Datom) bool { return d.E == e && d.A == a && d.V == v })) == 1; got != want {
					t.Fatalf("stage Has(%d, %d, %v) = %t", e, a, v, got)
				}
			}
		}
	}
	for _, a := range []datom.ID{aName, aCode} {
		for n := range 11 {
			v := w.value(a, n)
			got, ok := w.stage.Lookup(a, v)
			want := where(func(d datom.Datom) bool { return d.A == a && d.V == v })
			if ok != (len(want) == 1) || ok && want[0].E != got {
				t.Fatalf("stage Lookup(%d, %v) = %d %t, want %v", a, v, got, ok, want)
			}
		}
	}
	for _, a := range []datom.ID{aName, aTags, aLate} {
		same("attribute", sorted(w.stage.AttrFacts(a)), where(func(d datom.Datom) bool { return d.A == a }))
		used := slices.ContainsFunc(w.model.datoms, func(d datom.Datom) bool { return d.A == a })
		if w.stage.AttrInUse(a) != used {
			t.Fatalf("AttrInUse(%d) = %t", a, !used)
		}
	}
}

func TestModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		sz := sizes{
			chunk:  rapid.SampledFrom([]int{64, 200, 8192}).Draw(r, "chunk"),
			l0:     rapid.SampledFrom([]int{4, 20, 100}).Draw(r, "l0"),
			fan:    rapid.IntRange(2, 4).Draw(r, "fan"),
			frozen: rapid.IntRange(1, 3).Draw(r, "frozen"),
		}
		w := &world{sz: sz, stage: newStage(Empty(), sz)}
		defer func() { w.stage.Wait() }()
		w.apply(Bootstrap())
		w.apply(userSchema(2))
		type mark struct {
			db    DB
			basis uint64
			model int
		}
		var marks []mark
		var last *snapshot // as Memory knows it
		snap := func() {
			last = checkMemory(r, w.stage, last)
			d := w.stage.Snapshot()
			marks = append(marks, mark{d, w.model.t, len(w.model.datoms)})
		}
		snap()
		for range rapid.IntRange(1, 40).Draw(r, "steps") {
			switch rapid.IntRange(0, 11).Draw(r, "step") {
			case 0, 1, 2:
				snap()
			case 3:
				w.checkStage(r)
			case 4: // back to an older value, or to a handle on one
				m := marks[rapid.IntRange(0, len(marks)-1).Draw(r, "back to")]
				if m.basis > 2 && rapid.Bool().Draw(r, "handle") && m.db.Schema() == marks[0].db.Schema() {
					m.basis = rapid.Uint64Range(2, m.basis).Draw(r, "basis")
					m.db = m.db.WithBasis(m.basis)
				}
				old := w.model.datoms
				w.model = model{t: m.basis}
				for _, d := range old[:m.model] {
					if d.T <= m.basis {
						w.model.datoms = append(w.model.datoms, d)
					}
				}
				// What lies behind is another future now: forget the values in it.
				marks = slices.DeleteFunc(marks, func(x mark) bool { return x.basis > m.basis })
				if rapid.Bool().Draw(r, "new stage") {
					w.stage.Wait()
					w.stage = newStage(m.db, sz)
				} else {
					w.stage.Reset(m.db)
				}
				last = w.stage.base
				marks = append(marks, mark{m.db, m.basis, len(w.model.datoms)})
			case 5:
				t := w.model.t + 1
				w.indexed = false
				for range w.stage.Values(aLate, AttrIndex) {
					w.indexed = true
				}
				w.apply(&datom.Tx{T: t, Instant: int64(t / 3), Datoms: []datom.Datom{
					{E: aLate, A: AttrIndex, V: datom.Bool(true), T: t, Added: !w.indexed},
					{E: datom.TxID(t), A: AttrTxInstant, V: datom.InstantMilli(int64(t / 3)), T: t, Added: true},
				}})
			default:
				for range rapid.IntRange(1, 6).Draw(r, "transactions") {
					w.apply(w.randomTx(r))
				}
			}
		}
		snap()
		w.checkStage(r)
		for _, m := range marks {
			w.check(r, m.db, m.basis)
			if m.basis > 2 {
				// A handle reads as the value did, if the schema is the same.
				b := rapid.Uint64Range(2, m.basis).Draw(r, "basis")
				w.check(r, m.db.WithBasis(b), b)
			}
		}
	})
}

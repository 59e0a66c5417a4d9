package db

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/steledb/stele/datom"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// people is a small database: two people of whom one changes her name and knows the other.
func people() *script {
	s := newScript()
	s.do(
		func(b *txBuilder) {
			attr(5000, "p/name", TypeString, CardinalityOne)(b)
			b.add(5000, AttrUnique, datom.Ref(UniqueIdentityID))
			attr(5001, "p/knows", TypeRef, CardinalityMany)(b)
			attr(5002, "p/age", TypeLong, CardinalityOne)(b)
			attr(5003, "p/weight", TypeFloat, CardinalityOne)(b)
			attr(5004, "p/pair", TypeTuple, CardinalityOne)(b)
			types, _ := datom.Tuple(kw("db.type/ref"), kw("db.type/long"))
			b.add(5004, AttrTupleTypes, types).add(5004, AttrUnique, datom.Ref(UniqueValueID))
		},
		func(b *txBuilder) { // t = 3
			pair, _ := datom.Tuple(datom.Ref(ann), datom.Value{})
			b.add(ann, 5000, datom.String("Ann")).add(bob, 5000, datom.String("Bob")).add(ann, 5001, datom.Ref(bob)).add(ann, 5002, datom.Long(30))
			b.add(bob, 5004, pair).add(bob, 5003, datom.Float(1.5))
		},
		func(b *txBuilder) { // t = 4
			b.retract(ann, 5000, datom.String("Ann")).add(ann, 5000, datom.String("Anna")).retract(ann, 5002, datom.Long(30))
		},
	)
	return s
}

var ann, bob = datom.MakeID(datom.PartUser, 6000), datom.MakeID(datom.PartUser, 6001)

func TestResolution(t *testing.T) {
	d := people().Snapshot()
	for _, x := range []any{ann, LookupRef{datom.Keyword("p/name"), "Anna"}, []any{datom.ID(5000), datom.String("Anna")},
		datom.Ref(ann), Entity{d, ann}, LookupRef{LookupRef{datom.Keyword("db/ident"), datom.Keyword("p/name")}, "Anna"}} {
		if e, err := d.Entid(x); err != nil || e != ann {
			t.Errorf("%v is %d, %v", x, e, err)
		}
	}
	pair := []any{LookupRef{datom.Keyword("p/name"), "Anna"}, nil}
	if e, err := d.Entid(LookupRef{datom.Keyword("p/pair"), pair}); err != nil || e != bob {
		t.Errorf("by a tuple with nil in it: %d, %v", e, err)
	}
	for _, x := range []struct {
		what any
		want error
	}{
		{datom.Keyword("no/such"), ErrNotEntity},
		{datom.MaxID, ErrNotEntity},
		{"a string", ErrNotEntity},
		{nil, ErrNotEntity},
		{[]any{datom.Keyword("p/name")}, ErrNotEntity},
		{LookupRef{datom.Keyword("p/name"), "Ann"}, ErrNotEntity},
		{LookupRef{datom.Keyword("p/age"), 30}, ErrNotEntity}, // not unique
		{LookupRef{datom.Keyword("p/name"), 30}, ErrWrongType},
		{LookupRef{datom.Keyword("p/name"), nil}, ErrWrongType},
		{LookupRef{datom.Keyword("db.type/long"), 30}, ErrNotAttribute},
		{LookupRef{datom.Keyword("no/such"), 30}, ErrNotAttribute},
		{LookupRef{datom.Keyword("p/pair"), []any{ann, "x"}}, ErrWrongType},
		{LookupRef{datom.Keyword("p/pair"), []any{ann}}, ErrWrongType},
		{LookupRef{datom.Keyword("p/pair"), []any{datom.Keyword("no/such"), 1}}, ErrNotEntity},
	} {
		if e, err := d.Entid(x.what); !errors.Is(err, x.want) {
			t.Errorf("%v is %d, %v; want %v", x.what, e, err, x.want)
		}
	}
	if _, err := d.Entity(datom.Keyword("no/such")); !errors.Is(err, ErrNotEntity) {
		t.Errorf("entity: %v", err)
	}
	if _, ok := d.Lookup(5002, datom.Long(30)); ok {
		t.Error("lookup by an attribute that is not unique")
	}
	if e, ok := d.AsOf(3).Lookup(5000, datom.String("Ann")); !ok || e != ann {
		t.Error("lookup in a view sees the view's past")
	}
	if _, ok := d.History().Lookup(5000, datom.String("Ann")); ok {
		t.Error("lookup in a history view sees what has ended")
	}
}

func TestRefusedReads(t *testing.T) {
	d := people().Snapshot()
	one := func(what string, seq func(func(datom.Datom, error) bool), want error) {
		t.Helper()
		n := 0
		for _, err := range seq {
			if n++; !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
		}
		if n != 1 {
			t.Errorf("%s: %d elements", what, n)
		}
	}
	one("an attribute that is not indexed", d.Datoms(AVET, datom.Keyword("p/age")), ErrNotIndexed)
	one("a seek", d.Seek(AVET, datom.Keyword("p/age"), 1), ErrNotIndexed)
	one("a seek back", d.SeekBack(AVET, datom.Keyword("p/age")), ErrNotIndexed)
	one("a range", d.IndexRange(datom.Keyword("p/age"), nil, nil), ErrNotIndexed)
	one("a range with a bad end", d.IndexRange(datom.Keyword("p/name"), nil, 1), ErrWrongType)
	one("a range with a bad begin", d.IndexRange(datom.Keyword("p/name"), 1, nil), ErrWrongType)
	one("no attribute", d.Datoms(AEVT, datom.Keyword("db.type/long")), ErrNotAttribute)
	one("a wrong type", d.Datoms(EAVT, ann, datom.Keyword("p/age"), "thirty"), ErrWrongType)
	one("no entity", d.Datoms(EAVT, datom.Keyword("no/such")), ErrNotEntity)
	one("five components", d.Datoms(EAVT, ann, datom.Keyword("p/age"), 1, uint64(1), 1), ErrComponents)
	one("a transaction that is none", d.Datoms(EAVT, ann, datom.Keyword("p/age"), 1, "1"), ErrComponents)
	one("transaction 0", d.Datoms(EAVT, ann, datom.Keyword("p/age"), 1, uint64(0)), ErrComponents)
	one("an index that is none", d.Datoms(Index(9)), ErrComponents)
	if err := firstErr(d.Datoms(AVET, datom.Keyword("p/age"))); !strings.Contains(err.Error(), ":p/age") {
		t.Errorf("%q does not name the attribute", err)
	}
}

func firstErr(seq func(func(datom.Datom, error) bool)) (err error) {
	for _, err = range seq {
		break
	}
	return err
}

func TestReadsByIdentAndLookupRef(t *testing.T) {
	d := people().Snapshot()
	name := datom.Keyword("p/name")
	for what, seq := range map[string]func(func(datom.Datom, error) bool){
		"eavt":          d.Datoms(EAVT, []any{name, "Anna"}, name),
		"eavt, value":   d.Datoms(EAVT, ann, name, "Anna", uint64(4)),
		"eavt, tx":      d.Datoms(EAVT, ann, name, "Anna", datom.TxID(4)),
		"aevt":          d.Datoms(AEVT, name, ann),
		"avet":          d.Datoms(AVET, name, "Anna"),
		"range":         d.IndexRange(name, "Ann", "Annb"),
		"history of t4": d.History().Datoms(EAVT, ann, name, datom.String("Anna")),
	} {
		got := collect(t, seq)
		if len(got) != 1 || got[0] != (datom.Datom{E: ann, A: 5000, V: datom.String("Anna"), T: 4, Added: true}) {
			t.Errorf("%s: %v", what, got)
		}
	}
	if got := collect(t, d.Datoms(VAET, []any{name, "Bob"}, datom.Keyword("p/knows"), ann)); len(got) != 1 {
		t.Errorf("vaet: %v", got)
	}
	if got := collect(t, d.Datoms(EAVT, ann, datom.Keyword("p/knows"), []any{name, "Bob"})); len(got) != 1 {
		t.Errorf("a lookup ref as a value: %v", got)
	}
	if got := collect(t, d.Datoms(EAVT, bob, datom.Keyword("p/weight"), 1.5)); len(got) != 1 {
		t.Errorf("a double for a float: %v", got)
	}
	if got := collect(t, d.Datoms(EAVT, ann, name, "Ann")); len(got) != 0 {
		t.Errorf("what has ended: %v", got)
	}
}

func TestEntity(t *testing.T) {
	d := people().Snapshot()
	e, err := d.Entity([]any{datom.Keyword("p/name"), "Anna"})
	if err != nil || e.ID() != ann || e.DB() != d {
		t.Fatal(e, err)
	}
	if v, ok := e.Get(datom.Keyword("p/name")); !ok || v.Text() != "Anna" {
		t.Errorf("name %v", v)
	}
	if v, ok := e.Get(datom.Keyword("p/age")); ok {
		t.Errorf("age %v", v)
	}
	if _, ok := e.Get(datom.Keyword("no/such")); ok {
		t.Error("an attribute that is none has a value")
	}
	var all []string
	for k, v := range e.All() {
		all = append(all, fmt.Sprint(k, " ", v))
	}
	if want := []string{`:p/name "Anna"`, ":p/knows " + bob.String()}; !slices.Equal(all, want) {
		t.Errorf("all %q, want %q", all, want)
	}
	r, ok := e.Ref(datom.Keyword("p/knows"))
	if !ok || r.ID() != bob {
		t.Errorf("knows %v", r)
	}
	if _, ok := r.Ref(datom.Keyword("p/knows")); ok {
		t.Error("Bob knows somebody")
	}
	var back []datom.ID
	for x := range r.Reverse(datom.Keyword("p/knows")) {
		back = append(back, x.ID())
	}
	if !slices.Equal(back, []datom.ID{ann}) {
		t.Errorf("known by %v", back)
	}
	past, err := d.AsOf(3).Entity(ann)
	if err != nil {
		t.Fatal(err)
	}
	if v, _ := past.Get(datom.Keyword("p/age")); v != datom.Long(30) {
		t.Errorf("age then %v", v)
	}
}

func TestTimesOfViews(t *testing.T) {
	s := newScript()
	// Instants 1000 for t 2 to 4, 2000 for t 5 to 7, and so on.
	for i := range 30 {
		tt := s.BasisT() + 1
		ms := int64(1000 * (1 + i/3))
		s.Apply(&datom.Tx{T: tt, Instant: ms, Next: s.NextIDs(), Datoms: []datom.Datom{{E: datom.TxID(tt), A: AttrTxInstant, V: datom.InstantMilli(ms), T: tt, Added: true}}})
		if i%7 == 0 {
			s.Snapshot()
		}
	}
	d := s.Snapshot()
	for _, x := range []struct {
		ms   int64
		want uint64
	}{{-1, 0}, {0, 1}, {999, 1}, {1000, 4}, {1001, 4}, {1999, 4}, {2000, 7}, {10000, 31}, {99999, 31}} {
		if got, ok := d.AsOfTime(time.UnixMilli(x.ms)).AsOfT(); !ok || got != x.want {
			t.Errorf("as of %d ms is t = %d, want %d", x.ms, got, x.want)
		}
		if got := d.SinceTime(time.UnixMilli(x.ms)).SinceT(); got != x.want {
			t.Errorf("since %d ms is t = %d, want %d", x.ms, got, x.want)
		}
	}
	// The same without what a snapshot remembers of the last transactions.
	bare := *d.s
	bare.recent = nil
	if got, _ := (DB{s: &bare, basis: d.basis}).AsOfTime(time.UnixMilli(2000)).AsOfT(); got != 7 {
		t.Errorf("as of 2000 ms is t = %d", got)
	}
	if v := d.AsOf(5).AsOf(9); v != d.AsOf(9).AsOf(5) || v != d.AsOf(5) {
		t.Error("the narrower of two views counts")
	}
	if v := d.Since(5).Since(3); v != d.Since(5) {
		t.Error("the narrower of two views counts")
	}
	if d.AsOf(5).BasisT() != d.BasisT() || !d.History().IsHistory() {
		t.Error("a view keeps its basis")
	}
}

func TestHandles(t *testing.T) {
	s := newScript()
	s.do(attr(5000, "a/x", TypeLong, CardinalityOne))
	first := s.BasisT()
	for i := range 20 {
		s.do(func(b *txBuilder) {
			if i > 0 {
				b.retract(6000, 5000, datom.Long(int64(i-1)))
			}
			b.add(6000, 5000, datom.Long(int64(i)))
			b.tx.Next.Seq = 30000 + uint64(i)
		})
		if i == 10 {
			s.Snapshot()
		}
	}
	d := s.Snapshot()
	for i := range 20 {
		h := d.WithBasis(first + 1 + uint64(i))
		if h.BasisT() != first+1+uint64(i) || h.Instant() != int64(h.BasisT())*1000 || h.NextIDs().Seq != 30000+uint64(i) {
			t.Errorf("handle %d: t %d, instant %d, next %v", i, h.BasisT(), h.Instant(), h.NextIDs())
		}
		e, _ := h.Entity(datom.ID(6000))
		if v, _ := e.Get(datom.Keyword("a/x")); v != datom.Long(int64(i)) {
			t.Errorf("handle %d reads %v", i, v)
		}
		// Another future can begin there.
		n := NewStage(h)
		if v, tt, ok := n.One(6000, 5000); !ok || v != datom.Long(int64(i)) || tt != h.BasisT() {
			t.Errorf("stage on handle %d reads %v of %d", i, v, tt)
		}
		b := newTx(h.BasisT()+1).retract(6000, 5000, datom.Long(int64(i))).add(6000, 5000, datom.Long(-1))
		n.Apply(&b.tx)
		got := n.Snapshot()
		if x := collect(t, got.Datoms(EAVT, datom.ID(6000))); len(x) != 1 || x[0].V != datom.Long(-1) {
			t.Errorf("after a transaction on handle %d: %v", i, x)
		}
		if n := len(collect(t, got.History().Datoms(EAVT, datom.ID(6000)))); n != 2*i+3 {
			t.Errorf("history of that: %d datoms, want %d", n, 2*i+3)
		}
	}
	if d.WithBasis(99999).BasisT() != d.BasisT() {
		t.Error("a basis above the value's")
	}
	if h := d.WithBasis(0); h.NextIDs() != firstNext() || h.Instant() != 0 || len(collect(t, h.Datoms(EAVT))) != 0 {
		t.Error("the handle of nothing")
	}
}

func TestLargeValues(t *testing.T) {
	s := newScript()
	s.do(func(b *txBuilder) {
		attr(5000, "a/big", TypeString, CardinalityMany)(b)
		b.add(5000, AttrIndex, datom.Bool(true))
		attr(5001, "a/bytes", TypeBytes, CardinalityOne)(b)
	})
	rng := rand.New(rand.NewPCG(1, 1))
	want := map[datom.Value]bool{}
	const n = 120
	for i := range n {
		s.do(func(b *txBuilder) {
			size := []int{10, 8000, 8192, 20000, 65535, 65536, 70000, 300000}[rng.IntN(8)]
			text := datom.String(strings.Repeat("x\x00", size/2) + fmt.Sprint(i))
			b.add(6000, 5000, text)
			want[text] = true
			if i%3 == 0 {
				for old := range want {
					if old != text {
						b.retract(6000, 5000, old)
						delete(want, old)
						break
					}
				}
			}
			b.add(datom.ID(7000+i), 5001, datom.Bytes(bytes.Repeat([]byte{0}, size)))
		})
		if i%5 == 0 {
			s.Snapshot()
		}
	}
	d := s.Snapshot()
	for _, ix := range []Index{EAVT, AEVT, AVET} {
		n := 0
		for x, err := range d.Datoms(ix) {
			if err == nil && x.A == 5000 {
				if n++; !want[x.V] {
					t.Fatalf("%s has a value of %d bytes that is not there", ix, x.V.Size())
				}
			}
		}
		if n != len(want) {
			t.Fatalf("%s has %d values, want %d", ix, n, len(want))
		}
	}
	for v := range want {
		if !s.Has(6000, 5000, v) {
			t.Fatal("a value is missing")
		}
	}
	if got := len(collect(t, d.Datoms(AEVT, datom.ID(5001)))); got != n {
		t.Fatalf("%d bytes values", got)
	}
	s.Wait()
}

// Sixteen readers, each on the newest value that it can get and on old ones, beside a writer whose levels are small, so that every
// kind of merge happens. Every value must go on showing exactly what it showed.
func TestReadersBesideTheWriter(t *testing.T) {
	s := &script{Stage: newStage(Empty(), sizes{chunk: 256, l0: 64, fan: 3, frozen: 2})}
	s.Stage.Apply(Bootstrap())
	s.do(func(b *txBuilder) {
		attr(5000, "a/x", TypeLong, CardinalityOne)(b)
		b.add(5000, AttrUnique, datom.Ref(UniqueValueID))
		attr(5001, "a/r", TypeRef, CardinalityMany)(b)
	})
	var newest atomic.Pointer[DB]
	publish := func() { d := s.Snapshot(); newest.Store(&d) }
	publish()
	const entities, rounds = 50, 400
	// After round r, entity 6000+i has x = 1000*k+i where k is the last round in which it was changed, i = k mod entities; and a ref to 6000.
	first := s.BasisT()
	pass, done := make(chan struct{}), make(chan struct{}) // the writer takes two passes of readers a round
	var wg sync.WaitGroup
	failed := make(chan struct{})
	var fail sync.Once
	for range 16 {
		wg.Go(func() {
			defer func() {
				if t.Failed() {
					fail.Do(func() { close(failed) })
				}
			}()
			old := *newest.Load()
			for {
				for _, d := range []DB{*newest.Load(), old} {
					rounds := int(d.BasisT() - first)
					n := 0
					for x, err := range d.Datoms(AVET, datom.ID(5000)) {
						i := int(x.E) - 6000
						last := i + (rounds-1-i)/entities*entities
						if err != nil || x.V.Long() != int64(1000*last+i) {
							t.Errorf("at t = %d entity %d has %v (%v)", d.BasisT(), i, x, err)
							return
						}
						n++
					}
					if n != min(rounds, entities) {
						t.Errorf("at t = %d: %d values", d.BasisT(), n)
						return
					}
					n = 0
					for range d.SeekBack(VAET, datom.ID(6000)) {
						n++
					}
					hist := 0
					for range d.History().Datoms(AEVT, datom.ID(5000)) {
						hist++
					}
					if want := 2*rounds - min(rounds, entities); hist != want {
						t.Errorf("at t = %d: a history of %d, want %d", d.BasisT(), hist, want)
						return
					}
				}
				select {
				case pass <- struct{}{}:
				case <-done:
					return
				}
				if rand.IntN(20) == 0 {
					old = *newest.Load()
				}
			}
		})
	}
	for r := range rounds {
		for range 2 {
			select {
			case <-pass:
			case <-failed:
				close(done)
				wg.Wait()
				s.Wait()
				return
			}
		}
		s.do(func(b *txBuilder) {
			i := r % entities
			e := datom.ID(6000 + i)
			if r >= entities {
				b.retract(e, 5000, datom.Long(int64(1000*(r-entities)+i)))
			} else {
				b.add(e, 5001, datom.Ref(6000))
			}
			b.add(e, 5000, datom.Long(int64(1000*r+i)))
		})
		if r%3 == 0 {
			publish()
		}
		if r == rounds/2 {
			s.Reset(*newest.Load()) // and the rounds since then again
			for q := int(s.BasisT() - first); q <= r; q++ {
				s.do(func(b *txBuilder) {
					i := q % entities
					e := datom.ID(6000 + i)
					b.retract(e, 5000, datom.Long(int64(1000*(q-entities)+i))).add(e, 5000, datom.Long(int64(1000*q+i)))
				})
			}
		}
	}
	publish()
	close(done)
	wg.Wait()
	s.Wait()
}

// A value that somebody holds costs what it does not share with the newest.
func TestOldValuesShare(t *testing.T) {
	s, l := stageWith(20_000)
	old := s.Snapshot()
	for range 50 {
		s.Apply(l.insert())
	}
	now := s.Snapshot()
	have := map[*byte]bool{}
	chunks, shared := 0, 0
	for ix := range Index(numIndexes) {
		for _, r := range now.s.ix[ix][0].runs {
			for _, c := range r.chunks {
				have[&c[0]] = true
			}
		}
		for _, r := range old.s.ix[ix][0].runs {
			for _, c := range r.chunks {
				if chunks++; have[&c[0]] {
					shared++
				}
			}
		}
	}
	if shared < chunks*9/10 {
		t.Errorf("%d of %d chunks shared", shared, chunks)
	}
	s.Wait()
}

// Reading what holds now must not pay for what once did: its keys are in the history part.
func TestHistoryIsApart(t *testing.T) {
	s := newStage(Empty(), sizes{chunk: 512, l0: 128, fan: 4, frozen: 4})
	sc := &script{Stage: s}
	s.Apply(Bootstrap())
	sc.do(attr(5000, "a/x", TypeLong, CardinalityOne))
	for i := range 5000 {
		sc.do(func(b *txBuilder) {
			if i > 0 {
				b.retract(6000, 5000, datom.Long(int64(i-1)))
			}
			b.add(6000, 5000, datom.Long(int64(i)))
		})
		if i%4 == 0 {
			s.Snapshot()
		}
	}
	d := s.Snapshot()
	prefix := datom.AppendID(nil, 6000)
	n := 0
	walk(d.s.ix[EAVT][0].runs, prefix, prefix, everything, func([]byte) bool { n++; return true })
	if n > 600 {
		t.Errorf("%d keys of one fact in the current part", n)
	}
	if n := len(collect(t, d.History().Datoms(EAVT, datom.ID(6000)))); n != 9999 {
		t.Errorf("a history of %d", n)
	}
	s.Wait()
}

// A batch may be longer than the overlay's hash chains were made for.
func TestLongBatch(t *testing.T) {
	s := newScript()
	s.do(func(b *txBuilder) {
		attr(5000, "a/x", TypeLong, CardinalityOne)(b)
		b.add(5000, AttrUnique, datom.Ref(UniqueValueID))
		attr(5001, "a/r", TypeRef, CardinalityOne)(b)
	})
	const n = 3000
	for i := range n {
		e := datom.ID(6000 + i)
		s.do(func(b *txBuilder) { b.add(e, 5000, datom.Long(int64(i))).add(e, 5001, datom.Ref(e-1)) })
		back := e - datom.ID(i/2)
		if v, _, ok := s.One(back, 5000); !ok || v != datom.Long(int64(back-6000)) {
			t.Fatalf("after %d: %v", i, v)
		}
		if x, ok := s.Lookup(5000, datom.Long(int64(back-6000))); !ok || x != back {
			t.Fatalf("after %d: lookup %d", i, x)
		}
		for d := range s.Referrers(back - 1) {
			if d.E != back {
				t.Fatalf("after %d: referrer %v", i, d)
			}
		}
	}
	if d := s.Snapshot(); len(collect(t, d.Datoms(AVET, datom.ID(5000)))) != n {
		t.Error("datoms are missing")
	}
	s.Wait()
}

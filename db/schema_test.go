package db

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/steledb/stele/datom"
	"pgregory.net/rapid"
)

// txBuilder makes exact transactions by hand.
type txBuilder struct{ tx datom.Tx }

func newTx(t uint64) *txBuilder {
	b := &txBuilder{datom.Tx{T: t, Instant: int64(t) * 1000, Next: datom.NextIDs{Part: 10, Seq: 20000}}}
	return b.add(datom.TxID(t), AttrTxInstant, datom.InstantMilli(int64(t)*1000))
}

func (b *txBuilder) add(e, a datom.ID, v datom.Value) *txBuilder {
	b.tx.Datoms = append(b.tx.Datoms, datom.Datom{E: e, A: a, V: v, T: b.tx.T, Added: true})
	return b
}

func (b *txBuilder) retract(e, a datom.ID, v datom.Value) *txBuilder {
	b.tx.Datoms = append(b.tx.Datoms, datom.Datom{E: e, A: a, V: v, T: b.tx.T})
	return b
}

func kw(s string) datom.Value { return datom.KeywordValue(datom.Keyword(s)) }

// script is a stage that the built-ins were applied to; do applies the transactions made by each function.
type script struct {
	*Stage
	txs []*datom.Tx
}

func newScript() *script {
	s := &script{Stage: NewStage(Empty())}
	s.Stage.Apply(Bootstrap())
	s.txs = append(s.txs, Bootstrap())
	return s
}

func (s *script) do(fs ...func(b *txBuilder)) {
	for _, f := range fs {
		b := newTx(s.BasisT() + 1)
		f(b)
		s.txs = append(s.txs, &b.tx)
		s.Apply(&b.tx)
	}
}

func attr(e datom.ID, name string, typ, card datom.ID) func(b *txBuilder) {
	return func(b *txBuilder) {
		b.add(e, AttrIdent, kw(name)).add(e, AttrValueType, datom.Ref(typ)).add(e, AttrCardinality, datom.Ref(card))
	}
}

func TestSchemaOfAttributes(t *testing.T) {
	s := newScript()
	tup, err := datom.Tuple(datom.Ref(5000), datom.Ref(5001))
	if err != nil {
		t.Fatal(err)
	}
	types, _ := datom.Tuple(kw("db.type/long"), kw("db.type/string"), kw("db.type/ref"))
	v0 := s.Schema().Version()
	s.do(func(b *txBuilder) {
		attr(5000, "a/x", TypeLong, CardinalityOne)(b)
		attr(5001, "a/y", TypeRef, CardinalityMany)(b)
		b.add(5001, AttrIsComponent, datom.Bool(true)).add(5001, AttrNoHistory, datom.Bool(true))
		attr(5002, "a/x+y", TypeTuple, CardinalityOne)(b)
		b.add(5002, AttrTupleAttrs, tup).add(5002, AttrUnique, datom.Ref(UniqueIdentityID))
		attr(5003, "a/t", TypeTuple, CardinalityOne)(b)
		b.add(5003, AttrTupleTypes, types)
		b.add(5000, AttrPreds, datom.SymbolValue("my/b")).add(5000, AttrPreds, datom.SymbolValue("my/a"))
	})
	check := func(got *Attribute, want Attribute) {
		t.Helper()
		if got == nil || !got.equal(&want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
	sc := s.Schema()
	check(sc.Attr(5000), Attribute{ID: 5000, Ident: "a/x", Type: datom.KindLong, Preds: []datom.Symbol{"my/a", "my/b"}, Composites: []datom.ID{5002}})
	check(sc.AttrByIdent("a/y"), Attribute{ID: 5001, Ident: "a/y", Type: datom.KindRef, Many: true, Component: true, NoHistory: true, Composites: []datom.ID{5002}})
	check(sc.Attr(5002), Attribute{ID: 5002, Ident: "a/x+y", Type: datom.KindTuple, Unique: UniqueIdentity, TupleAttrs: []datom.ID{5000, 5001}})
	check(sc.Attr(5003), Attribute{ID: 5003, Ident: "a/t", Type: datom.KindTuple, TupleTypes: []datom.Kind{datom.KindLong, datom.KindString, datom.KindRef}})
	if !sc.Attr(5002).InAVET() || sc.Attr(5003).InAVET() {
		t.Error("unique attributes are in AVET, others are not")
	}
	if sc.Version() == v0 {
		t.Error("the version did not change")
	}

	// A transaction without schema leaves it alone, and so does one that changes nothing of it.
	s.do(func(b *txBuilder) { b.add(9000, 5000, datom.Long(1)).add(9000, AttrDoc, datom.String("x")) })
	s.do(func(b *txBuilder) { b.add(5000, AttrDoc, datom.String("x")) })
	s.do(func(b *txBuilder) { b.add(5000, AttrIndex, datom.Bool(false)) })
	if s.Schema() != sc {
		t.Error("the schema changed")
	}
	// Alterations keep what they do not touch, composites too.
	s.do(func(b *txBuilder) {
		b.retract(5000, AttrCardinality, datom.Ref(CardinalityOne)).add(5000, AttrCardinality, datom.Ref(CardinalityMany))
		b.retract(5000, AttrPreds, datom.SymbolValue("my/b"))
	})
	check(s.Schema().Attr(5000), Attribute{ID: 5000, Ident: "a/x", Type: datom.KindLong, Many: true, Preds: []datom.Symbol{"my/a"}, Composites: []datom.ID{5002}})
	if sc.Attr(5000).Many {
		t.Error("the older schema changed")
	}
	// An attribute that lost its type is none.
	s.do(func(b *txBuilder) { b.retract(5002, AttrValueType, datom.Ref(TypeTuple)) })
	if s.Schema().Attr(5002) != nil {
		t.Error("there is an attribute without a type")
	}
	if got := s.Schema().Attr(5001).Composites; len(got) != 0 {
		t.Errorf("composites %v of an attribute whose composite is gone", got)
	}
	s.do(func(b *txBuilder) {
		b.add(7, AttrIdent, kw("my/part")).add(PartDBEntity, AttrInstallPartition, datom.Ref(7))
	})
	if !s.Schema().HasPartition(7) || s.Schema().HasPartition(5) || !slices.Equal(slices.Collect(s.Schema().Partitions()), []uint64{0, 3, 4, 7}) {
		t.Errorf("partitions %v", slices.Collect(s.Schema().Partitions()))
	}
	n := 0
	for a := range s.Schema().Attributes() {
		if n++; s.Schema().Attr(a.ID) != a {
			t.Error("an attribute that is not there")
		}
	}
	if want := 25 + 3; n != want {
		t.Errorf("%d attributes, want %d", n, want)
	}
}

func TestIdents(t *testing.T) {
	const e1, e2 = datom.ID(5000), datom.ID(5001)
	s := newScript()
	check := func(what, ident string, id datom.ID, known, current bool) {
		t.Helper()
		got, ok := s.Schema().Entid(datom.Keyword(ident))
		if ok != known || known && got != id {
			t.Errorf("%s: %s names %d, %t; want %d, %t", what, ident, got, ok, id, known)
		}
		if got, ok := s.Schema().CurrentEntid(datom.Keyword(ident)); ok != current || current && got != id {
			t.Errorf("%s: %s is now the ident of %d, %t; want %d, %t", what, ident, got, ok, id, current)
		}
	}
	s.do(func(b *txBuilder) { b.add(e1, AttrIdent, kw("a")) })
	check("new", "a", e1, true, true)
	check("new", "b", 0, false, false)
	s.do(func(b *txBuilder) { b.add(e1, AttrIdent, kw("b")).retract(e1, AttrIdent, kw("a")) })
	check("renamed", "a", e1, true, false)
	check("renamed", "b", e1, true, true)
	if k, _ := s.Schema().Ident(e1); k != "b" {
		t.Errorf("the ident is %s", k)
	}
	s.do(func(b *txBuilder) { b.retract(e1, AttrIdent, kw("b")) })
	check("retracted", "b", e1, true, false)
	if k, ok := s.Schema().Ident(e1); ok {
		t.Errorf("the ident is %s", k)
	}
	s.do(func(b *txBuilder) { b.add(e2, AttrIdent, kw("a")) })
	check("taken over", "a", e2, true, true)
	check("taken over", "b", e1, true, false)
	s.do(func(b *txBuilder) {
		b.retract(e2, AttrIdent, kw("a")).add(e1, AttrIdent, kw("a")).add(e2, AttrIdent, kw("b"))
	})
	check("swapped", "a", e1, true, true)
	check("swapped", "b", e2, true, true)
	before := s.Schema()
	s.do(func(b *txBuilder) { b.retract(e1, AttrIdent, kw("a")) })
	check("retracted again", "a", e1, true, false)
	s.do(func(b *txBuilder) { b.add(e1, AttrIdent, kw("a")) })
	check("and given back", "a", e1, true, true)
	if before.Version() == s.Schema().Version() {
		t.Error("the version came back")
	}
	if id, err := s.Snapshot().Entid(datom.Keyword("b")); err != nil || id != e2 {
		t.Errorf("entid %d %v", id, err)
	}
	if _, err := s.Snapshot().Entid(datom.Keyword("c")); !errors.Is(err, ErrNotEntity) {
		t.Errorf("entid of nothing: %v", err)
	}
}

// What a database knows must be the same live, with a snapshot after every transaction, and after a replay.
func TestReplayParity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newScript()
		current := map[datom.ID]string{}
		owner := map[string]datom.ID{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			s.do(func(b *txBuilder) {
				e := datom.ID(5000 + rapid.IntRange(0, 5).Draw(t, "e"))
				k := fmt.Sprintf("k%d", rapid.IntRange(0, 6).Draw(t, "k"))
				old, had := current[e]
				if _, taken := owner[k]; taken || had && rapid.Bool().Draw(t, "retract") {
					if had {
						b.retract(e, AttrIdent, kw(old))
						delete(current, e)
						delete(owner, old)
					}
					return
				}
				if had {
					b.retract(e, AttrIdent, kw(old))
					delete(owner, old)
				}
				b.add(e, AttrIdent, kw(k))
				current[e], owner[k] = k, e
			})
			if rapid.Bool().Draw(t, "snapshot") {
				s.Snapshot()
			}
		}
		replayed := NewStage(Empty())
		for _, tx := range s.txs {
			replayed.Apply(tx)
		}
		a, b := s.Snapshot(), replayed.Snapshot()
		if a.Schema().Version() != b.Schema().Version() {
			t.Fatal("versions differ")
		}
		for i := range 7 {
			k := datom.Keyword(fmt.Sprintf("k%d", i))
			id1, ok1 := a.Schema().Entid(k)
			id2, ok2 := b.Schema().Entid(k)
			if id1 != id2 || ok1 != ok2 {
				t.Fatalf("%s names %d live and %d replayed", k, id1, id2)
			}
			id, ok := a.Schema().CurrentEntid(k)
			if own, want := owner[string(k)]; ok != want || ok && own != id {
				t.Fatalf("%s is the ident of %d, want %d", k, id, own)
			}
		}
		for ix := range Index(numIndexes) {
			if !slices.Equal(collect(t, a.History().Datoms(ix)), collect(t, b.History().Datoms(ix))) {
				t.Fatalf("%s differs", ix)
			}
		}
	})
}

// Many idents must not make one more dear.
func TestIdentsAreLayered(t *testing.T) {
	s := newScript()
	const n = 20_000
	for i := range n {
		s.do(func(b *txBuilder) { b.add(datom.ID(5000+i), AttrIdent, kw(fmt.Sprintf("i/%d", i))) })
	}
	copied := 0
	for _, m := range s.Schema().idents.layers {
		copied += len(m)
	}
	if copied != n+len(builtins()) {
		t.Errorf("%d idents", copied)
	}
	if len(s.Schema().idents.layers) > 16 {
		t.Errorf("%d layers", len(s.Schema().idents.layers))
	}
	if id, ok := s.Schema().Entid("i/777"); !ok || id != 5777 {
		t.Errorf("i/777 is %d", id)
	}
	allocs := testing.AllocsPerRun(1, func() {
		s.do(func(b *txBuilder) { b.add(datom.ID(99999), AttrIdent, kw("one/more")) })
	})
	if allocs > 200 {
		t.Errorf("%v allocations for one ident", allocs)
	}
}

// A schema's version belongs to what it says: the same t with another schema has another version.
func TestVersionsOfTwoFuturesDiffer(t *testing.T) {
	s := newScript()
	d := s.Snapshot()
	s.do(attr(5000, "a/x", TypeLong, CardinalityOne))
	one := s.Schema().Version()
	s.Reset(d)
	s.do(attr(5000, "a/y", TypeLong, CardinalityOne))
	if s.Schema().Version() == one {
		t.Error("the same version")
	}
	s.Reset(d)
	s.do(attr(5000, "a/x", TypeLong, CardinalityOne))
	if s.Schema().Version() != one {
		t.Error("the same schema has another version")
	}
}

// An attribute that becomes unique, or indexed, has all its values found, whether they lie in the indexes already or not.
func TestUniqueAddedLater(t *testing.T) {
	for _, snapshot := range []bool{false, true} {
		s := newScript()
		s.do(attr(5000, "a/x", TypeLong, CardinalityOne),
			func(b *txBuilder) {
				for i := range 100 {
					b.add(datom.ID(6000+i), 5000, datom.Long(int64(i)))
				}
			},
			func(b *txBuilder) { b.retract(6001, 5000, datom.Long(1)).add(6001, 5000, datom.Long(1001)) })
		if _, ok := s.Lookup(5000, datom.Long(7)); ok {
			t.Error("found by an attribute that is not unique")
		}
		if snapshot {
			s.Snapshot()
		}
		s.do(func(b *txBuilder) {
			b.add(5000, AttrUnique, datom.Ref(UniqueIdentityID)).retract(6007, 5000, datom.Long(7)).add(6008, 5000, datom.Long(7)).retract(6008, 5000, datom.Long(8))
		})
		check := func(n int64, want datom.ID) {
			t.Helper()
			if e, ok := s.Lookup(5000, datom.Long(n)); ok != (want != 0) || e != want {
				t.Errorf("snapshot %t: %d belongs to %d, want %d", snapshot, n, e, want)
			}
			if e, _ := s.View().Lookup(5000, datom.Long(n)); e != want {
				t.Errorf("snapshot %t: %d belongs to %d in the view, want %d", snapshot, n, e, want)
			}
		}
		check(5, 6005)
		check(7, 6008)
		check(8, 0)
		check(1, 0)
		check(1001, 6001)
		if n := len(collect(t, s.View().History().Datoms(AVET, datom.ID(5000)))); n != 105 {
			t.Errorf("snapshot %t: a history of %d in AVET", snapshot, n)
		}
		// And is taken out of AVET when it is neither any more.
		s.do(func(b *txBuilder) { b.retract(5000, AttrUnique, datom.Ref(UniqueIdentityID)) })
		if err := firstErr(s.View().Datoms(AVET, datom.ID(5000))); !errors.Is(err, ErrNotIndexed) {
			t.Errorf("snapshot %t: %v", snapshot, err)
		}
		for d, err := range s.View().History().Datoms(AVET) {
			if err != nil || d.A == 5000 {
				t.Fatalf("snapshot %t: AVET still has %v (%v)", snapshot, d, err)
			}
		}
	}
}

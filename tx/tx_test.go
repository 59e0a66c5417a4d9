package tx

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/apd/v3"
	"github.com/google/uuid"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
)

const (
	many     = datom.Keyword("db.cardinality/many")
	identity = datom.Keyword("db.unique/identity")
)

// newDB is a database value with a schema.
func newDB(t testing.TB, schema ...Form) db.DB {
	t.Helper()
	st := db.NewStage(db.Empty())
	st.Apply(db.Bootstrap())
	d := st.Snapshot()
	if len(schema) > 0 {
		d = with(t, d, schema...).DBAfter
	}
	return d
}

func with(t testing.TB, d db.DB, forms ...Form) *Report {
	t.Helper()
	r, err := WithEnv(d, forms, Limits{}, &Env{Now: testNow})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func refused(t testing.TB, d db.DB, want Kind, forms ...Form) *Error {
	t.Helper()
	_, err := WithEnv(d, forms, Limits{}, &Env{Now: testNow})
	var e *Error
	if !errors.As(err, &e) || e.Kind != want {
		t.Fatalf("expected %s, got %v", want, err)
	}
	return e
}

func people(t testing.TB) db.DB {
	return newDB(t,
		attribute("p/name", "string", Map{"db/unique": identity}),
		attribute("p/age", "long", nil),
		attribute("p/tags", "string", Map{"db/cardinality": many}),
		attribute("p/friends", "ref", Map{"db/cardinality": many}),
		attribute("p/boss", "ref", nil))
}

func TestGoAPI(t *testing.T) {
	d := people(t)
	r := with(t, d,
		Map{"db/id": "ann", "p/name": "Ann", "p/age": 31, "p/tags": []string{"a", "b", "a"}, "p/friends": []any{"eve", Tempid{Name: "bob"}, Map{"p/name": "Cy"}}},
		Add("eve", "p/name", "Eve"),
		Add(Tempid{Name: "bob"}, "p/boss", TxEntity),
		Add(TxEntity, "p/tags", "import"),
	)
	ann, ok := r.Tempids.Get("ann")
	if !ok || r.Tx != datom.TxID(r.T) || r.DBBefore.BasisT()+1 != r.T || r.DBAfter.BasisT() != r.T {
		t.Fatalf("report %+v", r)
	}
	if m := r.Tempids.Map(); len(m) != 3 || m["ann"] != ann {
		t.Fatalf("tempids %v", m)
	}
	if _, ok := r.Tempids.Get("nobody"); ok {
		t.Fatal("a tempid that was not there")
	}
	e, _ := r.DBAfter.Entity(ann)
	tags := slices.Collect(e.Values(datom.Keyword("p/tags")))
	friends := slices.Collect(e.Refs(datom.Keyword("p/friends")))
	if len(tags) != 2 || len(friends) != 3 {
		t.Fatalf("tags %v, friends %v", tags, friends)
	}
	// It chains, and ids, idents, lookup refs and sets all stand for what they should.
	r = with(t, r.DBAfter, Add(ann, "db/ident", datom.Keyword("person/ann")))
	r = with(t, r.DBAfter,
		Retract(datom.Keyword("person/ann"), "p/tags", "a"),
		RetractAll(Ref("p/name", "Eve"), "p/name"),
		Map{"db/id": int64(ann), "p/friends": Set{Ref("p/name", "Eve"), ann}, "p/boss": []any{datom.Keyword("p/name"), "Eve"}},
		CAS(ann, "p/age", 31, 32),
	)
	e, _ = r.DBAfter.Entity(ann)
	if v, _ := e.Get(datom.Keyword("p/age")); v.Long() != 32 || len(r.TxData) != 7 {
		t.Fatal(r.TxData)
	}
}

func TestGoAPI_EnsureNeedsASpec(t *testing.T) {
	d := people(t)
	d = with(t, d, Map{"db/ident": datom.Keyword("spec/p"), "db.entity/attrs": []datom.Keyword{"p/name"}}).DBAfter
	with(t, d, Map{"p/name": "Ann", "db/ensure": datom.Keyword("spec/p")})
	refused(t, d, MissingEntityAttrs, Add("x", "p/age", 1), Ensure("x", datom.Keyword("spec/p")))
}

// TestValues asserts one value of every type and its neighbours of other types.
func TestValues(t *testing.T) {
	u, _ := url.Parse("http://a/b")
	dec, _, _ := apd.NewFromString("1.50")
	good := []struct {
		kind string
		v    any
		want datom.Value
	}{
		{"boolean", true, datom.Bool(true)},
		{"long", 7, datom.Long(7)},
		{"long", int64(math.MinInt64), datom.Long(math.MinInt64)},
		{"bigint", big.NewInt(5), datom.BigInt(big.NewInt(5))},
		{"float", float32(1.5), datom.Float(1.5)},
		{"float", 0.1, datom.Float(0.1)}, // a double is rounded
		{"float", math.Inf(1), datom.Float(float32(math.Inf(1)))},
		{"float", math.NaN(), datom.Float(float32(math.NaN()))},
		{"double", 1.5, datom.Double(1.5)},
		{"double", math.Copysign(0, -1), datom.Double(0)},
		{"bigdec", dec, must(datom.BigDec(apd.New(15, -1)))},
		{"instant", time.UnixMilli(5).Add(999 * time.Microsecond), datom.InstantMilli(5)},
		{"keyword", datom.Keyword("a/b"), datom.KeywordValue("a/b")},
		{"symbol", datom.Symbol("a/b"), datom.SymbolValue("a/b")},
		{"string", "", datom.String("")},
		{"uuid", uuid.UUID{1}, datom.UUID(uuid.UUID{1})},
		{"uri", u, datom.URI(u)},
		{"bytes", []byte{0, 1}, datom.Bytes([]byte{0, 1})},
		{"ref", db.PartDBEntity, datom.Ref(0)},
	}
	bad := []struct {
		kind string
		v    any
	}{
		{"boolean", 1}, {"boolean", "true"}, {"boolean", nil},
		{"long", 1.0}, {"long", "1"}, {"long", big.NewInt(1)}, {"long", int32(1)}, {"long", uint64(1)}, {"long", true},
		{"bigint", 1}, {"bigint", (*big.Int)(nil)},
		{"float", 1e300}, {"float", 1}, {"float", -1e39},
		{"double", 1}, {"double", float32(1)}, {"double", "NaN"},
		{"bigdec", 1}, {"bigdec", 1.5}, {"bigdec", &apd.Decimal{Form: apd.Infinite}},
		{"instant", int64(5)}, {"instant", "2020-01-01"},
		{"keyword", "a/b"}, {"keyword", datom.Keyword("")}, {"keyword", datom.Keyword("a b")}, {"keyword", datom.Symbol("a")},
		{"symbol", datom.Keyword("a")}, {"symbol", "a"},
		{"string", datom.Keyword("a")}, {"string", []byte("a")}, {"string", "\xff"}, {"string", nil}, {"string", struct{}{}},
		{"uuid", "00000000-0000-0000-0000-000000000000"}, {"uuid", [16]byte{}},
		{"uri", "http://a"}, {"bytes", "a"}, {"bytes", []any{1}},
		{"ref", 1.5}, {"ref", true}, {"ref", nil}, {"ref", Set{"x"}},
	}
	for _, c := range good {
		d := newDB(t, attribute("a/a", c.kind, nil))
		r := with(t, d, Add("x", "a/a", c.v))
		if got := r.TxData[0].V; got != c.want {
			t.Errorf("%s %v: got %s, not %s", c.kind, c.v, got, c.want)
		}
		if r2 := with(t, r.DBAfter, Add(r.TxData[0].E, "a/a", c.v)); len(r2.TxData) != 1 {
			t.Errorf("%s %v: asserted again, it gives %v", c.kind, c.v, r2.TxData)
		}
		with(t, d, Map{"db/id": "x", "a/a": c.v})
	}
	for _, c := range bad {
		d := newDB(t, attribute("a/a", c.kind, nil))
		e := refused(t, d, WrongType, Add("x", "a/a", c.v))
		if e.Attr != ":a/a" || !strings.Contains(e.Msg, ":db.type/"+c.kind) {
			t.Errorf("%s %v: the error does not say what was wanted: %+v", c.kind, c.v, e)
		}
		refused(t, d, WrongType, Map{"db/id": "x", "a/a": c.v})
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestErrorIs(t *testing.T) {
	sentinels := map[Kind]error{
		NotAnEntity: ErrNotAnEntity, NotAnAttribute: ErrNotAnAttribute, WrongType: ErrWrongType, UniqueConflict: ErrUniqueConflict,
		ConflictingUpsert: ErrConflictingUpsert, DatomsConflict: ErrDatomsConflict, CASFailed: ErrCASFailed, CASCardinality: ErrCASCardinality,
		TempidNotAnEntity: ErrTempidNotAnEntity, InvalidLookupRef: ErrInvalidLookupRef, NestedWithoutIdentity: ErrNestedWithoutIdentity,
		PastTxInstant: ErrPastTxInstant, FutureTxInstant: ErrFutureTxInstant, ImmutableFact: ErrImmutableFact,
		IdempotencyMismatch: ErrIdempotencyMismatch, InvalidSchema: ErrInvalidSchema, InvalidAlteration: ErrInvalidAlteration,
		AttrPredFailed: ErrAttrPredFailed, EntityPredFailed: ErrEntityPredFailed, MissingEntityAttrs: ErrMissingEntityAttrs,
		UnknownFunction: ErrUnknownFunction, FunctionFailed: ErrFunctionFailed, LimitExceeded: ErrLimitExceeded, Malformed: ErrMalformed,
	}
	cause := errors.New("cause")
	for k := NotAnEntity; k <= Malformed; k++ {
		err := fmt.Errorf("wrapped: %w", &Error{Kind: k, Err: cause})
		for k2, s := range sentinels {
			if errors.Is(err, s) != (k == k2) {
				t.Errorf("errors.Is(%s, %s) is wrong", k, k2)
			}
		}
		if !errors.Is(err, cause) || sentinels[k] == nil || sentinels[k].Error() != k.String() {
			t.Errorf("%s", k)
		}
		conflict := k == CASFailed || k == UniqueConflict || k == ConflictingUpsert || k == PastTxInstant
		if k.Conflict() != conflict || (&Error{Kind: k}).Conflict() != conflict {
			t.Errorf("%s: conflict is %t", k, k.Conflict())
		}
	}
}

// TestCompile_IsAheadOfTheQueue: only what no database value could make right is refused by Compile.
func TestCompile_IsAheadOfTheQueue(t *testing.T) {
	d := people(t)
	for _, c := range []struct {
		form  Form
		ahead bool
	}{
		{List{Op: OpAdd}, true},
		{nil, true},
		{List{}, true},
		{Add("x", "p/name", strings.Repeat("x", 5<<20)), true},
		{Add("x", "no/such", 1), false},
		{Add("x", "p/age", "1"), false},
		{Add(5, "p/age", 1), false},
		{Call("no/fn"), false},
		{Map{"p/name": "x", "p/boss": Map{"p/age": 1}}, false},
	} {
		r, err := Compile(d.Schema(), Data{c.form}, Limits{})
		if (err != nil) != c.ahead {
			t.Errorf("%v: Compile says %v", c.form, err)
			continue
		}
		if err == nil {
			if _, err = Prepare(db.NewStage(d), r, &Env{Now: testNow}); err == nil {
				t.Errorf("%v: Prepare took it", c.form)
			}
		}
	}
}

// TestPrepare_SchemaMoved: a request is compiled again when the schema is not the one that it was compiled against.
func TestPrepare_SchemaMoved(t *testing.T) {
	d := people(t)
	r, err := Compile(d.Schema(), Data{Map{"db/id": "x", "p/age": []any{1, 2}, "p/new": "v"}}, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Prepare(db.NewStage(d), r, &Env{Now: testNow}); !errors.Is(err, ErrNotAnAttribute) {
		t.Fatal(err)
	}
	d2 := with(t, d, attribute("p/new", "string", nil), Map{"db/id": datom.Keyword("p/age"), "db/cardinality": many}).DBAfter
	p, err := Prepare(db.NewStage(d2), r, &Env{Now: testNow})
	if err != nil || len(p.Tx.Datoms) != 4 {
		t.Fatal(p, err)
	}
	if _, err := Prepare(db.NewStage(d), r, &Env{Now: testNow}); !errors.Is(err, ErrNotAnAttribute) {
		t.Fatal("the request was changed:", err)
	}
}

// TestRequest_IsShared: one request may be prepared by many goroutines.
func TestRequest_IsShared(t *testing.T) {
	d := people(t)
	d = with(t, d, Map{"p/name": "Bob"}).DBAfter
	r, err := Compile(d.Schema(), Data{
		Map{"db/id": "a", "p/name": "Ann", "p/friends": []any{"b", "c", Ref("p/name", "Bob")}}, Map{"db/id": "b", "p/name": "Bob"}, Map{"db/id": "c", "p/name": "Ann"},
	}, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	outs := make([][]datom.Datom, 8)
	for i := range outs {
		wg.Go(func() {
			st := db.NewStage(d)
			var prep Preparer
			for range 50 {
				p, err := prep.Prepare(st, r, &Env{Now: testNow})
				if err != nil {
					t.Error(err)
					return
				}
				outs[i] = p.Tx.Datoms
			}
		})
	}
	wg.Wait()
	for _, o := range outs {
		if !slices.Equal(o, outs[0]) {
			t.Fatal(o, outs[0])
		}
	}
}

// TestPrepared_Schema: only a transaction that touches schema, idents or partitions is said to.
func TestPrepared_Schema(t *testing.T) {
	d := people(t)
	d = with(t, d, Map{"db/id": "x", "p/name": "Ann", "db/ident": datom.Keyword("i/x")}).DBAfter
	for _, c := range []struct {
		form   Form
		schema bool
	}{
		{Add("y", "p/age", 1), false},
		{Add(datom.Keyword("i/x"), "db/ident", datom.Keyword("i/x")), false},
		{Add(datom.Keyword("i/x"), "db/doc", "doc"), false},
		{Add(TxEntity, "db/doc", "doc"), false},
		{Add("y", "db/ident", datom.Keyword("i/y")), true},
		{RetractEntity(datom.Keyword("i/x")), true},
		{attribute("p/new", "long", nil), true},
		{attribute("p/age", "long", nil), false},
		{Add(datom.Keyword("p/age"), "db/noHistory", true), true},
		{Add(datom.Keyword("p/age"), "db.attr/preds", datom.Symbol("p")), true},
		{Map{"db/ident": datom.Keyword("part/x"), "db.install/_partition": datom.Keyword("db.part/db")}, true},
	} {
		r, err := Compile(d.Schema(), Data{c.form}, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		p, err := Prepare(db.NewStage(d), r, &Env{Now: testNow})
		if err != nil || p.Schema != c.schema {
			t.Errorf("%v: schema is %v, %v", c.form, p, err)
		}
	}
}

// TestIDs: what lives where, and that an id is given out once, also where no datom shows it.
func TestIDs(t *testing.T) {
	d := people(t)
	before := d.NextIDs()
	r := with(t, d, Retract("a", "p/age", 1), attribute("p/new", "long", nil),
		Map{"db/ident": datom.Keyword("part/x"), "db.install/_partition": datom.Keyword("db.part/db")})
	a, _ := r.Tempids.Get("a")
	attr, _ := r.DBAfter.Schema().Entid("p/new")
	part, _ := r.DBAfter.Schema().Entid("part/x")
	if a != datom.MakeID(datom.PartUser, before.Seq) || attr != datom.MakeID(datom.PartDB, before.Seq+1) || part != datom.MakeID(datom.PartDB, before.Part) {
		t.Fatal(a, attr, part, before)
	}
	d = r.DBAfter
	if n := d.NextIDs(); n != (datom.NextIDs{Part: before.Part + 1, Seq: before.Seq + 2}) {
		t.Fatal(n)
	}
	// The id is allocated, so it can be used; a sequence is taken whatever the partition it is put with.
	with(t, d, Add(a, "p/age", 1), Add(datom.MakeID(part.Seq(), before.Seq), "p/age", 1))
	for _, id := range []datom.ID{
		datom.MakeID(datom.PartUser, before.Seq+2), datom.MakeID(datom.PartUser, 5), datom.MakeID(datom.PartDB, before.Part+1),
		datom.MakeID(part.Seq()+1, before.Seq), datom.TxID(0), datom.TxID(d.BasisT() + 1), datom.MaxID, datom.ID(math.MaxUint64),
	} {
		refused(t, d, NotAnEntity, Add(id, "p/age", 1))
		refused(t, d, NotAnEntity, Add("x", "p/boss", id), Add("x", "p/age", 1))
		if r := with(t, d, RetractEntity(id)); len(r.TxData) != 1 {
			t.Error(id, r.TxData)
		}
	}
	with(t, d, Add(datom.TxID(d.BasisT()), "p/age", 1))
	r = with(t, d, Add(Tempid{Part: "part/x", Name: "x"}, "p/age", 1), Add(Tempid{Name: "x"}, "p/age", 2), Add("y", "p/boss", Tempid{Part: "part/x", Name: "x"}))
	if r.TxData[0].E.Part() != datom.PartUser || len(r.TxData) != 4 || r.TxData[2].E.Part() != part.Seq() {
		t.Fatal(r.TxData)
	}
}

// TestInstants: instants never decrease, and are the clock's where nobody says otherwise.
func TestInstants(t *testing.T) {
	d := newDB(t)
	step := func(now int64, forms ...Form) (int64, error) {
		r, err := WithEnv(d, forms, Limits{}, &Env{Now: now})
		if err != nil {
			return 0, err
		}
		d = r.DBAfter
		last := r.TxData[len(r.TxData)-1]
		if last.A != db.AttrTxInstant || last.E != r.Tx || d.Instant() != last.V.InstantMilli() {
			t.Fatal(last)
		}
		return last.V.InstantMilli(), nil
	}
	at := func(ms int64) Form { return Add(TxEntity, "db/txInstant", time.UnixMilli(ms)) }
	for _, c := range []struct {
		now, given, want int64
		err              error
	}{
		{now: 1000, given: 0, want: 0}, // the first may be dated 1970
		{now: 1000, given: 500, want: 500},
		{now: 1000, given: 499, err: ErrPastTxInstant},
		{now: 1000, given: 500, want: 500},
		{now: 1000, given: 1001, err: ErrFutureTxInstant},
		{now: 1000, given: -1, want: 1000}, // not given
		{now: 900, given: -1, want: 1000},  // the clock went back
		{now: 900, given: 950, err: ErrPastTxInstant},
		{now: 900, given: 1000, want: 1000},
		{now: 2000, given: -1, want: 2000},
	} {
		var forms []Form
		if c.given >= 0 {
			forms = []Form{at(c.given)}
		}
		got, err := step(c.now, forms...)
		if !errors.Is(err, c.err) || err == nil && got != c.want {
			t.Fatalf("%+v: %d, %v", c, got, err)
		}
	}
}

// TestCyclicMap: data that holds itself ends at a limit.
func TestCyclicMap(t *testing.T) {
	d := newDB(t, attribute("p/part", "ref", Map{"db/isComponent": true}))
	m := Map{}
	m["p/part"] = m
	refused(t, d, LimitExceeded, m)
	l := []any{datom.Keyword("p/x"), nil}
	l[1] = l
	d = newDB(t, attribute("p/x", "ref", Map{"db/unique": identity}))
	refused(t, d, LimitExceeded, Add(l, "p/x", "y"))
	d = newDB(t, attribute("p/s", "string", nil))
	refused(t, d, WrongType, Add("x", "p/s", l))
	refused(t, d, WrongType, Add("x", "p/s", Lookup{"p/s", l}))
}

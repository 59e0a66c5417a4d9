package tx

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
)

func hire(name string) Data {
	return Data{Map{"db/id": "new", "p/name": name, "p/friends": []any{Map{"db/id": "friend", "p/name": name + "'s friend"}}}}
}

// TestP8_AResubmissionHasTheOriginalsReport: by any later value, it commits nothing and says what the original said.
func TestP8_AResubmissionHasTheOriginalsReport(t *testing.T) {
	d := people(t)
	first := with(t, d, WithKey(hire("Ann"), "k1")...)
	if first.Repeated || first.T != d.BasisT()+1 {
		t.Fatalf("%+v", first)
	}
	later := with(t, first.DBAfter, hire("Bob")...).DBAfter
	for _, d := range []db.DB{first.DBAfter, later} {
		again := with(t, d, WithKey(hire("Ann"), "k1")...)
		if !again.Repeated || again.T != first.T || again.Tx != first.Tx || again.DBAfter.BasisT() != first.T || again.DBBefore.BasisT() != first.T-1 {
			t.Fatalf("%+v", again)
		}
		if len(again.TxData) != len(first.TxData) {
			t.Errorf("delta %v, was %v", again.TxData, first.TxData)
		}
		for _, x := range first.TxData {
			if !slices.Contains(again.TxData, x) {
				t.Errorf("the repeated delta lacks %v", x)
			}
		}
		for _, name := range []string{"new", "friend"} {
			was, _ := first.Tempids.Get(name)
			if is, ok := again.Tempids.Get(name); !ok || is != was {
				t.Errorf("tempid %s is %v, was %v", name, is, was)
			}
		}
		if len(again.Tempids.Map()) != 2 {
			t.Errorf("tempids %v", again.Tempids.Map())
		}
		if _, ok := again.DBBefore.Lookup(first.DBAfter.Schema().AttrByIdent("p/name").ID, datom.String("Ann")); ok {
			t.Error("DBBefore has Ann")
		}
	}
}

func TestP8_AnotherRequestUnderTheSameKeyIsAMismatch(t *testing.T) {
	d := people(t)
	r := with(t, d, WithKey(hire("Ann"), "k1")...)
	e := refused(t, r.DBAfter, IdempotencyMismatch, WithKey(hire("Bob"), "k1")...)
	for _, part := range []string{"k1", "t = "} {
		if !strings.Contains(e.Error(), part) {
			t.Errorf("%q does not say %q", e, part)
		}
	}
	with(t, r.DBAfter, WithKey(hire("Bob"), "k2")...)
}

// TestP8_TheKeyIsLookedUpBeforeAnythingIsExpanded: a repeated request is answered although its function would fail by now, and so would its
// facts.
func TestP8_TheKeyIsLookedUpBeforeAnythingIsExpanded(t *testing.T) {
	d := people(t)
	calls := 0
	env := &Env{Now: testNow, Functions: map[datom.Keyword]Func{"f/once": func(context.Context, db.DB, []any) (Data, error) {
		if calls++; calls > 1 {
			return nil, errors.New("called again")
		}
		return Data{Map{"p/name": "Ann"}}, nil
	}}}
	data := WithKey(Data{Call("f/once", int64(1), []string{"x"}, map[string]any{"b": 1, "a": nil})}, "k1")
	r, err := WithEnv(d, data, Limits{}, env)
	if err != nil {
		t.Fatal(err)
	}
	again, err := WithEnv(r.DBAfter, data, Limits{}, env)
	if err != nil || !again.Repeated || calls != 1 {
		t.Errorf("%+v, %v, %d calls", again, err, calls)
	}
	env.Functions["f/key"] = func(context.Context, db.DB, []any) (Data, error) {
		return Data{Add(TxEntity, "stele.tx/key", "k")}, nil
	}
	var bad *Error
	if _, err := WithEnv(d, Data{Call("f/key")}, Limits{}, env); !errors.As(err, &bad) || bad.Kind != Malformed {
		t.Errorf("a function gives the key: %v", err)
	}
	if cas := WithKey(Data{CAS(Lookup{"p/name", "Ann"}, "p/age", nil, int64(1))}, "k2"); true {
		r2 := with(t, r.DBAfter, cas...)
		if again := with(t, r2.DBAfter, cas...); !again.Repeated {
			t.Errorf("%+v", again)
		}
	}
}

// TestP8_TheFactsOfAKeyAreForEver: nobody can state, retract or change them.
func TestP8_TheFactsOfAKeyAreForEver(t *testing.T) {
	r := with(t, people(t), WithKey(hire("Ann"), "k1")...)
	d := r.DBAfter
	var hash datom.Value
	facts := 0
	for x := range d.Datoms(db.EAVT, r.Tx) {
		switch x.A {
		case db.AttrTxRequestHash:
			hash = x.V
			facts++
		case db.AttrTxKey, db.AttrTxTempids:
			facts++
		}
	}
	if facts != 3 || len(hash.Text()) != 32 {
		t.Errorf("%d facts, hash %v", facts, hash)
	}
	refused(t, d, ImmutableFact, Retract(r.Tx, "stele.tx/key", "k1"))
	refused(t, d, ImmutableFact, Add(r.Tx, "stele.tx/key", "k2"))
	refused(t, d, ImmutableFact, RetractEntity(r.Tx))
	for _, attr := range []datom.Keyword{"stele.tx/request-hash", "stele.tx/tempids"} {
		refused(t, d, Malformed, Add(TxEntity, attr, []byte{1}))
		refused(t, d, Malformed, RetractAll(r.Tx, attr))
	}
	refused(t, d, LimitExceeded, WithKey(hire("Bob"), strings.Repeat("k", maxKey+1))...)
	refused(t, d, DatomsConflict, WithKey(WithKey(hire("Bob"), "k3"), "k4")...)
	with(t, d, WithKey(WithKey(hire("Bob"), "k3"), "k3")...)
	refused(t, d, Malformed, WithKey(Data{Call("f/x", make(chan int))}, "k5")...)
	deep := any("x")
	for range 2 * maxCanonDepth {
		deep = []any{deep}
	}
	refused(t, d, Malformed, WithKey(Data{Call("f/x", deep)}, "k5")...)
}

// TestP8_OneRequestHasOneHash: however it is written, and no other request has it.
func TestP8_OneRequestHasOneHash(t *testing.T) {
	ednData := func(s string) Data {
		for d, err := range ReadEDN(strings.NewReader(s), ReadLimits{}) {
			if err != nil {
				t.Fatal(err)
			}
			return d.Data
		}
		return nil
	}
	jsonData := func(s string) Data {
		for d, err := range ReadJSON(strings.NewReader(s), ReadLimits{}) {
			if err != nil {
				t.Fatal(err)
			}
			return d.Data
		}
		return nil
	}
	bob := Map{"db/id": "b", "p/name": "Bob", "p/age": 4}
	tuple, err := datom.Tuple(datom.String("b"), datom.String("a"))
	if err != nil {
		t.Fatal(err)
	}
	same := [][]Data{
		{
			{bob},
			WithKey(Data{bob}, "k"),
			WithKey(Data{bob}, "another"),
			{Map{"p/age": int64(4), "p/name": "Bob", "db/id": "b"}},
			{Pairs{Entries: []Pair{{Key: datom.Keyword("p/age"), Value: 4}, {Key: datom.Keyword("db/id"), Value: "b"}, {Key: datom.Keyword("p/name"), Value: "Bob"}}}},
			{Map{"db/id": TxEntity, "stele.tx/key": "k"}, bob},
			ednData(`[{:db/id "datomic.tx" :stele.tx/key "k"} {:p/name "Bob" :db/id "b" :p/age 4}]`),
			ednData(`[[:db/add "datomic.tx" :stele.tx/key "k"] {:p/age 4 :p/name "Bob" :db/id "b"}]`),
			jsonData(`[{"db/id": "b", "p/age": 4, "p/name": "Bob"}, {"db/id": "datomic.tx", "stele.tx/key": "k"}]`),
		},
		{{bob, bob}},
		{{Map{"db/id": "b", "p/name": "Bob"}}},
		{{Map{"db/id": "b", "p/name": "Bob", "p/age": "4"}}},
		{{Add("b", "p/name", "Bob"), Add("b", "p/age", 4)}},
		{{Add("b", "p/age", 4), Add("b", "p/name", "Bob")}},
		{{Map{"db/id": TxEntity, "stele.tx/key": "k", "db/doc": "x"}}, {Map{"db/id": TxEntity, "db/doc": "x"}}},
		{{Map{"p/tags": Set{"a", "b"}}}, {Map{"p/tags": Set{"b", "a"}}}},
		{{Map{"p/tags": []any{"a", "b"}}}, {Map{"p/tags": []string{"a", "b"}}}},
		{{Map{"p/tags": []any{"b", "a"}}}, {Map{"p/tags": tuple}}},
		{{Map{"p/tags": []any{"ab", ""}}}},
		{{CAS(datom.ID(7), "p/age", nil, 1)}, {CAS(7, "p/age", nil, int64(1))}},
		{{Map{"db/id": Lookup{"p/name", "Bob"}, "p/boss": Tempid{Name: "x"}}}},
		{{}, {Map{"db/id": TxEntity, "stele.tx/key": "k"}}},
	}
	seen := map[[32]byte]int{}
	for i, group := range same {
		for j, d := range group {
			h, err := hashOf(d)
			if err != nil {
				t.Fatal(err)
			}
			if g, ok := seen[h]; ok && g != i || !ok && j > 0 {
				t.Errorf("request %d of group %d hashes as group %d (known: %t)", j, i, g, ok)
			}
			seen[h] = i
		}
	}
}

// TestP8_TheHashStays: what was stored by one version must be found by the next.
func TestP8_TheHashStays(t *testing.T) {
	d := Data{
		Map{"db/id": "b", "p/name": "Bob", "p/age": 4, "p/tags": Set{"x", "y"}, "p/friends": []any{Lookup{"p/name", "Ann"}, Tempid{Part: "my/part", Name: "z"}}},
		CAS(int64(7), "p/age", nil, 2.5), Call("f/x", []byte{1}, true, datom.Keyword("k/w"), Map{"a/b": nil}),
	}
	h, err := hashOf(d)
	if err != nil {
		t.Fatal(err)
	}
	const want = `#bytes "UDdcJJwPdtWlBBG9W+Qtr3aS1av9EJgTtgRJxfZHeTo="`
	if got := datom.Bytes(h[:]).String(); got != want {
		t.Errorf("the hash of version %d is %s now", hashVersion, got)
	}
}

func TestTempids_EncodeAndDecode(t *testing.T) {
	r := with(t, people(t), hire("Ann")...)
	b := encodeTempids(r.Tempids)
	ents, ids, ok := decodeTempids(b)
	if again := (Tempids{ents, ids}); !ok || len(again.Map()) != 2 || again.Map()["new"] != r.Tempids.Map()["new"] {
		t.Fatalf("%v, %t", ids, ok)
	}
	for n := range b {
		if _, _, ok := decodeTempids(b[:n]); ok {
			t.Errorf("the first %d bytes of %d decode", n, len(b))
		}
	}
	if _, _, ok := decodeTempids(append(slices.Clone(b), 0)); ok {
		t.Error("a byte too many decodes")
	}
	b[0]++
	if _, _, ok := decodeTempids(b); ok {
		t.Error("another version decodes")
	}
}
func TestKey_NestedInAnArgumentIsPartOfTheRequest(t *testing.T) {
	for _, pair := range [][2]Data{
		{{Call("f/x", Map{"stele.tx/key": "a"})}, {Call("f/x", Map{"stele.tx/key": "b"})}},
		{{Call("f/x", Add("e", keyAttr, "a"), "z")}, {Call("f/x", "z", Add("e", keyAttr, "b"))}},
		{{Call("f/x", Add("e", keyAttr, "a"))}, {Call("f/x", Add("e", keyAttr, "b"))}},
	} {
		a, err := hashOf(pair[0])
		b, err2 := hashOf(pair[1])
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		if a == b {
			t.Errorf("%v and %v are one request", pair[0], pair[1])
		}
	}
}

func TestKey_OfARequestCompiledAheadOfItsSchema(t *testing.T) {
	d := people(t)
	schema := Data{Map{"db/ident": datom.Keyword("tx/who"), "db/valueType": datom.Keyword("db.type/string"), "db/cardinality": datom.Keyword("db.cardinality/one")}}
	for i, data := range []Data{
		{Map{"db/id": TxEntity, "tx/who": "me", "stele.tx/key": "k"}},
		{Pairs{Entries: []Pair{{Key: datom.Keyword("tx/who"), Value: "me"}, {Key: datom.Keyword("db/id"), Value: TxEntity}, {Key: keyAttr, Value: "k"}}}},
		{Map{"db/id": "n", "tx/who": "me"}, Map{"db/id": Tempid{Part: "db.part/tx", Name: "q"}, "stele.tx/key": "k"}},
	} {
		r, err := Compile(d.Schema(), data, Limits{})
		if err != nil {
			t.Errorf("%d: %v", i, err)
			continue
		}
		after := with(t, d, schema...).DBAfter
		st := db.NewStage(after)
		p, err := Prepare(st, r, &Env{Now: testNow})
		if err != nil {
			t.Errorf("%d: prepare: %v", i, err)
			continue
		}
		var key, hash bool
		for _, x := range p.Tx.Datoms {
			key = key || x.A == db.AttrTxKey
			hash = hash || x.A == db.AttrTxRequestHash
		}
		if key != hash {
			t.Errorf("%d: key %t, hash %t", i, key, hash)
		}
	}
}

func TestKey_RepeatedReportHasItsNotices(t *testing.T) {
	d := people(t)
	data := WithKey(Data{Map{"db/ident": datom.Keyword("x/y"), "db/valueType": datom.Keyword("db.type/string"), "db/cardinality": datom.Keyword("db.cardinality/one"), "db/fulltext": true}}, "k")
	r := with(t, d, data...)
	again := with(t, r.DBAfter, data...)
	if len(r.Notices) == 0 || fmt.Sprint(again.Notices) != fmt.Sprint(r.Notices) || !again.Repeated {
		t.Errorf("%v, then %v (repeated %t)", r.Notices, again.Notices, again.Repeated)
	}
}

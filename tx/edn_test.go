package tx

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
	"github.com/steledb/stele/edn"
)

func readAllEDN(in string) (out []Input, err error) {
	for x, err := range ReadEDN(strings.NewReader(in), ReadLimits{}) {
		if err != nil {
			return out, err
		}
		out = append(out, x)
	}
	return out, nil
}

// pos is a position on line 1.
func pos(form, column int) Pos { return Pos{Form: form, Line: 1, Column: column} }

func TestReadEDNForms(t *testing.T) {
	type kw = datom.Keyword
	uri, err := datom.ParseURI("http://x/#")
	if err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string][]Data{
		"":   nil,
		"[]": {{}},
		"()": {{}},
		`[[:db/add "x" :a/b 1]]`: {{
			List{Op: OpAdd, Args: []any{"x", kw("a/b"), int64(1)}, Pos: pos(1, 2)}}},
		`[:db/add "x" :a/b 1]`: {{List{Op: OpAdd, Args: []any{"x", kw("a/b"), int64(1)}, Pos: pos(1, 1)}}},
		`(:db/add "x" :a/b 1)`: {{List{Op: OpAdd, Args: []any{"x", kw("a/b"), int64(1)}, Pos: pos(1, 1)}}},
		`((:my/fn) [:f])`:      {{List{Op: "my/fn", Args: []any{}, Pos: pos(1, 2)}, List{Op: "f", Args: []any{}, Pos: pos(2, 11)}}},
		`{:db/id -1}`:          {{Pairs{Entries: []Pair{{kw("db/id"), int64(-1), pos(0, 2)}}, Pos: pos(1, 1)}}},
		`[#:a{:b 1, :_/c #{2}}] [{}]`: {
			{Pairs{Entries: []Pair{{kw("a/b"), int64(1), pos(0, 6)}, {kw("c"), Set{int64(2)}, pos(0, 12)}}, Pos: pos(1, 2)}},
			{Pairs{Entries: []Pair{}, Pos: pos(1, 25)}}},
		`[[:f #db/id [:db.part/user] #db/id[:db.part/x -7] #db/id (:db.part/tx) #uri "http://x/#" #bytes "AQL/"]]`: {{List{Op: "f", Args: []any{
			Tempid{Part: "db.part/user"}, Tempid{Part: "db.part/x", Name: "-7"}, Tempid{Part: "db.part/tx"}, uri, []byte{1, 2, 255}}, Pos: pos(1, 2)}}},
		`[[:f nil true 1.5 -5 5N sym :k (1 [:a "b"]) {:x {:y (1)}} #inst "2020" #uuid "00000000-0000-0000-0000-000000000001"]]`: {{List{Op: "f", Args: []any{
			nil, true, 1.5, int64(-5), big.NewInt(5), datom.Symbol("sym"), kw("k"), []any{int64(1), []any{kw("a"), "b"}},
			Pairs{Entries: []Pair{{kw("x"), Pairs{Entries: []Pair{{kw("y"), []any{int64(1)}, pos(0, 50)}}, Pos: pos(0, 49)}, pos(0, 46)}}, Pos: pos(0, 45)},
			time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), uuid.UUID{15: 1}}, Pos: pos(1, 2)}}},
		`{[1] "x", 5 6}`: {{Pairs{Entries: []Pair{{[]any{int64(1)}, "x", pos(0, 2)}, {int64(5), int64(6), pos(0, 11)}}, Pos: pos(1, 1)}}},
	} {
		got, err := readAllEDN(in)
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		var data []Data
		for i, x := range got {
			if data = append(data, x.Data); x.N != i+1 {
				t.Errorf("%s: transaction %d is number %d", in, i+1, x.N)
			}
		}
		if !reflect.DeepEqual(data, want) {
			t.Errorf("%s is\n%#v, want\n%#v", in, data, want)
		}
	}
}

func TestReadEDNPositions(t *testing.T) {
	got, err := readAllEDN("; comment\n[{:a 1}\n [:f\n {:b\n 2}]] #_ {:x 1}\n  {:db/id 7}")
	if err != nil || len(got) != 2 {
		t.Fatal(got, err)
	}
	l := got[0].Data[1].(List)
	for _, c := range []struct{ got, want Pos }{
		{got[0].Pos, Pos{0, 2, 1}}, {got[0].Data[0].(Pairs).Pos, Pos{1, 2, 2}}, {l.Pos, Pos{2, 3, 2}}, {l.Args[0].(Pairs).Pos, Pos{0, 4, 2}}, {l.Args[0].(Pairs).Entries[0].Pos, Pos{0, 4, 3}},
		{got[1].Pos, Pos{0, 6, 3}}, {got[1].Data[0].(Pairs).Pos, Pos{1, 6, 3}},
	} {
		if c.got != c.want {
			t.Errorf("%+v, want %+v", c.got, c.want)
		}
	}
}

func TestReadEDNRefuses(t *testing.T) {
	for _, c := range []struct {
		in   string
		kind Kind
		pos  Pos
		want string
	}{
		{"1", Malformed, Pos{0, 1, 1}, "a transaction is a vector of forms, a list form or a map form, not 1"},
		{"\n #{}", Malformed, Pos{0, 2, 2}, "not a set"},
		{`"x"`, Malformed, Pos{0, 1, 1}, `not the string "x"`},
		{"#a []", Malformed, Pos{0, 1, 1}, "not a value tagged #a"},
		{`#inst "2020"`, Malformed, Pos{0, 1, 1}, "not an instant"},
		{"nil", Malformed, Pos{0, 1, 1}, "not nil"},
		{"[[]]", Malformed, Pos{1, 1, 2}, "a list form is empty"},
		{"[{} 5]", Malformed, Pos{2, 1, 1}, "form 2 is 5; a form is a list form or a map form"},
		{"[[:f] #{}]", Malformed, Pos{2, 1, 1}, "form 2 is a set"},
		{"[[1 2]]", Malformed, Pos{1, 1, 2}, "not with 1"},
		{"[[[:f]]]", Malformed, Pos{1, 1, 2}, "not with a vector"},
		{"[[my.ns/f 2]]", Malformed, Pos{1, 1, 2}, "my.ns/f is a function on a Java class path; register a Go function"},
		{"[my.ns/f 2]", Malformed, Pos{1, 1, 1}, "Java class path"},
		{`[[:f \a]]`, Malformed, Pos{1, 1, 2}, `\a is a character, and no attribute holds those`},
		{`[{:a [\a]}]`, Malformed, Pos{1, 1, 6}, "is a character"},
		{"[{:a 1} {:db/ident :my/f\n :db/fn #db/fn {:lang :clojure :params [] :code \"1\"}}]", Malformed, Pos{2, 2, 9}, "register it with the transactor as :my/f (Options.Functions)"},
		{"[[:db/add 1 :db/fn #db/fn {}]]", Malformed, Pos{1, 1, 20}, "as the keyword that calls it"},
		{"[[:f #foo 1]]", Malformed, Pos{1, 1, 6}, "the tag #foo is not known"},
		{"[[:f #uri :x]]", Malformed, Pos{1, 1, 6}, "a string should follow #uri"},
		{`[[:f #uri "http://a b"]]`, Malformed, Pos{1, 1, 6}, `"http://a b" is not a URI`},
		{"[[:f #bytes 1]]", Malformed, Pos{1, 1, 6}, "a string should follow #bytes"},
		{`[[:f #bytes "A"]]`, Malformed, Pos{1, 1, 6}, "not base64"}, {`[[:f #bytes "AR=="]]`, Malformed, Pos{1, 1, 6}, "not base64"},
		{"[[:f #db/id 1]]", Malformed, Pos{1, 1, 6}, "#db/id is followed by"}, {"[[:f #db/id []]]", Malformed, Pos{1, 1, 6}, "#db/id is followed by"}, {"[[:f #db/id [1]]]", Malformed, Pos{1, 1, 6}, "#db/id is followed by"},
		{"[[:f #db/id [:p 1]]]", Malformed, Pos{1, 1, 6}, "#db/id is followed by"}, {"[[:f #db/id [:p -1 2]]]", Malformed, Pos{1, 1, 6}, "#db/id is followed by"}, {`[[:f #db/id [:p "x"]]]`, Malformed, Pos{1, 1, 6}, "#db/id is followed by"},
		{"[[:f 1]\n[:g", Malformed, Pos{0, 2, 4}, "the text ends within the vector"},
		{"[{:a 1 :a 2}]", Malformed, Pos{0, 1, 8}, "the key :a stands twice"},
		{"[[:f 010]]", Malformed, Pos{0, 1, 6}, "begins with a zero"},
		{strings.Repeat("[", 1<<20), LimitExceeded, Pos{0, 1, 257}, "more than 256 deep"},
		{"[" + strings.Repeat("7", 1<<20), LimitExceeded, Pos{0, 1, 2}, "longer than"},
	} {
		_, err := readAllEDN(c.in)
		var e *Error
		if !errors.As(err, &e) || e.Kind != c.kind || !strings.Contains(e.Msg, c.want) || e.Pos != c.pos {
			t.Errorf("%.60q: %v at %+v; want %s at %+v", c.in, err, e, c.want, c.pos)
		}
	}
	// What was read before an error stands; the error ends the sequence and knows its transaction.
	var ns []int
	var last error
	for x, err := range ReadEDN(strings.NewReader("[] {:a 1} [5] []"), ReadLimits{}) {
		ns, last = append(ns, x.N), err
	}
	if !reflect.DeepEqual(ns, []int{1, 2, 3}) || !errors.Is(last, ErrMalformed) {
		t.Errorf("%v, %v", ns, last)
	}
	boom := errors.New("boom")
	for _, err := range ReadEDN(io.MultiReader(strings.NewReader("[] ["), iotest.ErrReader(boom)), ReadLimits{}) {
		last = err
	}
	if last != boom {
		t.Error(last)
	}
	for lim, in := range map[ReadLimits]string{{Depth: 2}: "[[[:f]]]", {Elements: 3}: "[[:f 1 2]]", {Bytes: 5}: "[[:f]]"} {
		for _, err := range ReadEDN(strings.NewReader(in), lim) {
			if !errors.Is(err, ErrLimitExceeded) {
				t.Errorf("%+v: %v", lim, err)
			}
		}
	}
	for range ReadEDN(strings.NewReader("[] [] ["), ReadLimits{}) {
		break // the rest is left alone
	}
}

// The keywords and symbols that edn reads are those that datom takes: what is read can be stored, what is stored can be printed.
func TestNamesOfEDNAndDatomAreTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringOfN(rapid.OneOf(rapid.SampledFrom([]rune("ab1/:.+-#' \t\"\\;()[]{},@^`~é\u00a0\u2003\u2028\ufeff\x7f\x85")), rapid.Rune()), 0, 5, -1).Draw(t, "s")
		if e, d := edn.Keyword(s).Valid(), datom.Keyword(s).Valid(); e != d {
			t.Fatalf("keyword %q: edn %t, datom %t", s, e, d)
		}
		if e, d := edn.Symbol(s).Valid(), datom.Symbol(s).Valid(); e != d {
			t.Fatalf("symbol %q: edn %t, datom %t", s, e, d)
		}
	})
}

// A schema and data file as it was written for Datomic over the years.
const datomicFile = `;; -*- mode: clojure -*-
[
 ;; the old way to install an attribute …
 {:db/id #db/id[:db.part/db]
  :db/ident :community/name
  :db/valueType :db.type/string
  :db/cardinality :db.cardinality/one
  :db/unique :db.unique/identity
  :db/fulltext true
  :db/doc "A community's name"
  :db.install/_attribute :db.part/db}
 {:db/id #db/id[:db.part/db]
  :db/ident :community/tag
  :db/valueType :db.type/keyword
  :db/cardinality :db.cardinality/many
  :db/fulltext true
  :db.install/_attribute :db.part/db}
 ;; … the list form of it …
 [:db/add #db/id[:db.part/db -1] :db/ident :community/url]
 [:db/add #db/id[:db.part/db -1] :db/valueType :db.type/uri]
 [:db/add #db/id[:db.part/db -1] :db/cardinality :db.cardinality/one]
 [:db/add :db.part/db :db.install/attribute #db/id[:db.part/db -1]]
 ;; … and the new way
 #:db{:ident :community/neighbours, :valueType :db.type/ref, :cardinality :db.cardinality/many}
 #_ {:db/ident :no/such}
 {:db/ident :my.part :db.install/_partition :db.part/db}
]
[{:db/id :community/url, :db/doc "Its site", :db.alter/_attribute :db.part/db}]
[{:db/id #db/id[:my.part -1], :community/name "15th Ave" :community/tag [:a :b] :community/url #uri "http://15th"
  :community/neighbours [#db/id[:my.part -2] -3]}
 {:db/id #db/id[:my.part -2], :community/name "Ballard"}
 {:db/id -3, :community/name "Capitol Hill", :community/neighbours [[:community/name "nobody"]]}]
`

func TestFilesForDatomicLoadAsTheyAre(t *testing.T) {
	in := strings.Replace(datomicFile, `:community/neighbours [[:community/name "nobody"]]`, `:community/tag #{:c}`, 1) +
		`{:db/id #db/id[:db.part/tx] :db/doc "the last"}`
	w := newWorld()
	var notices []string
	txs := 0
	for x, err := range ReadEDN(strings.NewReader(in), ReadLimits{}) {
		if err != nil {
			t.Fatal(err)
		}
		p, err := w.transact(x.Data)
		if err != nil {
			t.Fatalf("transaction %d: %v", x.N, err)
		}
		notices = append(notices, p.Notices...)
		for _, d := range p.Tx.Datoms {
			if d.A == db.AttrInstallAttribute || d.A == db.AttrAlterAttribute {
				t.Errorf("transaction %d stores %v", x.N, d)
			}
		}
		txs++
	}
	if txs != 4 || len(notices) != 1 {
		t.Errorf("%d transactions, notices %q", txs, notices)
	}
	view := w.st.View()
	nameAttr, _ := w.st.Schema().Entid("community/name")
	var facts []string
	for _, name := range []string{"15th Ave", "Ballard", "Capitol Hill"} {
		e, ok := w.st.Lookup(nameAttr, datom.String(name))
		if !ok {
			t.Fatalf("%s is not there", name)
		}
		part, _ := view.Ident(datom.ID(e.Part()))
		for d := range w.st.Facts(e) {
			a, _ := view.Ident(d.A)
			v := d.V.String()
			if d.V.Kind() == datom.KindRef {
				n, _, _ := w.st.One(d.V.Ref(), nameAttr)
				v = n.String()
			}
			facts = append(facts, fmt.Sprint(part, " ", a, " ", v))
		}
	}
	want := []string{
		`:my.part :community/name "15th Ave"`, ":my.part :community/tag :a", ":my.part :community/tag :b", `:my.part :community/url #uri "http://15th"`,
		`:my.part :community/neighbours "Ballard"`, `:my.part :community/neighbours "Capitol Hill"`, `:my.part :community/name "Ballard"`,
		`:db.part/user :community/name "Capitol Hill"`, ":db.part/user :community/tag :c",
	}
	count := map[string]int{}
	for _, f := range facts {
		count[f]++
	}
	for _, f := range want {
		if count[f]--; count[f] != 0 {
			t.Errorf("%s stands there %d times too often", f, count[f])
		}
	}
	if len(facts) != len(want) {
		t.Errorf("facts:\n%s", strings.Join(facts, "\n"))
	}
}

// A refusal says where its form stood in the file.
func TestRefusalsKnowTheirLine(t *testing.T) {
	w := newWorld()
	var last error
	for x, err := range ReadEDN(strings.NewReader(datomicFile), ReadLimits{}) {
		if err != nil {
			t.Fatal(err)
		}
		_, last = w.transact(x.Data)
	}
	var e *Error
	if !errors.As(last, &e) || !errors.Is(last, ErrNotAnEntity) || e.Pos.Form != 3 || e.Pos.Line != 32 {
		t.Errorf("%v at %+v", last, e)
	}
}

func FuzzReadEDN(f *testing.F) {
	for form := range strings.SplitSeq(datomicFile, "\n ") { // small seeds: go test minimizes what it finds for a long time
		f.Add([]byte("[" + strings.Trim(form, "[]\n ") + "]"))
	}
	f.Add([]byte(`[[:db/cas [:a/b #uuid "00000000-0000-0000-0000-000000000001"] :c nil [1 nil]] #:a{:_b #{#bytes "AQI="}}] (:f -1 5N 1.5M)`))
	f.Add([]byte(`[{:a/b 1 :db/id #db/id [:db.part/user -1]}] {:db/ident :x :db/fn #db/fn {}}`))
	w := newWorld()
	f.Fuzz(func(t *testing.T, in []byte) {
		for x, err := range ReadEDN(bytes.NewReader(in), ReadLimits{Depth: 30, Bytes: 4096, Elements: 300}) {
			if err != nil {
				checkReadError(t, err)
				return
			}
			w.judge(t, x.Data)
		}
	})
}

// checkReadError: every refusal of a reader of memory is an *Error that says where.
func checkReadError(t *testing.T, err error) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Kind != Malformed && e.Kind != LimitExceeded || e.Pos.Line < 1 || e.Pos.Column < 1 || e.Msg == "" {
		t.Fatalf("%#v", err)
	}
}

// judge: whatever is read is refused with an *Error or found good, never a panic.
func (w *world) judge(t *testing.T, d Data) {
	t.Helper()
	r, err := Compile(w.st.Schema(), d, Limits{})
	if err == nil {
		_, err = w.prep.Prepare(w.st, r, &Env{Now: testNow})
	}
	if e := (*Error)(nil); err != nil && !errors.As(err, &e) {
		t.Fatalf("%#v", err)
	}
}

func BenchmarkReadEDN(b *testing.B) {
	var doc strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&doc, `[#:release{:script :script/Latn, :name "Lord of Light / Born to Go", :country :country/GB, :gid #uuid "fd9726f9-ad1d-403b-a01d-%012x", :labels #:label{:gid #uuid "97ff8689-725a-4340-bd13-b65ab23eed8b"}, :status "Official", :artistCredit "Hawkwind", :year %d}]`+"\n", i, 1960+i%14)
	}
	in := doc.String()
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		if got, err := readAllEDN(in); err != nil || len(got) != 2000 {
			b.Fatal(err)
		}
	}
}

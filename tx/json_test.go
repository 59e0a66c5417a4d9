package tx

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/steledb/stele/datom"
)

func readAllJSON(in string) (out []Input, err error) {
	for x, err := range ReadJSON(strings.NewReader(in), ReadLimits{}) {
		if err != nil {
			return out, err
		}
		out = append(out, x)
	}
	return out, nil
}

func TestReadJSONForms(t *testing.T) {
	type kw = datom.Keyword
	for in, want := range map[string][]Data{
		"":                            nil,
		" \n\t\r":                     nil,
		"[]":                          {{}},
		`[["db/add", "x", "a/b", 1]]`: {{List{Op: OpAdd, Args: []any{jsonString("x"), jsonString("a/b"), jsonNumber("1")}, Pos: pos(1, 2)}}},
		`[":db/add","x",":a/b",1]`:    {{List{Op: OpAdd, Args: []any{jsonString("x"), jsonString(":a/b"), jsonNumber("1")}, Pos: pos(1, 1)}}},
		`{"db/id":-1,":a/b":null}`:    {{Pairs{Entries: []Pair{{kw("db/id"), jsonNumber("-1"), pos(0, 2)}, {kw("a/b"), nil, pos(0, 13)}}, Pos: pos(1, 1)}}},
		`[{}][["f"] ,[ "g" ] ]`: {
			{Pairs{Pos: pos(1, 2)}}, {List{Op: "f", Args: []any{}, Pos: pos(1, 6)}, List{Op: "g", Args: []any{}, Pos: pos(2, 13)}}},
		`[["f", true, false, [null, [1.5e3]], {"a/_b": {"not a keyword": ""}}]]`: {{List{Op: "f", Args: []any{true, false, []any{nil, []any{jsonNumber("1.5e3")}},
			Pairs{Entries: []Pair{{kw("a/_b"), Pairs{Entries: []Pair{{"not a keyword", jsonString(""), pos(0, 48)}}, Pos: pos(0, 47)}, pos(0, 39)}}, Pos: pos(0, 38)}}, Pos: pos(1, 2)}}},
		`["f", "\"\\\/\b\f\n\r\t\u00e9\uD83D\ude00é😀"]`: {{List{Op: "f", Args: []any{jsonString("\"\\/\b\f\n\r\té😀é😀")}, Pos: pos(1, 1)}}},
		"\ufeff[]": {{}},
	} {
		for name, wrap := range map[string]func(io.Reader) io.Reader{"at once": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader} {
			var data []Data
			for x, err := range ReadJSON(wrap(strings.NewReader(in)), ReadLimits{}) {
				if err != nil {
					t.Errorf("%s, %s: %v", in, name, err)
					break
				}
				data = append(data, x.Data)
			}
			if !reflect.DeepEqual(data, want) {
				t.Errorf("%s, %s, is\n%#v, want\n%#v", in, name, data, want)
			}
		}
	}
}

func TestReadJSONPositions(t *testing.T) {
	got, err := readAllJSON("\n [{\"a\": 1},\n  [\"f\",\r\n\t{\"é\": \"x\",\n\"b\": [\n{}]}]]\n{\"db/id\": 7}")
	if err != nil || len(got) != 2 {
		t.Fatal(got, err)
	}
	l := got[0].Data[1].(List)
	m := l.Args[0].(Pairs)
	for _, c := range []struct{ got, want Pos }{
		{got[0].Pos, Pos{0, 2, 2}}, {got[0].Data[0].(Pairs).Pos, Pos{1, 2, 3}}, {l.Pos, Pos{2, 3, 3}}, {m.Pos, Pos{0, 4, 2}}, {m.Entries[0].Pos, Pos{0, 4, 3}}, {m.Entries[1].Pos, Pos{0, 5, 1}},
		{m.Entries[1].Value.([]any)[0].(Pairs).Pos, Pos{0, 6, 1}}, {got[1].Pos, Pos{0, 7, 1}}, {got[1].Data[0].(Pairs).Entries[0].Pos, Pos{0, 7, 2}},
	} {
		if c.got != c.want {
			t.Errorf("%+v, want %+v", c.got, c.want)
		}
	}
}

func TestReadJSONRefuses(t *testing.T) {
	many := func(n int, last string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"k%d": 1, `, i)
		}
		return "{" + b.String() + last + "}"
	}
	for _, c := range []struct {
		in   string
		kind Kind
		pos  Pos
		want string
	}{
		{"1", Malformed, Pos{0, 1, 1}, "begins with [ or {"}, {"\n \"x\"", Malformed, Pos{0, 2, 2}, "begins with [ or {"}, {"[] ,[]", Malformed, Pos{0, 1, 4}, "begins with"}, {"]", Malformed, Pos{0, 1, 1}, "begins with"}, {"\xff", Malformed, Pos{0, 1, 1}, "begins with"}, {"/* c */ []", Malformed, Pos{0, 1, 1}, "begins with"},
		{"[[]]", Malformed, Pos{1, 1, 2}, "a list form is empty"}, {"[{},5]", Malformed, Pos{2, 1, 5}, "form 2 is neither"}, {`[{},"x"]`, Malformed, Pos{2, 1, 5}, "form 2 is neither"}, {"[[1]]", Malformed, Pos{1, 1, 2}, "begins with a string that names"}, {`[["a b"]]`, Malformed, Pos{1, 1, 2}, "names no operation"}, {`[""]`, Malformed, Pos{1, 1, 1}, "names no operation"},
		{"[[", Malformed, Pos{0, 1, 1}, "the text ends within"}, {`["f", "x`, Malformed, Pos{0, 1, 1}, "the text ends within"}, {"[}", Malformed, Pos{1, 1, 2}, "form 1 is neither"}, {`["f"}`, Malformed, Pos{1, 1, 5}, "a comma or ']' is missing in the array that begins at line 1, column 1"}, {`{"a":1]`, Malformed, Pos{1, 1, 7}, "a comma or '}' is missing"},
		{`["f",]`, Malformed, Pos{1, 1, 6}, "stands behind a comma"}, {`["f",,1]`, Malformed, Pos{1, 1, 6}, "a value should stand here"}, {`["f" 1]`, Malformed, Pos{1, 1, 6}, "a comma or"}, {`{,}`, Malformed, Pos{1, 1, 2}, "a key"}, {`{"a":1,}`, Malformed, Pos{1, 1, 8}, "stands behind a comma"}, {`{"a"}`, Malformed, Pos{1, 1, 5}, "a colon is missing behind the key :a"}, {`{"a":}`, Malformed, Pos{1, 1, 6}, "a value should stand here"}, {`{a:1}`, Malformed, Pos{1, 1, 2}, "a key"}, {`{1:1}`, Malformed, Pos{1, 1, 2}, "a key"},
		{`{"a":1,"b":2,"a":3}`, Malformed, Pos{1, 1, 14}, "the key :a stands twice"}, {`{"a/b":1,":a/b":2}`, Malformed, Pos{1, 1, 10}, "the key :a/b stands twice"}, {`{"a":1,"\u0061":2}`, Malformed, Pos{1, 1, 8}, "stands twice"}, {`{"a b":1,"a b":2}`, Malformed, Pos{1, 1, 10}, `the key "a b" stands twice`},
		{many(20, `"k3": 1`), Malformed, Pos{1, 1, 192}, "the key :k3 stands twice"}, {many(20, `"k15": 1`), Malformed, Pos{1, 1, 192}, "the key :k15 stands twice"}, {many(7, `"k3": 1`), Malformed, Pos{1, 1, 65}, "the key :k3"}, {many(8, `"k7": 1`), Malformed, Pos{1, 1, 74}, "the key :k7"},
		{`["f",01]`, Malformed, Pos{1, 1, 6}, "not a number"}, {`["f",-]`, Malformed, Pos{1, 1, 6}, "not a number"}, {`["f",1.]`, Malformed, Pos{1, 1, 6}, "not a number"}, {`["f",1e]`, Malformed, Pos{1, 1, 6}, "not a number"}, {`["f",+1]`, Malformed, Pos{1, 1, 6}, "a value should"}, {`["f",.5]`, Malformed, Pos{1, 1, 6}, "a value should"}, {`["f",NaN]`, Malformed, Pos{1, 1, 6}, "a value should"}, {`["f",1x]`, Malformed, Pos{1, 1, 7}, "a comma or"}, {`["f",truth]`, Malformed, Pos{1, 1, 6}, "a value should"}, {`["f",nullx]`, Malformed, Pos{1, 1, 10}, "a comma or"},
		{"[\"f\",\"\xff\"]", Malformed, Pos{1, 1, 6}, "not valid UTF-8"}, {"[\"f\",\"\\n\xff\"]", Malformed, Pos{1, 1, 6}, "not valid UTF-8"}, {"{\"\xff\":1}", Malformed, Pos{1, 1, 2}, "not valid UTF-8"}, {"[\"f\",\"\xed\xa0\x80\"]", Malformed, Pos{1, 1, 6}, "not valid UTF-8"},
		{`["f","\ud83d"]`, Malformed, Pos{1, 1, 7}, "half a surrogate pair"}, {`["f","\ude00\ud83d"]`, Malformed, Pos{1, 1, 7}, "half a surrogate pair"}, {`["f","\ud83dx"]`, Malformed, Pos{1, 1, 7}, "half a surrogate"}, {`["f","\ud83d\u0041"]`, Malformed, Pos{1, 1, 7}, "half a surrogate"},
		{`["f","\u12"]`, Malformed, Pos{1, 1, 7}, "four hexadecimal digits"}, {`["f","\x"]`, Malformed, Pos{1, 1, 7}, "not an escape"}, {"[\"f\",\"a\nb\"]", Malformed, Pos{1, 1, 8}, "control character U+000A"}, {"[\"f\",\"\x00\"]", Malformed, Pos{1, 1, 7}, "control character U+0000"},
		{strings.Repeat("[", 1<<20), LimitExceeded, Pos{0, 1, 1}, "more than 256 deep"}, {strings.Repeat(`{"a":`, 1<<18), LimitExceeded, Pos{0, 1, 1}, "more than 256 deep"}, {`["f",` + strings.Repeat("7", 1<<20) + "]", LimitExceeded, Pos{1, 1, 6}, "the number is longer"},
	} {
		_, err := readAllJSON(c.in)
		var e *Error
		if !errors.As(err, &e) || e.Kind != c.kind || !strings.Contains(e.Msg, c.want) || e.Pos != c.pos {
			t.Errorf("%.60q: %v at %+v; want %s at %+v", c.in, err, e, c.want, c.pos)
		}
		if strings.Contains(c.want, "the text ends") != errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%.60q: %v is an unexpected end: %t", c.in, err, errors.Is(err, io.ErrUnexpectedEOF))
		}
	}
	var ns []int
	var last error
	for x, err := range ReadJSON(strings.NewReader(`[] {"a":1} [5] []`), ReadLimits{}) {
		ns, last = append(ns, x.N), err
	}
	if !reflect.DeepEqual(ns, []int{1, 2, 3}) || !errors.Is(last, ErrMalformed) {
		t.Errorf("%v, %v", ns, last)
	}
	boom := errors.New("boom")
	for _, in := range []string{"", "[] [", "[]\n"} {
		for _, err := range ReadJSON(io.MultiReader(strings.NewReader(in), iotest.ErrReader(boom)), ReadLimits{}) {
			last = err
		}
		if last != boom {
			t.Errorf("%q: %v", in, last)
		}
	}
	for lim, in := range map[ReadLimits]string{{Depth: 2}: `[["f",[]]]`, {Elements: 2}: `[["f",1,2]]`, {Bytes: 6}: `[["f"]]`} {
		n := 0
		for _, err := range ReadJSON(strings.NewReader(in), lim) {
			if n++; !errors.Is(err, ErrLimitExceeded) {
				t.Errorf("%+v: %v", lim, err)
			}
		}
		if n != 1 {
			t.Errorf("%+v: %d results", lim, n)
		}
	}
}

// The table in ReadJSON's comment.
func TestJSONValues(t *testing.T) {
	type kw = datom.Keyword
	digits := strings.Repeat("123456789", 20)
	wide, _ := new(big.Int).SetString(digits, 10)
	const id = "00112233-4455-6677-8899-aabbccddeeff"
	at := time.Date(2019, 3, 4, 5, 6, 7, 89e6, time.UTC)
	dec := func(s string) datom.Value {
		v, err := jsonNumber(s).As(datom.KindBigDec)
		if err != nil {
			t.Fatal(s, err)
		}
		d, err := datom.Of(v)
		if err != nil {
			t.Fatal(s, err)
		}
		return d
	}
	refused := errors.New("refused")
	for _, c := range []struct {
		in   string // JSON
		k    datom.Kind
		want any
	}{
		{`1`, datom.KindLong, int64(1)}, {`-9223372036854775808`, datom.KindLong, int64(math.MinInt64)}, {`"9223372036854775807"`, datom.KindLong, int64(math.MaxInt64)}, {`-0`, datom.KindLong, int64(0)},
		{`9223372036854775808`, datom.KindLong, refused}, {`1.0`, datom.KindLong, refused}, {`1e3`, datom.KindLong, refused}, {`"x"`, datom.KindLong, refused}, {`""`, datom.KindLong, refused}, {`"1 "`, datom.KindLong, refused}, {`"+1"`, datom.KindLong, refused}, {`"01"`, datom.KindLong, refused}, {`"0x1"`, datom.KindLong, refused},
		{digits, datom.KindBigInt, wide}, {`"` + digits + `"`, datom.KindBigInt, wide}, {`5`, datom.KindBigInt, big.NewInt(5)}, {`1.5`, datom.KindBigInt, refused}, {`1e2`, datom.KindBigInt, refused}, {`"a"`, datom.KindBigInt, refused},
		{`1.50`, datom.KindBigDec, dec("1.5")}, {`"1.5"`, datom.KindBigDec, dec("1.5")}, {`100`, datom.KindBigDec, dec("1e2")}, {`0.1000000000000000055511151231257827`, datom.KindBigDec, dec("0.1000000000000000055511151231257827")}, {`1e99999999999`, datom.KindBigDec, refused}, {`"NaN"`, datom.KindBigDec, refused},
		{`1.5`, datom.KindDouble, 1.5}, {`1`, datom.KindDouble, 1.0}, {`0.1`, datom.KindDouble, 0.1}, {`1e23`, datom.KindDouble, 1e23}, {`9007199254740992`, datom.KindDouble, float64(1 << 53)}, {`9007199254740993`, datom.KindDouble, refused}, {`1e400`, datom.KindDouble, refused}, {`"NaN"`, datom.KindDouble, math.NaN()}, {`"Infinity"`, datom.KindDouble, math.Inf(1)}, {`"-Infinity"`, datom.KindDouble, math.Inf(-1)}, {`"1.5"`, datom.KindDouble, refused}, {digits, datom.KindDouble, refused},
		{`0.1`, datom.KindFloat, float32(0.1)}, {`16777217`, datom.KindFloat, refused}, {`16777216`, datom.KindFloat, float32(1 << 24)}, {`1e39`, datom.KindFloat, refused}, {`"NaN"`, datom.KindFloat, float32(math.NaN())}, {`"-Infinity"`, datom.KindFloat, float32(math.Inf(-1))},
		{`"x"`, datom.KindString, "x"}, {`":x"`, datom.KindString, ":x"}, {`1`, datom.KindString, refused},
		{`"a/b"`, datom.KindKeyword, kw("a/b")}, {`":a/b"`, datom.KindKeyword, kw("a/b")}, {`"a b"`, datom.KindKeyword, refused}, {`""`, datom.KindKeyword, refused}, {`1`, datom.KindKeyword, refused},
		{`"a/b"`, datom.KindSymbol, datom.Symbol("a/b")}, {`":a"`, datom.KindSymbol, refused}, {`"1"`, datom.KindSymbol, refused},
		{`"2019-03-04T05:06:07.089Z"`, datom.KindInstant, at}, {`"2019-03-04T06:06:07.0890+01:00"`, datom.KindInstant, at}, {`"2019"`, datom.KindInstant, time.Date(2019, 1, 1, 0, 0, 0, 0, time.UTC)}, {`"2019-03-04T05:06:07.0891Z"`, datom.KindInstant, refused}, {`1551675967089`, datom.KindInstant, refused}, {`"today"`, datom.KindInstant, refused},
		{`"` + id + `"`, datom.KindUUID, uuid.MustParse(id)}, {`"{` + id + `}"`, datom.KindUUID, refused}, {`"` + strings.ReplaceAll(id, "-", "") + `"`, datom.KindUUID, refused}, {`"x"`, datom.KindUUID, refused},
		{`"http://x/?q"`, datom.KindURI, &url.URL{Scheme: "http", Host: "x", Path: "/", RawQuery: "q"}}, {`"http://a b"`, datom.KindURI, refused},
		{`"AQL/"`, datom.KindBytes, []byte{1, 2, 255}}, {`"AQ"`, datom.KindBytes, refused}, {`"AR=="`, datom.KindBytes, refused}, {`"AQ\n=="`, datom.KindBytes, refused}, {`""`, datom.KindBytes, []byte{}}, {`1`, datom.KindBytes, refused},
		{`"true"`, datom.KindBoolean, refused}, {`1`, datom.KindBoolean, refused}, {`"x"`, datom.KindTuple, refused}, {`1`, datom.KindUUID, refused},
		{`17`, datom.KindRef, int64(17)}, {`-1`, datom.KindRef, int64(-1)}, {`1.5`, datom.KindRef, refused}, {`":a/b"`, datom.KindRef, kw("a/b")}, {`"a/b"`, datom.KindRef, "a/b"}, {`"datomic.tx"`, datom.KindRef, TxEntity}, {`":a b"`, datom.KindRef, refused}, {`":"`, datom.KindRef, ":"},
		{`"x"`, datom.KindNil, "x"}, {`5`, datom.KindNil, int64(5)}, {digits, datom.KindNil, wide}, {`1.5`, datom.KindNil, 1.5}, {`1e400`, datom.KindNil, refused},
	} {
		got, err := readAllJSON(`["f", ` + c.in + `]`)
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		v, err := got[0].Data[0].(List).Args[0].(Untyped).As(c.k)
		if c.want == error(refused) {
			if err == nil {
				t.Errorf("%s as a %s is %#v", c.in, c.k, v)
			} else if !utf8.ValidString(err.Error()) || len(err.Error()) > 200 {
				t.Errorf("%s as a %s: %q", c.in, c.k, err)
			}
			continue
		}
		if c.k != datom.KindNil && c.k != datom.KindRef {
			// The Go type is the kind's, and the values are one.
			a, err1 := datom.Of(v)
			b, err2 := datom.Of(c.want)
			if err != nil || err1 != nil || err2 != nil || a != b || a.Kind() != c.k {
				t.Errorf("%s as a %s is %#v, %v; want %#v", c.in, c.k, v, errors.Join(err, err1, err2), c.want)
			}
		} else if err != nil || !reflect.DeepEqual(v, c.want) {
			t.Errorf("%s as a %s is %#v, %v; want %#v", c.in, c.k, v, err, c.want)
		}
	}
}

// JSON states every type, and the same facts as EDN does.
func TestJSONAndEDNSayTheSame(t *testing.T) {
	schema := `[`
	for _, k := range []string{"boolean", "long", "bigint", "float", "double", "bigdec", "instant", "keyword", "symbol", "string", "uuid", "uri", "bytes", "ref"} {
		schema += fmt.Sprintf(`{:db/ident :v/%s :db/valueType :db.type/%[1]s :db/cardinality :db.cardinality/one} {:db/ident :v/%[1]ss :db/valueType :db.type/%[1]s :db/cardinality :db.cardinality/many}`, k)
	}
	schema += `{:db/ident :v/id :db/valueType :db.type/string :db/cardinality :db.cardinality/one :db/unique :db.unique/identity}
		{:db/ident :v/tuple :db/valueType :db.type/tuple :db/tupleTypes [:db.type/long :db.type/keyword :db.type/ref] :db/cardinality :db.cardinality/one}] [{:db/id "b" :v/id "b"}]`
	for name, c := range map[string]struct{ edn, json string }{
		"every type": {
			`[{:db/id "x" :v/id "x" :v/boolean false :v/long -5 :v/bigint 7N :v/float 0.1 :v/double 2.0 :v/bigdec 1.50M :v/instant #inst "2020-01-02T03:04:05.678Z" :v/keyword :a/b :v/symbol s/t :v/string ":s" :v/uuid #uuid "00112233-4455-6677-8899-aabbccddeeff" :v/uri #uri "http://x" :v/bytes #bytes "AQI=" :v/ref :v/id}]`,
			`[{"db/id": "x", "v/id": "x", "v/boolean": false, "v/long": -5, "v/bigint": 7, "v/float": 0.1, "v/double": 2, "v/bigdec": 1.50, "v/instant": "2020-01-02T03:04:05.678Z", "v/keyword": "a/b", "v/symbol": "s/t", "v/string": ":s", "v/uuid": "00112233-4455-6677-8899-aabbccddeeff", "v/uri": "http://x", "v/bytes": "AQI=", "v/ref": ":v/id"}]`},
		"many": {
			`[{:v/id "x" :v/longs [1 2] :v/strings ["a" "b"] :v/keywords [:v/id :b] :v/refs [:v/long "y" "datomic.tx"]} {:db/id "y" :v/long 1} [:db/add "datomic.tx" :db/doc "d"]]`,
			`[{"v/id": "x", "v/longs": [1, 2], "v/strings": ["a", "b"], "v/keywords": ["v/id", "b"], "v/refs": [":v/long", "y", "datomic.tx"]}, {"db/id": "y", "v/long": 1}, ["db/add", "datomic.tx", "db/doc", "d"]]`},
		"lookup refs": {
			`[[:db/add [:v/id "b"] :v/ref [:v/id "b"]] {:v/id "x" :v/refs [:v/id "b"]} {:db/id -1 :v/id "z" :v/_refs [[:v/id "b"]]}]`,
			`[["db/add", ["v/id", "b"], "v/ref", ["v/id", "b"]], {"v/id": "x", "v/refs": [":v/id", "b"]}, {"db/id": -1, "v/id": "z", "v/_refs": [[":v/id", "b"]]}]`},
		"tuples and nested maps": {
			`[{:v/id "x" :v/tuple [1 nil [:v/id "b"]] :v/ref {:v/id "n" :v/refs [{:db/id "m" :v/long 3}]}}]`,
			`[{"v/id": "x", "v/tuple": [1, null, ["v/id", "b"]], "v/ref": {"v/id": "n", "v/refs": [{"db/id": "m", "v/long": 3}]}}]`},
		"cas and retract": {
			`[[:db/cas [:v/id "b"] :v/long nil 4] [:db/retract [:v/id "b"] :v/id "b"] [:db/retract [:v/id "b"] :v/strings]]`,
			`[["db/cas", ["v/id", "b"], "v/long", null, 4], ["db/retract", ["v/id", "b"], "v/id", "b"], [":db/retract", ["v/id", "b"], "v/strings"]]`},
	} {
		deltas := map[string]int{}
		for _, format := range []string{"edn", "json"} {
			w := newWorld()
			in, err := readAllEDN(schema)
			if err != nil {
				t.Fatal(err)
			}
			text := c.edn
			last, err := readAllEDN(text)
			if format == "json" {
				text = c.json
				last, err = readAllJSON(text)
			}
			if err != nil {
				t.Fatalf("%s, %s: %v", name, format, err)
			}
			var delta []string
			for _, x := range append(in, last...) {
				p, err := w.transact(x.Data)
				if err != nil {
					t.Fatalf("%s, %s: %v", name, format, err)
				}
				delta = delta[:0]
				for _, d := range p.Tx.Datoms {
					delta = append(delta, d.String())
				}
			}
			deltas[strings.Join(delta, "\n")]++
		}
		if len(deltas) != 1 {
			t.Errorf("%s: the deltas differ: %v", name, deltas)
		}
	}
}

// A value that the attribute cannot take is refused with the JSON's own text and a reason.
func TestJSONRefusalsSayWhy(t *testing.T) {
	w := newWorld()
	in, err := readAllJSON(`[{"db/ident": ":v/double", "db/valueType": ":db.type/double", "db/cardinality": ":db.cardinality/one"}]
		[["db/add", "x", "v/double", 9007199254740993]]`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.transact(in[0].Data); err != nil {
		t.Fatal(err)
	}
	_, err = w.transact(in[1].Data)
	var e *Error
	if !errors.As(err, &e) || !errors.Is(err, ErrWrongType) || e.Value != "9007199254740993" || e.Pos != (Pos{1, 2, 4}) || !strings.Contains(e.Msg, "an integer that a double cannot hold") {
		t.Errorf("%#v", err)
	}
}

func FuzzReadJSON(f *testing.F) {
	f.Add([]byte(`[["db/add", "x", "db/doc", "\u00e9\ud83d\ude00"], {":db/id": -1, "db/ident": ":a/b", "a/_b": [1.5e3, null]}] {"a": true}`))
	f.Add([]byte(`["f", 12345678901234567890, {"a": {"b": []}}]`))
	f.Add([]byte(`{"a":1,"a":2}`))
	w := newWorld()
	f.Fuzz(func(t *testing.T, in []byte) {
		var last error
		for x, err := range ReadJSON(bytes.NewReader(in), ReadLimits{Depth: 30, Bytes: 4096, Elements: 300}) {
			if last = err; err != nil {
				checkReadError(t, err)
				break
			}
			w.judge(t, x.Data)
		}
		// What was read to its end is JSON to encoding/json too.
		if dec := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(in, []byte("\ufeff")))); last == nil {
			dec.UseNumber()
			for {
				var v any
				if err := dec.Decode(&v); err == io.EOF {
					break
				} else if err != nil {
					t.Fatalf("%q: encoding/json says %v", in, err)
				}
			}
		}
		// And JSON is refused only for what ReadJSON's comment says, or for not being a transaction.
		var e *Error
		if json.Valid(in) && utf8.Valid(in) && errors.As(last, &e) && e.Kind == Malformed {
			for _, why := range []string{"stands twice", "surrogate", "operation", "form", "begins with"} {
				if strings.Contains(e.Msg, why) {
					return
				}
			}
			t.Fatalf("%q: %v", in, last)
		}
	})
}

func BenchmarkReadJSON(b *testing.B) {
	var doc strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&doc, `[{"release/script": ":script/Latn", "release/name": "Lord of Light / Born to Go", "release/country": ":country/GB", "release/gid": "fd9726f9-ad1d-403b-a01d-%012x", "release/labels": {"label/gid": "97ff8689-725a-4340-bd13-b65ab23eed8b"}, "release/status": "Official", "release/year": %d}]`+"\n", i, 1960+i%14)
	}
	in := doc.String()
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		if got, err := readAllJSON(in); err != nil || len(got) != 2000 {
			b.Fatal(err)
		}
	}
}

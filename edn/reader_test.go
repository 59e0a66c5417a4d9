package edn

import (
	"bytes"
	"errors"
	"io"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/cockroachdb/apd/v3"
	"github.com/google/uuid"
)

// Short ways to write values; positions do not count in Equal.
func vec(items ...any) Vector  { return Vector{Items: items} }
func list(items ...any) List   { return List{Items: items} }
func set(items ...any) Set     { return Set{Items: items} }
func k(s string) Keyword       { return Keyword(s) }
func n(i int64) any            { return i }
func tag(t Symbol, v any) any  { return Tagged{Tag: t, Value: v} }
func inst(s string) any        { t, _ := time.Parse(time.RFC3339Nano, s); return t }
func dec(c int64, e int32) any { return apd.New(c, e) }
func mapOf(kv ...any) Map {
	var m Map
	for i := 0; i < len(kv); i += 2 {
		m.Entries = append(m.Entries, Entry{Key: kv[i], Value: kv[i+1]})
	}
	return m
}
func bigInt(s string) any { x, _ := new(big.Int).SetString(s, 10); return x }

var readCases = []struct {
	in   string
	want any
}{
	{"nil", nil}, {"true", true}, {"false", false}, {"nilly", Symbol("nilly")},
	// integers
	{"0", n(0)}, {"-0", n(0)}, {"+7", n(7)}, {"-12", n(-12)}, {"123456789012345678", n(123456789012345678)},
	{"9223372036854775807", n(math.MaxInt64)}, {"-9223372036854775808", n(math.MinInt64)},
	{"0x1F", n(31)}, {"-0xff", n(-255)}, {"2r101", n(5)}, {"36rZz", n(35*36 + 35)}, {"16rFFN", big.NewInt(255)}, {"0xFFFFFFFFFFFFFFFFN", bigInt("18446744073709551615")},
	{"1N", big.NewInt(1)}, {"-0N", big.NewInt(0)}, {"+9223372036854775808N", bigInt("9223372036854775808")},
	// floats and decimals
	{"1.5", 1.5}, {"-0.0", 0.0}, {"1.", 1.0}, {"1e3", 1000.0}, {"1E-3", 0.001}, {"+1.5e+2", 150.0}, {"0.1", 0.1},
	{"##NaN", math.NaN()}, {"##Inf", math.Inf(1)}, {"##-Inf", math.Inf(-1)},
	{"1M", dec(1, 0)}, {"1.50M", dec(15, -1)}, {"-1.5M", dec(-15, -1)}, {"1e3M", dec(1, 3)}, {"1.5E-1000000M", dec(15, -1000001)}, {"0M", dec(0, 0)}, {"0.00M", dec(0, 0)}, {"1.M", dec(1, 0)},
	// keywords and symbols
	{":a", k("a")}, {":a/b", k("a/b")}, {":a/b/c", k("a/b/c")}, {":a.b/c-d?", k("a.b/c-d?")}, {":1a", k("1a")}, {":a/1b", k("a/1b")}, {":/", k("/")}, {":a//", k("a//")},
	{":é/ü", k("é/ü")}, {":a:b", k("a:b")}, {":a'b", k("a'b")}, {":a#b", k("a#b")}, {":+", k("+")}, {":-1", k("-1")}, {":_", k("_")},
	{"a", Symbol("a")}, {"+", Symbol("+")}, {"-", Symbol("-")}, {"-a", Symbol("-a")}, {"/", Symbol("/")}, {"clojure.core//", Symbol("clojure.core//")}, {"my.ns/fn", Symbol("my.ns/fn")}, {"...", Symbol("...")},
	// strings
	{`""`, ""}, {`"a b"`, "a b"}, {`"\t\r\n\\\"\b\f"`, "\t\r\n\\\"\b\f"}, {`"\u00e9\uD83D\uDE00"`, "é😀"}, {`"\0\101\377\18"`, "\x00Aÿ\x018"}, {"\"two\nlines\"", "two\nlines"}, {`"é😀"`, "é😀"}, {`"\\"`, `\`}, {`"a\\"`, `a\`},
	// characters
	{`\a`, Char('a')}, {`\newline`, Char('\n')}, {`\space`, Char(' ')}, {`\tab`, Char('\t')}, {`\return`, Char('\r')}, {`\formfeed`, Char('\f')}, {`\backspace`, Char('\b')},
	{`\u00e9`, Char('é')}, {`\é`, Char('é')}, {`\😀`, Char('😀')}, {`\o101`, Char('A')}, {`\o`, Char('o')}, {`\u`, Char('u')}, {`\(`, Char('(')}, {`\\`, Char('\\')}, {`\"`, Char('"')}, {`\;`, Char(';')}, {`\,`, Char(',')}, {`\1`, Char('1')}, {`\#`, Char('#')},
	{`[\( \) \a]`, vec(Char('('), Char(')'), Char('a'))}, {`[\a]`, vec(Char('a'))}, {`(\()`, list(Char('('))},
	// collections
	{"[]", vec()}, {"()", list()}, {"#{}", set()}, {"{}", mapOf()}, {"[1 :a \"s\" [2]]", vec(n(1), k("a"), "s", vec(n(2)))}, {"[1,2,,3]", vec(n(1), n(2), n(3))},
	{"(1 2)", list(n(1), n(2))}, {"#{1 #{2} :a}", set(k("a"), set(n(2)), n(1))}, {"{:a 1, \"b\" 2 [1] 3}", mapOf(vec(n(1)), n(3), k("a"), n(1), "b", n(2))},
	{"#{1 1N 1.0 1M}", set(n(1), big.NewInt(1), 1.0, dec(1, 0))},
	{`[:a"x"1"y"b[c](d)e#{f nil}]`, vec(k("a"), "x", n(1), "y", Symbol("b"), vec(Symbol("c")), list(Symbol("d")), Symbol("e#"), mapOf(Symbol("f"), nil))},
	// comments and what is discarded
	{"; c\n1 ; d", n(1)}, {"#_ 2 1", n(1)}, {"#_2 1", n(1)}, {"[1 #_ 2 3]", vec(n(1), n(3))}, {"[#_ #_ 1 2 3]", vec(n(3))}, {"[1 #_[2 #_3 {:a 1}]]", vec(n(1))}, {"[#_ ; c\n 1 2]", vec(n(2))},
	{"{:a #_ 1 2 #_ :b}", mapOf(k("a"), n(2))}, {"#_ #foo/bar {:x 1} 2", n(2)}, {"#inst #_ 1 \"2019\"", inst("2019-01-01T00:00:00Z")}, {"1;", n(1)}, {"1;c\r\n", n(1)}, {"[;]\n]", vec()}, {"; \xff\n1", n(1)},
	// namespaced maps
	{"#:artist{:name 1 :b/c 2 :_/d 3 sym 4 _/s 5 x/y 6 \"t\" 7}", mapOf(k("artist/name"), n(1), k("b/c"), n(2), k("d"), n(3), Symbol("artist/sym"), n(4), Symbol("s"), n(5), Symbol("x/y"), n(6), "t", n(7))},
	{"#:a{:/ 1}", mapOf(k("a//"), n(1))}, {"#:a {:_b 1}", mapOf(k("a/_b"), n(1))}, {"#:a.b{}", mapOf()}, {"#:a{:x {:y 1}}", mapOf(k("a/x"), mapOf(k("y"), n(1)))}, {"#:a{:x #:b{:y 1} :z 2}", mapOf(k("a/x"), mapOf(k("b/y"), n(1)), k("a/z"), n(2))}, {"#:a{:_/x/y 1}", mapOf(k("x/y"), n(1))}, {"#:a{:_/x 1 :x 2}", mapOf(k("x"), n(1), k("a/x"), n(2))},
	// tags
	{`#uuid "00112233-4455-6677-8899-AABBCCDDEEFF"`, uuid.MustParse("00112233-4455-6677-8899-aabbccddeeff")},
	{"#db/id [:db.part/user -1]", tag("db/id", vec(k("db.part/user"), n(-1)))}, {"#db/id[:db.part/tx]", tag("db/id", vec(k("db.part/tx")))}, {"#a #b 1", tag("a", tag("b", n(1)))}, {`#é "x"`, tag("é", "x")}, {"#a{:x 1}", tag("a", mapOf(k("x"), n(1)))},
	// metadata
	{"^:private [1]", vec(n(1))}, {"^{:a 1} ^String x", Symbol("x")}, {"#^:a {}", mapOf()}, {"[^\"T\" (1)]", vec(list(n(1)))},
	// white space
	{"\ufeff1", n(1)}, {" \t\f\v,1\u2003", n(1)}, {"[1\u20282]", vec(n(1), n(2))}, {"[a\u2003b]", vec(Symbol("a"), Symbol("b"))}, {"\u2003:a", k("a")},
}

func TestRead(t *testing.T) {
	for _, c := range readCases {
		got, err := Parse([]byte(c.in), Limits{})
		if err != nil || !Equal(got, c.want) {
			t.Errorf("%q is %#v, %v; want %#v", c.in, got, err, c.want)
		}
		// The same in pieces of any size, and with an error beside the last bytes.
		for name, wrap := range map[string]func(io.Reader) io.Reader{"one byte": iotest.OneByteReader, "half": iotest.HalfReader, "data and error": iotest.DataErrReader} {
			r := NewReader(wrap(strings.NewReader(c.in)), Limits{})
			got, err := r.Read()
			if err != nil || !Equal(got, c.want) {
				t.Errorf("%q, %s: %#v, %v; want %#v", c.in, name, got, err, c.want)
			}
			if v, err := r.Read(); err != io.EOF {
				t.Errorf("%q, %s: then %v, %v", c.in, name, v, err)
			}
		}
	}
}

// Every token is cut once by the end of the buffer.
func TestReadAcrossBufferEnds(t *testing.T) {
	const doc = `[:person/name "h\u00e9llo" #uuid "00112233-4455-6677-8899-aabbccddeeff" 123.25M \newline #{sym} #_ x ; c` + "\n" + `#:a{:b #inst "2020"} "é"] `
	want, err := Parse([]byte(doc), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for pad := range len(doc) {
		in := strings.Repeat(" ", 64<<10-pad) + doc + doc
		r := NewReader(strings.NewReader(in), Limits{})
		for range 2 {
			if got, err := r.Read(); err != nil || !Equal(got, want) {
				t.Fatalf("padded by %d: %v, %v", pad, got, err)
			}
		}
		if _, err := r.Read(); err != io.EOF {
			t.Fatal(err)
		}
	}
}

func TestInstants(t *testing.T) {
	for in, want := range map[string]string{
		"2019": "2019-01-01T00:00:00Z", "2019-03": "2019-03-01T00:00:00Z", "2019-03-04": "2019-03-04T00:00:00Z", "2019-03-04T05": "2019-03-04T05:00:00Z",
		"2019-03-04T05:06": "2019-03-04T05:06:00Z", "2019-03-04T05:06:07": "2019-03-04T05:06:07Z", "2019-03-04T05:06:07.0891": "2019-03-04T05:06:07.0891Z",
		"2019-03-04T05:06:07.089-00:00": "2019-03-04T05:06:07.089Z", "2019-03-04T05:06:07.123456789Z": "2019-03-04T05:06:07.123456789Z",
		"2019-03-04T05:06:07+02:30": "2019-03-04T02:36:07Z", "2019-03-04T05:06:07-02:30": "2019-03-04T07:36:07Z", "2019Z": "2019-01-01T00:00:00Z",
		"2019-05:30": "2019-01-01T05:30:00Z", "2019-02-05:30": "2019-02-01T05:30:00Z", "2019-03+01:00": "2019-02-28T23:00:00Z", "2020-02-29": "2020-02-29T00:00:00Z", "2016-12-31T23:59:60": "2017-01-01T00:00:00Z",
		"0000": "0000-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z": "9999-12-31T23:59:59.999Z", "2019-03-04T05-01:00": "2019-03-04T06:00:00Z",
	} {
		got, err := Parse([]byte(`#inst "`+in+`"`), Limits{})
		if err != nil || !Equal(got, inst(want)) {
			t.Errorf("%s is %v, %v; want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"", "19", "201", "2019-", "2019-13", "2019-00", "2019-02-29", "2019-04-31", "2019-1-1", "2019-01-01T", "2019-01-01 05:06", "2019-01-01T24", "2019-01-01T05:60", "2019-01-01T05:06:61", "2019-01-01T05:06:60",
		"2019-01-01T05:06:07.", "2019-01-01T05:06:07.1234567890", "2019-01-01T05:06:07+1", "2019-01-01T05:06:07+24:00", "2019-01-01T05:06:07+0100", "2019Zx", "x2019", "2019-03-04T05:06:07z", "12019"} {
		if got, err := Parse([]byte(`#inst "`+in+`"`), Limits{}); !errors.Is(err, ErrSyntax) {
			t.Errorf("%s is %v, %v", in, got, err)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", "line 1, column 1: the text holds no value"},
		{" \n ; c", "line 2, column 5: the text holds no value"},
		{"1 2", "line 1, column 3: the text holds more than one value"},
		{"#_", "line 1, column 3: the text ends within the #_ that begins at line 1, column 1"},
		{"[1\n 2", "line 2, column 3: the text ends within the vector that begins at line 1, column 1"},
		{"[1 #_]", `line 1, column 6: ']' closes nothing`},
		{"[#_ #_ 1]", `line 1, column 9: ']' closes nothing`},
		{"]", `line 1, column 1: ']' closes nothing`},
		{"[1 2)", `line 1, column 5: ')' cannot close the vector that begins at line 1, column 1`},
		{"{:a 1]", `line 1, column 6: ']' cannot close the map that begins at line 1, column 1`},
		{"{:a}", "line 1, column 2: the key :a has no value"},
		{"{:a 1\n :b 2 :a 3}", "line 2, column 7: the key :a stands twice in the map"},
		{"#:x{:a 1 :x/a 3}", "line 1, column 10: the key :x/a stands twice in the map"},
		{"{[1 {2 3}] 1 (1 {2 3}) 2}", "line 1, column 14: the key a list of 2 stands twice in the map"},
		{"#{1 2 1}", "line 1, column 1: the element 1 stands twice in the set"},
		{"#{1.0M 1.00M}", "line 1, column 1: the element 1.00M stands twice in the set"},
		{"#{#{1 2} #{2 1}}", "line 1, column 1: the element a set of 2 stands twice in the set"},
		{"#{{1 2 3 4} {3 4 1 2}}", "stands twice in the set"},
		{"#{##NaN ##NaN}", "the element ##NaN stands twice in the set"},
		{"#{0.0 -0.0}", "the element -0.0 stands twice in the set"},
		{`#{#inst "2019" #inst "2019-01-01"}`, "stands twice"},
		{"#{#a 1 #a 1}", "the element #a … stands twice"},
		{"1/2", "1/2 is a ratio"},
		{"010", "010 begins with a zero"}, {"-00", "begins with a zero"}, {"01.5", "begins with a zero"}, {"08", "begins with a zero"},
		{"9223372036854775808", "9223372036854775808 is out of the range of 64 bits; a big integer ends in N"}, {"-9223372036854775809", "out of the range"}, {"0xFFFFFFFFFFFFFFFF", "out of the range"},
		{"1a", "1a is not a number"}, {"1.5N", "is not a number"}, {"1e", "is not a number"}, {"1e+", "is not a number"}, {"1.2.3", "is not a number"}, {"+1x", "is not a number"}, {"0x", "is not a number"}, {"0xG", "is not a number"},
		{"1r0", "is not a number"}, {"37r1", "is not a number"}, {"2r2", "is not a number"}, {"2r-1", "is not a number"}, {"1_000", "is not a number"}, {"1NN", "is not a number"}, {"1e5N", "is not a number"}, {"1x5", "is not a number"}, {"1MM", "is not a number"},
		{"1e400", "1e400 is out of the range of a double"}, {"1e99999999999M", "the exponent of 1e99999999999M is out of range"}, {"1e-1073741825M", "the exponent"},
		{":", `":" is not a keyword`}, {"::a", "is not a keyword"}, {":a/", "is not a keyword"}, {":/a", "is not a keyword"}, {":a:", "is not a keyword"}, {":a::b", "is not a keyword"}, {":a\u00a0b", "is not a keyword"}, {": a", "is not a keyword"}, {":a\ufeff", "is not a keyword"}, {"\ufeff\ufeff", "is not a symbol"}, {"#:a{: 1}", "is not a keyword"}, {"#:a{:/b 1}", "is not a keyword"},
		{"a/", "is not a symbol"}, {".5", "is not a symbol"}, {"\u00a0", "is not a symbol"}, {"a:", "is not a symbol"},
		{"@a", "'@' has no meaning in EDN"}, {"`a", "has no meaning"}, {"~a", "has no meaning"}, {"a@b", "'@' has no meaning"}, {"\x01", "the character U+0001 stands outside a string"}, {"\x00", "U+0000"},
		{`"abc`, "line 1, column 5: the text ends within the string that begins at line 1, column 1"}, {`"abc\`, "the text ends within the string"}, {`"abc\"`, "the text ends within the string"},
		{`"\x"`, `\x in the string is not an escape`}, {`"\é"`, `\é in the string is not an escape`}, {`"\u12"`, "four hexadecimal digits"}, {`"\u12G4"`, "four hexadecimal digits"}, {`"\uD83D"`, "surrogate"}, {`"\uDE00\uD83D"`, "surrogate"}, {`"\uD83Dx"`, "surrogate"}, {`"\uD83D\u0041"`, "surrogate"}, {`"\400"`, "octal"},
		{"\"\xff\"", "the string is not valid UTF-8"}, {":\xff", "not valid UTF-8"}, {"a\xff", "not valid UTF-8"}, {"\\\xff", "not valid UTF-8"}, {"\xff", "not valid UTF-8"}, {"\"\xed\xa0\x80\"", "not valid UTF-8"},
		{`\`, `the text ends behind \`}, {`\ a`, "followed by white space"}, {`\abc`, `\abc is not a character`}, {`\u12`, "not a character"}, {`\uD83D`, "not a character"}, {`\o400`, "not a character"}, {`\o9`, "not a character"}, {`\(a`, "not a character"}, {"\\\u2003", "is not a character"},
		{"##Nan", "##Nan is not one of"}, {"#::a{:x 1}", "#:: takes its namespace from a Clojure program"}, {"#::{:x 1}", "#:: takes"}, {"#:a/b{:x 1}", "names no namespace"}, {"#:{:x 1}", "names no namespace"}, {"#:a [1]", "a map should follow #:a"}, {"#:a", "the text ends within the namespaced map"},
		{`#"re"`, "a regular expression is not EDN"}, {"#(f %)", "Clojure, not EDN"}, {"#=(f)", "Clojure"}, {"#'x", "Clojure"}, {"#?(:clj 1)", "Clojure"}, {"#!x", "Clojure"}, {"#<Obj 1>", "cannot be read back"}, {"# a 1", "# begins no tag"}, {"#", "# begins no tag"}, {"#1 2", "# begins no tag"}, {"#a", "the text ends within the tagged value"}, {"[#a]", "']' closes nothing"}, {"#a/ 1", "#a/ is not a tag"},
		{"#inst 2019", "a string should follow #inst"}, {"#uuid :a", "a string should follow #uuid"}, {`#uuid "0"`, "is not 8-4-4-4-12"}, {`#uuid "00112233445566778899aabbccddeeff"`, "is not 8-4-4-4-12"}, {`#uuid "g0112233-4455-6677-8899-AABBCCDDEEFF"`, "is not 8-4-4-4-12"},
		{"^1 [1]", "metadata is a keyword"}, {"^:a 1", "metadata belongs to"}, {"^:a", "the text ends within the metadata"}, {"^:a \"s\"", "metadata belongs to"},
	} {
		v, err := Parse([]byte(c.in), Limits{})
		var e *Error
		if !errors.As(err, &e) || !errors.Is(err, ErrSyntax) || errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, %v; want %q", c.in, v, err, c.want)
		}
		if atEnd := strings.Contains(c.want, "the text ends") || strings.Contains(c.want, "the text holds no value"); atEnd != errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q: %v: an unexpected end: %t", c.in, err, errors.Is(err, io.ErrUnexpectedEOF))
		}
	}
}

func TestPositions(t *testing.T) {
	const in = "; é\r\n  [a\n \"x\ny\" {:k\n(1)}]\n#_ [1\n2] #:n{:a #t #{3}}\n7"
	r := NewReader(iotest.OneByteReader(strings.NewReader(in)), Limits{})
	v, err := r.Read()
	if err != nil {
		t.Fatal(err)
	}
	pos := func(line, col int, at string) Pos {
		return Pos{line, col, int64(strings.Index(in, at))}
	}
	m := v.(Vector).Items[2].(Map)
	for _, c := range []struct{ got, want Pos }{
		{r.Pos(), pos(2, 3, "[a")}, {v.(Vector).Pos, pos(2, 3, "[a")}, {m.Pos, pos(4, 4, "{:k")}, {m.Entries[0].Pos, pos(4, 5, ":k")},
		{m.Entries[0].Value.(List).Pos, pos(5, 1, "(1)")},
	} {
		if c.got != c.want {
			t.Errorf("%+v, want %+v", c.got, c.want)
		}
	}
	if v, err = r.Read(); err != nil {
		t.Fatal(err)
	}
	tagged := v.(Map).Entries[0].Value.(Tagged)
	for _, c := range []struct{ got, want Pos }{
		{r.Pos(), pos(7, 4, "#:n")}, {v.(Map).Pos, pos(7, 4, "#:n")}, {v.(Map).Entries[0].Pos, pos(7, 8, ":a")}, {tagged.Pos, pos(7, 11, "#t")}, {tagged.Value.(Set).Pos, pos(7, 14, "#{3")},
	} {
		if c.got != c.want {
			t.Errorf("%+v, want %+v", c.got, c.want)
		}
	}
	if v, err = r.Read(); err != nil || v != any(int64(7)) || r.Pos() != pos(8, 1, "7") {
		t.Errorf("%v at %+v, %v", v, r.Pos(), err)
	}
	bomb := NewReader(strings.NewReader("\ufeff 1"), Limits{})
	if _, err := bomb.Read(); err != nil || bomb.Pos() != (Pos{1, 2, 4}) {
		t.Errorf("behind a byte order mark: %+v, %v", bomb.Pos(), err)
	}
}

func TestLimits(t *testing.T) {
	big1 := strings.Repeat("7", 1<<20)
	for name, c := range map[string]struct {
		in  string
		lim Limits
	}{
		"brackets":             {strings.Repeat("[", 1<<20), Limits{}},
		"braces":               {strings.Repeat("{", 1<<20), Limits{}},
		"map values":           {strings.Repeat("{:a ", 1<<18), Limits{}},
		"sets":                 {strings.Repeat("#{", 1<<19), Limits{}},
		"tags":                 {strings.Repeat("#a ", 1<<18), Limits{}},
		"discards":             {strings.Repeat("#_ ", 1<<18), Limits{}},
		"discards in a vector": {"[" + strings.Repeat("#_ ", 1<<18), Limits{}},
		"metadata":             {strings.Repeat("^:a ", 1<<18), Limits{}},
		"metadata in metadata": {strings.Repeat("^", 1<<20), Limits{}},
		"namespaced maps":      {strings.Repeat("#:a{:b ", 1<<17), Limits{}},
		"integer":              {big1, Limits{}},
		"big integer":          {big1 + "N", Limits{}},
		"decimal":              {"0." + big1 + "M", Limits{}},
		"float":                {"0." + big1, Limits{}},
		"keyword":              {":" + strings.Repeat("a", 1<<20), Limits{}},
		"symbol":               {strings.Repeat("a", 1<<20), Limits{}},
		"character":            {`\` + strings.Repeat("a", 1<<20), Limits{}},
		"tag":                  {"#" + strings.Repeat("a", 1<<20), Limits{}},
		"depth 2":              {"[[[1]]]", Limits{Depth: 2}},
		"elements":             {"[1 2 3]", Limits{Elements: 3}},
		"elements discarded":   {"[1 2 #_ 3]", Limits{Elements: 3}},
		"string":               {`"abcdefghij"`, Limits{FormBytes: 11}},
		"long string":          {`"` + strings.Repeat("a", 1<<20) + `"`, Limits{FormBytes: 1 << 19}},
		"endless string":       {`"` + strings.Repeat("a", 1<<20), Limits{FormBytes: 1 << 19}},
		"white space within":   {"[" + strings.Repeat(" ", 1<<20) + "1]", Limits{FormBytes: 1 << 10}},
		"comment within":       {"[;" + strings.Repeat(" ", 1<<20) + "\n]", Limits{FormBytes: 1 << 10}},
	} {
		v, err := Parse([]byte(c.in), c.lim)
		var e *Error
		if !errors.As(err, &e) || !errors.Is(err, ErrLimit) || len(err.Error()) > 200 {
			t.Errorf("%s: %v, %.300v", name, v, err)
		}
	}
	for name, c := range map[string]struct {
		in  string
		lim Limits
	}{
		"depth 3":       {"[[[1]]]", Limits{Depth: 3}},
		"elements":      {"[1 2 3]", Limits{Elements: 4}},
		"string":        {`"abcdefghij"`, Limits{FormBytes: 12}},
		"blank between": {strings.Repeat(" ", 1<<20) + "[]" + strings.Repeat(";\n", 1<<10), Limits{FormBytes: 2}},
		"discards":      {strings.Repeat("#_ x ", 1<<10) + "1", Limits{FormBytes: 10, Elements: 2, Depth: 1}},
		"long string":   {`"` + strings.Repeat("a", 1<<20) + `"`, Limits{}},
		"token":         {strings.Repeat("a", 16<<10), Limits{}},
		"wide":          {"[" + strings.Repeat("[] ", 1<<18) + "]", Limits{}},
	} {
		if _, err := Parse([]byte(c.in), c.lim); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Sets within sets are looked through again at every level: that work is bounded too.
func TestWorkOnDuplicatesIsBounded(t *testing.T) {
	var numbers strings.Builder
	for i := range 2000 {
		numbers.WriteString(strconv.Itoa(i) + " ")
	}
	for name, inner := range map[string]string{"elements": numbers.String(), "text": `"` + strings.Repeat("x", 1<<20) + `" 1`} {
		in := strings.Repeat("#{:a ", 200) + "#{" + inner + strings.Repeat("}", 201)
		if _, err := Parse([]byte(in), Limits{Elements: 10_000}); !errors.Is(err, ErrLimit) {
			t.Error(name, err)
		}
		if _, err := Parse([]byte(in), Limits{Elements: 1_000_000}); err != nil {
			t.Error(name, err)
		}
	}
}

// Two large collections that are equal, and two that differ in their last element.
func TestDuplicatesAmongMany(t *testing.T) {
	var b bytes.Buffer
	for i := range 3000 {
		b.WriteString(" :k")
		b.WriteString(big.NewInt(int64(i)).String())
	}
	if _, err := Parse([]byte("#{"+b.String()+"}"), Limits{}); err != nil {
		t.Error(err)
	}
	if _, err := Parse([]byte("#{"+b.String()+" :k1234}"), Limits{}); err == nil || !strings.Contains(err.Error(), ":k1234 stands twice") {
		t.Error(err)
	}
	if _, err := Parse([]byte("{["+b.String()+"] 1 ("+b.String()+" 1) 2}"), Limits{}); err != nil {
		t.Error(err)
	}
	if _, err := Parse([]byte("{["+b.String()+" 1] 1 ("+b.String()+" 1) 2}"), Limits{}); err == nil {
		t.Error("equal keys are taken")
	}
}

func TestReaderErrors(t *testing.T) {
	boom := errors.New("boom")
	for _, in := range []string{"", "[1 ", "12", ":a", `"x`, "#_", "; c", `\`, "[1] [2"} {
		r := NewReader(io.MultiReader(strings.NewReader(in), iotest.ErrReader(boom)), Limits{})
		var err error
		for range 3 {
			if _, err = r.Read(); err != nil {
				break
			}
		}
		if !errors.Is(err, boom) {
			t.Errorf("%q: %v", in, err)
		}
		if _, again := r.Read(); again != err {
			t.Errorf("%q: %v, then %v", in, err, again)
		}
	}
	r := NewReader(strings.NewReader("1 ] 2"), Limits{})
	var got []any
	var last error
	for v, err := range r.All() {
		if last = err; err == nil {
			got = append(got, v)
		}
	}
	if len(got) != 1 || !errors.Is(last, ErrSyntax) {
		t.Errorf("All: %v, %v", got, last)
	}
	if _, err := NewReader(stuck{}, Limits{}).Read(); err != io.ErrNoProgress {
		t.Error(err)
	}
}

type stuck struct{}

func (stuck) Read([]byte) (int, error) { return 0, nil }

// What was read shares nothing with the reader's buffers.
func TestValuesStayAsTheyWere(t *testing.T) {
	var in strings.Builder
	for range 40_000 {
		in.WriteString(`[:some/keyword "a string" #{sym 12345678901234567890N} {:a #t "x\ty"}]` + "\n")
	}
	r := NewReader(strings.NewReader(in.String()), Limits{})
	first, err := r.Read()
	if err != nil {
		t.Fatal(err)
	}
	want, _ := Append(nil, first)
	count := 1
	for v, err := range r.All() {
		if err != nil || !Equal(v, first) {
			t.Fatal(v, err)
		}
		count++
	}
	if got, _ := Append(nil, first); !bytes.Equal(got, want) || count != 40_000 {
		t.Errorf("%d values; the first became %s", count, got)
	}
}

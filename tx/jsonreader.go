package tx

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/steledb/stele/datom"
)

// maxJSONNumber is the length of the longest number that is read.
const maxJSONNumber = 16 << 10

// jsonReader cuts a stream into top-level values and parses each in memory. (encoding/json's decoder puts U+FFFD where text is not
// UTF-8 or half a surrogate pair, lets the last of two equal keys win, and does not say in which line it is.)
type jsonReader struct {
	src  *bufio.Reader
	lim  ReadLimits
	pos  Pos // of the next byte of src
	read bool

	buf      []byte // the value at hand
	at       int    // in buf
	start    Pos    // where buf begins
	line     int    // of buf[at]
	lineAt   int    // where that line begins in buf, perhaps before it
	elements int
	keywords keywords
}

func newJSONReader(r io.Reader, lim ReadLimits) *jsonReader {
	return &jsonReader{src: bufio.NewReaderSize(r, 64<<10), lim: lim, pos: Pos{Line: 1, Column: 1}, keywords: keywords{}}
}

func (j *jsonReader) next() (byte, error) {
	c, err := j.src.ReadByte()
	if err != nil {
		return 0, err
	}
	if j.pos.Column++; c == '\n' {
		j.pos.Line, j.pos.Column = j.pos.Line+1, 1
	}
	return c, nil
}

// frame reads the text of the next top-level value into buf, by its brackets alone. io.EOF: there is none.
func (j *jsonReader) frame() (Pos, error) {
	if !j.read {
		j.read = true
		if b, _ := j.src.Peek(3); string(b) == "\ufeff" {
			j.src.Discard(3)
		}
	}
	c := byte(' ')
	var err error
	for c == ' ' || c == '\t' || c == '\n' || c == '\r' {
		j.start = j.pos
		if c, err = j.next(); err != nil {
			return j.start, err
		}
	}
	if c != '[' && c != '{' {
		return j.start, malformedAt(j.start, "a transaction is an array of forms, a list form or a map form (an object), and begins with [ or {")
	}
	j.buf = j.buf[:0]
	if cap(j.buf) > 4<<20 {
		j.buf = nil
	}
	depth, inString, escaped := 0, false, false
	for {
		if j.buf = append(j.buf, c); len(j.buf) > j.lim.Bytes {
			return j.start, limitAt(j.start, "the transaction's text is longer than %d bytes", j.lim.Bytes)
		}
		switch {
		case inString:
			inString = escaped || c != '"'
			escaped = !escaped && c == '\\'
		case c == '"':
			inString = true
		case c == '[' || c == '{':
			if depth++; depth > j.lim.Depth {
				return j.start, limitAt(j.start, "values stand more than %d deep in one another", j.lim.Depth)
			}
		case c == ']' || c == '}':
			depth--
		}
		if depth == 0 {
			break
		}
		if c, err = j.next(); err != nil {
			if err == io.EOF {
				err = &Error{Kind: Malformed, Pos: j.start, Msg: "the text ends within the transaction that begins here", Err: io.ErrUnexpectedEOF}
			}
			return j.start, err
		}
	}
	j.at, j.elements = 0, 0
	j.line, j.lineAt = j.start.Line, 1-j.start.Column
	return j.start, nil
}

func limitAt(p Pos, format string, args ...any) error {
	return &Error{Kind: LimitExceeded, Pos: p, Msg: fmt.Sprintf(format, args...)}
}

// here is the position of buf[at].
func (j *jsonReader) here() Pos { return Pos{Line: j.line, Column: j.at - j.lineAt + 1} }

// transaction parses buf.
func (j *jsonReader) transaction() (d Data, err error) {
	if j.peek() == '{' || j.beginsWithString() {
		f, err := j.form(1)
		d = Data{f}
		if err != nil {
			return nil, inForm(err, 1)
		}
		return d, nil
	}
	d = Data{}
	err = j.elementsOf(func() error {
		f, err := j.form(len(d) + 1)
		d = append(d, f)
		return inForm(err, len(d))
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// inForm notes the form that an error is about.
func inForm(err error, n int) error {
	if e, ok := err.(*Error); ok && e.Pos.Form == 0 {
		e.Pos.Form = n
	}
	return err
}

// beginsWithString reports whether the array at hand is a list form rather than an array of forms.
func (j *jsonReader) beginsWithString() bool {
	rest := bytes.TrimLeft(j.buf[j.at+1:], " \t\n\r")
	return len(rest) > 0 && rest[0] == '"'
}

// form parses the n-th form.
func (j *jsonReader) form(n int) (Form, error) {
	j.blank()
	p := j.here()
	switch j.peek() {
	case '{':
		m, err := j.object()
		m.Pos.Form = n
		return m, err
	case '[':
	default:
		return nil, malformedAt(p, "form %d is neither a list form (an array) nor a map form (an object)", n)
	}
	items, err := j.array()
	if err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return nil, malformedAt(p, `a list form is empty; it begins with an operation, such as "db/add"`)
	}
	name, ok := items[0].(jsonString)
	if !ok {
		return nil, malformedAt(p, `a list form begins with a string that names an operation, such as "db/add"`)
	}
	op, err := datom.ParseKeyword(string(name))
	if err != nil {
		return nil, malformedAt(p, "%s, so it names no operation", err)
	}
	p.Form = n
	return List{Op: op, Args: items[1:], Pos: p}, nil
}

// peek is the byte at hand. buf ends with a closing bracket, but perhaps not with the right one: behind it there is 0.
func (j *jsonReader) peek() byte {
	if j.at < len(j.buf) {
		return j.buf[j.at]
	}
	return 0
}

func (j *jsonReader) blank() {
	for ; j.at < len(j.buf); j.at++ {
		switch j.buf[j.at] {
		case ' ', '\t', '\r':
		case '\n':
			j.line, j.lineAt = j.line+1, j.at+1
		default:
			return
		}
	}
}

// value parses one value: nil, a bool, jsonString, jsonNumber, []any or Pairs.
func (j *jsonReader) value() (any, error) {
	j.blank()
	if j.elements++; j.elements > j.lim.Elements {
		return nil, limitAt(j.start, "the transaction consists of more than %d values", j.lim.Elements)
	}
	switch c := j.peek(); {
	case c == '"':
		s, err := j.string()
		return jsonString(s), err
	case c == '[':
		return j.array()
	case c == '{':
		return j.object()
	case c == '-' || c >= '0' && c <= '9':
		n := jsonNumberLen(j.buf[j.at:])
		if n > maxJSONNumber {
			return nil, limitAt(j.here(), "the number is longer than %d digits", maxJSONNumber)
		}
		if n == 0 {
			return nil, malformedAt(j.here(), "this is not a number")
		}
		j.at += n
		return jsonNumber(j.buf[j.at-n : j.at]), nil
	}
	switch {
	case j.word("true"):
		return true, nil
	case j.word("false"):
		return false, nil
	case j.word("null"):
		return nil, nil
	}
	return nil, malformedAt(j.here(), "a value should stand here")
}

// word consumes w if it stands here.
func (j *jsonReader) word(w string) bool {
	if !bytes.HasPrefix(j.buf[j.at:], []byte(w)) {
		return false
	}
	j.at += len(w)
	return true
}

// jsonNumberLen is the length of the number that b begins with, or 0.
func jsonNumberLen(b []byte) int {
	i := 0
	digits := func() bool {
		from := i
		for i < len(b) && b[i] >= '0' && b[i] <= '9' {
			i++
		}
		return i > from
	}
	if i < len(b) && b[i] == '-' {
		i++
	}
	if first := i; !digits() || i > first+1 && b[first] == '0' {
		return 0
	}
	if i < len(b) && b[i] == '.' {
		if i++; !digits() {
			return 0
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			return 0
		}
	}
	return i
}

// elementsOf parses an array, each of whose elements f takes.
func (j *jsonReader) elementsOf(f func() error) error {
	return j.between('[', ']', "array", f)
}

// between parses what stands between brackets, separated by commas.
func (j *jsonReader) between(open, end byte, what string, f func() error) error {
	p := j.here()
	j.at++
	for first := true; ; first = false {
		j.blank()
		switch c := j.peek(); {
		case c == end:
			j.at++
			return nil
		case first:
		case c == ',':
			j.at++
			if j.blank(); j.peek() == end {
				return malformedAt(j.here(), "%q stands behind a comma", end)
			}
		default:
			return malformedAt(j.here(), "a comma or %q is missing in the %s that begins at line %d, column %d", end, what, p.Line, p.Column)
		}
		if err := f(); err != nil {
			return err
		}
	}
}

func (j *jsonReader) array() ([]any, error) {
	out := []any{}
	err := j.elementsOf(func() error {
		v, err := j.value()
		out = append(out, v)
		return err
	})
	return out, err
}

func (j *jsonReader) object() (Pairs, error) {
	m := Pairs{Pos: j.here()}
	var seen map[any]bool
	err := j.between('{', '}', "object", func() error {
		j.blank()
		p := j.here()
		if j.peek() != '"' {
			return malformedAt(p, "a key, which is a string, should stand here")
		}
		text, err := j.string()
		if err != nil {
			return err
		}
		key := j.key(text)
		if seen == nil && len(m.Entries) >= 8 {
			seen = make(map[any]bool, 2*len(m.Entries))
			for _, e := range m.Entries {
				seen[e.Key] = true
			}
		}
		twice := seen[key]
		for i := 0; seen == nil && i < len(m.Entries); i++ {
			twice = twice || m.Entries[i].Key == key
		}
		if twice {
			return malformedAt(p, "the key %s stands twice in the object", show(key))
		}
		if seen != nil {
			seen[key] = true
		}
		if j.blank(); j.peek() != ':' {
			return malformedAt(j.here(), "a colon is missing behind the key %s", show(key))
		}
		j.at++
		v, err := j.value()
		m.Entries = append(m.Entries, Pair{Key: key, Value: v, Pos: p})
		return err
	})
	return m, err
}

// key is an object's key: a keyword, or, if it can be none, a string, which only transaction functions take.
func (j *jsonReader) key(text string) any {
	name := strings.TrimPrefix(text, ":")
	if k, ok := j.keywords[name]; ok {
		return k
	}
	if datom.Keyword(name).Valid() {
		return j.keywords.of(name)
	}
	return text
}

// string parses a string.
func (j *jsonReader) string() (string, error) {
	p := j.here()
	j.at++
	from := j.at
	var out []byte // once there is an escape
	for {
		switch c := j.peek(); {
		case c == '"':
			s := j.buf[from:j.at]
			if j.at++; out != nil {
				s = append(out, s...)
			}
			if !utf8.Valid(s) {
				return "", malformedAt(p, "the string is not valid UTF-8")
			}
			return string(s), nil
		case c < ' ':
			return "", malformedAt(j.here(), "the control character U+%04X stands in a string; it is written \\u%04x", c, c)
		case c == '\\':
			out = append(out, j.buf[from:j.at]...)
			var err error
			if out, err = j.escape(out); err != nil {
				return "", err
			}
			from = j.at
		default:
			j.at++
		}
	}
}

// escape parses an escape and appends what it stands for to out, which is not nil afterwards.
func (j *jsonReader) escape(out []byte) ([]byte, error) {
	p := j.here()
	j.at++
	c := j.peek()
	j.at++
	switch c {
	case '"', '\\', '/':
		return append(out, c), nil
	case 'b':
		return append(out, '\b'), nil
	case 'f':
		return append(out, '\f'), nil
	case 'n':
		return append(out, '\n'), nil
	case 'r':
		return append(out, '\r'), nil
	case 't':
		return append(out, '\t'), nil
	case 'u':
		x, ok := j.hex4()
		if !ok {
			return nil, malformedAt(p, `\u is not followed by four hexadecimal digits`)
		}
		if utf16.IsSurrogate(x) {
			y := rune(-1)
			if bytes.HasPrefix(j.buf[j.at:], []byte(`\u`)) {
				j.at += 2
				y, _ = j.hex4()
			}
			if x = utf16.DecodeRune(x, y); x == utf8.RuneError {
				return nil, malformedAt(p, "half a surrogate pair is no character")
			}
		}
		return utf8.AppendRune(out, x), nil
	}
	return nil, malformedAt(p, `this is not an escape; a backslash is written \\`)
}

func (j *jsonReader) hex4() (x rune, ok bool) {
	for range 4 {
		c := j.peek()
		switch {
		case c >= '0' && c <= '9':
			x = x<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			x = x<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
		j.at++
	}
	return x, true
}

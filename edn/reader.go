package edn

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"io"
	"iter"
	"math"
	"unicode"
	"unicode/utf8"
)

// Reader reads the values of a stream one after another. It is not safe for concurrent use. What it returns shares no
// memory with it.
type Reader struct {
	src  io.Reader
	lim  Limits
	err  error // what ended the reading; every later Read returns it
	last Pos   // of the last value

	// The window on the input: buf[pos:end] is read but not consumed, base is the offset of buf[0].
	buf       []byte
	pos, end  int
	base      int64
	line      int
	lineStart int64 // offset
	srcErr    error

	// The value at hand.
	start    Pos
	depth    int
	elements int
	work     int // of looking for duplicates

	// Elements and entries of the containers that are open; each takes its own off the top when it closes.
	items   []any
	entries []Entry

	scratch []byte
	names   map[string]any // keywords met before, as the interface values that they become
	seed    maphash.Seed
}

// NewReader reads from r, within the limits.
func NewReader(r io.Reader, lim Limits) *Reader {
	return &Reader{src: r, lim: lim.withDefaults(), line: 1, names: map[string]any{}, seed: maphash.MakeSeed()}
}

// Read reads the next top-level value. It returns io.EOF at the end of the input, an [*Error] for text that is not EDN or
// beyond a limit, or what the io.Reader returned. After an error, every call returns that error.
func (r *Reader) Read() (any, error) {
	if r.err != nil {
		return nil, r.err
	}
	v, err := r.topLevel()
	if err != nil {
		r.err = err
		return nil, err
	}
	return v, nil
}

// Pos is where the value that Read returned last began.
func (r *Reader) Pos() Pos { return r.last }

// All yields the remaining top-level values. An error, which is never io.EOF, ends the sequence.
func (r *Reader) All() iter.Seq2[any, error] {
	return func(yield func(any, error) bool) {
		for {
			v, err := r.Read()
			if err == io.EOF || !yield(v, err) || err != nil {
				return
			}
		}
	}
}

// Parse reads b, which must hold exactly one value.
func Parse(b []byte, lim Limits) (any, error) {
	r := NewReader(bytes.NewReader(b), lim)
	v, err := r.Read()
	if err == io.EOF {
		return nil, r.unexpectedEOF("the text holds no value")
	}
	if err != nil {
		return nil, err
	}
	if _, err = r.Read(); err == nil {
		return nil, &Error{Pos: r.last, Msg: "the text holds more than one value", Err: ErrSyntax}
	}
	if err != io.EOF {
		return nil, err
	}
	return v, nil
}

func (r *Reader) topLevel() (any, error) {
	for {
		r.elements, r.work = 0, 0
		c, err := r.skipBlank()
		if err != nil {
			return nil, err
		}
		r.start = r.here()
		if c == '#' && r.peek(1) == '_' {
			if err := r.discard(); err != nil {
				return nil, err
			}
			continue
		}
		r.last = r.start
		return r.value(c)
	}
}

// fill reads more input behind buf[pos:end], which it keeps. False: there is none, and srcErr says why.
func (r *Reader) fill() bool {
	if r.srcErr != nil {
		return false
	}
	const size = 64 << 10
	first := r.buf == nil
	r.base += int64(r.pos)
	kept := r.buf[r.pos:r.end]
	if len(kept) == 0 && len(r.buf) > 16*size {
		r.buf = nil // it grew for one long string
	}
	r.pos, r.end = 0, copy(r.buf, kept)
	if r.end == len(r.buf) {
		r.buf = append(r.buf, make([]byte, max(size, len(r.buf)))...)
	}
	before := r.end
	for range 100 {
		var n int
		n, r.srcErr = r.src.Read(r.buf[r.end:])
		if n < 0 || n > len(r.buf)-r.end {
			n, r.srcErr = 0, fmt.Errorf("the reader returned %d bytes for a buffer of %d", n, len(r.buf)-r.end)
		}
		r.end += n
		if r.srcErr != nil || r.end > before && !(first && r.end < len(bom)) {
			break
		}
	}
	if r.end == before && r.srcErr == nil {
		r.srcErr = io.ErrNoProgress
	}
	if first && bytes.HasPrefix(r.buf[:r.end], []byte(bom)) {
		r.pos, r.lineStart = len(bom), int64(len(bom))
	}
	return r.end > before
}

const bom = "\ufeff"

// peek is the byte n behind the next, or 0 if the input ends before it.
func (r *Reader) peek(n int) byte {
	for r.pos+n >= r.end {
		if !r.fill() {
			return 0
		}
	}
	return r.buf[r.pos+n]
}

func (r *Reader) here() Pos {
	off := r.base + int64(r.pos)
	return Pos{Line: r.line, Column: int(off-r.lineStart) + 1, Offset: off}
}

func (r *Reader) fail(p Pos, format string, args ...any) error {
	return &Error{Pos: p, Msg: fmt.Sprintf(format, args...), Err: ErrSyntax}
}

func (r *Reader) beyond(p Pos, format string, args ...any) error {
	return &Error{Pos: p, Msg: fmt.Sprintf(format, args...), Err: ErrLimit}
}

// unexpectedEOF is the error of input that ends too soon, or what stopped the reading of it.
func (r *Reader) unexpectedEOF(format string, args ...any) error {
	if r.srcErr != nil && r.srcErr != io.EOF {
		return r.srcErr
	}
	return &Error{Pos: r.here(), Msg: fmt.Sprintf(format, args...), Err: fmt.Errorf("%w: %w", ErrSyntax, io.ErrUnexpectedEOF)}
}

// Classes of bytes. A token ends before every byte that is no part of one.
const (
	part  = iota // of a token
	space        // white space and commas
	macro        // begins or ends something, and ends a token
)

var class = func() (t [256]uint8) {
	for c := range 0x20 {
		t[c] = macro // control characters: no part of anything, refused where a value would begin
	}
	for _, c := range "\t\n\v\f\r ,\x1c\x1d\x1e\x1f" {
		t[c] = space
	}
	for _, c := range "\";^()[]{}\\@`~\x7f" {
		t[c] = macro
	}
	return
}()

// isSpace reports whether r is what Java calls white space; no-break spaces are not.
func isSpace(r rune) bool {
	if r < 0x80 {
		return class[r] == space
	}
	return unicode.Is(unicode.Z, r) && r != 0xa0 && r != 0x2007 && r != 0x202f
}

// skipBlank goes to the next byte that is neither white space nor in a comment, and returns it without consuming it.
// io.EOF: there is none.
func (r *Reader) skipBlank() (byte, error) {
	for {
		for r.pos < r.end {
			c := r.buf[r.pos]
			switch {
			case c == '\n':
				r.pos++
				r.newline()
			case class[c] == space:
				r.pos++
			case c == ';':
				r.skipLine()
			case c >= utf8.RuneSelf:
				for !utf8.FullRune(r.buf[r.pos:r.end]) && r.fill() {
				}
				x, n := utf8.DecodeRune(r.buf[r.pos:r.end])
				if !isSpace(x) {
					return c, nil
				}
				r.pos += n
			default:
				return c, nil
			}
		}
		if !r.fill() {
			return 0, r.srcErr
		}
	}
}

// newline counts the line that ended just before pos.
func (r *Reader) newline() {
	r.line++
	r.lineStart = r.base + int64(r.pos)
}

func (r *Reader) skipLine() {
	for {
		if i := bytes.IndexByte(r.buf[r.pos:r.end], '\n'); i >= 0 {
			r.pos += i
			return
		}
		r.pos = r.end
		if !r.fill() {
			return
		}
	}
}

// next goes to the next value or closing bracket within a value, past #_ and what it discards.
func (r *Reader) next(open Pos, what string) (byte, error) {
	for {
		c, err := r.skipBlank()
		if err != nil {
			return 0, r.unexpectedEOF("the text ends within the %s that begins at %s", what, open)
		}
		if c != '#' || r.peek(1) != '_' {
			return c, nil
		}
		if err := r.discard(); err != nil {
			return 0, err
		}
	}
}

// discard reads and drops #_ and the value behind it.
func (r *Reader) discard() error {
	p := r.here()
	r.pos += 2
	if err := r.enter(p); err != nil {
		return err
	}
	defer r.leave()
	c, err := r.next(p, "#_")
	if err != nil {
		return err
	}
	_, err = r.value(c)
	return err
}

func (r *Reader) enter(p Pos) error {
	if r.depth++; r.depth > r.lim.Depth {
		return r.beyond(p, "values stand more than %d deep in one another", r.lim.Depth)
	}
	return nil
}

func (r *Reader) leave() { r.depth-- }

// value reads the value that begins with c, the next byte.
func (r *Reader) value(c byte) (v any, err error) {
	p := r.here()
	if r.elements++; r.elements > r.lim.Elements {
		return nil, r.beyond(p, "more than %d values in one, which begins at %s", r.lim.Elements, r.start)
	}
	switch c {
	case '"':
		var b []byte
		if b, err = r.text(); err == nil {
			v = string(b)
		}
	case ':':
		v, err = r.keyword("")
	case '[':
		r.pos++
		var items []any
		if items, err = r.sequence(p, ']', "vector"); err == nil {
			v = Vector{items, p}
		}
	case '(':
		r.pos++
		var items []any
		if items, err = r.sequence(p, ')', "list"); err == nil {
			v = List{items, p}
		}
	case '{':
		r.pos++
		v, err = r.mapping(p, "")
	case '#':
		v, err = r.dispatch(p)
	case '\\':
		v, err = r.char(p)
	case '^':
		r.pos++
		v, err = r.withMeta(p)
	case ')', ']', '}':
		err = r.fail(p, "%q closes nothing", c)
	case '@', '`', '~':
		err = r.fail(p, "%q has no meaning in EDN", c)
	default:
		if class[c] == macro {
			err = r.fail(p, "the character U+%04X stands outside a string", c)
		} else {
			v, err = r.atom(p, c)
		}
	}
	if err != nil {
		return nil, err
	}
	return v, r.checkLength()
}

// checkLength fails once the top-level value at hand is too long.
func (r *Reader) checkLength() error {
	if r.base+int64(r.pos)-r.start.Offset > r.lim.FormBytes {
		return r.beyond(r.start, "the value is longer than %d bytes", r.lim.FormBytes)
	}
	return nil
}

// sequence reads elements up to and with the closing bracket.
func (r *Reader) sequence(open Pos, end byte, what string) ([]any, error) {
	if err := r.enter(open); err != nil {
		return nil, err
	}
	defer r.leave()
	base := len(r.items)
	for {
		c, err := r.next(open, what)
		if err != nil {
			return nil, err
		}
		if c == end {
			r.pos++
			break
		}
		if c == ')' || c == ']' || c == '}' {
			return nil, r.fail(r.here(), "%q cannot close the %s that begins at %s", c, what, open)
		}
		v, err := r.value(c)
		if err != nil {
			return nil, err
		}
		r.items = append(r.items, v)
	}
	out := make([]any, len(r.items)-base)
	copy(out, r.items[base:])
	clear(r.items[base:])
	r.items = r.items[:base]
	return out, nil
}

// mapping reads entries up to and with the closing brace; ns is that of a namespaced map.
func (r *Reader) mapping(open Pos, ns string) (any, error) {
	if err := r.enter(open); err != nil {
		return nil, err
	}
	defer r.leave()
	base := len(r.entries)
	for {
		c, err := r.next(open, "map")
		if err != nil {
			return nil, err
		}
		if c == '}' {
			r.pos++
			break
		}
		at := r.here()
		if c == ')' || c == ']' {
			return nil, r.fail(at, "%q cannot close the map that begins at %s", c, open)
		}
		var k any
		if ns != "" && c == ':' {
			r.elements++
			k, err = r.keyword(ns)
		} else if k, err = r.value(c); ns != "" {
			if s, ok := k.(Symbol); ok {
				k = Symbol(qualify(ns, string(s)))
			}
		}
		if err != nil {
			return nil, err
		}
		if c, err = r.next(open, "map"); err != nil {
			return nil, err
		}
		if c == '}' {
			return nil, r.fail(at, "the key %s has no value", brief(k))
		}
		v, err := r.value(c)
		if err != nil {
			return nil, err
		}
		r.entries = append(r.entries, Entry{k, v, at})
	}
	out := make([]Entry, len(r.entries)-base)
	copy(out, r.entries[base:])
	clear(r.entries[base:])
	r.entries = r.entries[:base]
	i, err := r.duplicate(len(out), func(i int) any { return out[i].Key })
	if err != nil {
		return nil, err
	}
	if i >= 0 {
		return nil, r.fail(out[i].Pos, "the key %s stands twice in the map", brief(out[i].Key))
	}
	return Map{out, open}, nil
}

// dispatch reads what begins with #.
func (r *Reader) dispatch(p Pos) (any, error) {
	switch c := r.peek(1); c {
	case '{':
		r.pos += 2
		items, err := r.sequence(p, '}', "set")
		if err != nil {
			return nil, err
		}
		i, err := r.duplicate(len(items), func(i int) any { return items[i] })
		if err != nil {
			return nil, err
		}
		if i >= 0 {
			return nil, r.fail(p, "the element %s stands twice in the set", brief(items[i]))
		}
		return Set{items, p}, nil
	case '#':
		r.pos += 2
		tok, err := r.token(p)
		if err != nil {
			return nil, err
		}
		switch string(tok) {
		case "NaN":
			return math.NaN(), nil
		case "Inf":
			return math.Inf(1), nil
		case "-Inf":
			return math.Inf(-1), nil
		}
		return nil, r.fail(p, "##%s is not one of ##NaN, ##Inf and ##-Inf", clip(tok))
	case ':':
		return r.namespacedMap(p)
	case '^':
		r.pos += 2
		return r.withMeta(p)
	case '"':
		return nil, r.fail(p, "a regular expression is not EDN")
	case '(', '=', '?', '\'', '!':
		return nil, r.fail(p, "#%c is Clojure, not EDN", c)
	case '<':
		return nil, r.fail(p, "#<…> is something that was printed and cannot be read back")
	}
	if c := rune(r.peek(1)); !unicode.IsLetter(c) && c < utf8.RuneSelf {
		return nil, r.fail(p, "# begins no tag")
	}
	r.pos++
	return r.tagged(p)
}

func (r *Reader) namespacedMap(p Pos) (any, error) {
	r.pos += 2
	if r.peek(0) == ':' {
		return nil, r.fail(p, "#:: takes its namespace from a Clojure program; write it out: #:ns{…}")
	}
	tok, err := r.token(p)
	if err != nil {
		return nil, err
	}
	ns := string(tok) // tok is good only until more input is read
	if !validName(ns) || bytes.IndexByte(tok, '/') >= 0 {
		return nil, r.fail(p, "#:%s{…} names no namespace", clip(tok))
	}
	c, err := r.next(p, "namespaced map")
	if err != nil {
		return nil, err
	}
	if c != '{' {
		return nil, r.fail(r.here(), "a map should follow #:%s", clip(ns))
	}
	r.pos++
	return r.mapping(p, ns)
}

// qualify puts name into the namespace of a namespaced map, unless it has one; "_" stands for none.
func qualify(ns, name string) string {
	switch own, rest := split(name); own {
	case "":
		return ns + "/" + name
	case "_":
		return rest
	}
	return name
}

// withMeta reads metadata and what it belongs to, and returns the latter. p is where it began.
func (r *Reader) withMeta(p Pos) (any, error) {
	if err := r.enter(p); err != nil {
		return nil, err
	}
	defer r.leave()
	c, err := r.next(p, "metadata")
	if err != nil {
		return nil, err
	}
	m, err := r.value(c)
	if err != nil {
		return nil, err
	}
	switch m.(type) {
	case Keyword, Symbol, string, Map:
	default:
		return nil, r.fail(p, "metadata is a keyword, a symbol, a string or a map")
	}
	if c, err = r.next(p, "metadata"); err != nil {
		return nil, err
	}
	v, err := r.value(c)
	if err != nil {
		return nil, err
	}
	switch v.(type) {
	case Symbol, List, Vector, Set, Map, Tagged:
		return v, nil
	}
	return nil, r.fail(p, "metadata belongs to a symbol or a collection, not to %s", brief(v))
}

// tagged reads a tag, behind its #, and its value.
func (r *Reader) tagged(p Pos) (any, error) {
	if err := r.enter(p); err != nil {
		return nil, err
	}
	defer r.leave()
	tok, err := r.token(p)
	if err != nil {
		return nil, err
	}
	if !validName(string(tok)) {
		return nil, r.fail(p, "#%s is not a tag", clip(tok))
	}
	isInst, isUUID := string(tok) == "inst", string(tok) == "uuid"
	var tag Symbol
	if !isInst && !isUUID {
		tag = Symbol(tok)
	}
	c, err := r.next(p, "tagged value")
	if err != nil {
		return nil, err
	}
	if tag != "" {
		v, err := r.value(c)
		return Tagged{tag, v, p}, err
	}
	name := "uuid"
	if isInst {
		name = "inst"
	}
	if c != '"' {
		return nil, r.fail(p, "a string should follow #%s", name)
	}
	r.elements++
	b, err := r.text()
	if err != nil {
		return nil, err
	}
	if isInst {
		t, err := ParseInst(string(b))
		if err != nil {
			return nil, r.fail(p, "%s", err)
		}
		return t, nil
	}
	u, ok := parseUUID(b)
	if !ok {
		return nil, r.fail(p, "#uuid %q is not 8-4-4-4-12 hexadecimal digits", clip(b))
	}
	return u, nil
}

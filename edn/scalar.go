package edn

import (
	"bytes"
	"io"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/cockroachdb/apd/v3"
)

// MaxDecimalExponent bounds the exponent of a decimal, either way.
const MaxDecimalExponent = 1 << 30

// token consumes the bytes up to the next white space or macro character. They are good until more input is read.
func (r *Reader) token(p Pos) ([]byte, error) {
	n, wide := 0, false
	for {
		b := r.buf[r.pos:r.end]
		for n < len(b) && class[b[n]] == part {
			wide = wide || b[n] >= utf8.RuneSelf
			n++
		}
		if n > r.lim.TokenBytes {
			return nil, r.beyond(p, "%s… is longer than %d bytes", clip(b[:n]), r.lim.TokenBytes)
		}
		if n < len(b) || !r.fill() {
			break
		}
	}
	tok := r.buf[r.pos : r.pos+n]
	if r.pos+n == r.end && r.srcErr != nil && r.srcErr != io.EOF {
		return nil, r.srcErr
	}
	if wide {
		if !utf8.Valid(tok) {
			return nil, r.fail(p, "%q is not valid UTF-8", clip(tok))
		}
		if i := bytes.IndexFunc(tok, isSpace); i >= 0 {
			tok = tok[:i]
		}
	}
	r.pos += len(tok)
	return tok, nil
}

// keyword reads a keyword; ns is that of the namespaced map whose key it is.
func (r *Reader) keyword(ns string) (any, error) {
	p := r.here()
	tok, err := r.token(p)
	if err != nil {
		return nil, err
	}
	name := tok[1:]
	if ns != "" {
		switch i := bytes.IndexByte(name, '/'); {
		case i == 1 && name[0] == '_':
			name = name[2:]
		case i < 0 && len(name) > 0, string(name) == "/":
			r.scratch = append(append(append(r.scratch[:0], ns...), '/'), name...)
			name = r.scratch
		}
	}
	if k, ok := r.names[string(name)]; ok {
		return k, nil
	}
	k := Keyword(name)
	if len(tok) < 2 || tok[1] == ':' || !validName(string(k)) {
		return nil, r.fail(p, "%q is not a keyword", clip(tok))
	}
	// The names met before save an allocation each. They are bounded, and the short ones are those that come again.
	const most, long = 4096, 128
	if len(k) <= long {
		if len(r.names) >= most {
			clear(r.names)
		}
		r.names[string(k)] = k
	}
	return k, nil
}

// atom reads a number, a symbol, nil, true or false, which begins with c.
func (r *Reader) atom(p Pos, c byte) (any, error) {
	tok, err := r.token(p)
	if err != nil {
		return nil, err
	}
	switch {
	case len(tok) == 0:
		return nil, r.fail(p, "no value begins here")
	case isDigit(c), (c == '+' || c == '-') && len(tok) > 1 && isDigit(tok[1]):
		return r.number(p, tok)
	}
	switch string(tok) {
	case "nil":
		return nil, nil
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	s := Symbol(tok)
	if !s.Valid() {
		return nil, r.fail(p, "%q is not a symbol", clip(tok))
	}
	return s, nil
}

func isDigit(c byte) bool { return c-'0' <= 9 }

func (r *Reader) number(p Pos, tok []byte) (any, error) {
	// Most numbers are short integers.
	if n, ok := shortInt(tok); ok {
		return n, nil
	}
	s := strings.TrimPrefix(string(tok), "+")
	unsigned := strings.TrimPrefix(s, "-")
	lead := 0
	for lead < len(unsigned) && isDigit(unsigned[lead]) {
		lead++
	}
	digits, rest := unsigned[:lead], unsigned[lead:]
	radix := strings.IndexAny(rest, "xXrR") == 0
	switch {
	case strings.HasPrefix(rest, "/"):
		return nil, r.fail(p, "%s is a ratio, which has no type here; write a decimal", clip(tok))
	case len(digits) > 1 && digits[0] == '0' && !radix:
		return nil, r.fail(p, "%s begins with a zero, which some readers take for octal", clip(tok))
	case radix:
		return r.radixInt(p, tok, s, digits, rest)
	case rest == "" || rest == "N":
		n, ok := new(big.Int).SetString(strings.TrimSuffix(s, "N"), 10)
		switch {
		case !ok:
			return nil, r.fail(p, "%s is not a number", clip(tok))
		case rest == "N":
			return n, nil
		case n.IsInt64():
			return n.Int64(), nil
		}
		return nil, r.fail(p, "%s is out of the range of 64 bits; a big integer ends in N", clip(tok))
	}
	exact := strings.HasSuffix(s, "M")
	s = strings.TrimSuffix(s, "M")
	mantissa, exponent, hasExp := cutAny(s, "eE")
	if !validMantissa(strings.TrimPrefix(mantissa, "-")) || hasExp && !validExponent(exponent) {
		return nil, r.fail(p, "%s is not a number", clip(tok))
	}
	if !exact {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return nil, r.fail(p, "%s is out of the range of a double", clip(tok))
		}
		return f, nil
	}
	exp := int64(0)
	if hasExp {
		var err error
		if exp, err = strconv.ParseInt(exponent, 10, 32); err != nil {
			exp = math.MaxInt64 / 2
		}
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	if exp -= int64(len(fraction)); exp > MaxDecimalExponent || exp < -MaxDecimalExponent {
		return nil, r.fail(p, "the exponent of %s is out of range", clip(tok))
	}
	d := &apd.Decimal{Negative: strings.HasPrefix(whole, "-"), Exponent: int32(exp)}
	if _, ok := d.Coeff.SetString(strings.TrimPrefix(whole, "-")+fraction, 10); !ok {
		return nil, r.fail(p, "%s is not a number", clip(tok))
	}
	return d, nil
}

// shortInt is the integer of up to 18 digits that tok is, if it is one.
func shortInt(tok []byte) (int64, bool) {
	b := tok
	if b[0] == '-' || b[0] == '+' {
		b = b[1:]
	}
	if len(b) > 18 || len(b) == 0 || b[0] == '0' && len(b) > 1 {
		return 0, false
	}
	var n int64
	for _, c := range b {
		if !isDigit(c) {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	if tok[0] == '-' {
		n = -n
	}
	return n, true
}

// radixInt reads 0x1F and 16r1F.
func (r *Reader) radixInt(p Pos, tok []byte, s, digits, rest string) (any, error) {
	base, err := strconv.Atoi(digits)
	if rest[0] == 'x' || rest[0] == 'X' {
		if digits != "0" {
			base = 0
		} else {
			base = 16
		}
	} else if digits[0] == '0' {
		base = 0
	}
	big10, isBig := rest[1:], false
	if base <= 23 || rest[0] == 'x' || rest[0] == 'X' { // beyond, N is a digit
		big10, isBig = strings.CutSuffix(rest[1:], "N")
	}
	if err != nil || base < 2 || base > 36 || big10 == "" || strings.ContainsAny(big10, "+-_") {
		return nil, r.fail(p, "%s is not a number", clip(tok))
	}
	n, ok := new(big.Int).SetString(big10, base)
	if !ok {
		return nil, r.fail(p, "%s is not a number", clip(tok))
	}
	if s[0] == '-' {
		n.Neg(n)
	}
	switch {
	case isBig:
		return n, nil
	case n.IsInt64():
		return n.Int64(), nil
	}
	return nil, r.fail(p, "%s is out of the range of 64 bits; a big integer ends in N", clip(tok))
}

func cutAny(s, chars string) (before, after string, found bool) {
	if i := strings.IndexAny(s, chars); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

// validMantissa: digits, then perhaps a point and perhaps more digits.
func validMantissa(s string) bool {
	whole, fraction, _ := strings.Cut(s, ".")
	return whole != "" && allDigits(whole) && allDigits(fraction)
}

func validExponent(s string) bool {
	if s != "" && (s[0] == '+' || s[0] == '-') {
		s = s[1:]
	}
	return s != "" && allDigits(s)
}

func allDigits(s string) bool {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return false
		}
	}
	return true
}

// text reads a string, and returns its bytes, which are good until the reader is used again.
func (r *Reader) text() ([]byte, error) {
	open := r.here()
	r.pos++
	escaped, n := false, 0
	for {
		b := r.buf[r.pos:r.end]
		for n < len(b) && b[n] != '"' {
			if b[n] == '\\' {
				escaped = true
				n++
			}
			n++
		}
		if n < len(b) {
			break
		}
		if r.base+int64(r.end)-r.start.Offset > r.lim.FormBytes {
			return nil, r.beyond(r.start, "the value is longer than %d bytes", r.lim.FormBytes)
		}
		if !r.fill() {
			r.pos = r.end
			return nil, r.unexpectedEOF("the text ends within the string that begins at %s", open)
		}
	}
	b := r.buf[r.pos : r.pos+n]
	if !utf8.Valid(b) {
		return nil, r.fail(open, "the string is not valid UTF-8")
	}
	if escaped {
		var err error
		if b, err = r.unescape(open, b); err != nil {
			return nil, err
		}
	}
	for raw := r.buf[r.pos : r.pos+n]; ; {
		i := bytes.IndexByte(raw, '\n')
		if i < 0 {
			r.pos += len(raw) + 1
			return b, nil
		}
		r.pos += i + 1
		r.newline()
		raw = raw[i+1:]
	}
}

// unescape replaces the escapes in b. The result is in the scratch buffer.
func (r *Reader) unescape(open Pos, b []byte) ([]byte, error) {
	out := r.scratch[:0]
	for {
		i := bytes.IndexByte(b, '\\')
		if i < 0 {
			r.scratch = append(out, b...)
			return r.scratch, nil
		}
		out = append(out, b[:i]...)
		c := b[i+1] // there is one: the string does not end behind a backslash
		b = b[i+2:]
		switch {
		case c == 'n':
			out = append(out, '\n')
		case c == 't':
			out = append(out, '\t')
		case c == 'r':
			out = append(out, '\r')
		case c == 'b':
			out = append(out, '\b')
		case c == 'f':
			out = append(out, '\f')
		case c == '"' || c == '\\':
			out = append(out, c)
		case c == 'u':
			x, ok := hex4(b)
			if !ok {
				return nil, r.fail(open, `\u in the string is not followed by four hexadecimal digits`)
			}
			b = b[4:]
			if utf16.IsSurrogate(x) {
				y := rune(-1)
				if len(b) >= 6 && b[0] == '\\' && b[1] == 'u' {
					y, _ = hex4(b[2:])
				}
				if x = utf16.DecodeRune(x, y); x == utf8.RuneError {
					return nil, r.fail(open, "half a surrogate pair in the string is no character")
				}
				b = b[6:]
			}
			out = utf8.AppendRune(out, x)
		case c >= '0' && c <= '7':
			x := rune(c - '0')
			for n := 0; n < 2 && len(b) > 0 && b[0] >= '0' && b[0] <= '7'; n++ {
				x = x*8 + rune(b[0]-'0')
				b = b[1:]
			}
			if x > 0o377 {
				return nil, r.fail(open, `the octal escape \%o in the string is above \377`, x)
			}
			out = utf8.AppendRune(out, x)
		default:
			return nil, r.fail(open, `\%s in the string is not an escape`, clip(append([]byte{c}, b[:min(len(b), 3)]...)))
		}
	}
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var x rune
	for _, c := range b[:4] {
		switch {
		case isDigit(c):
			x = x<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			x = x<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return x, true
}

var charNames = map[string]Char{
	"newline": '\n', "return": '\r', "space": ' ', "tab": '\t', "formfeed": '\f', "backspace": '\b',
}

// char reads a character, whose backslash is next. It may be any character, also one that ends a token.
func (r *Reader) char(p Pos) (any, error) {
	r.pos++
	first := r.peek(0)
	if r.pos == r.end {
		return nil, r.unexpectedEOF(`the text ends behind \`)
	}
	if class[first] != part {
		if isSpace(rune(first)) && first != ',' || first < ' ' {
			return nil, r.fail(p, `\ is followed by white space; write \space, \newline, \tab or \u0000`)
		}
		if next := r.peek(1); r.pos+1 < r.end && class[next] == part {
			return nil, r.fail(p, `\%c%c… is not a character`, first, next)
		}
		r.pos++
		return Char(first), nil
	}
	tok, err := r.token(p)
	if err != nil {
		return nil, err
	}
	if x, n := utf8.DecodeRune(tok); n == len(tok) && n > 0 {
		return Char(x), nil
	}
	if c, ok := charNames[string(tok)]; ok {
		return c, nil
	}
	if x, ok := hex4(tok[min(1, len(tok)):]); ok && tok[0] == 'u' && len(tok) == 5 && !utf16.IsSurrogate(x) {
		return Char(x), nil
	}
	if n, err := strconv.ParseUint(string(tok[min(1, len(tok)):]), 8, 32); err == nil && tok[0] == 'o' && len(tok) <= 4 && n <= 0o377 {
		return Char(n), nil
	}
	return nil, r.fail(p, `\%s is not a character`, clip(tok))
}

// Valid reports whether k can be read back.
func (k Keyword) Valid() bool { return validName(string(k)) && k[0] != ':' }

// Valid reports whether s can be read back as a symbol.
func (s Symbol) Valid() bool {
	t := string(s)
	if !validName(t) || t == "nil" || t == "true" || t == "false" || t[0] == ':' || t[0] == '#' || isDigit(t[0]) {
		return false
	}
	return len(t) < 2 || !strings.ContainsRune("+-.", rune(t[0])) || !isDigit(t[1])
}

// validName: no white space, control characters or macro characters; slashes and colons where Clojure has them.
func validName(s string) bool {
	if s == "" || !utf8.ValidString(s) {
		return false
	}
	for _, x := range s {
		if x < utf8.RuneSelf && class[x] != part || x >= utf8.RuneSelf && (unicode.IsControl(x) || unicode.Is(unicode.Z, x) || x == '\ufeff') {
			return false
		}
	}
	if strings.HasSuffix(s, ":") || strings.Contains(s, "::") || strings.Contains(s, ":/") {
		return false
	}
	return s == "/" || s[0] != '/' && (s[len(s)-1] != '/' || strings.HasSuffix(s[1:], "//"))
}

// clip is b for a message: a valid beginning of it.
func clip[T []byte | string](b T) string {
	const most = 40
	s := string(b)
	if len(s) > most {
		n := most
		for n > most-utf8.UTFMax && !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n] + "…"
	}
	return strings.ToValidUTF8(s, "\ufffd")
}

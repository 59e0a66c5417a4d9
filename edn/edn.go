// Package edn reads and writes EDN, the data notation of Clojure and Datomic. The reader is strict, bounded and streaming:
// it takes one value at a time from an io.Reader, in memory bounded by its [Limits], and every error says where. It
// holds no schema and knows nothing of databases.
//
// # Values
//
//	nil, true, false              nil, bool
//	1, -5, +7, 0x1F, 16rFF        int64; out of its range is an error
//	1N                            *big.Int
//	1.5, 1e3, ##NaN ##Inf ##-Inf  float64
//	1.5M, 1M                      *apd.Decimal, with its trailing zeros
//	"text", \c                    string, Char
//	:ns/name, ns/name             Keyword, Symbol
//	(…), […], #{…}, {…}           List, Vector, Set, Map: with their position
//	#inst "…", #uuid "…"          time.Time (UTC, to the nanosecond), uuid.UUID
//	#tag value                    Tagged
//
// # What is read
//
// What Clojure's EDN reader takes, with these differences. Refused, although Clojure's reads it: an integer beyond 64
// bits without N, a float beyond a double's range, ratios, leading zeros (Clojure reads 010 as octal 8), invalid UTF-8 outside
// comments, lone surrogates, and #uuid text that is not 8-4-4-4-12 hexadecimal digits. Taken, although Clojure's refuses it:
// a byte order mark at the start, characters beyond U+FFFF, and names that start with a digit after the slash (:a/1b). Numbers of different types are never equal: #{1 1N} has two
// elements; a list and a vector of equal elements are equal. Instants are of the Gregorian calendar at all times (Java's
// switches to the Julian one before October 1582).
//
// A keyword's or symbol's namespace is what stands before its first slash: :a/b/c is b/c in the namespace a. Metadata (^:m x, ^{…} x) is
// read, checked and dropped: it is no part of a value. Comments are ; to the end of the line and #_ before a value, also
// #_ #_ before two. Namespaced maps (#:ns{:a 1, :_/b 2}) are read into the map they stand for; #::{…}, which only means something inside a Clojure
// program, is refused.
package edn

import (
	"errors"
	"fmt"
	"strings"
)

// Keyword is a keyword without its colon: "person/name", "status".
type Keyword string

// String is the keyword as it is written, with its colon.
func (k Keyword) String() string { return ":" + string(k) }

// Symbol is a symbol: "my.ns/fn".
type Symbol string

// Split is the namespace (before the first slash; "" if there is none) and the name of k.
func (k Keyword) Split() (ns, name string) { return split(string(k)) }

// Split is the namespace (before the first slash; "" if there is none) and the name of s.
func (s Symbol) Split() (ns, name string) { return split(string(s)) }

func split(s string) (ns, name string) {
	if i := strings.IndexByte(s, '/'); i > 0 {
		return s[:i], s[i+1:]
	}
	return "", s
}

// Char is a character: \a, \newline, \u00e9.
type Char rune

// List is a value in parentheses.
type List struct {
	Items []any
	Pos   Pos
}

// Vector is a value in brackets.
type Vector struct {
	Items []any
	Pos   Pos
}

// Set holds distinct values, in the order in which they were written.
type Set struct {
	Items []any
	Pos   Pos
}

// Map holds entries with distinct keys, in the order in which they were written. The keys of a namespaced map are whole.
type Map struct {
	Entries []Entry
	Pos     Pos
}

// Entry is one key and value of a Map. Pos is where the key stood.
type Entry struct {
	Key   any
	Value any
	Pos   Pos
}

// Get is the value of a keyword key.
func (m Map) Get(k Keyword) (any, bool) {
	for i := range m.Entries {
		if m.Entries[i].Key == any(k) {
			return m.Entries[i].Value, true
		}
	}
	return nil, false
}

// Tagged is a tag that this package does not know, and the value behind it.
type Tagged struct {
	Tag   Symbol
	Value any
	Pos   Pos
}

// Pos is a place in the input.
type Pos struct {
	Line   int   // from 1
	Column int   // from 1, in bytes
	Offset int64 // from 0, in bytes
}

func (p Pos) String() string { return fmt.Sprintf("line %d, column %d", p.Line, p.Column) }

// Limits bound what one top-level value may be. They are checked while it is read, so that memory stays bounded whatever
// the input. A zero field takes the value of [DefaultLimits].
type Limits struct {
	// Depth is how deep values may stand within one another; tags, metadata and #_ count.
	Depth int
	// FormBytes is the length of one top-level value in the input, comments within it included.
	FormBytes int64
	// Elements is how many values one top-level value may consist of, those behind #_ included.
	Elements int
	// TokenBytes is the length of a number, keyword, symbol or character. Strings are bounded by FormBytes.
	TokenBytes int
}

// DefaultLimits let through everything sane.
var DefaultLimits = Limits{Depth: 256, FormBytes: 64 << 20, Elements: 4 << 20, TokenBytes: 16 << 10}

func (l Limits) withDefaults() Limits {
	d := DefaultLimits
	if l.Depth > 0 {
		d.Depth = l.Depth
	}
	if l.FormBytes > 0 {
		d.FormBytes = l.FormBytes
	}
	if l.Elements > 0 {
		d.Elements = l.Elements
	}
	if l.TokenBytes > 0 {
		d.TokenBytes = l.TokenBytes
	}
	return d
}

var (
	// ErrSyntax is what every [*Error] about text that is no EDN is.
	ErrSyntax = errors.New("malformed EDN")
	// ErrLimit is what every [*Error] about text beyond the Limits is.
	ErrLimit = errors.New("EDN beyond a limit")
)

// Error is about the text that was read, never about the reading of it: what the io.Reader returns is returned as it is.
type Error struct {
	Pos Pos
	Msg string
	Err error // ErrSyntax or ErrLimit; for text that ends too soon also io.ErrUnexpectedEOF
}

// Error is the position and the sentence.
func (e *Error) Error() string { return e.Pos.String() + ": " + e.Msg }

// Unwrap is the kind of the error.
func (e *Error) Unwrap() error { return e.Err }

package datom

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Keyword is a keyword without its colon: "person/name", "db/id", "status". The empty Keyword is not a keyword.
type Keyword string

// Symbol is an EDN symbol: "my.ns/fn".
type Symbol string

// String is the keyword as EDN writes it, with its colon.
func (k Keyword) String() string { return ":" + string(k) }

// Namespace is what stands before the first slash, or "".
func (k Keyword) Namespace() string {
	if i := strings.IndexByte(string(k), '/'); i > 0 {
		return string(k[:i])
	}
	return ""
}

// Name is what stands after the first slash, or everything.
func (k Keyword) Name() string {
	if i := strings.IndexByte(string(k), '/'); i > 0 {
		return string(k[i+1:])
	}
	return string(k)
}

// ParseKeyword reads ":ns/name" or "ns/name". It refuses what could not be written back: an empty name, white space,
// control characters, delimiters, invalid UTF-8.
func ParseKeyword(s string) (Keyword, error) {
	k := Keyword(strings.TrimPrefix(s, ":"))
	if !k.Valid() {
		return "", fmt.Errorf("%q is not a keyword", s)
	}
	return k, nil
}

// Valid reports whether k could be read back from its EDN text.
func (k Keyword) Valid() bool { return k[:min(len(k), 1)] != ":" && validName(string(k)) }

// Valid reports whether s could be read back from its EDN text.
func (s Symbol) Valid() bool { return validName(string(s)) }

func validName(s string) bool {
	if s == "" || !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if r <= ' ' || r == 0x7f || strings.ContainsRune("\"\\;()[]{},@^`~", r) {
			return false
		}
	}
	return s == "/" || s[0] != '/' && s[len(s)-1] != '/'
}

package datom

import (
	"fmt"
	"strings"
	"unicode"
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

// ParseKeyword reads ":ns/name" or "ns/name". It refuses what [Keyword.Valid] refuses.
func ParseKeyword(s string) (Keyword, error) {
	k := Keyword(strings.TrimPrefix(s, ":"))
	if !k.Valid() {
		return "", fmt.Errorf("%s is not a keyword", quote(s))
	}
	return k, nil
}

// Valid reports whether k could be read back from its EDN text: it is not empty and holds no white space, control
// characters, delimiters or invalid UTF-8; slashes and colons stand where Clojure's reader takes them (":a/b/c" is the
// name "b/c" in the namespace "a"; ":a:" and "::a" are nothing).
func (k Keyword) Valid() bool { return k[:min(len(k), 1)] != ":" && validName(string(k)) }

// Valid reports whether s could be read back from its EDN text: as for keywords, and it does not look like a number, a
// keyword, a tag, nil, true or false.
func (s Symbol) Valid() bool {
	t := string(s)
	if !validName(t) || t == "nil" || t == "true" || t == "false" || strings.ContainsRune(":#0123456789", rune(t[0])) {
		return false
	}
	return len(t) < 2 || !strings.ContainsRune("+-.", rune(t[0])) || t[1] < '0' || t[1] > '9'
}

func validName(s string) bool {
	if s == "" || !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		switch {
		case r > 0x7f:
			if unicode.IsControl(r) || unicode.Is(unicode.Z, r) || r == '\ufeff' {
				return false
			}
		case r <= ' ' || r == 0x7f || strings.ContainsRune("\"\\;()[]{},@^`~", r):
			return false
		}
	}
	if strings.HasSuffix(s, ":") || strings.Contains(s, "::") || strings.Contains(s, ":/") {
		return false
	}
	return s == "/" || s[0] != '/' && (s[len(s)-1] != '/' || strings.HasSuffix(s[1:], "//"))
}

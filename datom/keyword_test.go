package datom

import (
	"testing"
	"unicode/utf8"
)

func TestKeywords(t *testing.T) {
	for text, want := range map[string][2]string{
		":person/name": {"person", "name"}, "person/name": {"person", "name"}, ":status": {"", "status"}, ":a/b/c": {"a", "b/c"},
		":/": {"", "/"}, ":a//": {"a", "/"}, ":1a": {"", "1a"}, ":a.b/c-d?": {"a.b", "c-d?"}, ":é/ü": {"é", "ü"}, ":a:b": {"", "a:b"}, ":a'b#": {"", "a'b#"},
	} {
		k, err := ParseKeyword(text)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := [2]string{k.Namespace(), k.Name()}; got != want {
			t.Errorf("%s: %q", text, got)
		}
		if back, err := ParseKeyword(k.String()); err != nil || back != k {
			t.Errorf("%s reads back as %s, %v", k, back, err)
		}
	}
	for _, text := range []string{"", ":", "::a", ":a b", ":a\tb", ":a\u00a0b", ":a\u2028b", ":a\u0085b", ":a\x7fb", "a\ufeff", "a/", "/a", ":a:", ":a::b", ":a:/b", ":a\xff", "//",
		`:a"b`, ":a;b", ":a(b", ":a]b", ":{a", ":a,b", ":a@b", ":a^b", ":a`b", ":a~b", `:a\b`, "a///b/"} {
		if k, err := ParseKeyword(text); err == nil {
			t.Errorf("%q is the keyword %s", text, k)
		}
	}
}

func TestSymbols(t *testing.T) {
	for _, s := range []Symbol{"a", "my.ns/fn", "+", "-", ".", "-a", "/", "clojure.core//", "nil?", "true/false", "a:b", "a#", "'a", "é"} {
		if !s.Valid() {
			t.Errorf("%q is no symbol", string(s))
		}
	}
	for _, s := range []Symbol{"", "nil", "true", "false", "1", "1a", "+1", "-1", ".5", ":a", "#a", "a b", "a/", "/a", "\xff", "a:", "(a)"} {
		if s.Valid() {
			t.Errorf("%q is a symbol", string(s))
		}
	}
}

func FuzzParseKeyword(f *testing.F) {
	f.Add(":a/b")
	f.Add("a//")
	f.Fuzz(func(t *testing.T, s string) {
		k, err := ParseKeyword(s)
		if err != nil {
			if !utf8.ValidString(err.Error()) {
				t.Fatalf("%q is not UTF-8", err)
			}
			return
		}
		if back, err := ParseKeyword(k.String()); err != nil || back != k || k.Name() == "" {
			t.Fatalf("%q reads back as %q, %v", s, back, err)
		}
	})
}

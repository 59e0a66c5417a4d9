package config

import (
	"fmt"
	neturl "net/url"
	"slices"
	"strconv"
	"strings"
)

// store is a store URL that was understood.
type store struct {
	backend *backend
	place   string // fs: the directory; mem: the name; s3: bucket/prefix; postgres: the URL without our own options
	settings
}

// bad is an error about a URL.
func bad(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrURL, fmt.Sprintf(format, args...))
}

// parse reads a store URL. It looks at nothing outside the URL.
func parse(url string) (store, error) {
	if url == "" {
		return store{}, bad("it is empty; it must be %s", known())
	}
	scheme, rest, escaped := cutScheme(url)
	b := find(scheme)
	switch {
	case b == nil:
		return store{}, bad("there is no store %q; it must be %s (a directory whose name has a colon in it is written ./%s:…)", scheme+":", known(), scheme)
	case b.open == nil:
		return store{}, fmt.Errorf("%s: %w; it has %s", scheme, ErrNotBuilt, known())
	}
	place, query, _ := strings.Cut(rest, "?")
	if b.remote {
		return parseRemote(b, scheme, place, query)
	}
	if after, ok := strings.CutPrefix(place, "//"); b.bucket {
		bucket, _, _ := strings.Cut(after, "/")
		switch {
		case !ok || bucket == "":
			return store{}, bad("it names no bucket; it is written %s", b.form)
		case strings.ContainsAny(bucket, "@:%"):
			return store{}, bad("what follows %s:// is a bucket's name and nothing else; credentials come from the environment, a host is the option endpoint", scheme)
		}
		place = after
	} else if ok && escaped {
		if !strings.HasPrefix(after, "/") {
			return store{}, bad("what follows %s:// names a host, and this store has none; it is written %s, or with three slashes for an absolute path", scheme, b.form)
		}
		place = after
	}
	if escaped {
		p, err := neturl.PathUnescape(place)
		if err != nil {
			return store{}, bad("%s is followed by a %% that is not %%XX; a percent sign is written %%25", scheme+":")
		}
		place = p
	}
	switch {
	case place == "":
		return store{}, bad("it names no place; it is written %s", b.form)
	case strings.ContainsRune(place, 0):
		return store{}, bad("there is a zero byte in it")
	}
	s := store{backend: b, place: place, settings: settings{db: "main"}}
	foreign, err := s.take(query)
	if err != nil {
		return store{}, err
	}
	if len(foreign) > 0 {
		return store{}, bad("%s: stores have no option %q; they have %s", b.schemes[0], optionName(foreign[0]), names(b))
	}
	return s, nil
}

// parseRemote reads the URL of a server: what is not ours is left as it was written, for the driver.
func parseRemote(b *backend, scheme, place, query string) (store, error) {
	if !strings.HasPrefix(place, "//") {
		return store{}, bad("it names no server; it is written %s", b.form)
	}
	s := store{backend: b, place: scheme + ":" + place, settings: settings{db: "main"}}
	foreign, err := s.take(query)
	if len(foreign) > 0 {
		s.place += "?" + strings.Join(foreign, "&")
	}
	return s, err
}

// take takes our own options from a query and returns the others.
func (s *store) take(query string) (foreign []string, err error) {
	own, foreign, err := takeOptions(query, append([]option{dbOption}, s.backend.options...))
	if err != nil {
		return nil, err
	}
	for _, o := range own {
		if !o.option.set(&s.settings, o.value) {
			return nil, bad("option %s is %s; it must be %s", o.option.name, o.option.show(o.value), o.option.takes)
		}
	}
	return foreign, nil
}

// cutScheme tells a URL from a directory: a scheme is a letter, then letters, digits, plus, minus and dots, up to a colon. Only what
// follows a scheme is escaped.
func cutScheme(url string) (scheme, rest string, escaped bool) {
	scheme, rest, ok := strings.Cut(url, ":")
	for i := 0; i < len(scheme) && ok; i++ {
		c := scheme[i] | 0x20
		ok = c >= 'a' && c <= 'z' || i > 0 && (scheme[i] >= '0' && scheme[i] <= '9' || strings.IndexByte("+-.", scheme[i]) >= 0)
	}
	if !ok || scheme == "" {
		return "fs", url, false
	}
	return strings.ToLower(scheme), rest, true
}

func find(scheme string) *backend {
	for _, b := range backends() {
		if slices.Contains(b.schemes, scheme) {
			return b
		}
	}
	return nil
}

// given is an option with the value that a URL gives it.
type given struct {
	option option
	value  string
}

// show is a wrong value as a message may have it.
func (o option) show(value string) string {
	if o.hide {
		return "something else"
	}
	return strconv.Quote(value)
}

// takeOptions takes our own options out of a query: what is left, as it was written, is the store's driver's.
func takeOptions(query string, options []option) (own []given, foreign []string, err error) {
	for part := range strings.SplitSeq(query, "&") {
		if part == "" {
			continue
		}
		i := slices.IndexFunc(options, func(o option) bool { return o.name == optionName(part) })
		if i < 0 {
			foreign = append(foreign, part)
			continue
		}
		o := options[i]
		if slices.ContainsFunc(own, func(g given) bool { return g.option.name == o.name }) {
			return nil, nil, bad("option %s is given twice", o.name)
		}
		_, raw, _ := strings.Cut(part, "=")
		value, err := neturl.QueryUnescape(raw)
		if err != nil {
			return nil, nil, bad("option %s is %s, where a %% is not followed by two hexadecimal digits; it must be %s", o.name, o.show(raw), o.takes)
		}
		own = append(own, given{o, value})
	}
	return own, foreign, nil
}

// optionName is the name in "name=value".
func optionName(part string) string {
	raw, _, _ := strings.Cut(part, "=")
	name, err := neturl.QueryUnescape(raw)
	if err != nil {
		return raw
	}
	return name
}

// names lists a backend's options, for messages.
func names(b *backend) string {
	list := []string{dbOption.name}
	for _, o := range b.options {
		list = append(list, o.name)
	}
	return strings.Join(list, ", ")
}

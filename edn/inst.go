package edn

import (
	"fmt"
	"time"

	"github.com/google/uuid"
)

// ParseInst reads the text of an #inst as Clojure does: a year and whatever follows of month, day, hour, minute, second
// and fraction (of up to nine digits), in RFC 3339's form, then Z, an offset, or nothing, which is UTC. Second 60 is taken in minute 59.
func ParseInst(s string) (time.Time, error) {
	fail := func(format string, args ...any) (time.Time, error) {
		return time.Time{}, fmt.Errorf("%q is not an instant: %s", clip(s), fmt.Sprintf(format, args...))
	}
	rest := s
	number := func(digits int) (n int, ok bool) {
		if len(rest) < digits {
			return 0, false
		}
		for i := range digits {
			if !isDigit(rest[i]) {
				return 0, false
			}
			n = n*10 + int(rest[i]-'0')
		}
		rest = rest[digits:]
		return n, true
	}
	skip := func(c byte) bool {
		if len(rest) == 0 || rest[0] != c {
			return false
		}
		rest = rest[1:]
		return true
	}
	fields := [...]struct {
		name     string
		sep      byte
		digits   int
		min, max int
		value    int
	}{
		{"year", 0, 4, 0, 9999, 0}, {"month", '-', 2, 1, 12, 1}, {"day", '-', 2, 1, 31, 1},
		{"hour", 'T', 2, 0, 23, 0}, {"minute", ':', 2, 0, 59, 0}, {"second", ':', 2, 0, 60, 0},
	}
	for i := range fields {
		f := &fields[i]
		// A '-' behind the year or the month may also begin an offset, which has a colon in it: "2019-05:30".
		offset := len(rest) == 6 && rest[3] == ':'
		if i > 0 && (i < 3 && offset || !skip(f.sep)) {
			break
		}
		n, ok := number(f.digits)
		if !ok {
			return fail("the %s has %d digits", f.name, f.digits)
		}
		if n < f.min || n > f.max {
			return fail("the %s %d is out of range", f.name, n)
		}
		f.value = n
		if i == 5 && skip('.') {
			break
		}
	}
	year, month, day, hour, minute, second := fields[0].value, time.Month(fields[1].value), fields[2].value, fields[3].value, fields[4].value, fields[5].value
	if day > time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day() {
		return fail("%d-%02d has no day %d", year, month, day)
	}
	if second == 60 && minute != 59 {
		return fail("only minute 59 has a second 60")
	}
	nanos := 0
	if point := len(s) - len(rest) - 1; point >= 0 && s[point] == '.' {
		digits := 0
		for digits < len(rest) && isDigit(rest[digits]) {
			digits++
		}
		if digits == 0 || digits > 9 {
			return fail("a fraction of a second has one to nine digits")
		}
		nanos, _ = number(digits)
		for ; digits < 9; digits++ {
			nanos *= 10
		}
	}
	offset := 0
	if !skip('Z') && rest != "" {
		sign := 1
		if !skip('+') {
			if !skip('-') {
				return fail("%q is neither a part of an instant nor an offset", clip(rest))
			}
			sign = -1
		}
		h, ok1 := number(2)
		ok2 := skip(':')
		m, ok3 := number(2)
		if !ok1 || !ok2 || !ok3 || h > 23 || m > 59 {
			return fail("an offset is written +hh:mm or -hh:mm")
		}
		offset = sign * (h*60 + m)
	}
	if rest != "" {
		return fail("%q follows it", clip(rest))
	}
	return time.Date(year, month, day, hour, minute-offset, second, nanos, time.UTC), nil
}

// parseUUID reads 8-4-4-4-12 hexadecimal digits.
func parseUUID(b []byte) (uuid.UUID, bool) {
	if len(b) != 36 {
		return uuid.UUID{}, false
	}
	u, err := uuid.ParseBytes(b)
	return u, err == nil
}

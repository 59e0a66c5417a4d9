package s3

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/steledb/stele/log"
)

// This file makes every key in the bucket, and checks what goes into them.

const (
	rootName    = "ROOT"
	objectsName = "log"
	blobsName   = "blobs"
	// probeName is no database's name, so that a probe meets none.
	probeName = ".probe"

	// maxPrefix leaves room for the rest of a key below S3's 1024 bytes.
	maxPrefix = 512
	// directorySuffix marks S3's directory buckets: their listings have no order and no StartAfter.
	directorySuffix = "--x-s3"
)

// below is the keys' beginning for what lies under the parts.
func below(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		if p != "" {
			b.WriteString(p)
			b.WriteByte('/')
		}
	}
	return b.String()
}

func (l *Log) rootKey() string                   { return l.base + rootName }
func (l *Log) instanceKeys(inst log.ID) string   { return l.base + below(inst.String()) }
func (l *Log) objectKeys(inst log.ID) string     { return l.base + below(inst.String(), objectsName) }
func (l *Log) blobKeys(inst log.ID) string       { return l.base + below(inst.String(), blobsName) }
func (l *Log) key(inst log.ID, k log.Key) string { return l.objectKeys(inst) + k.String() }

// checkBucket says what is wrong with a bucket's name.
func checkBucket(name string) error {
	ok := len(name) >= 3 && len(name) <= 63
	for i := 0; i < len(name) && ok; i++ {
		c := name[i]
		edge := i == 0 || i == len(name)-1
		ok = c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || !edge && (c == '.' || c == '-')
	}
	switch {
	case strings.ContainsAny(name, "@:"): // not shown
		return errors.New("the bucket's name has an @ or a colon in it: credentials and hosts do not belong there")
	case !ok || strings.Contains(name, ".."):
		return fmt.Errorf("%q is not a bucket's name: 3 to 63 of a-z, 0-9, dots and hyphens, with a letter or digit at both ends", name)
	case strings.HasSuffix(name, directorySuffix):
		return fmt.Errorf("%s is a directory bucket (its name ends in %s): such a bucket lists in no order, and a log cannot be read from it; use a general purpose bucket", name, directorySuffix)
	}
	return nil
}

// checkPrefix says what is wrong with a prefix; empty is none.
func checkPrefix(prefix string) error {
	bad := func(why string) error {
		return fmt.Errorf("%q is not a prefix: %s", prefix, why)
	}
	switch {
	case prefix == "":
		return nil
	case len(prefix) > maxPrefix:
		return fmt.Errorf("the prefix has %d bytes, more than %d", len(prefix), maxPrefix)
	case !utf8.ValidString(prefix):
		return bad("it is not UTF-8")
	}
	for _, r := range prefix {
		if r < ' ' || r == 0x7f || r == '\\' || r == utf8.RuneError || r == 0xfffe || r == 0xffff {
			return bad("it holds a control character or a backslash, which stores treat differently")
		}
	}
	for part := range strings.SplitSeq(prefix, "/") {
		switch part {
		case "":
			return bad("a slash stands at its beginning, at its end or behind another slash")
		case ".", "..":
			return bad("a part of it is a dot or two")
		}
	}
	return nil
}

// CheckEndpoint says what is wrong with an endpoint. The error does not show it.
func CheckEndpoint(endpoint string) error {
	_, err := parseEndpoint(endpoint)
	return err
}

// CheckRegion says what is wrong with a region's name.
func CheckRegion(region string) error {
	ok := len(region) >= 1 && len(region) <= 64
	for i := 0; i < len(region) && ok; i++ {
		c := region[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
	}
	if !ok {
		return fmt.Errorf("%q is not a region", region)
	}
	return nil
}

// parseEndpoint reads an endpoint: http or https, a host, maybe a port, and nothing else. An error never shows it, for a
// password may be in it.
func parseEndpoint(endpoint string) (*url.URL, error) {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, fmt.Errorf("the endpoint is not a URL like http://127.0.0.1:9000 or https://s3.example.org")
	case u.User != nil:
		return nil, fmt.Errorf("the endpoint holds a user or a password: credentials come from the environment or the AWS configuration files, never from a URL")
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("the endpoint names more than a scheme, a host and a port")
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}, nil
}

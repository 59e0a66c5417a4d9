package s3

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/steledb/stele/log"
)

// TestClassify is the table of what answers mean, as answers come.
func TestClassify(t *testing.T) {
	for _, c := range []struct {
		status  int
		code    string
		kind    kind
		outcome log.Outcome
		again   bool
	}{
		{412, "PreconditionFailed", unmet, log.NotWritten, false},
		{404, "NoSuchKey", missing, log.NotWritten, false},
		{404, "", missing, log.NotWritten, false},
		{404, "NoSuchBucket", noBucket, log.NotWritten, false},
		{409, "ConditionalRequestConflict", again, log.NotWritten, true},
		{409, "OperationAborted", again, log.NotWritten, true},
		{409, "", again, log.NotWritten, true},
		{409, "InvalidBucketState", refused, log.Rejected, false},
		{429, "", again, log.NotWritten, true},
		{429, "TooManyRequests", again, log.NotWritten, true},
		{503, "SlowDown", lost, log.Unknown, true},
		{503, "SlowDownWrite", lost, log.Unknown, true},
		{503, "", lost, log.Unknown, true},
		{500, "InternalError", lost, log.Unknown, true},
		{502, "", lost, log.Unknown, true},
		{504, "RequestTimeout", lost, log.Unknown, true},
		{507, "XMinioStorageFull", lost, log.Unknown, true},
		{501, "NotImplemented", refused, log.Rejected, false},
		{408, "", lost, log.Unknown, true},
		{499, "", lost, log.Unknown, true},
		{400, "RequestTimeout", again, log.NotWritten, true},
		{400, "XAmzContentSHA256Mismatch", again, log.NotWritten, true},
		{400, "ExpiredToken", again, log.NotWritten, true},
		{403, "RequestTimeTooSkewed", again, log.NotWritten, true},
		{403, "AccessDenied", denied, log.NotWritten, false},
		{403, "SignatureDoesNotMatch", denied, log.NotWritten, false},
		{401, "", denied, log.NotWritten, false},
		{400, "InvalidArgument", refused, log.Rejected, false},
		{400, "EntityTooLarge", refused, log.Rejected, false},
		{405, "MethodNotAllowed", refused, log.Rejected, false},
		{301, "PermanentRedirect", refused, log.Rejected, false},
		{307, "TemporaryRedirect", refused, log.Rejected, false},
	} {
		k := classify(c.status, c.code)
		if k != c.kind || k.outcome() != c.outcome || k.retriable() != c.again {
			t.Errorf("%d %s is %s, %s, again %t", c.status, c.code, k, k.outcome(), k.retriable())
		}
	}
	for _, c := range []struct {
		err  error
		kind kind
	}{
		{&url.Error{Op: "Put", URL: "http://h/?secret", Err: &net.OpError{Op: "dial", Err: errors.New("connection refused")}}, unsent},
		{&url.Error{Op: "Put", URL: "http://h/?secret", Err: &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}}, lost},
		{&url.Error{Op: "Put", URL: "http://h/?secret", Err: io.EOF}, lost},
		{&credentialsError{errors.New("none")}, unsent},
		{errors.New("anything"), lost},
	} {
		f := unanswered(t.Context(), "PUT", "key", c.err)
		if f.kind != c.kind || strings.Contains(f.Error(), "secret") || !strings.HasPrefix(f.Error(), "PUT key: ") {
			t.Errorf("%v is %s: %v", c.err, f.kind, f)
		}
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(log.ErrClosed)
	if f := unanswered(ended, "PUT", "key", io.EOF); f.kind != lost || !errors.Is(f, log.ErrClosed) || !errors.Is(f, context.Canceled) {
		t.Errorf("a request whose context ended: %v", f)
	}
	if f := answered("PUT", "key", 400, "X", strings.Repeat("ü", 1000)); len(f.Error()) > 400 {
		t.Errorf("an error of %d bytes", len(f.Error()))
	}
	if f := answered("PUT", "key", 301, "PermanentRedirect", ""); !strings.Contains(f.Error(), "another region") {
		t.Error(f)
	}
}

// TestReadBody: any declared length, any limit, any way of arriving.
func TestReadBody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.SliceOfN(rapid.Byte(), 0, 3000).Draw(t, "body")
		limit := rapid.IntRange(0, 3100).Draw(t, "limit")
		declared := rapid.SampledFrom([]int64{-1, int64(len(body)), int64(len(body)), int64(len(body)) + 1, 1 << 40}).Draw(t, "declared")
		var r io.Reader = strings.NewReader(string(body))
		if rapid.Bool().Draw(t, "slow") {
			r = iotest.HalfReader(r)
		}
		if rapid.Bool().Draw(t, "ends with its last bytes") {
			r = iotest.DataErrReader(r)
		}
		got, err := readBody(io.NopCloser(r), declared, limit)
		switch {
		case declared > int64(limit), len(body) > limit:
			if !errors.Is(err, errTooLarge) {
				t.Fatalf("%d bytes, %v", len(got), err)
			}
		case declared >= 0 && declared != int64(len(body)):
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("%d bytes, %v", len(got), err)
			}
		case err != nil || !slices.Equal(got, body):
			t.Fatalf("%d bytes of %d, %v", len(got), len(body), err)
		}
	})
	broken := errors.New("broken")
	if _, err := readBody(io.NopCloser(iotest.ErrReader(broken)), -1, 10); !errors.Is(err, broken) {
		t.Error(err)
	}
}

func TestNames(t *testing.T) {
	l := &Log{base: below("a/b", "main")}
	inst, k := log.ID{1}, log.Key{Epoch: 2, FirstT: 3}
	id := "01000000000000000000000000000000"
	for got, want := range map[string]string{
		l.rootKey():          "a/b/main/ROOT",
		l.key(inst, k):       "a/b/main/" + id + "/log/0000000000000002-0000000000000003",
		l.blobKeys(inst):     "a/b/main/" + id + "/blobs/",
		l.instanceKeys(inst): "a/b/main/" + id + "/",
		below("", "main"):    "main/",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	long := strings.Repeat("x", maxPrefix)
	l = &Log{base: below(long, strings.Repeat("n", 63))}
	if n := len(l.blobKeys(inst) + strings.Repeat("b", log.MaxBlobName)); n > 1024 {
		t.Errorf("the longest key has %d bytes", n)
	}
	for _, p := range []string{"", "a", "a/b", "ä ö/%", "a.b", ".a", long} {
		if err := checkPrefix(p); err != nil {
			t.Errorf("%q: %v", p, err)
		}
	}
	for _, p := range []string{"/", "/a", "a/", "a//b", ".", "a/..", "a/./b", "a\x00", "a\n", "a\\b", "\xff", "a\ufffe", long + "x"} {
		if err := checkPrefix(p); err == nil {
			t.Errorf("%q is a prefix", p)
		}
	}
	for _, b := range []string{"abc", "a-b.c", "1bucket9", strings.Repeat("b", 63)} {
		if err := checkBucket(b); err != nil {
			t.Errorf("%q: %v", b, err)
		}
	}
	for _, b := range []string{"", "ab", "Abc", "-abc", "abc.", "a..b", "a_b", "a/b", strings.Repeat("b", 64), "key:secret@abc", "x--x-s3"} {
		if err := checkBucket(b); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", b, err)
		}
	}
	for _, n := range []string{"", ".probe", "A", "a/b", strings.Repeat("n", 64)} {
		if err := log.CheckName(n); err == nil {
			t.Errorf("%q is a name", n)
		}
	}
	if log.CheckBlobName("1-abc") != nil || log.CheckBlobName("../x") == nil || log.CheckBlobName("") == nil || log.CheckBlobName(".x") == nil {
		t.Error("blob names")
	}
}

// TestPayload: what was taken back is not read any more; a small body lies apart from what it was made of.
func TestPayload(t *testing.T) {
	for _, size := range []int{0, 10, writeBuffer} {
		b := slices.Repeat([]byte{1}, size)
		ctx, p := newPayload(t.Context(), b)
		if kept, ok := ctx.Value(bodyKey{}).([]byte); ok != (size < writeBuffer) || ok && size > 0 && (len(kept) != size || &kept[0] == &b[0]) {
			t.Errorf("of %d bytes %d were kept, %t", size, len(kept), ok)
		}
		if got, err := io.ReadAll(io.LimitReader(p, 5)); err != nil || len(got) != min(5, size) {
			t.Errorf("%v, %v", got, err)
		}
		p.takeBack()
		if n, err := p.Read(make([]byte, 10)); n != 0 || err != io.EOF {
			t.Errorf("%d bytes of %d were read behind the end, %v", n, size, err)
		}
	}
}

package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/url"
	"strings"

	"github.com/steledb/stele/log"
)

// store is what this backend needs of an object store. aws.go and minio.go implement it, each over its SDK with the SDK's
// own retries off: one call is one request, one page of a list too. Every error but errTooLarge is a *failure.
type store interface {
	// put writes body at key with a single PUT, if when holds. sum is the SHA-256 of body. Body is not read any more once put
	// has returned.
	put(ctx context.Context, key string, body []byte, sum log.Hash, when condition) (etag string, err error)
	// get reads what is at key, at most limit bytes; errTooLarge: there is more.
	get(ctx context.Context, key string, limit int) (body []byte, etag string, err error)
	// list yields what lies under prefix behind the key after, in order; "" is the beginning. It asks for pages as they are needed. It
	// may end early, and silently, when ctx ends.
	list(ctx context.Context, prefix, after string) iter.Seq2[entry, error]
	// remove deletes at most maxRemove keys; one that is not there is no error.
	remove(ctx context.Context, keys []string) error
}

// condition is what must hold for a put: "" that nothing is at the key, or the ETag of what is there, as the same store returned it.
type condition string

const absent condition = ""

// entry is a line of a listing.
type entry struct {
	key  string
	size int64
}

const (
	pageSize  = 1000 // entries in a page: S3's most
	maxRemove = 1000 // keys in a DeleteObjects: S3's most
)

var errTooLarge = errors.New("there is more than may be there")

// kind is what a failure means for the request.
type kind int

const (
	// lost: there was no answer, or one of a server in trouble. It may have been done, or be done later.
	lost kind = iota
	// unsent: the request did not reach the store.
	unsent
	// again: the store did nothing, and asks for another try.
	again
	// unmet: the condition of a put does not hold.
	unmet
	// missing: there is nothing at the key.
	missing
	// noBucket: there is no such bucket.
	noBucket
	// denied: credentials are wrong, or allow less.
	denied
	// refused: the store will not do this, however often it is asked.
	refused
)

func (k kind) String() string {
	return [...]string{"lost", "unsent", "again", "unmet", "missing", "no bucket", "denied", "refused"}[k]
}

// retriable reports whether another try may succeed by itself.
func (k kind) retriable() bool { return k == lost || k == unsent || k == again }

// outcome is what became of a put that failed so.
func (k kind) outcome() log.Outcome {
	switch k {
	case lost:
		return log.Unknown
	case refused:
		return log.Rejected
	default:
		return log.NotWritten
	}
}

// classify is the one table of what answers mean. status is HTTP's, code S3's ("" where there is none).
func classify(status int, code string) kind {
	switch code {
	case "NoSuchBucket":
		return noBucket
	case "ConditionalRequestConflict", "OperationAborted", // somebody else is writing the same key
		"RequestTimeout", "IncompleteBody", "BadDigest", "XAmzContentSHA256Mismatch", // the body did not arrive
		"RequestTimeTooSkewed", "ExpiredToken", "ExpiredTokenException": // signed too early or too late
		if status < 500 {
			return again
		}
	}
	switch {
	case status == 412:
		return unmet
	case status == 404:
		return missing
	case status == 409 && code == "", status == 429:
		return again
	case status == 401, status == 403:
		return denied
	case status == 408, status == 499: // of a proxy, which may have passed the request on
		return lost
	case status == 501, status >= 300 && status < 500:
		return refused
	default: // 5xx, 503 SlowDown with them: MinIO says so of a write that some drives have taken
		return lost
	}
}

// failure is a request that the store did not answer with success.
type failure struct {
	kind    kind
	op      string // and the key
	status  int    // 0: there was no answer
	code    string
	message string // the store's
	err     error  // without an answer: why
}

// maxMessage bounds what an error repeats of a store's message.
const maxMessage = 300

// Error holds no credentials: of what the clients say it repeats the status, the code, the message and the network's errors.
func (f *failure) Error() string {
	if f.status == 0 {
		return f.op + ": " + f.err.Error()
	}
	s := fmt.Sprintf("%s: the store answered %d", f.op, f.status)
	if f.code != "" {
		s += " " + f.code
	}
	if f.message != "" {
		s += ": " + f.message
	}
	if f.status == 301 || f.status == 307 {
		s += " (the bucket is in another region: say which)"
	}
	return s
}

func (f *failure) Unwrap() error { return f.err }

// answered is the failure of a request that the store answered.
func answered(op, key string, status int, code, message string) *failure {
	if len(message) > maxMessage {
		message = message[:maxMessage] + "…"
	}
	message = strings.ToValidUTF8(message, "?")
	return &failure{kind: classify(status, code), op: op + " " + key, status: status, code: code, message: message}
}

// unanswered is the failure of a request that got no answer, or not all of one.
func unanswered(ctx context.Context, op, key string, err error) *failure {
	f := &failure{kind: lost, op: op + " " + key, err: err}
	var dial *net.OpError
	var creds *credentialsError
	switch {
	case errors.As(err, &creds):
		f.kind, f.err = unsent, creds
	case errors.As(err, &dial) && dial.Op == "dial":
		f.kind, f.err = unsent, dial
	default:
		if ue := (*url.Error)(nil); errors.As(err, &ue) {
			f.err = ue.Err // without the URL
		}
	}
	if ctx.Err() != nil {
		f.err = context.Cause(ctx)
		if !errors.Is(f.err, ctx.Err()) {
			f.err = fmt.Errorf("%w (%w)", f.err, ctx.Err())
		}
	}
	return f
}

// kindOf is the kind of an error of a store.
func kindOf(err error) kind {
	if f := (*failure)(nil); errors.As(err, &f) {
		return f.kind
	}
	return refused
}

// readBody reads an answer's body to its end, so that its connection can be used again, at most limit bytes of it. declared is its
// length as the answer says, or -1; no more than firstRead is allocated on its word, and then as much again as came.
func readBody(r io.ReadCloser, declared int64, limit int) ([]byte, error) {
	defer r.Close()
	if declared > int64(limit) {
		return nil, errTooLarge
	}
	size := int64(bytes.MinRead)
	if declared >= 0 {
		size = min(declared, firstRead) + 1 // one more, to see the end
	}
	b := make([]byte, 0, size)
	for {
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case len(b) > limit:
			return nil, errTooLarge
		case err == io.EOF && declared >= 0 && int64(len(b)) != declared:
			return nil, io.ErrUnexpectedEOF
		case err == io.EOF:
			return b, nil
		case err != nil:
			return nil, err
		case len(b) == cap(b):
			b = append(make([]byte, 0, min(2*cap(b), limit+1)), b...)
		}
	}
}

const firstRead = 1 << 20

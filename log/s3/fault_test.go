package s3_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/s3"
)

// owner is a database with an epoch, through a proxy that its tests make rules for.
type owner struct {
	*s3.Log
	t    *testing.T
	p    *proxy
	o    s3.Options
	root *log.Root
	head log.Head
	far  *s3.Log // the same database without the proxy
}

func own(t *testing.T, o s3.Options) *owner {
	t.Helper()
	ow := &owner{t: t, far: open(t, o)}
	ow.p = newProxy(t, &o)
	ow.o, ow.Log = o, open(t, o)
	first := log.NewRoot()
	ow.root = first.Acquire(log.NewID(), "test")
	ow.must(ow.CompareAndSwap(t.Context(), nil, first))
	ow.must(ow.CompareAndSwap(t.Context(), first, ow.root))
	start := ow.next(log.KindStart, "")
	ow.must(ow.Append(t.Context(), ow.root.Instance, start))
	ow.p.requests()
	return ow
}

func (o *owner) must(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}

func (o *owner) next(kind log.Kind, text string) *log.Object {
	o.t.Helper()
	obj := o.encode(kind, text)
	o.head = log.Head{Pos: obj.Pos(), LastT: obj.LastT()}
	return obj
}

// encode is an object at the next key, which stays the next.
func (o *owner) encode(kind log.Kind, text string) *log.Object {
	o.t.Helper()
	obj, err := log.Encode(log.Header{Lineage: o.root.Lineage, Claim: o.root.Claim, Epoch: o.root.Epoch, Kind: kind,
		FirstT: o.head.LastT + 1, Prev: o.head.Pos}, transactions(kind, o.head.LastT+1, text), false)
	o.must(err)
	return obj
}

func (o *owner) batch() *log.Object { o.t.Helper(); return o.next(log.KindBatch, "a fact") }

func (o *owner) check() log.Check {
	return log.Check{Instance: o.root.Instance, Epoch: o.root.Epoch, Claim: o.root.Claim}
}

// steps are what a server does to the puts of one key, one after the other.
type steps []rule

// elsewhere is a step: what another process does first, and then the request as rule says.
func elsewhere(do func(), then rule) rule {
	return func(r *request) *http.Response { do(); return then(r) }
}

// TestAppendSettles: what each answer means to an append, and what is in the store then.
func TestAppendSettles(t *testing.T) {
	eachClient(t, func(t *testing.T, opt s3.Options) {
		o := own(t, opt)
		var obj, other *log.Object
		write := func(what **log.Object) func() {
			return func() { o.must(o.far.Append(context.Background(), o.root.Instance, *what)) }
		}
		for _, c := range []struct {
			name    string
			puts    steps
			gets    steps
			err     error // nil: success
			outcome log.Outcome
			there   bool
			ops     string // what came, in short
		}{
			{"the answer is lost", steps{dropReply}, nil, nil, 0, true, "PUT GET"},
			{"the request is lost", steps{drop}, nil, nil, 0, true, "PUT GET PUT"},
			{"500, and it was written", steps{func(r *request) *http.Response { pass(r); return answer(500, "InternalError", "") }}, nil, nil, 0, true, "PUT GET"},
			{"500, and it was not", steps{says(500, "InternalError")}, nil, nil, 0, true, "PUT GET PUT"},
			{"503 SlowDown", steps{says(503, "SlowDown")}, nil, nil, 0, true, "PUT GET PUT"},
			{"429", steps{says(429, "TooManyRequests")}, nil, nil, 0, true, "PUT PUT"},
			{"409", steps{says(409, "ConditionalRequestConflict")}, nil, nil, 0, true, "PUT PUT"},
			{"412 of the same bytes", steps{elsewhere(write(&obj), pass)}, nil, nil, 0, true, "PUT GET"},
			{"412 of other bytes", steps{elsewhere(write(&other), pass)}, nil, log.ErrConflict, log.Rejected, false, "PUT GET"},
			{"412, and then nothing is there", steps{says(412, "PreconditionFailed")}, nil, nil, 0, true, "PUT GET PUT"},
			{"lost, and the put lands while its twin is sent", steps{drop, elsewhere(write(&obj), pass)}, nil, nil, 0, true, "PUT GET PUT GET"},
			{"lost, and another is there", steps{elsewhere(write(&other), drop)}, nil, log.ErrConflict, log.Rejected, false, "PUT GET"},
			{"503 for long", slices.Repeat(steps{says(503, "SlowDown")}, 4), nil, errAny, log.Unknown, false, "PUT GET PUT GET PUT GET PUT GET"},
			{"409 for long", slices.Repeat(steps{says(409, "ConditionalRequestConflict")}, 4), nil, errAny, log.NotWritten, false, "PUT PUT PUT PUT"},
			{"lost, then 409 for long", append(steps{drop}, slices.Repeat(steps{says(409, "ConditionalRequestConflict")}, 3)...), nil,
				errAny, log.Unknown, false, "PUT GET PUT PUT PUT"},
			{"lost, then 403", steps{drop, says(403, "AccessDenied")}, nil, errAny, log.Unknown, false, "PUT GET PUT"},
			{"403", steps{says(403, "AccessDenied")}, nil, errAny, log.NotWritten, false, "PUT"},
			{"400", steps{says(400, "InvalidArgument")}, nil, errAny, log.Rejected, false, "PUT"},
			{"a redirect", steps{says(307, "TemporaryRedirect")}, nil, errAny, log.Rejected, false, "PUT"},
			{"the bucket is gone", steps{says(404, "NoSuchBucket")}, nil, errAny, log.NotWritten, false, "PUT"},
			{"the answer is lost, and reading back fails for long", steps{dropReply}, slices.Repeat(steps{says(500, "InternalError")}, 4),
				errAny, log.Unknown, true, "PUT GET GET GET GET"},
			{"412, and reading back fails for long", steps{elsewhere(write(&obj), pass)}, slices.Repeat(steps{says(500, "InternalError")}, 4),
				errAny, log.Unknown, true, "PUT GET GET GET GET"},
			{"412, and reading back may not be", steps{elsewhere(write(&obj), pass)}, steps{says(403, "AccessDenied")}, errAny, log.Unknown, true, "PUT GET"},
			{"the answer and one reading back are lost", steps{dropReply}, steps{drop}, nil, 0, true, "PUT GET GET"},
		} {
			other = o.encode(log.KindBatch, "another fact")
			obj = o.batch()
			name := obj.Key().String()
			puts, gets := script("PUT", name, c.puts...), script("GET", name, c.gets...)
			o.p.follow(func(r *request) *http.Response {
				if r.op == "GET" {
					return gets(r)
				}
				return puts(r)
			})
			err := o.Append(t.Context(), o.root.Instance, obj)
			switch {
			case c.err == nil && err != nil, c.err != nil && err == nil, c.err != nil && c.err != errAny && !errors.Is(err, c.err):
				t.Errorf("%s: %v, want %v", c.name, err, c.err)
			case err != nil && log.OutcomeOf(err) != c.outcome:
				t.Errorf("%s: %v is %q, want %q", c.name, err, log.OutcomeOf(err), c.outcome)
			}
			o.p.follow(nil)
			if ops := strings.ReplaceAll(strings.Join(o.p.ops(), " "), " "+name, ""); ops != c.ops {
				t.Errorf("%s: it sent %s, want %s", c.name, ops, c.ops)
			}
			got, err := o.far.Get(t.Context(), o.root.Instance, obj.Key())
			switch there := err == nil && got.Hash() == obj.Hash(); {
			case err != nil && !errors.Is(err, log.ErrNotFound):
				t.Errorf("%s: %v", c.name, err)
			case there != c.there:
				t.Errorf("%s: that it is there is %t", c.name, there)
			}
			if err != nil { // what was not written can be written now
				if err := o.Append(t.Context(), o.root.Instance, obj); err != nil {
					t.Errorf("%s: and again: %v", c.name, err)
				}
			}
			o.p.requests()
		}
	})
}

var errAny = errors.New("any error")

// TestCompareAndSwapSettles: the same for the root.
func TestCompareAndSwapSettles(t *testing.T) {
	eachClient(t, func(t *testing.T, opt s3.Options) {
		o := own(t, opt)
		var old, next *log.Root
		swap := func(from, to **log.Root) func() {
			return func() { o.must(o.far.CompareAndSwap(context.Background(), *from, *to)) }
		}
		var other, after *log.Root
		for _, c := range []struct {
			name    string
			puts    steps
			gets    steps
			err     error
			outcome log.Outcome
			root    **log.Root // what is in the store then
			ops     string
		}{
			{"all is well", nil, nil, nil, 0, &next, "PUT"},
			{"the answer is lost", steps{dropReply}, nil, nil, 0, &next, "PUT GET"},
			{"the request is lost", steps{drop}, nil, nil, 0, &next, "PUT GET PUT"},
			{"500, and it was written", steps{func(r *request) *http.Response { pass(r); return answer(500, "InternalError", "") }}, nil, nil, 0, &next, "PUT GET"},
			{"503", steps{says(503, "SlowDown")}, nil, nil, 0, &next, "PUT GET PUT"},
			{"409", steps{says(409, "ConditionalRequestConflict")}, nil, nil, 0, &next, "PUT PUT"},
			{"another was first", steps{elsewhere(swap(&old, &other), pass)}, nil, log.ErrConflict, log.Rejected, &other, "PUT GET"},
			{"another wrote the same", steps{elsewhere(swap(&old, &next), pass)}, nil, log.ErrConflict, log.Rejected, &next, "PUT GET"},
			{"lost, and another was first", steps{elsewhere(swap(&old, &other), drop)}, nil, log.ErrConflict, log.Rejected, &other, "PUT GET"},
			{"lost, and it lands while its twin is sent", steps{drop, elsewhere(swap(&old, &next), pass)}, nil, nil, 0, &next, "PUT GET PUT GET"},
			{"the answer is lost, and others go on from it", steps{func(r *request) *http.Response { dropReply(r); swap(&next, &after)(); return nil }}, nil,
				errAny, log.Unknown, &after, "PUT GET"},
			{"the answer is lost, and reading back fails for long", steps{dropReply}, slices.Repeat(steps{says(500, "")}, 4), errAny, log.Unknown, &next, "PUT GET GET GET GET"},
			{"412, and reading back fails for long", steps{elsewhere(swap(&old, &other), pass)}, slices.Repeat(steps{says(500, "")}, 4),
				log.ErrConflict, log.Rejected, &other, "PUT GET GET GET GET"},
			{"412, and the root is as it was", steps{says(412, "PreconditionFailed")}, nil, nil, 0, &next, "PUT GET PUT"},
			{"503 for long", slices.Repeat(steps{says(503, "SlowDown")}, 4), nil, errAny, log.Unknown, &old, "PUT GET PUT GET PUT GET PUT GET"},
			{"403", steps{says(403, "AccessDenied")}, nil, errAny, log.NotWritten, &old, "PUT"},
			{"lost, then 403", steps{drop, says(403, "AccessDenied")}, nil, errAny, log.Unknown, &old, "PUT GET PUT"},
		} {
			var err error
			if old, err = o.Root(t.Context()); err != nil {
				t.Fatal(err)
			}
			o.p.requests()
			next, other = old.Next(), old.Next()
			next.Owner, other.Owner = "next", "other"
			after = next.Next()
			after.Owner = "after"
			puts, gets := script("PUT", "ROOT", c.puts...), script("GET", "ROOT", c.gets...)
			o.p.follow(func(r *request) *http.Response {
				if r.op == "GET" {
					return gets(r)
				}
				return puts(r)
			})
			err = o.CompareAndSwap(t.Context(), old, next)
			switch {
			case c.err == nil && err != nil, c.err != nil && err == nil, c.err != nil && c.err != errAny && !errors.Is(err, c.err):
				t.Errorf("%s: %v, want %v", c.name, err, c.err)
			case err != nil && log.OutcomeOf(err) != c.outcome:
				t.Errorf("%s: %v is %q, want %q", c.name, err, log.OutcomeOf(err), c.outcome)
			}
			o.p.follow(nil)
			if ops := strings.ReplaceAll(strings.Join(o.p.ops(), " "), " ROOT", ""); ops != c.ops {
				t.Errorf("%s: it sent %s, want %s", c.name, ops, c.ops)
			}
			got, err := o.far.Root(t.Context())
			if err != nil || *got != **c.root {
				t.Errorf("%s: the root is %+v, %v, want %+v", c.name, got, err, *c.root)
			}
		}
		// A root that somebody took away.
		old, err := o.Root(t.Context())
		o.must(err)
		o.must(o.far.Remove(t.Context(), o.o.Prefix+"/main/ROOT"))
		err = o.CompareAndSwap(t.Context(), old, old.Next())
		if !errors.Is(err, log.ErrConflict) || !errors.Is(err, log.ErrNoRoot) {
			t.Errorf("swap of a root that is gone: %v", err)
		}
		if _, err := o.far.Root(t.Context()); !errors.Is(err, log.ErrNoRoot) {
			t.Errorf("and then the root is %v", err)
		}
	})
}

// TestCreateSettles: a root that is created, with answers lost.
func TestCreateSettles(t *testing.T) {
	eachClient(t, func(t *testing.T, opt s3.Options) {
		for _, c := range []struct {
			name string
			puts steps
			err  error
			ops  string
		}{
			{"the answer is lost", steps{dropReply}, nil, "PUT GET"},
			{"the request is lost", steps{drop}, nil, "PUT GET PUT"},
			{"412, and then nothing is there", steps{says(412, "PreconditionFailed")}, nil, "PUT GET PUT"},
		} {
			o := opt
			o.Name = fmt.Sprintf("db%d", len(c.name))
			p := newProxy(t, &o)
			l := open(t, o)
			p.requests()
			p.follow(script("PUT", "ROOT", c.puts...))
			root := log.NewRoot()
			if err := l.CompareAndSwap(t.Context(), nil, root); !errors.Is(err, c.err) {
				t.Errorf("%s: %v, want %v", c.name, err, c.err)
			}
			if ops := strings.ReplaceAll(strings.Join(p.ops(), " "), " ROOT", ""); ops != c.ops {
				t.Errorf("%s: it sent %s, want %s", c.name, ops, c.ops)
			}
			if got, err := l.Root(t.Context()); err != nil || *got != *root {
				t.Errorf("%s: %v, %v", c.name, got, err)
			}
		}
	})
}

// TestBlobSettles: the same for a blob, which is not read back.
func TestBlobSettles(t *testing.T) {
	eachClient(t, func(t *testing.T, opt s3.Options) {
		o := own(t, opt)
		for i, c := range []struct {
			puts steps
			ops  string
		}{
			{nil, "PUT"},
			{steps{dropReply}, "PUT PUT"},
			{steps{drop}, "PUT PUT"},
			{steps{says(503, "SlowDown"), says(409, "OperationAborted")}, "PUT PUT PUT"},
		} {
			name := fmt.Sprintf("1-%d", i)
			o.p.follow(script("PUT", name, c.puts...))
			for range 2 {
				o.must(o.PutBlob(t.Context(), o.root.Instance, name, []byte(name)))
			}
			if ops := strings.ReplaceAll(strings.Join(o.p.ops(), " "), " "+name, ""); ops != c.ops+" PUT" {
				t.Errorf("%d: it sent %s, want %s PUT", i, ops, c.ops)
			}
			if b, err := o.far.GetBlob(t.Context(), o.root.Instance, name); err != nil || string(b) != name {
				t.Errorf("%d: %q, %v", i, b, err)
			}
		}
	})
}

// TestL7_FenceBeginsBehindTheAppend: the root is read once the append was answered, and not at all if it failed. Nothing else is asked.
func TestL7_FenceBeginsBehindTheAppend(t *testing.T) {
	eachClient(t, func(t *testing.T, opt s3.Options) {
		o := own(t, opt)
		obj := o.batch()
		o.p.follow(func(r *request) *http.Response {
			resp := pass(r)
			if r.op == "PUT" {
				// Somebody takes over when the object is durable, and before its writer knows.
				o.must(o.far.CompareAndSwap(context.Background(), o.root, o.root.Acquire(log.NewID(), "another")))
			}
			return resp
		})
		aerr, verr := o.AppendVerify(t.Context(), obj, o.check())
		if aerr != nil || !errors.Is(verr, log.ErrNotOwner) {
			t.Errorf("append: %v, verify: %v", aerr, verr)
		}
		if ops := o.p.ops(); !slices.Equal(ops, []string{"PUT " + obj.Key().String(), "GET ROOT"}) {
			t.Errorf("it sent %v", ops)
		}
		o.p.follow(says(400, "InvalidArgument"))
		if aerr, _ := o.AppendVerify(t.Context(), o.batch(), o.check()); aerr == nil {
			t.Error("an append that was refused")
		}
		if ops := o.p.ops(); len(ops) != 1 {
			t.Errorf("it sent %v", ops)
		}
		o.p.follow(script("GET", "ROOT", slices.Repeat(steps{says(500, "")}, s3.Tries)...))
		if err := o.Verify(t.Context(), o.check()); err == nil || errors.Is(err, log.ErrNotOwner) {
			t.Errorf("a fence without an answer: %v", err)
		}
	})
}

// TestL9_NoClock: nobody can tell by S3 how old a root is.
func TestL9_NoClock(t *testing.T) {
	eachClient(t, func(t *testing.T, opt s3.Options) {
		if _, age, err := own(t, opt).RootAge(t.Context()); err != nil || age >= 0 {
			t.Errorf("%v, %v", age, err)
		}
	})
}

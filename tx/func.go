package tx

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
)

// Func is a transaction function: from the value before the transaction and its arguments it makes transaction data, which stands
// in place of the call. It may contain further calls. It must depend on nothing else and must end soon after ctx does; it runs
// on the goroutine that prepares every transaction. An error or a panic refuses the transaction as [ErrFunctionFailed].
type Func func(ctx context.Context, before db.DB, args []any) (Data, error)

// AttrPred judges a value that is asserted of an attribute: nil, or why it is refused. What holds for [Func] holds for it.
type AttrPred func(ctx context.Context, v datom.Value) error

// EntityPred judges an entity as it is after the transaction: nil, or why it is refused. What holds for [Func] holds for it.
type EntityPred func(ctx context.Context, after db.DB, e datom.ID) error

// expansion is a run of transaction functions until no call is left.
type expansion struct {
	p      *Preparer
	before db.DB
	out    Data
	at     []Pos
	calls  int
}

// expand puts what transaction functions return in the place of their calls. Every form keeps the position of the form that the
// user wrote.
func (p *Preparer) expand(d Data) (Data, []Pos, error) {
	x := expansion{p: p, before: p.st.View()}
	for i, f := range d {
		x.form(f, Pos{Form: i + 1}, 0)
	}
	return x.out, x.at, p.flt.upTo(phaseFunctions)
}

func (x *expansion) form(f Form, pos Pos, depth int) {
	l, ok := f.(List)
	if !ok || builtinOp(l.Op) {
		x.out, x.at = append(x.out, f), append(x.at, pos)
		return
	}
	if depth == 0 {
		pos.Line, pos.Column = l.Pos.Line, l.Pos.Column
	}
	refuse := func(k Kind, msg string, err error) {
		x.p.flt.add(phaseFunctions, &fault{Error: Error{Kind: k, Pos: pos, Attr: l.Op.String(), Msg: msg, Err: err}})
	}
	fn, ok := x.p.env.Functions[l.Op]
	switch x.calls++; {
	case !ok:
		refuse(UnknownFunction, fmt.Sprintf("there is no transaction function %s; functions are registered with the transactor (Options.Functions)", l.Op), nil)
		return
	case depth >= x.p.lim.Depth:
		refuse(LimitExceeded, fmt.Sprintf("calls of transaction functions are nested more than %d deep", x.p.lim.Depth), nil)
		return
	case x.calls > x.p.lim.Datoms || len(x.out) > x.p.lim.Datoms:
		x.p.flt.add(phaseFunctions, &fault{Error: Error{Kind: LimitExceeded, Msg: fmt.Sprintf("transaction functions make more than %d forms; split the transaction", x.p.lim.Datoms)}})
		return
	}
	d, err := x.call(fn, l.Args)
	if err != nil {
		refuse(FunctionFailed, fmt.Sprintf("the transaction function %s failed: %s", l.Op, clip(err.Error())), err)
		return
	}
	for _, f := range d {
		if l, ok := f.(List); ok {
			l.Pos = pos
			f = l
		}
		x.form(f, pos, depth+1)
	}
}

func (x *expansion) call(fn Func, args []any) (Data, error) {
	before := x.before
	return bounded(x.p.env, func(ctx context.Context) (Data, error) { return fn(ctx, before, natural(args)) })
}

// natural is the arguments as a function gets them: none is Untyped.
func natural(args []any) []any {
	out := make([]any, len(args))
	for i, a := range args {
		out[i] = untyped(a, datom.KindNil)
	}
	return out
}

// ErrStuck is the cause of a refusal because a function or predicate neither returned in time nor heeded its context. Its goroutine
// is left behind: it can be waited for no longer.
var ErrStuck = errors.New("it did not return, although its context has ended")

// grace is how long a function may take to return once its context has ended.
const grace = time.Second

// bounded calls a function of the user's: a panic is an error, and so is taking longer than Env.Timeout (P9).
func bounded[T any](env *Env, fn func(context.Context) (T, error)) (v T, err error) {
	ctx := env.context()
	if err := ctx.Err(); err != nil {
		return v, err
	}
	if env.Timeout <= 0 {
		return contained(ctx, fn)
	}
	ctx, cancel := context.WithTimeout(ctx, env.Timeout)
	defer cancel()
	type outcome struct {
		v   T
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		o := outcome{err: errExited}
		defer func() { done <- o }() // also if fn ends the goroutine
		o.v, o.err = contained(ctx, fn)
	}()
	var late <-chan time.Time
	for ended := ctx.Done(); ; {
		select {
		case o := <-done:
			return o.v, o.err
		case <-ended:
			ended = nil
			t := time.NewTimer(grace)
			defer t.Stop()
			late = t.C
		case <-late:
			return v, ErrStuck
		}
	}
}

// errExited is the failure of a function that ended its goroutine instead of returning.
var errExited = errors.New("it called runtime.Goexit")

// contained makes an error of a panic, also of one in the error that fn returned: a nil pointer in it, say. ErrStuck is only this package's to
// say: in fn's error, which may be that of a With of its own, it is but a text.
func contained[T any](ctx context.Context, fn func(context.Context) (T, error)) (v T, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	v, err = fn(ctx)
	if err != nil {
		if text := err.Error(); errors.Is(err, ErrStuck) {
			err = errors.New(text)
		}
	}
	return v, err
}

func (e *Env) context() context.Context {
	if e.Context == nil {
		return context.Background()
	}
	return e.Context
}

func builtinOp(k datom.Keyword) bool {
	switch k {
	case OpAdd, OpRetract, OpRetractEntity, OpRetractEntityOld, OpCAS, OpCASOld, OpEnsure, OpExcise:
		return true
	}
	return false
}

package pg

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/steledb/stele/log"
)

var (
	// ErrURL: the URL or DSN cannot be read, or an option is out of range.
	ErrURL = errors.New("bad PostgreSQL URL")
	// ErrSchema: the tables are not there and cannot be made, or a newer version of this library made them.
	ErrSchema = errors.New("the schema " + schemaName + " cannot be used")
	// ErrUnsafe: the server does not keep what it says it has committed (fsync is off).
	ErrUnsafe = errors.New("the server does not keep what it commits")
)

var (
	errNotPrimary = errors.New("the server is a standby, in recovery: the log is read and written on the primary alone")
	errNoCancel   = errors.New("statements are not cancelled")
)

// warnedError is a commit that answered with a warning: it may not be where it was to be.
type warnedError struct{ notice *pgconn.Notice }

func (e *warnedError) Error() string {
	return "the commit answered with a warning: " + e.notice.Message + " (SQLSTATE " + e.notice.Code + ")"
}

// rule says what an SQLSTATE, or a class of them, means once a statement was sent and the server answered with ERROR.
type rule struct {
	state   string // a beginning of it
	outcome log.Outcome
	hint    string
	drop    bool // the connection, or the server behind it, is not what it should be
}

// poolerHint is what to do about prepared statements that come and go.
const poolerHint = "a pooler stands in between? then say ?pooler=transaction"

// rules are looked through in this order. An ERROR ends the transaction without a commit, so it is "not written" unless it can
// come from somebody else than the server that ran the statement, or would come again.
var rules = []rule{
	{state: "08", outcome: log.Unknown, drop: true},                         // a pooler lost its server, or the protocol is out of step
	{state: "26000", outcome: log.NotWritten, hint: poolerHint, drop: true}, // the statement is not there
	{state: "42P05", outcome: log.NotWritten, hint: poolerHint, drop: true}, // or already there
	{state: "0A000", outcome: log.NotWritten, drop: true},                   // a cached plan's result type changed
	{state: "25006", outcome: log.NotWritten, hint: "the server is read-only: a standby, or a primary that was demoted?", drop: true},
	{state: "42501", outcome: log.Rejected, hint: "the role lacks rights on the tables in schema " + schemaName},
	{state: "42", outcome: log.Rejected},             // undefined table, wrong type
	{state: "22", outcome: log.Rejected},             // data that the table cannot hold
	{state: "54", outcome: log.Rejected},             // more than the server can hold
	{state: "57P", outcome: log.Unknown, drop: true}, // shutting down; it is FATAL everywhere but in a pooler
	// 23505 unique violation, 40001 serialization failure, 40P01 deadlock, 53xxx disk full, out of memory, 55P03 lock timeout, 57014
	// statement timeout, 58030 I/O error, XX001 damaged data, …
	{state: "", outcome: log.NotWritten},
}

func ruleOf(e *pgconn.PgError) rule {
	if e.SeverityUnlocalized != "ERROR" && (e.SeverityUnlocalized != "" || e.Severity != "ERROR") {
		// FATAL and PANIC end the session, in the middle of a commit as well (57P01 admin shutdown, 57P02 crash shutdown).
		return rule{outcome: log.Unknown, drop: true}
	}
	for _, r := range rules {
		if strings.HasPrefix(e.Code, r.state) {
			return r
		}
	}
	return rule{} // not reached: the last rule takes all
}

// stale reports whether the connection that gave this answer is to be closed.
func stale(err error) bool {
	if err == nil {
		return false
	}
	var pe *pgconn.PgError
	return errors.As(err, &pe) && ruleOf(pe).drop || errors.Is(err, errNotPrimary)
}

// outcomeOf says what became of a write that was sent and whose statement ended with err.
func outcomeOf(err error) log.Outcome {
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		return ruleOf(pe).outcome
	}
	return log.Unknown
}

// explain makes of an error of a call what its caller sees: why ctx ended if that is behind it, ErrClosed if the handle was closed, a hint
// where there is one.
func (l *Log) explain(ctx context.Context, err error) error {
	switch {
	case l.isClosed():
		return log.ErrClosed
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		if r := ruleOf(pe); r.hint != "" {
			return fmt.Errorf("%w (%s)", err, r.hint)
		}
	}
	return err
}

// readErr is the error of a call that writes nothing.
func (l *Log) readErr(ctx context.Context, doing string, err error) error {
	return fmt.Errorf("%s: %w", doing, l.explain(ctx, err))
}

// writeErr is the error of a write: what became of it is known from where it failed.
func (l *Log) writeErr(ctx context.Context, doing string, sent bool, err error) error {
	out := log.NotWritten
	if sent {
		out = outcomeOf(err)
	}
	return log.WithOutcome(out, l.readErr(ctx, doing, err))
}

package pg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// conn is a connection to the server, used by one call at a time.
type conn struct {
	pg        *pgconn.PgConn
	raw       net.Conn                                 // below pg
	pooled    bool                                     // a pooler stands between: no named statements
	prepared  [statements]*pgconn.StatementDescription // by the statements' ids
	warning   *pgconn.Notice
	connected atomic.Bool
}

// connect makes a connection to a primary.
func (l *Log) connect(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.life, cancel)()
	c := &conn{pooled: l.opts.Pooler == Transaction}
	cfg := l.config.Copy()
	dial := cfg.DialFunc
	// pgconn cancels the statement that is under way when a context ends or a read fails, by dialing again. A commit that is waiting for a
	// standby would then answer with a warning and be visible without being where it should be: nobody is to be found.
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if c.connected.Load() {
			return nil, errNoCancel
		}
		raw, err := dial(ctx, network, addr)
		c.raw = raw
		return raw, err
	}
	cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if n.SeverityUnlocalized == "WARNING" {
			c.warning = n
		}
	}
	pg, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, connectError(err)
	}
	c.pg = pg
	c.connected.Store(true)
	return c, nil
}

// validate accepts a server that is a primary and keeps what it commits. Of several hosts the first that it accepts is taken.
func validate(ctx context.Context, pg *pgconn.PgConn) error {
	results, err := pg.Exec(ctx, "SELECT pg_is_in_recovery()::text, current_setting('fsync')").ReadAll()
	switch {
	case err != nil:
		return err
	case len(results) != 1 || len(results[0].Rows) != 1 || len(results[0].Rows[0]) != 2:
		return errors.New("the server does not answer as PostgreSQL does")
	case string(results[0].Rows[0][0]) != "false":
		return errNotPrimary
	case string(results[0].Rows[0][1]) != "on":
		return fmt.Errorf("%w: fsync is off, so a crash of its machine loses or damages the database; set fsync = on", ErrUnsafe)
	}
	return nil
}

// connectError keeps of pgconn's error what may be shown: not the configuration, which holds the password; in one line.
func connectError(err error) error {
	var ce *pgconn.ConnectError
	if errors.As(err, &ce) {
		err = ce.Unwrap()
	}
	hint := ""
	var pe *pgconn.PgError
	if errors.As(err, &pe) && strings.Contains(pe.Message, "unsupported startup parameter") {
		hint = " (" + poolerHint + ")"
	}
	return &unreachable{"cannot connect: " + strings.ReplaceAll(err.Error(), "\n", "; ") + hint, err}
}

type unreachable struct {
	text string
	err  error
}

func (e *unreachable) Error() string { return e.text }
func (e *unreachable) Unwrap() error { return e.err }

// close closes a connection, or abandons it: a statement that is still under way goes on in the server, unobserved.
func (c *conn) close() {
	if !c.pg.IsClosed() && !c.pg.IsBusy() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.pg.Close(ctx)
	}
	_ = c.raw.Close()
	if c.pg.IsClosed() {
		<-c.pg.CleanupDone()
	}
}

// request is one statement with its parameters, and what the server answered.
type request struct {
	stmt   *statement
	params [][]byte                    // in binary
	row    func(values [][]byte) error // sees each row, in binary; valid until it returns; nil: no rows are wanted

	affected int64
	err      error // nil: it was committed
}

var inBinary = []int16{1}

// run sends requests in one flush and reads the answers: one round trip. Each is followed by a Sync and so is a transaction of its
// own, which has ended, and is durable, before the next begins. sent says whether the server may have seen anything; err is
// about the connection, which is then of no more use, and stands in each request that was not answered as well.
func (c *conn) run(ctx context.Context, reqs ...*request) (sent bool, err error) {
	p := c.pg.StartPipeline(ctx)
	for _, r := range reqs {
		if c.pooled {
			p.SendQueryParams(r.stmt.sql, r.params, nil, inBinary, inBinary)
		} else {
			if d := c.prepared[r.stmt.id]; d != nil {
				p.SendQueryStatement(d, r.params, inBinary, inBinary)
			} else {
				p.SendPrepare(r.stmt.name, r.stmt.sql, nil)
				p.SendQueryPrepared(r.stmt.name, r.params, inBinary, inBinary)
			}
		}
		p.SendPipelineSync()
	}
	if err = p.Flush(); err != nil {
		sent = !pgconn.SafeToRetry(err)
	}
	for i, r := range reqs {
		if err == nil {
			sent = true
			err = c.answer(p, r)
		}
		if err != nil {
			for _, r := range reqs[i:] {
				if r.err == nil {
					r.err = err
				}
			}
			break
		}
	}
	if closeErr := p.Close(); err == nil {
		err = closeErr
	}
	return sent, err
}

// answer reads what the server has to say of one request, up to the end of its transaction. An error is about the connection.
func (c *conn) answer(p *pgconn.Pipeline, r *request) error {
	c.warning = nil
	for {
		res, err := p.GetResults()
		switch res := res.(type) {
		case *pgconn.StatementDescription:
			res.Name = r.stmt.name
			c.prepared[r.stmt.id] = res
		case *pgconn.ResultReader:
			for res.NextRow() {
				if r.row != nil && r.err == nil {
					r.err = r.row(res.Values())
				}
			}
			tag, cerr := res.Close()
			r.affected, err = tag.RowsAffected(), cerr
			if verb, _, _ := strings.Cut(tag.String(), " "); err == nil && !strings.HasPrefix(r.stmt.sql, verb) {
				err = fmt.Errorf("the server answers %q to another statement", tag)
			}
		case *pgconn.PipelineSync:
			if r.err == nil && c.warning != nil && r.row == nil {
				r.err = &warnedError{c.warning}
			}
			return nil
		case nil:
			if err == nil {
				err = errors.New("the server left a statement without an answer")
			}
		}
		if err == nil {
			continue
		}
		if r.err == nil {
			r.err = err
		}
		var pe *pgconn.PgError
		if c.pg.IsClosed() || !errors.As(err, &pe) {
			return err
		}
	}
}

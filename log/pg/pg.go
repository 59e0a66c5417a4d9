package pg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/steledb/stele/log"
)

// Pooler is what stands between this process and the server.
type Pooler string

const (
	// Direct: nothing, or a pooler that gives each connection a session of its own. Statements are prepared under names.
	Direct Pooler = ""
	// Transaction: a pooler that gives a server connection for one transaction at a time, as PgBouncer does with pool_mode = transaction.
	// Every statement is sent unnamed and parsed where it runs.
	Transaction Pooler = "transaction"
)

// Options says where a database is.
type Options struct {
	// URL names the server and the database in it: "postgres://USER:PASSWORD@HOST:PORT/DATABASE?…", several hosts included, or libpq's
	// "host=… user=…", with the options and environment variables that pgx knows. Required.
	URL string
	// Name is the Stele database's, [a-z0-9][a-z0-9._-]{0,62}; "" is "main".
	Name string
	// Pooler says what stands in between.
	Pooler Pooler
	// Depth is how many appends are kept in flight, each on a connection of its own, from 1 to 64; 0 is 4.
	Depth int
	// Logger gets warnings; nil is none.
	Logger *slog.Logger
}

const (
	defaultDepth   = 4
	maxDepth       = 64
	connectTimeout = 5 * time.Second // for each host, where the URL says nothing: the next one may be the primary
	maxMessage     = 2 * maxBlob     // bytes; whoever sends more is no server of ours
)

// Log is one database on a server. It implements [log.Log].
type Log struct {
	opts   Options
	name   []byte // opts.Name, as a parameter
	config *pgconn.Config
	info   log.Info
	recent recent

	flushes *pool // Append, AppendVerify, Verify
	lease   *pool // CompareAndSwap, RootAge; one connection, which nothing else uses
	others  *pool // everything else

	life  context.Context // ended by Close
	end   context.CancelFunc
	calls sync.WaitGroup
	mu    sync.Mutex
	shut  bool
}

var _ log.Log = (*Log)(nil)

// Open connects to the server, looks whether it can be relied on, and makes the tables if they are not there. An error wraps
// ErrURL, ErrSchema or ErrUnsafe, or says why the server cannot be reached; it holds no secret.
func Open(ctx context.Context, o Options) (*Log, error) {
	if o.Name == "" {
		o.Name = "main"
	}
	if o.Depth == 0 {
		o.Depth = defaultDepth
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	config, err := parse(o.URL)
	if log.CheckName(o.Name) != nil {
		err = errors.Join(err, fmt.Errorf("%w: a database cannot be called %q", ErrURL, o.Name))
	}
	if o.Depth < 1 || o.Depth > maxDepth {
		err = errors.Join(err, fmt.Errorf("%w: a depth of %d; it must be from 1 to %d", ErrURL, o.Depth, maxDepth))
	}
	if o.Pooler != Direct && o.Pooler != Transaction {
		err = errors.Join(err, fmt.Errorf("%w: there is no pooler %q", ErrURL, o.Pooler))
	}
	if err != nil {
		return nil, err
	}
	if o.Pooler == Direct {
		// Plans are made once: planning a fence takes three times as long as running it. So none may be one that is good only while a
		// table is small. (Behind a pooler every statement is planned where it runs, and these parameters would be refused.)
		config.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
		config.RuntimeParams["enable_seqscan"] = "off"
		config.RuntimeParams["jit"] = "off"
		// Whoever waited for another's write is to see it, and not to fail for having begun before: else who lost a race would not learn of it.
		config.RuntimeParams["default_transaction_isolation"] = "read committed"
	}
	l := &Log{opts: o, name: []byte(o.Name), config: config}
	l.recent.keep = 4 * o.Depth
	l.life, l.end = context.WithCancel(context.Background())
	l.flushes, l.lease, l.others = newPool(o.Depth, l.connect), newPool(1, l.connect), newPool(2, l.connect)
	s, err := l.setUp(ctx)
	if err != nil {
		err = fmt.Errorf("cannot open %s: %w", location(config, o.Name), l.explain(ctx, err))
		return nil, errors.Join(err, l.Close())
	}
	if s.fullPageWrites != "on" {
		o.Logger.Warn("full_page_writes is off: unless the file system never tears a page, a crash may damage the database",
			"location", location(config, o.Name))
	}
	l.info = log.Info{
		Backend:    "pg",
		Location:   location(config, o.Name),
		Durability: s.durability(),
		Durable:    true,
		Depth:      o.Depth,
		Compress:   true,
	}
	return l, nil
}

// parse reads a URL or DSN. What pgx says about a bad one may hold parts of it, a password among them: only phrases of its own are kept.
func parse(url string) (*pgconn.Config, error) {
	if url == "" {
		return nil, fmt.Errorf("%w: it is empty", ErrURL)
	}
	c, err := pgconn.ParseConfig(url)
	if err != nil {
		for _, phrase := range []string{
			"invalid port", "failed to configure TLS", "failed to read service", "invalid connect_timeout", "invalid sslcertmode",
			"unknown target_session_attrs value", "unknown channel_binding value", "invalid require_auth", "invalid keyword/value",
			"failed to parse as keyword/value", "failed to parse as URL",
		} {
			if strings.Contains(err.Error(), "`: "+phrase) {
				return nil, fmt.Errorf("%w: %s", ErrURL, phrase)
			}
		}
		return nil, fmt.Errorf("%w: it cannot be read", ErrURL)
	}
	if strings.Contains(c.Database, "@") {
		// What was taken for the database is, more likely, the rest of a password, and would be shown.
		return nil, fmt.Errorf("%w: the database's name has an @ in it; a slash in a user's name or a password is written %%2F", ErrURL)
	}
	own := c.ValidateConnect // target_session_attrs
	c.ValidateConnect = func(ctx context.Context, pg *pgconn.PgConn) error {
		if own != nil {
			if err := own(ctx, pg); err != nil {
				return err
			}
		}
		return validate(ctx, pg)
	}
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "stele"
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectTimeout
	}
	c.MaxProtocolMessageBodyLen = maxMessage
	return c, nil
}

// location is where a database is, without user and password.
func location(c *pgconn.Config, name string) string {
	var hosts []string
	add := func(host string, port uint16) {
		if h := net.JoinHostPort(host, strconv.Itoa(int(port))); !slices.Contains(hosts, h) {
			hosts = append(hosts, h)
		}
	}
	add(c.Host, c.Port)
	for _, f := range c.Fallbacks {
		add(f.Host, f.Port)
	}
	return "postgres://" + strings.Join(hosts, ",") + "/" + c.Database + "?db=" + name
}

// Info describes the store.
func (l *Log) Info() log.Info { return l.info }

// enter opens a call, which calls.Done ends.
func (l *Log) enter(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shut {
		return log.WithOutcome(log.NotWritten, log.ErrClosed)
	}
	if ctx.Err() != nil {
		return log.WithOutcome(log.NotWritten, context.Cause(ctx))
	}
	l.calls.Add(1)
	return nil
}

func (l *Log) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shut
}

// Close ends the calls under way and closes the connections. A statement that is under way goes on in the server. Closing again does nothing.
func (l *Log) Close() error {
	l.mu.Lock()
	l.shut = true
	l.mu.Unlock()
	l.end()
	for _, p := range []*pool{l.flushes, l.lease, l.others} {
		p.close()
	}
	l.calls.Wait()
	return nil
}

// Lock does nothing: what proves ownership is the root.
func (l *Log) Lock(ctx context.Context, wait bool) (unlock func() error, err error) {
	if err := l.enter(ctx); err != nil {
		return nil, err
	}
	l.calls.Done()
	return func() error { return nil }, nil
}

// Adopt does nothing: a row is there whole or not at all, and who sees one sees what the server has made durable.
func (l *Log) Adopt(ctx context.Context, inst log.ID, head log.Pos, unfenced []*log.Object) (repairs []string, err error) {
	if err := l.enter(ctx); err != nil {
		return nil, err
	}
	l.calls.Done()
	return nil, nil
}

package pg

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/steledb/stele/internal/netfault"
	"github.com/steledb/stele/log"
)

// TestOutcomes: for each SQLSTATE, what a write that ends with it is. The server raises them itself, from a trigger.
func TestOutcomes(t *testing.T) {
	ways(t, func(t *testing.T, opt Options, direct string) {
		o := own(t, open(t, opt))
		s := connect(t, direct)
		s.rows("CREATE TABLE raising (state text)")
		s.rows(`CREATE FUNCTION raising() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE s text; BEGIN
			SELECT state INTO s FROM raising; IF s <> '' THEN RAISE 'raised' USING ERRCODE = s; END IF; RETURN NEW; END $$`)
		s.rows("CREATE TRIGGER raising BEFORE INSERT ON stele.log FOR EACH ROW EXECUTE FUNCTION raising()")
		s.rows("CREATE CONSTRAINT TRIGGER late AFTER INSERT ON stele.blob DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION raising()")
		for state, want := range map[string]log.Outcome{
			"40001": log.NotWritten, // serialization failure
			"40P01": log.NotWritten, // deadlock
			"23505": log.NotWritten, // unique violation, of an index that is not ours
			"53100": log.NotWritten, // disk full
			"53200": log.NotWritten, // out of memory
			"53300": log.NotWritten, // too many connections
			"55P03": log.NotWritten, // lock timeout
			"57014": log.NotWritten, // statement timeout
			"58030": log.NotWritten, // I/O error
			"XX001": log.NotWritten, // damaged data
			"25006": log.NotWritten, // read-only transaction
			"26000": log.NotWritten, // no such statement
			"42P05": log.NotWritten, // a statement of that name exists
			"0A000": log.NotWritten, // a cached plan must not change its result type
			"42501": log.Rejected,   // insufficient privilege
			"42P01": log.Rejected,   // undefined table
			"22001": log.Rejected,   // too long
			"54000": log.Rejected,   // program limit exceeded
			"08006": log.Unknown,    // connection failure: a pooler's
			"57P01": log.Unknown,    // admin shutdown: a pooler's
			"57P02": log.Unknown,    // crash shutdown
		} {
			s.rows("DELETE FROM raising")
			s.rows("INSERT INTO raising VALUES ('%s')", state)
			obj := o.batch()
			hint := map[string]string{"26000": "?pooler=transaction", "42P05": "?pooler=transaction", "25006": "read-only", "42501": "rights"}[state]
			if hint == "" {
				hint = state
			}
			wants(t, o.append(obj), want, hint)
			a, _ := o.appendVerify(obj)
			wants(t, a, want, hint)
			wants(t, o.l.PutBlob(t.Context(), o.root.Instance, "1-"+state, nil), want, hint) // raised by the commit
			if n := s.get("SELECT count(*) FROM stele.log WHERE epoch = 1 AND first_t = %d", obj.FirstT); n != "0" {
				t.Errorf("%s: it was written", state)
			}
			s.rows("DELETE FROM raising")
			o.must(o.append(obj)) // and the handle goes on
			o.must(o.l.PutBlob(t.Context(), o.root.Instance, "1-"+state, nil))
		}
	})
}

// TestOutcomeOfSessionsThatEnd: FATAL says nothing of a statement that was sent; what was never sent is not written.
func TestOutcomeOfSessionsThatEnd(t *testing.T) {
	for _, severity := range []string{"FATAL", "PANIC", "FATAL in another language"} {
		if out := outcomeOf(&pgconn.PgError{Severity: severity, SeverityUnlocalized: severity, Code: "40001"}); out != log.Unknown {
			t.Errorf("%s is %s", severity, out)
		}
	}
	if out := outcomeOf(&pgconn.PgError{Severity: "FEHLER", SeverityUnlocalized: "ERROR", Code: "40001"}); out != log.NotWritten {
		t.Errorf("an ERROR in another language is %s", out)
	}
	for _, err := range []error{errors.New("connection reset"), context.DeadlineExceeded, &warnedError{&pgconn.Notice{}}} {
		if out := outcomeOf(err); out != log.Unknown {
			t.Errorf("%v is %s", err, out)
		}
	}
	u, line := proxied(t, servers.Postgres(t))
	o := own(t, open(t, Options{URL: u}))
	obj := o.batch()
	line.Reset()
	line.Refuse()
	// Whether the connection is found to be gone before anything is sent is a matter of luck.
	if o.append(obj) == nil || o.l.CompareAndSwap(t.Context(), o.root, o.root.Next()) == nil {
		t.Fatal("written to nowhere")
	}
	wants(t, o.append(obj), log.NotWritten, "connection refused")
	wants(t, o.l.CompareAndSwap(t.Context(), o.root, o.root.Next()), log.NotWritten, "connection refused")
	a, _ := o.appendVerify(obj)
	wants(t, a, log.NotWritten, "connection refused")
	if err := line.Accept(); err != nil {
		t.Fatal(err)
	}
	o.must(o.append(obj))
}

// TestLostReplies: the INSERT was delivered, and its answer, or a part of it, never came: unknown, and the same bytes settle it.
func TestLostReplies(t *testing.T) {
	ways(t, func(t *testing.T, opt Options, direct string) {
		var line *netfault.Proxy
		opt.URL, line = proxied(t, opt.URL)
		o := own(t, open(t, opt))
		lost := func(after int64) (obj *log.Object, appendErr, verifyErr error) {
			obj = o.batch()
			sought := obj.Bytes()[:log.HeaderSize]
			cut := line.CutReply(after, func(sent []byte) bool { return strings.Contains(string(sent), string(sought)) })
			appendErr, verifyErr = o.appendVerify(obj)
			if appendErr == nil && verifyErr == nil {
				t.Fatalf("the answer came whole: it has no more than %d bytes", after)
			}
			<-cut
			return obj, appendErr, verifyErr
		}
		unknown, verified := 0, 0
		for after := int64(0); after < 140; after += 3 {
			obj, a, v := lost(after)
			switch {
			case a != nil:
				wants(t, a, log.Unknown, "append")
				unknown++
			case v != nil:
				if errors.Is(v, log.ErrNotOwner) || errors.Is(v, log.ErrRolledBack) || log.OutcomeOf(v) == log.Rejected {
					t.Errorf("a lost answer is a verdict: %v", v)
				}
				verified++
			}
			o.must(o.appendVerify(obj))
		}
		if unknown == 0 || verified == 0 {
			t.Errorf("%d appends were unknown, %d durable with an unknown verdict: the cuts were not where they should be", unknown, verified)
		}
		// A swap whose answer is lost is settled by its caller, who reads the root.
		next := o.root.Next()
		cut := line.CutReply(0, func(sent []byte) bool { return strings.Contains(string(sent), "STLR") })
		wants(t, o.l.CompareAndSwap(t.Context(), o.root, next), log.Unknown, "swap")
		<-cut
		until(t, "the swap has landed", func() bool {
			r, err := o.l.Root(t.Context())
			return err == nil && *r == *next
		})
		if err := o.l.CompareAndSwap(t.Context(), o.root, next); !errors.Is(err, log.ErrConflict) {
			t.Errorf("the same swap again: %v", err)
		}
	})
}

// TestSilence: a server that does not answer any more holds nobody longer than his context, and is forgotten.
func TestSilence(t *testing.T) {
	direct := servers.Postgres(t)
	u, line := proxied(t, direct)
	o := own(t, open(t, Options{URL: u}))
	obj := o.batch()
	s := connect(t, direct)
	line.Set(netfault.Faults{Down: netfault.Link{Drop: true}})
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	errs := make(chan error, 5)
	calls.Go(func() { errs <- o.l.Append(ctx, o.root.Instance, obj) })
	until(t, "the append is committed", func() bool { return s.get("SELECT count(*) FROM stele.log WHERE first_t = 1") == "1" })
	for _, call := range []func() error{
		func() error { return o.l.Verify(ctx, o.check()) },
		func() error { _, _, err := o.l.RootAge(ctx); return err },
		func() error { _, err := o.l.Get(ctx, o.root.Instance, log.StartKey(1)); return err },
		func() error { _, err := o.l.Root(ctx); return err },
	} {
		calls.Go(func() { errs <- call() })
	}
	cancel()
	calls.Wait()
	for range cap(errs) {
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
	line.Set(netfault.Faults{})
	o.must(o.appendVerify(obj))
}

// TestWhoLostARaceLearnsOfIt: also where the database's transactions begin with a snapshot that they keep.
func TestWhoLostARaceLearnsOfIt(t *testing.T) {
	server := servers.Postgres(t)
	s := connect(t, server)
	s.rows("DO $$ BEGIN EXECUTE format('ALTER DATABASE %%I SET default_transaction_isolation = ''repeatable read''', current_database()); END $$")
	if got := connect(t, server).get("SHOW default_transaction_isolation"); got != "repeatable read" {
		t.Fatal(got)
	}
	const racers = 16
	var logs [racers]*Log
	for i := range logs {
		logs[i] = open(t, Options{URL: server, Depth: 1})
	}
	var root *log.Root
	for range 5 {
		var won, lost atomic.Int64
		var wait sync.WaitGroup
		begin := make(chan struct{})
		for _, l := range logs {
			next := log.NewRoot()
			if root != nil {
				next = root.Acquire(log.NewID(), "a")
			}
			wait.Go(func() {
				<-begin
				switch err := l.CompareAndSwap(t.Context(), root, next); {
				case err == nil:
					won.Add(1)
				case errors.Is(err, log.ErrConflict):
					lost.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		close(begin)
		wait.Wait()
		if won.Load() != 1 || lost.Load() != racers-1 {
			t.Fatalf("%d won, %d lost", won.Load(), lost.Load())
		}
		var err error
		if root, err = logs[0].Root(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

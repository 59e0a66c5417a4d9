package pg

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/steledb/stele/internal/netfault"
	"github.com/steledb/stele/internal/testserver"
	"github.com/steledb/stele/log"
)

// ways are the two ways to a database: direct, and through a pooler.
func ways(t *testing.T, f func(t *testing.T, o Options, direct string)) {
	t.Run("direct", func(t *testing.T) {
		u := servers.Postgres(t)
		f(t, Options{URL: u}, u)
	})
	t.Run("pgbouncer", func(t *testing.T) {
		pooled, direct := servers.PgBouncer(t)
		f(t, Options{URL: pooled, Pooler: Transaction}, direct)
	})
}

// TestFenceRunsAfterTheCommit: while the INSERT's commit waits, the root is swapped. The fence that was sent with it sees that.
func TestFenceRunsAfterTheCommit(t *testing.T) {
	server := testserver.OwnPostgres(t)
	bouncer := testserver.OwnPgBouncer(t, server)
	for name, o := range map[string]Options{
		"direct": {URL: server.URL(), Name: "direct"}, "pgbouncer": {URL: bouncer.URL(), Name: "pooled", Pooler: Transaction},
	} {
		t.Run(name, func(t *testing.T) {
			o := own(t, open(t, o))
			s := connect(t, server.URL())
			release := hold(s)
			obj := o.batch()
			type result struct{ appendErr, verifyErr error }
			got := make(chan result)
			go func() {
				a, v := o.appendVerify(obj)
				got <- result{a, v}
			}()
			waits := func() bool {
				w := s.waiting()
				return len(w) == 1 && strings.Contains(w[0][1], "INSERT INTO stele.log")
			}
			until(t, "the commit waits", waits)
			other := o.root.Acquire(log.NewID(), "another")
			b, err := log.EncodeRoot(other)
			o.must(err)
			s.rows(`UPDATE stele.root SET bytes = '\x%x' WHERE name = '%s'`, b, o.l.opts.Name)
			if !waits() {
				t.Fatal("the commit did not wait")
			}
			release()
			if r := <-got; r.appendErr != nil || !errors.Is(r.verifyErr, log.ErrNotOwner) {
				t.Errorf("append: %v, verify: %v", r.appendErr, r.verifyErr)
			}
		})
	}
}

// TestTwoTransactionsOneRoundTrip: what is sent together runs as two transactions, in one turn of the line.
func TestTwoTransactionsOneRoundTrip(t *testing.T) {
	ways(t, func(t *testing.T, o Options, direct string) {
		var line *netfault.Proxy
		o.URL, line = proxied(t, o.URL)
		ow := own(t, open(t, o))
		for i := range 5 {
			obj := ow.batch()
			before := line.Stats().Turns
			ow.must(ow.appendVerify(obj))
			want := int64(1)
			if o.Pooler == Transaction {
				want = 2
			}
			if n := line.Stats().Turns - before; n != want {
				t.Errorf("append %d: %d round trips", i, n)
			}
		}
		if o.Pooler == Transaction {
			return
		}

		// The same, with a statement that tells its transaction in the fence's place.
		obj := ow.batch()
		in, err := newInsertion(&ow.root.Instance, obj)
		ow.must(err)
		var row []string
		probe := &request{stmt: &statement{31, "probe", `SELECT pg_xact_status(xmin::text::xid8)::text, (pg_current_xact_id_if_assigned() IS NULL)::text
FROM stele.log WHERE db_id = $1::uuid AND epoch = $2::bigint AND first_t = $3::bigint`}, params: in.params[:3],
			row: func(v [][]byte) error {
				for _, b := range v {
					row = append(row, string(b))
				}
				return nil
			}}
		_, err = ow.l.flushes.do(t.Context(), &in.request, probe)
		ow.must(err, in.err, probe.err)
		if !slices.Equal(row, []string{"committed", "true"}) {
			t.Errorf("behind the INSERT: %v", row)
		}
	})
}

// TestFenceVerdicts: what was durable and is gone, whoever named it; what is sealed; and what was never there.
func TestFenceVerdicts(t *testing.T) {
	ways(t, func(t *testing.T, opt Options, direct string) {
		s := connect(t, direct)
		lose := func(obj *log.Object) {
			t.Helper()
			if tag := s.get("DELETE FROM stele.log WHERE epoch = %d AND first_t = %d RETURNING 'gone'", obj.Epoch, obj.Key().FirstT); tag != "gone" {
				t.Fatal(tag)
			}
		}
		o := own(t, open(t, opt))
		var objs []*log.Object
		for range 6 {
			objs = append(objs, o.batch())
			o.must(o.append(objs[len(objs)-1]))
		}
		acked, verify := objs[1].Key(), func(keys ...log.Key) error { return o.l.Verify(t.Context(), o.check(keys...)) }
		o.must(verify(acked, objs[2].Key()))

		lose(objs[4]) // durable, and named by no check
		if err := verify(acked, objs[2].Key()); !errors.Is(err, log.ErrRolledBack) || !strings.Contains(err.Error(), objs[4].Key().String()) {
			t.Errorf("what this handle made durable is gone: %v", err)
		}
		o.must(o.append(objs[4]))
		o.must(verify(acked, objs[5].Key()))
		lose(objs[0]) // acknowledged long ago: another object's chain tells
		o.must(verify(acked, objs[5].Key()))
		lose(objs[1])
		lose(objs[2])
		for _, keys := range [][]log.Key{{acked, objs[5].Key()}, {objs[2].Key()}, {log.StartKey(1), objs[1].Key()}} {
			if err := verify(keys...); !errors.Is(err, log.ErrRolledBack) {
				t.Errorf("%v: %v", keys, err)
			}
		}
		if a, v := o.l.AppendVerify(t.Context(), objs[3], o.check(acked, objs[3].Key())); a != nil || !errors.Is(v, log.ErrRolledBack) {
			t.Errorf("append: %v, verify: %v", a, v)
		}
		next := o.root.Next()
		next.Sealed = log.Sealed{Epoch: 1, FirstT: objs[2].FirstT, LastT: objs[2].LastT(), Hash: objs[2].Hash()}
		o.must(o.l.CompareAndSwap(t.Context(), o.root, next))
		o.must(verify(log.StartKey(1), acked, objs[2].Key(), objs[5].Key()))
		lose(objs[3])
		if err := verify(acked, objs[5].Key()); !errors.Is(err, log.ErrRolledBack) {
			t.Errorf("behind the sealed position: %v", err)
		}
		// Keys that no row can have were never durable.
		if err := verify(log.Key{Epoch: 1 << 63, FirstT: 1}); !errors.Is(err, log.ErrRolledBack) {
			t.Error(err)
		}
		// Of another epoch, what this one made durable says nothing.
		o.must(o.l.CompareAndSwap(t.Context(), next, next.Acquire(log.NewID(), "another")))
		if err := verify(acked, objs[5].Key()); !errors.Is(err, log.ErrNotOwner) {
			t.Error(err)
		}
	})
}

package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/mem"
	"github.com/steledb/stele/transactor"
	"github.com/steledb/stele/tx"
)

var memOptions mem.Options

// truth is what the log says, once all is over.
type truth struct {
	last    uint64
	at      map[string]uint64   // when each mark was made
	entity  map[string]datom.ID // by whom
	keys    map[string]uint64   // when each key was used
	markAt  map[uint64]string   // whose mark each t made
	results []uint64            // sums, by t
}

// check compares everything that anybody was told with the log.
func (w *world) check() {
	if w.isWrong() {
		return
	}
	w.checkReaders()
	w.closeAll()
	if w.isWrong() {
		return
	}
	log := w.readLog()
	if w.isWrong() {
		return
	}
	w.say("the log reaches t = %d", log.last)
	for _, o := range w.ops {
		if !o.lost {
			w.checkOp(o, log)
		}
	}
	w.checkKeys(log)
	for t, s := range w.digest {
		if t > log.last {
			w.fail("%s was shown t = %d, and the log ends at %d", s.who, t, log.last)
		} else if s.sum != log.results[t] {
			w.fail("%s was shown something else at t = %d than what the log says", s.who, t)
		}
	}
	w.checkRegisters(log)
}

// checkReaders sees that readers and subscribers of who still works have got everything.
func (w *world) checkReaders() {
	w.sleep(5 * time.Second) // longer than any of them waits before it looks again
	for _, r := range w.readers {
		if r.gone || r.r == nil || r.busy {
			continue
		}
		if r.follows {
			w.lookAtReader(r)
			if t := r.r.DB().BasisT(); t < w.acked {
				w.fail("%s follows, and shows t = %d; %d was acknowledged (%v)", r.name, t, w.acked, r.r.Behind())
			}
			continue
		}
		d, err := r.r.Sync(context.Background())
		if err != nil || d.BasisT() < w.acked {
			w.fail("%s: Sync shows t = %d, %v; %d was acknowledged", r.name, d.BasisT(), err, w.acked)
			continue
		}
		w.look(r.name, d)
	}
	for _, s := range w.subs {
		if s.over {
			continue
		}
		end := uint64(0)
		if s.p != nil && w.working(s.p) {
			end = s.p.x.DB().BasisT()
		}
		if s.r != nil && !s.r.gone {
			end = w.acked
		}
		if s.next <= end && s.from <= end {
			w.fail("%s has got up to t = %d, and %d was committed", s.name, s.next-1, end)
		}
	}
}

// closeAll closes every process that still works, in bounded time.
func (w *world) closeAll() {
	for _, p := range w.procs {
		if w.lives(p) {
			w.close(p, 10*time.Second)
		}
	}
	w.sleep(time.Minute)
	for _, p := range w.procs {
		if w.lives(p) {
			w.fail("%s has not ended a minute after it was closed (P10)", p.name)
		}
	}
}

// readLog proves the log from its beginning.
func (w *world) readLog() *truth {
	h, _ := w.open("checker")
	defer h.Close()
	l := &truth{at: map[string]uint64{}, entity: map[string]datom.ID{}, keys: map[string]uint64{}, markAt: map[uint64]string{}, results: []uint64{0}}
	mark := datom.ID(0)
	watched := map[datom.ID]bool{db.AttrTxKey: true}
	sum := uint64(0)
	object := func(o *log.Object) error {
		txs, err := o.AppendTxs(nil)
		if err != nil {
			return err
		}
		for _, t := range txs {
			if l.last++; t.T != l.last {
				return fmt.Errorf("t = %d stands behind t = %d", t.T, l.last-1)
			}
			for _, d := range t.Datoms {
				if d.A == db.AttrIdent && d.Added {
					for _, a := range contents {
						if d.V.Keyword() == a {
							watched[d.E] = true
						}
					}
					if d.V.Keyword() == contents[0] {
						mark = d.E
					}
				}
			}
			for _, d := range t.Datoms {
				switch {
				case !watched[d.A]:
					continue
				case d.Added:
					sum += hashOf(d)
				default:
					sum -= hashOf(d)
				}
				if d.A == db.AttrTxKey {
					if before, ok := l.keys[d.V.Text()]; ok {
						return fmt.Errorf("%s is in the log at t = %d and at t = %d (P8)", d.V.Text(), before, t.T)
					}
					l.keys[d.V.Text()] = t.T
				}
				if d.A == mark && mark != 0 {
					if before, ok := l.at[d.V.Text()]; ok {
						return fmt.Errorf("%s is in the log twice, at t = %d and t = %d (L1)", d.V.Text(), before, t.T)
					}
					l.at[d.V.Text()], l.entity[d.V.Text()], l.markAt[t.T] = t.T, d.E, d.V.Text()
				}
			}
			l.results = append(l.results, sum)
			w.seeTx(t.T, t.Datoms, "the log")
		}
		return nil
	}
	st, err := log.NewReader(h, log.ReaderOptions{}).Sync(context.Background(), object)
	if err != nil {
		w.fail("the log: %v", err)
	} else if st.Waiting {
		w.fail("the log: the root's epoch has no start, and nobody is there to write it")
	}
	return l
}

// checkOp compares one answer with the log.
func (w *world) checkOp(o *op, l *truth) {
	at := l.at[o.mark]
	var failed *transactor.CommitError
	var repeat *transactor.RepeatError
	unknown := errors.Is(o.err, transactor.ErrUnknownOutcome)
	switch err := o.err; {
	case err == nil:
		if o.t != at || o.tempid != l.entity[o.mark] {
			w.fail("%s was committed as t = %d, entity %d; the log has it at t = %d, entity %d (L1)", o, o.t, o.tempid, at, l.entity[o.mark])
		}
		if o.bad {
			w.fail("%s was committed, and no value allows it", o)
		}
		if o.after != nil && !o.after.lost && o.after.err != nil && !errors.As(o.after.err, &repeat) {
			w.fail("%s was committed behind %s, which was answered %v", o, o.after, o.after.err)
		}
		return
	case unknown:
		if o.bad && at != 0 {
			w.fail("%s was committed, and no value allows it", o)
		}
		return
	case errors.As(err, &repeat):
		if o.key == nil || repeat.T != l.keys[o.key.name] {
			w.fail("%s was answered %v; the log has it at t = %d", o, err, at)
		}
		return
	case errors.Is(err, tx.ErrIdempotencyMismatch):
		if t := l.keys[o.key.name]; t == 0 || l.markAt[t] == o.mark {
			w.fail("%s was answered %v; the log has the key at t = %d for %s (P3)", o, err, t, l.markAt[t])
		}
		return
	case errors.Is(err, transactor.ErrPredecessorRefused):
		if o.after == nil || !o.after.lost && o.after.err == nil {
			w.fail("%s was answered %v", o, err)
		}
	case errors.Is(err, tx.ErrCASFailed):
		if !o.bad && !o.cas {
			w.fail("%s was answered %v", o, err)
		}
	case errors.As(err, &failed):
		if o.bad || failed.Err == nil {
			w.fail("%s was answered %v (P7)", o, err)
		}
	case errors.Is(err, transactor.ErrClosed), errors.Is(err, context.DeadlineExceeded) && !o.admitted:
	case errors.Is(err, transactor.ErrBusy):
		if w.knobs.queue == 0 || o.admitted {
			w.fail("%s was answered %v", o, err)
		}
	default:
		w.fail("%s was answered %v", o, err)
	}
	if at != 0 && o.key == nil {
		w.fail("%s was answered %v, and the log has it at t = %d (L1)", o, o.err, at)
	}
}

// checkKeys sees that all who submitted under one key were told the same, and that whoever was told that it failed was told so before another try
// was made that did not.
func (w *world) checkKeys(l *truth) {
	for _, k := range w.keys {
		t, first := l.keys[k.name], int64(0)
		for _, o := range k.tried {
			if o.lost || o.err != nil {
				continue
			}
			if o.t != t {
				w.fail("%s under %s was answered t = %d; the log has it at t = %d (P8)", o, k.name, o.t, t)
			}
			if !o.repeated && first != 0 {
				w.fail("%s under %s was committed anew (P8)", o, k.name)
			}
			if !o.repeated {
				first = o.ret
			}
		}
		if t == 0 {
			continue
		}
		// Somebody's try must have made it: one whose answer says so, or is not known, or was never heard.
		made := false
		for _, o := range k.tried {
			made = made || o.mark == l.markAt[t] && (o.lost || o.err == nil && !o.repeated || errors.Is(o.err, transactor.ErrUnknownOutcome))
		}
		if !made {
			w.fail("%s is in the log at t = %d, and nobody was told that it might be (L1)", k.name, t)
		}
	}
}

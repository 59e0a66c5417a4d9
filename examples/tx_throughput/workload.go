package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
	"github.com/steledb/stele/transactor"
	"github.com/steledb/stele/tx"
)

// workload makes transactions and knows them again. Every transaction has a number that no other of the run has; its key and its
// texts follow from it.
type workload struct {
	run    uint32 // random, so that runs on one database do not meet
	shape  string
	datoms int             // of a transaction, without its instant
	texts  []datom.Keyword // the attributes of cardinality one beside the key
	olds   []datom.ID      // the entities to update
}

// attrKey is the unique identity.
const attrKey datom.Keyword = "bench/key"

func newWorkload(shape string, datoms int) *workload {
	w := &workload{run: rand.Uint32(), shape: shape, datoms: datoms}
	n := datoms - 1 // beside the key
	if shape == shapeUpdate {
		n = datoms / 2
	}
	for i := range n {
		w.texts = append(w.texts, datom.Keyword(fmt.Sprintf("bench/text%d", i)))
	}
	return w
}

// schema is the transaction that installs the attributes. Installing them once more changes nothing.
func (w *workload) schema() tx.Data {
	attr := func(ident datom.Keyword, more tx.Map) tx.Map {
		m := tx.Map{
			"db/ident":       ident,
			"db/valueType":   datom.Keyword("db.type/string"),
			"db/cardinality": datom.Keyword("db.cardinality/one"),
		}
		for k, v := range more {
			m[k] = v
		}
		return m
	}
	data := tx.Data{attr(attrKey, tx.Map{"db/unique": datom.Keyword("db.unique/identity")})}
	for _, t := range w.texts {
		data = append(data, attr(t, nil))
	}
	return data
}

// number is the seq'th transaction of a client at a level.
func number(level, client, seq int) uint64 {
	return uint64(level)<<54 | uint64(client)<<40 | uint64(seq)
}

// preloadLevel is the level of what is loaded before.
const preloadLevel = 1<<10 - 1

// key is the unique value of transaction n: 24 bytes, in an order that has nothing to do with n's.
func (w *workload) key(n uint64) string {
	// The finalizer of SplitMix64, which is one to one.
	n ^= n >> 30
	n *= 0xbf58476d1ce4e5b9
	n ^= n >> 27
	n *= 0x94d049bb133111eb
	n ^= n >> 31
	var b [24]byte
	hex(b[:16], n)
	hex(b[16:], uint64(w.run))
	return string(b[:])
}

// text is the value of the i'th text of transaction n: 24 bytes that no other text of the run has.
func (w *workload) text(n uint64, i int) string {
	b := [24]byte{'t', 'e', 'x', 't', ' '}
	hex(b[5:8], uint64(i))
	hex(b[8:], n)
	return string(b[:])
}

// hex fills b with the last digits of n.
func hex(b []byte, n uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = "0123456789abcdef"[n&15]
		n >>= 4
	}
}

// maker makes the transactions of one client at one level, one after the other. Its forms are used again for each, which is the client's
// right once it has the answer.
type maker struct {
	w    *workload
	data tx.Data
	args [][]any    // of each form
	pick *rand.Rand // the entities to update
}

func (w *workload) maker(level, client int) *maker {
	m := &maker{w: w, pick: rand.New(rand.NewPCG(uint64(w.run), number(level, client, 0)))}
	if w.shape == shapeInsert {
		m.form(tx.Add("new", attrKey, nil))
	}
	for _, t := range w.texts {
		m.form(tx.Add("new", t, nil))
	}
	return m
}

func (m *maker) form(f tx.List) {
	m.data = append(m.data, f)
	m.args = append(m.args, f.Args)
}

// old picks the entity that the next transaction updates.
func (m *maker) old() datom.ID { return m.w.olds[m.pick.IntN(len(m.w.olds))] }

// skip passes over a transaction.
func (m *maker) skip() {
	if m.w.shape == shapeUpdate {
		m.old()
	}
}

// make is transaction n, until the next call.
func (m *maker) make(n uint64) tx.Data {
	args := m.args
	var old any
	if m.w.shape == shapeInsert {
		args[0][2] = m.w.key(n)
		args = args[1:]
	} else {
		old = m.old()
	}
	for i, a := range args {
		if old != nil {
			a[0] = old
		}
		a[2] = m.w.text(n, i)
	}
	return m.data
}

// check says what is wrong with a report: it must hold exactly the datoms that the transaction stands for.
func (w *workload) check(r *tx.Report) error {
	n, retracted := 0, 0
	for i := range r.TxData {
		switch d := &r.TxData[i]; {
		case d.A == db.AttrTxInstant:
		case d.Added:
			n++
		default:
			n++
			retracted++
		}
	}
	want := 0
	if w.shape == shapeUpdate {
		want = w.datoms / 2
	}
	if n != w.datoms || retracted != want {
		return fmt.Errorf("transaction %d has %d datoms, %d of them retractions, where %d and %d belong", r.T, n, retracted, w.datoms, want)
	}
	return nil
}

// preload is the transaction that loads the entities from to below to: their key and their texts.
func (w *workload) preload(from, to int) tx.Data {
	data := make(tx.Data, 0, to-from)
	for i := from; i < to; i++ {
		n := number(preloadLevel, 0, i)
		m := make(tx.Map, 1+len(w.texts))
		m[attrKey] = w.key(n)
		for j, t := range w.texts {
			m[t] = w.text(n, j)
		}
		data = append(data, m)
	}
	return data
}

// find looks for a transaction that was acknowledged as t, in a value or its history, and says what is missing. m is the client's
// maker, at the same transaction as when it was made.
func (w *workload) find(d db.DB, m *maker, n, t uint64) error {
	if w.shape == shapeUpdate {
		e := m.old()
		for i, a := range w.texts {
			if !has(d.History(), t, db.EAVT, e, a, w.text(n, i)) {
				return fmt.Errorf("the history of entity %d has no %s of t %d", e, a, t)
			}
		}
		return nil
	}
	key := w.key(n)
	for k, err := range d.Datoms(db.AVET, attrKey, key) {
		if err != nil {
			return err
		}
		found := 0
		for x, err := range d.Datoms(db.EAVT, k.E) {
			if err != nil {
				return err
			}
			if x.T == t && (x.A == k.A || w.isText(d, x, n)) {
				found++
			}
		}
		if found != w.datoms {
			return fmt.Errorf("the entity with key %s has %d of %d datoms of t %d", key, found, w.datoms, t)
		}
		return nil
	}
	return fmt.Errorf("there is no entity with key %s (t %d)", key, t)
}

// isText reports whether x is one of the texts of transaction n.
func (w *workload) isText(d db.DB, x datom.Datom, n uint64) bool {
	for i, a := range w.texts {
		if id, ok := d.Schema().Entid(a); ok && id == x.A {
			return x.V == datom.String(w.text(n, i))
		}
	}
	return false
}

// has reports whether an assertion of t is there.
func has(d db.DB, t uint64, ix db.Index, components ...any) bool {
	for x, err := range d.Datoms(ix, components...) {
		if err == nil && x.T == t && x.Added {
			return true
		}
	}
	return false
}

// options are the transactor's under the settings.
func (s *settings) options(clients int) transactor.Options {
	return transactor.Options{
		MaxBatch:          s.maxBatch,
		MaxBatchBytes:     s.maxBatchSize,
		Depth:             s.depth,
		QueueTransactions: cmp.Or(s.queue, max(2*clients, transactor.Defaults().QueueTransactions)),
	}
}

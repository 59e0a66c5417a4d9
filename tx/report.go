package tx

import (
	"iter"
	"time"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
)

// Report is what became of a transaction.
type Report struct {
	DBBefore db.DB
	DBAfter  db.DB
	T        uint64
	Tx       datom.ID // the transaction's entity
	// TxData is the exact delta: implicit retractions and the :db/txInstant datom included, nothing that changed nothing.
	// It must not be changed.
	TxData  []datom.Datom
	Tempids Tempids
	// Repeated: the transaction had been committed before, under the same idempotency key; this is that one's report, and nothing
	// was committed now.
	Repeated bool
	// Notices are sentences for the user about what was accepted but has no effect.
	Notices []string
}

// Tempids is what a transaction's named tempids became. The zero value is empty.
type Tempids struct {
	ents []ent
	ids  []datom.ID
}

// Get is the entity of the tempid with this name, of the default partition.
func (t Tempids) Get(name string) (datom.ID, bool) {
	for i := range t.ents {
		if e := &t.ents[i]; e.kind == entTempid && e.part == datom.PartUser && e.name == name && name != "" {
			return t.ids[i], e.isEntity
		}
	}
	return 0, false
}

// All is the tempids by name, in the order in which they appeared. A name used in two partitions comes twice.
func (t Tempids) All() iter.Seq2[string, datom.ID] {
	return func(yield func(string, datom.ID) bool) {
		for i := range t.ents {
			if e := &t.ents[i]; e.kind == entTempid && e.name != "" && e.isEntity && !yield(e.name, t.ids[i]) {
				return
			}
		}
	}
}

// Map is the tempids as a new map.
func (t Tempids) Map() map[string]datom.ID {
	m := make(map[string]datom.ID)
	for name, id := range t.All() {
		m[name] = id
	}
	return m
}

// With is the report of a transaction that is not committed: what the database value would become. It chains: DBAfter can be
// given to With again. The clock is time.Now; there are no functions or predicates, which a [db.DB] does not know (see
// [WithEnv]). Views in time of d are ignored.
func With(d db.DB, data Data) (*Report, error) {
	return WithEnv(d, data, Limits{}, &Env{Now: time.Now().UnixMilli()})
}

// WithEnv is With under an environment and limits of one's own.
func WithEnv(d db.DB, data Data, lim Limits, env *Env) (*Report, error) {
	d = d.WithBasis(d.BasisT())
	r, err := Compile(d.Schema(), data, lim)
	if err != nil {
		return nil, err
	}
	st := db.NewStage(d)
	p, err := Prepare(st, r, env)
	if err != nil {
		return nil, err
	}
	if p.Original != 0 {
		delta, err := deltaOf(d, p.Original)
		return p.Repeat(d, delta), err
	}
	st.Apply(&p.Tx)
	return p.Report(d, st.Snapshot()), nil
}

// deltaOf is the datoms of transaction t as d's indexes have them: it looks through all of d, for want of a log.
func deltaOf(d db.DB, t uint64) (delta []datom.Datom, err error) {
	for x, err := range d.WithBasis(t).History().Since(t - 1).Datoms(db.EAVT) {
		if err != nil {
			return nil, err
		}
		delta = append(delta, x)
	}
	return delta, nil
}

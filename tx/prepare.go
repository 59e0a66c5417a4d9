package tx

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
)

// Env is what a transaction needs besides the database value: the clock and the registered functions.
type Env struct {
	// Context is handed to functions and predicates; once it ends, expansion stops. nil is context.Background().
	Context context.Context
	// Timeout bounds one call of a function or predicate, whose context ends then; 0 is no bound. See [ErrStuck].
	Timeout time.Duration
	// Facts is the most facts that there is memory for; 0 is no bound but the request's limits. What would change more is refused, before it is worked
	// out, with ErrFacts as the cause.
	Facts int
	// Now is the transactor's clock, in milliseconds since 1970.
	Now int64
	// Functions are the transaction functions, by the keyword that calls them.
	Functions map[datom.Keyword]Func
	// Predicates of attributes and of entities, by the symbol that :db.attr/preds and :db.entity/preds name them by.
	AttrPreds   map[datom.Symbol]AttrPred
	EntityPreds map[datom.Symbol]EntityPred
}

// Prepared is a transaction that was found good: the exact delta, ready to be applied and logged.
type Prepared struct {
	// Tx is the delta, the :db/txInstant datom included and last, with t, instant and the id allocator after it.
	Tx datom.Tx
	// Schema reports that the transaction may change the schema, an ident or a partition: it is a batch of its own.
	Schema bool
	// Original is the t of the transaction that was committed, or is staged, under the same idempotency key, or 0. If it is set there is nothing
	// to commit: Tx is empty, and the report is made by Repeat once Original is committed.
	Original uint64
	// Notices are sentences for the user about what was accepted but has no effect.
	Notices []string

	ents []ent // names of tempids …
	ids  []datom.ID
	ids0 [3]datom.ID
}

// Tempids is what the transaction's tempids became.
func (p *Prepared) Tempids() Tempids { return Tempids{p.ents, p.ids} }

// Report is the transaction's report, given the values before and after it.
func (p *Prepared) Report(before, after db.DB) *Report {
	return &Report{
		DBBefore: before,
		DBAfter:  after,
		T:        p.Tx.T,
		Tx:       datom.TxID(p.Tx.T),
		TxData:   p.Tx.Datoms,
		Tempids:  p.Tempids(),
		Notices:  p.Notices,
	}
}

// A Preparer prepares transactions, one at a time, reusing its memory. The zero value is ready. It belongs to one goroutine.
type Preparer struct {
	st     *db.Stage
	s      *db.Schema
	env    *Env
	lim    Limits
	most   int // facts
	p      *program
	basis  uint64
	txID   datom.ID
	before datom.NextIDs
	next   datom.NextIDs
	flt    faults

	res   []resolved // of each ent
	up    upserts
	facts []fact
	out   []datom.Datom // the delta but for :db/txInstant, sorted by entity

	uniq, preds, reserved []emitted // of out: unique values, values with predicates, datoms of built-in attributes
	hand                  []hand
	checks                []ensured

	given    int64 // the instant that the user supplied
	givenPos int32
	hasGiven bool

	exhausted bool // there are no ids left
	comps     []datom.ID
	stack     []datom.ID
	seen      map[datom.ID]bool // by retractEntity
	freed     map[datom.Datom]bool
	names     map[datom.ID]string
}

// Prepare judges a request against the stage and changes neither. See [Preparer] for many in a row.
func Prepare(st *db.Stage, r *Request, env *Env) (*Prepared, error) {
	return new(Preparer).Prepare(st, r, env)
}

// Prepare judges a request against the stage, which holds exactly the transaction's predecessors, and changes neither. The
// error is a *Error: the transaction is refused.
func (p *Preparer) Prepare(st *db.Stage, r *Request, env *Env) (*Prepared, error) {
	p.begin(st, r, env)
	defer p.end()
	if x, err := p.original(r); x != nil || err != nil {
		return x, err
	}
	if err := p.program(r); err != nil {
		return nil, err
	}
	return p.run(r)
}

func (p *Preparer) begin(st *db.Stage, r *Request, env *Env) {
	if env == nil {
		env = new(Env)
	}
	p.st, p.s, p.env, p.lim, p.p = st, st.Schema(), env, r.lim, r.p
	if p.most = p.lim.Datoms; env.Facts > 0 {
		p.most = min(p.most, env.Facts)
	}
	p.basis = st.BasisT()
	p.txID = datom.TxID(p.basis + 1)
	p.before = st.NextIDs()
	p.next = p.before
}

// keep is how much scratch memory stays, in elements. A delta of half as many is given away, so nothing of it may stay.
const keep = 4096

// end drops what the scratch memory holds on to, and memory that one huge transaction made it keep.
func (p *Preparer) end() {
	p.st, p.s, p.env, p.p = nil, nil, nil, nil
	p.flt = faults{}
	p.res = emptied(p.res, keep)
	p.up.reset(keep)
	p.facts = emptied(p.facts, keep)
	if len(p.out) > keep/2 {
		p.out = nil
	}
	p.out = emptied(p.out, keep)
	p.uniq = emptied(p.uniq, keep)
	p.preds = emptied(p.preds, keep)
	p.reserved = emptied(p.reserved, keep)
	p.hand = emptied(p.hand, keep)
	p.checks = emptied(p.checks, keep)
	p.hasGiven, p.exhausted = false, false
	p.comps = emptied(p.comps, keep)
	p.stack = emptied(p.stack, keep)
	p.seen, p.freed, p.names = nil, nil, nil
}

func emptied[T any](s []T, keep int) []T {
	if cap(s) > keep {
		return nil
	}
	clear(s)
	return s[:0]
}

// program picks what to run: the compiled request as it is, or compiled anew, since the schema has moved or functions have
// to be expanded first. Methods of the user's values are called then, on the goroutine that prepares every transaction: a panic in
// one refuses this transaction (P9).
func (p *Preparer) program(r *Request) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &Error{Kind: Malformed, Msg: fmt.Sprintf("a value of the transaction panicked: %v", v)}
		}
	}()
	switch {
	case r.p.calls:
		d, at, err := p.expand(r.data)
		if err != nil {
			return err
		}
		p.p = compile(p.s, d, at, p.lim)
		if key, at, _ := p.p.key(); key != r.key {
			return &Error{Kind: Malformed, Pos: at, Attr: keyAttr.String(), Msg: "a transaction function cannot give the transaction its idempotency key: it is " +
				"looked up before functions run"}
		}
	case r.p.version != p.s.Version():
		p.p = compile(p.s, r.data, nil, p.lim)
	}
	return p.p.faults.upTo(phaseAttrs)
}

// run takes the phases from that of entities on, each of which ends the transaction if it finds a fault.
func (p *Preparer) run(r *Request) (*Prepared, error) {
	if p.resolve(); p.flt.any() {
		return nil, p.flt.upTo(phaseEntities)
	}
	if p.p.tempids {
		if p.upsert(); p.flt.any() {
			return nil, p.flt.upTo(phaseUpsert)
		}
		p.allocate()
	}
	if p.state(); len(p.facts) > p.most {
		return nil, p.tooMuch()
	}
	if p.flt.any() {
		return nil, p.flt.upTo(phaseCAS)
	}
	if p.delta(); p.flt.any() {
		return nil, p.flt.upTo(phaseConflicts)
	}
	if p.unique(); p.flt.any() {
		return nil, p.flt.upTo(phaseUnique)
	}
	schema := false
	if len(p.reserved) > 0 {
		if schema = p.checkSchema(); p.flt.any() {
			return nil, p.flt.upTo(phaseSchema)
		}
	}
	if p.attrPreds(); p.flt.any() {
		return nil, p.flt.upTo(phaseAttrPreds)
	}
	instant := max(p.env.Now, p.st.Instant())
	if p.hasGiven {
		instant = p.given
	}
	if len(p.checks) > 0 {
		if p.ensure(instant); p.flt.any() {
			return nil, p.flt.upTo(phaseEnsure)
		}
	}
	if p.instants(); p.flt.any() {
		return nil, p.flt.upTo(phaseInstants)
	}
	if len(p.out) > p.most {
		return nil, p.tooMuch()
	}
	if p.exhausted {
		return nil, &Error{Kind: LimitExceeded, Msg: "there are no entity ids left to give out"}
	}
	x := &Prepared{Schema: schema, Notices: p.p.notices}
	if p.p.named {
		x.ents, x.ids = p.p.ents, x.ids0[:0]
		for _, r := range p.res {
			x.ids = append(x.ids, r.id)
		}
	}
	p.finish(&x.Tx, instant, p.keyFacts(r, x))
	return x, nil
}

// ErrFacts is the cause of a refusal because of Env.Facts.
var ErrFacts = errors.New("there is no memory for so many facts")

func (p *Preparer) tooMuch() error {
	if p.most < p.lim.Datoms {
		return &Error{Kind: LimitExceeded, Msg: fmt.Sprintf("the transaction changes more than %d facts, and there is no memory for that; split it", p.most), Err: ErrFacts}
	}
	return &Error{Kind: LimitExceeded, Msg: fmt.Sprintf("the transaction changes more than %d facts; split it", p.lim.Datoms)}
}

// finish makes the transaction of the delta, what the key adds, and the instant. A large delta is given away rather than copied.
func (p *Preparer) finish(tx *datom.Tx, instant int64, key []datom.Datom) {
	t := p.basis + 1
	last := datom.Datom{E: p.txID, A: db.AttrTxInstant, V: datom.InstantMilli(instant), T: t, Added: true}
	*tx = datom.Tx{T: t, Instant: instant, Next: p.next}
	if len(p.out) > keep/2 {
		tx.Datoms = append(append(p.out, key...), last)
		return
	}
	tx.Datoms = make([]datom.Datom, len(p.out)+len(key)+1)
	n := copy(tx.Datoms, p.out)
	n += copy(tx.Datoms[n:], key)
	tx.Datoms[n] = last
}

// fault reports a fault about what stood at position pos of the program.
func (p *Preparer) fault(ph phase, k Kind, pos int32, attr string, v datom.Value, entity, msg string) {
	f := &fault{Error: Error{Kind: k, Attr: attr, Entity: entity, Msg: msg}, value: p.sortable(v)}
	if pos >= 0 && int(pos) < len(p.p.pos) {
		f.Pos = p.p.pos[pos]
	}
	if !v.IsNil() {
		f.Value = p.show(v)
	}
	p.flt.add(ph, f)
}

// name is an entity in an error's text: a new one by its tempid, which does not depend on the order of forms as its id does.
func (p *Preparer) name(id datom.ID) string {
	if id == p.txID {
		return `"datomic.tx"`
	}
	if !p.isNew(id) {
		return id.String()
	}
	if p.names == nil {
		p.names = map[datom.ID]string{}
		for i := range p.p.ents {
			if e := &p.p.ents[i]; e.kind == entTempid && e.name != "" && p.res[i].state == stateNew {
				name := p.tempid(e).String()
				if old, ok := p.names[p.res[i].id]; !ok || name < old {
					p.names[p.res[i].id] = name
				}
			}
		}
	}
	if name, ok := p.names[id]; ok {
		return name
	}
	return "a new entity"
}

// show is a value in an error's text.
func (p *Preparer) show(v datom.Value) string {
	switch v.Kind() {
	case datom.KindRef:
		return p.name(v.Ref())
	case datom.KindTuple:
		var parts []string
		for _, e := range v.Tuple() {
			parts = append(parts, p.show(e))
		}
		return "[" + strings.Join(parts, " ") + "]"
	}
	return v.String()
}

// sortable is v as faults are ordered by it: nothing that has a new entity's id in it.
func (p *Preparer) sortable(v datom.Value) datom.Value {
	switch v.Kind() {
	case datom.KindRef:
		if p.isNew(v.Ref()) {
			return datom.Value{}
		}
	case datom.KindTuple:
		for _, e := range v.Tuple() {
			if e.Kind() == datom.KindRef && p.isNew(e.Ref()) {
				return datom.Value{}
			}
		}
	}
	return v
}

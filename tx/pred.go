package tx

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
)

// attrPreds applies the predicates of attributes to the values that the transaction adds.
func (p *Preparer) attrPreds() {
	for _, x := range p.preds {
		d := &p.out[x.out]
		a := p.s.Attr(d.A)
		for _, name := range a.Preds {
			pred, ok := p.env.AttrPreds[name]
			if !ok {
				p.unregistered(phaseAttrPreds, x.pos, attrName(a), "attribute", name)
				continue
			}
			if err := p.testAttr(pred, d.V); err != nil {
				p.flt.add(phaseAttrPreds, &fault{
					Error: Error{
						Kind: AttrPredFailed, Pos: p.pos(x.pos), Entity: p.name(d.E), Attr: attrName(a), Value: p.show(d.V), Err: err,
						Msg: fmt.Sprintf("%s %s of %s is refused by the predicate %s: %s", attrName(a), p.show(d.V), p.name(d.E), name, clip(err.Error())),
					},
					value: p.sortable(d.V),
				})
			}
		}
	}
}

func (p *Preparer) testAttr(pred AttrPred, v datom.Value) error {
	_, err := bounded(p.env, func(ctx context.Context) (struct{}, error) { return struct{}{}, pred(ctx, v) })
	return err
}

func (p *Preparer) unregistered(ph phase, pos int32, attr, of string, name datom.Symbol) {
	p.fault(ph, UnknownFunction, pos, attr, datom.Value{}, "", fmt.Sprintf("there is no predicate %s; predicates of an %s are Go functions registered with "+
		"the transactor (Options.Predicates)", name, of))
}

// ensured is an entity that is to be checked against a spec.
type ensured struct {
	e, spec datom.ID
	pos     int32
}

// ensure checks entities, as the transaction leaves them, against their specs.
func (p *Preparer) ensure(instant int64) {
	slices.SortFunc(p.checks, func(a, b ensured) int {
		return cmp.Or(cmp.Compare(a.e, b.e), cmp.Compare(a.spec, b.spec), cmp.Compare(a.pos, b.pos))
	})
	var after db.DB
	have := false
	for i, c := range p.checks {
		if i > 0 && p.checks[i-1].e == c.e && p.checks[i-1].spec == c.spec {
			continue
		}
		attrs, preds := p.spec(c.spec)
		if len(attrs)+len(preds) == 0 {
			p.fault(phaseEnsure, InvalidSchema, c.pos, ":db/ensure", datom.Value{}, p.specName(c.spec), fmt.Sprintf("%s is not an entity spec: it has neither "+
				":db.entity/attrs nor :db.entity/preds, or has them only from this transaction on", p.specName(c.spec)))
			continue
		}
		p.required(c, attrs)
		for _, name := range preds {
			pred, ok := p.env.EntityPreds[name]
			if !ok {
				p.unregistered(phaseEnsure, c.pos, ":db/ensure", "entity", name)
				continue
			}
			if !have {
				after, have = p.after(instant), true
			}
			if err := p.testEntity(pred, after, c.e); err != nil {
				p.flt.add(phaseEnsure, &fault{Error: Error{
					Kind: EntityPredFailed, Pos: p.pos(c.pos), Entity: p.name(c.e), Attr: ":db/ensure", Value: string(name), Err: err,
					Msg: fmt.Sprintf("%s is refused by the predicate %s of %s: %s", p.name(c.e), name, p.specName(c.spec), clip(err.Error())),
				}})
			}
		}
	}
}

func (p *Preparer) testEntity(pred EntityPred, after db.DB, e datom.ID) error {
	_, err := bounded(p.env, func(ctx context.Context) (struct{}, error) { return struct{}{}, pred(ctx, after, e) })
	return err
}

// spec is what an entity spec, as it was before the transaction, asks for.
func (p *Preparer) spec(id datom.ID) (attrs []datom.Keyword, preds []datom.Symbol) {
	if p.isNew(id) {
		return nil, nil
	}
	for v := range p.st.Values(id, db.AttrEntityAttrs) {
		attrs = append(attrs, v.Keyword())
	}
	for v := range p.st.Values(id, db.AttrEntityPreds) {
		preds = append(preds, v.Symbol())
	}
	slices.Sort(attrs)
	slices.Sort(preds)
	return attrs, preds
}

func (p *Preparer) specName(id datom.ID) string {
	if kw, ok := p.s.Ident(id); ok {
		return kw.String()
	}
	return p.name(id)
}

// required reports the attributes of a spec that an entity has no value of.
func (p *Preparer) required(c ensured, attrs []datom.Keyword) {
	var missing []string
	for _, kw := range attrs {
		a := p.s.AttrByIdent(kw)
		switch {
		case a == nil:
			p.fault(phaseEnsure, NotAnAttribute, c.pos, kw.String(), datom.Value{}, p.specName(c.spec), fmt.Sprintf("%s requires %s, which is not an attribute",
				p.specName(c.spec), kw))
		case !p.hasAfter(c.e, a.ID):
			missing = append(missing, kw.String())
		}
	}
	if len(missing) > 0 {
		p.fault(phaseEnsure, MissingEntityAttrs, c.pos, missing[0], datom.Value{}, p.name(c.e), fmt.Sprintf("%s has no %s, which %s requires",
			p.name(c.e), strings.Join(missing, ", no "), p.specName(c.spec)))
	}
}

// hasAfter reports whether an entity has a value of an attribute after the transaction.
func (p *Preparer) hasAfter(e, a datom.ID) bool {
	if e == p.txID && a == db.AttrTxInstant {
		return true
	}
	retracted := map[datom.Value]bool{}
	i, _ := slices.BinarySearchFunc(p.out, e, func(d datom.Datom, e datom.ID) int { return cmp.Compare(d.E, e) })
	for ; i < len(p.out) && p.out[i].E == e; i++ {
		switch d := &p.out[i]; {
		case d.A != a:
		case d.Added:
			return true
		default:
			retracted[d.V] = true
		}
	}
	if p.isNew(e) {
		return false
	}
	for v := range p.st.Values(e, a) {
		if !retracted[v] {
			return true
		}
	}
	return false
}

// after is the database value that the transaction would make.
func (p *Preparer) after(instant int64) db.DB {
	var tx datom.Tx
	p.finish(&tx, instant, nil) // what a key adds concerns no predicate
	st := db.NewStage(p.st.View())
	st.Apply(&tx)
	return st.Snapshot()
}

// instants judges :db/txInstant and the transactor's own facts about transactions.
func (p *Preparer) instants() {
	if p.hasGiven {
		last := p.st.Instant()
		v := datom.InstantMilli(p.given)
		switch {
		case p.given < last:
			p.fault(phaseInstants, PastTxInstant, p.givenPos, ":db/txInstant", v, `"datomic.tx"`, fmt.Sprintf("the instant %s is before that of the last transaction, %s: "+
				"instants never decrease", v, datom.InstantMilli(last)))
		case p.given > max(p.env.Now, last):
			p.fault(phaseInstants, FutureTxInstant, p.givenPos, ":db/txInstant", v, `"datomic.tx"`, fmt.Sprintf("the instant %s is later than the transactor's clock, which says %s",
				v, datom.InstantMilli(p.env.Now)))
		}
	}
	for _, x := range p.reserved {
		d := &p.out[x.out]
		switch d.A {
		case db.AttrTxInstant, db.AttrTxKey, db.AttrTxRequestHash, db.AttrTxTempids:
		default:
			continue
		}
		name := p.s.Attr(d.A).Ident.String()
		switch {
		case d.E == p.txID:
		case d.E.IsTx():
			p.fault(phaseInstants, ImmutableFact, x.pos, name, d.V, d.E.String(), fmt.Sprintf("%s of the older transaction %s cannot be changed or retracted",
				name, d.E))
		default:
			p.fault(phaseInstants, Malformed, x.pos, name, d.V, p.name(d.E), fmt.Sprintf(`%s can be stated of "datomic.tx" only, not of %s`, name, p.name(d.E)))
		}
	}
}

// pos is a position of the program.
func (p *Preparer) pos(i int32) Pos {
	if i >= 0 && int(i) < len(p.p.pos) {
		return p.p.pos[i]
	}
	return Pos{}
}

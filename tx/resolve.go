package tx

import (
	"fmt"
	"slices"

	"github.com/steledb/stele/datom"
)

// resolved is what an ent stands for.
type resolved struct {
	id    datom.ID
	state resolveState
}

type resolveState uint8

const (
	stateBad     resolveState = iota // not an entity: its ent says why
	stateMissing                     // names nothing
	stateTempid                      // not resolved yet
	stateStored                      // an entity that was allocated before
	stateNew                         // allocated by this transaction, or the transaction itself
)

// resolve finds what every ent but the tempids stands for. An ent that stands for nothing is a fault where it is used, except in
// retractEntity.
func (p *Preparer) resolve() {
	faulty := p.p.strict
	p.res = slices.Grow(p.res, len(p.p.ents))
	for i := range p.p.ents {
		r := p.resolveEnt(&p.p.ents[i])
		faulty = faulty || r.state <= stateMissing
		p.res = append(p.res, r)
	}
	if !faulty {
		return
	}
	for i := range p.p.ops {
		o := &p.p.ops[i]
		switch o.kind {
		case opRetractEntity, opCAS:
			p.checkStored(o)
		default:
			p.checkEnt(o.e, o.pos)
		}
		p.checkRef(o.ref, o.pos)
		if o.kind == opCAS {
			p.checkRef(p.p.olds[o.old].ref, o.pos)
		}
	}
}

func (p *Preparer) resolveEnt(e *ent) resolved {
	switch e.kind {
	case entID:
		if p.allocated(e.id) {
			return resolved{e.id, stateStored}
		}
		return resolved{e.id, stateMissing}
	case entIdent:
		return resolved{e.id, stateStored}
	case entTx:
		return resolved{p.txID, stateNew}
	case entTempid, entAlias:
		return resolved{0, stateTempid}
	case entLookup:
		if p.badWithin(e.ref) != nil {
			return resolved{0, stateBad}
		}
		if v, ok := p.known(e.v, e.ref); ok {
			if id, found := p.st.Lookup(e.attr.ID, v); found {
				return resolved{id, stateStored}
			}
		}
		return resolved{0, stateMissing}
	case entMissing:
		return resolved{0, stateMissing}
	default:
		return resolved{0, stateBad}
	}
}

// known is a value in which every entity is stored; false if one is not. A lookup ref goes through nothing else.
func (p *Preparer) known(v datom.Value, ref int32) (datom.Value, bool) {
	switch {
	case isEntityRef(ref):
		r := p.res[ref]
		return datom.Ref(r.id), r.state == stateStored
	case isTupleRef(ref):
		t := p.p.tuples[tupleIndex(ref)]
		for i, e := range t.ents[:t.n] {
			if e != noRef {
				if p.res[e].state != stateStored {
					return v, false
				}
				t.elems[i] = datom.Ref(p.res[e].id)
			}
		}
		v, err := datom.Tuple(t.elems[:t.n]...)
		return v, err == nil
	}
	return v, true
}

// badWithin is the ent within a lookup ref's value that is no entity, or nil.
func (p *Preparer) badWithin(ref int32) *ent {
	switch {
	case isEntityRef(ref):
		if p.res[ref].state == stateBad {
			return &p.p.ents[ref]
		}
	case isTupleRef(ref):
		t := &p.p.tuples[tupleIndex(ref)]
		for _, e := range t.ents[:t.n] {
			if e != noRef && p.res[e].state == stateBad {
				return &p.p.ents[e]
			}
		}
	}
	return nil
}

// checkStored refuses what retractEntity and cas cannot be applied to: a tempid; for cas also what names nothing.
func (p *Preparer) checkStored(o *op) {
	e := &p.p.ents[o.e]
	switch {
	case e.kind == entTempid || e.kind == entTx:
		what := "a new entity"
		if e.kind == entTx || e.name != "" {
			what = p.entName(o.e)
		}
		name := OpRetractEntity
		if o.kind == opCAS {
			name = OpCAS
		}
		p.fault(phaseEntities, NotAnEntity, o.pos, "", datom.Value{}, p.entName(o.e), fmt.Sprintf("%s is applied to %s, which is a tempid; it needs an entity "+
			"that is there already: an id, an ident or a lookup ref", name, what))
	case o.kind == opRetractEntity && p.res[o.e].state == stateMissing:
	default:
		p.checkEnt(o.e, o.pos)
	}
}

func (p *Preparer) checkRef(ref, pos int32) {
	switch {
	case isEntityRef(ref):
		p.checkEnt(ref, pos)
	case isTupleRef(ref):
		t := &p.p.tuples[tupleIndex(ref)]
		for _, e := range t.ents[:t.n] {
			if e != noRef {
				p.checkEnt(e, pos)
			}
		}
	}
}

// checkEnt reports an ent that stands for nothing.
func (p *Preparer) checkEnt(i, pos int32) {
	if p.res[i].state > stateMissing {
		return
	}
	e := &p.p.ents[i]
	switch e.kind {
	case entBad:
		p.flt.add(phaseEntities, e.bad)
	case entID:
		p.fault(phaseEntities, NotAnEntity, pos, "", datom.Value{}, e.id.String(), fmt.Sprintf("%s is no entity's id: this database never gave it out; "+
			"name a new entity by a tempid (a string)", e.id))
	case entLookup:
		p.missingLookup(e, pos)
	default:
		kw := datom.Keyword(e.name)
		p.fault(phaseEntities, NotAnEntity, pos, "", datom.Value{}, kw.String(), fmt.Sprintf("the ident %s names no entity; a :db/ident can be used from the next "+
			"transaction on", kw))
	}
}

func (p *Preparer) missingLookup(e *ent, pos int32) {
	if in := p.badWithin(e.ref); in != nil {
		if in.kind == entLookup {
			p.missingLookup(in, pos)
		} else {
			p.flt.add(phaseEntities, in.bad)
		}
		return
	}
	if isEntityRef(e.ref) {
		if in := &p.p.ents[e.ref]; in.kind == entTempid || in.kind == entTx {
			p.fault(phaseEntities, NotAnEntity, pos, attrName(e.attr), datom.Value{}, p.entName(e.ref), fmt.Sprintf("the lookup ref by %s goes through %s; "+
				"lookup refs see only what was stored before the transaction", attrName(e.attr), p.entName(e.ref)))
			return
		}
	}
	text := "that value"
	v, ok := p.known(e.v, e.ref)
	if ok {
		text = v.String()
	} else {
		v = datom.Value{}
	}
	p.fault(phaseEntities, NotAnEntity, pos, attrName(e.attr), v, "", fmt.Sprintf("no entity has %s %s; lookup refs see only what was stored before "+
		"the transaction", attrName(e.attr), text))
}

// entName is an ent as it was written.
func (p *Preparer) entName(i int32) string {
	e := &p.p.ents[i]
	switch e.kind {
	case entTx:
		return `"datomic.tx"`
	case entTempid:
		if e.name == "" {
			return "a new entity"
		}
		return p.tempid(e).String()
	}
	return p.res[i].id.String()
}

// tempid is an ent as a tempid.
func (p *Preparer) tempid(e *ent) Tempid {
	t := Tempid{Name: e.name}
	if e.part != datom.PartUser {
		t.Part, _ = p.s.Ident(datom.MakeID(datom.PartDB, e.part))
	}
	return t
}

// isNew reports whether the entity was allocated by this transaction, or is the transaction itself: nothing is stored about it.
func (p *Preparer) isNew(id datom.ID) bool {
	switch seq := id.Seq(); {
	case id.IsTx():
		return seq > p.basis
	case seq < datom.FirstSeq:
		return seq >= p.before.Part
	default:
		return seq >= p.before.Seq
	}
}

// allocated reports whether the database has given the id out (design.md §3).
func (p *Preparer) allocated(id datom.ID) bool {
	part := id.Part()
	if id >= datom.MaxID || p.isNew(id) || id.IsTx() && id.Seq() == 0 || id.Seq() < datom.FirstSeq && part != datom.PartDB && !id.IsTx() {
		return false
	}
	if part == datom.PartDB && id.Seq() < datom.FirstSeq {
		return p.s.HasPartition(id.Seq())
	}
	return part == datom.PartUser || p.s.HasPartition(part)
}

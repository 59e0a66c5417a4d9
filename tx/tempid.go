package tx

import (
	"fmt"
	"slices"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
)

// judgeTempids reports tempids that would have to be two entities, or are none.
func (p *Preparer) judgeTempids() {
	u := &p.up
	for i := range p.p.ents {
		e := &p.p.ents[i]
		if e.kind == entTempid && e.isValue && !e.isEntity {
			name := p.entName(int32(i))
			p.fault(phaseUpsert, TempidNotAnEntity, e.pos, "", datom.Value{}, name, fmt.Sprintf("%s is used as a value, but nothing is said about it; assert "+
				"a fact of it in the same transaction, or use the id, ident or lookup ref of an entity that is there", name))
		}
	}
	if !u.clash {
		return
	}
	first := map[int32]int32{} // by root, the ent whose name comes first
	for i := range p.p.ents {
		if e := &p.p.ents[i]; e.kind == entTempid {
			root := u.find(int32(i))
			if old, ok := first[root]; !ok || e.name != "" && (p.p.ents[old].name == "" || e.name < p.p.ents[old].name) {
				first[root] = int32(i)
			}
		}
	}
	for root, i := range first {
		if c := &u.class[root]; len(c.more) > 0 {
			ids := []datom.ID{c.id}
			for _, b := range c.more {
				ids = append(ids, b.id)
			}
			slices.Sort(ids)
			if ids = slices.Compact(ids); len(ids) < 2 {
				continue
			}
			name := p.entName(i)
			p.fault(phaseUpsert, ConflictingUpsert, p.p.ents[i].pos, "", datom.Value{}, name, fmt.Sprintf("%s has unique values of both %s and %s, and cannot be "+
				"two entities", name, p.name(ids[0]), p.name(ids[1])))
		}
	}
}

// allocate gives every tempid its entity: the one that its class is bound to, or a new one.
func (p *Preparer) allocate() {
	u := &p.up
	if p.p.schema {
		p.placeSchema()
	}
	for i := range p.p.ents {
		if p.res[i].state != stateTempid {
			continue
		}
		e := &p.p.ents[i]
		if !e.isEntity && !e.isValue {
			p.res[i].state = stateMissing
			continue
		}
		c := &u.class[u.find(int32(i))]
		if !c.bound {
			c.bound, c.id = true, p.newID(c.part)
		}
		p.res[i] = resolved{c.id, stateStored}
		if p.isNew(c.id) {
			p.res[i].state = stateNew
		}
	}
}

// newPartition in place of a partition's number says that the new entity is a partition itself.
const newPartition = ^uint64(0)

// newID allocates an id. When there are none left the transaction is refused in the end; until then any will do.
func (p *Preparer) newID(part uint64) datom.ID {
	if part == newPartition {
		p.next.Part++
		if p.next.Part > datom.FirstSeq {
			p.exhausted = true
			p.next.Part = datom.FirstSeq
		}
		return datom.MakeID(datom.PartDB, p.next.Part-1)
	}
	p.next.Seq++
	if p.next.Seq > datom.MaxSeq {
		p.exhausted = true
		p.next.Seq = datom.MaxSeq
	}
	return datom.MakeID(part, p.next.Seq-1)
}

// placeSchema puts new attributes and partitions where they belong.
func (p *Preparer) placeSchema() {
	u := &p.up
	for i := range p.p.ops {
		o := &p.p.ops[i]
		if o.kind != opAdd {
			continue
		}
		switch o.a.ID {
		case db.AttrValueType:
			if p.free(o.e) {
				u.class[u.find(o.e)].part = datom.PartDB
			}
		case db.AttrInstallPartition:
			if p.free(o.ref) {
				u.class[u.find(o.ref)].part = newPartition
			}
		}
	}
}

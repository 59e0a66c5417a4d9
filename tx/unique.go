package tx

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
)

// unique checks that every unique value asserted is held by one entity after the transaction.
func (p *Preparer) unique() {
	for _, u := range p.uniq {
		d := &p.out[u.out]
		if p.up.absent(d.A, d.V) {
			continue
		}
		holder, ok := p.st.Lookup(d.A, d.V)
		if ok && holder != d.E && (d.E == p.txID && p.upserts(d) || !p.retracts(holder, d.A, d.V)) {
			p.uniqueConflict(d, u.pos, p.name(d.E), p.name(holder))
		}
	}
	if len(p.uniq) < 2 {
		return
	}
	slices.SortFunc(p.uniq, func(x, y emitted) int {
		a, b := &p.out[x.out], &p.out[y.out]
		return cmp.Or(cmp.Compare(a.A, b.A), datom.Compare(a.V, b.V), cmp.Compare(a.E, b.E))
	})
	for i := 0; i < len(p.uniq); {
		d := &p.out[p.uniq[i].out]
		j := i + 1
		for j < len(p.uniq) && p.out[p.uniq[j].out].A == d.A && p.out[p.uniq[j].out].V == d.V {
			j++
		}
		if j > i+1 {
			p.sharedValue(p.uniq[i:j])
		}
		i = j
	}
}

// sharedValue reports a unique value that the transaction asserts of several entities.
func (p *Preparer) sharedValue(us []emitted) {
	var names []string
	pos := us[0].pos
	for _, u := range us {
		names = append(names, p.name(p.out[u.out].E))
		pos = min(pos, u.pos)
	}
	slices.SortFunc(names, compareNames)
	p.uniqueConflict(&p.out[us[0].out], pos, names[0], names[1])
}

// upserts reports whether a tempid with this value would be the entity that has it. The transaction never is, so such a value of
// another entity is a conflict even if that gives it up in the same transaction.
func (p *Preparer) upserts(d *datom.Datom) bool {
	a := p.s.Attr(d.A)
	return a.Unique == db.UniqueIdentity && !(len(a.TupleAttrs) > 0 && slices.ContainsFunc(d.V.Tuple(), datom.Value.IsNil))
}

// retracts reports whether the delta retracts a fact of a unique attribute.
func (p *Preparer) retracts(e, a datom.ID, v datom.Value) bool {
	if p.freed == nil {
		p.freed = map[datom.Datom]bool{}
		for i := range p.out {
			if d := &p.out[i]; !d.Added && p.s.Attr(d.A).Unique != db.NotUnique {
				p.freed[*d] = true
			}
		}
	}
	return p.freed[datom.Datom{E: e, A: a, V: v, T: p.basis + 1}]
}

func (p *Preparer) uniqueConflict(d *datom.Datom, pos int32, x, y string) {
	a := p.s.Attr(d.A)
	if compareNames(y, x) < 0 {
		x, y = y, x
	}
	who := "both " + x + " and " + y
	if x == y {
		who = "two new entities"
	}
	p.fault(phaseUnique, UniqueConflict, pos, attrName(a), d.V, x, fmt.Sprintf("%s %s would belong to %s, but at most one entity may have it "+
		"(:db.unique/%s)", attrName(a), p.show(d.V), who, a.Unique))
}

package tx

import (
	"fmt"
	"strconv"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
)

// entKey is what makes two ents one.
type entKey struct {
	kind entKind
	id   datom.ID // of a lookup, its attribute
	part uint64
	ref  int32
	v    datom.Value
	name string
}

func (e *ent) key() entKey {
	k := entKey{kind: e.kind, id: e.id, part: e.part, ref: e.ref, v: e.v, name: e.name}
	if e.kind == entLookup {
		k.id = e.attr.ID
	}
	return k
}

// few is how many ents are looked through before there is a map of them.
const few = 8

// ent finds or adds an ent.
func (c *compiler) ent(x ent) int32 {
	if len(c.p.ents) <= few {
		k := x.key()
		for i := range c.p.ents {
			if y := &c.p.ents[i]; y.kind == x.kind && !y.isFresh() && y.key() == k {
				return int32(i)
			}
		}
		return c.appendEnt(x)
	}
	if c.known == nil {
		c.known = make(map[entKey]int32)
		for i := range c.p.ents {
			if y := &c.p.ents[i]; !y.isFresh() {
				c.known[y.key()] = int32(i)
			}
		}
	}
	k := x.key()
	if i, ok := c.known[k]; ok {
		return i
	}
	i := c.appendEnt(x)
	c.known[k] = i
	return i
}

func (e *ent) isFresh() bool { return e.kind == entTempid && e.name == "" || e.kind == entBad }

func (c *compiler) appendEnt(x ent) int32 {
	x.pos = c.here()
	c.p.ents = append(c.p.ents, x)
	if x.kind == entTempid {
		c.p.tempids = true
		c.p.named = c.p.named || x.name != ""
	}
	return int32(len(c.p.ents) - 1)
}

// fresh is a tempid that nothing else names.
func (c *compiler) fresh(part uint64) int32 { return c.appendEnt(ent{kind: entTempid, part: part}) }

// entityOf compiles what stands in entity position.
func (c *compiler) entityOf(x any) int32 {
	i, ok := c.entity(x)
	if !ok {
		return c.bad(NotAnEntity, "", show(x), fmt.Sprintf("%s is not an entity; an entity is written as an id, an ident, a lookup ref, a tempid or "+
			`"datomic.tx"`, show(x)))
	}
	return i
}

// bad is an ent that is no entity: the phase of entities reports it.
func (c *compiler) bad(k Kind, attr, entity, msg string) int32 {
	return c.appendEnt(ent{kind: entBad, bad: &fault{Error: Error{Kind: k, Pos: c.at, Attr: attr, Entity: entity, Msg: msg}}})
}

// entity compiles what may stand for an entity; false if x is of no such type.
func (c *compiler) entity(x any) (int32, bool) {
	switch x := x.(type) {
	case string:
		switch x {
		case TxEntity:
			return c.ent(ent{kind: entTx}), true
		case "":
			return c.bad(NotAnEntity, "", `""`, "an empty string is not a tempid"), true
		}
		return c.tempid(datom.PartUser, x), true
	case datom.ID:
		return c.id(x), true
	case int64:
		if x < 0 {
			return c.tempid(datom.PartUser, strconv.FormatInt(x, 10)), true
		}
		return c.id(datom.ID(x)), true
	case int:
		return c.entity(int64(x))
	case datom.Keyword:
		return c.ident(x), true
	case Lookup:
		return c.lookup(x.Attr, x.Value), true
	case []any:
		if len(x) != 2 {
			return c.bad(InvalidLookupRef, "", show(x), fmt.Sprintf("%s is not a lookup ref, which is a unique attribute and a value", show(x))), true
		}
		return c.lookup(x[0], x[1]), true
	case Tempid:
		part, ok := datom.PartUser, true
		if x.Part != "" {
			part, ok = c.partition(x.Part)
		}
		switch {
		case !ok:
			return c.bad(NotAnEntity, "", x.String(), fmt.Sprintf("there is no partition %s; it must be installed by an earlier transaction", x.Part)), true
		case part == datom.PartTx:
			return c.ent(ent{kind: entTx}), true
		case x.Name == "":
			return c.fresh(part), true
		}
		return c.tempid(part, x.Name), true
	case datom.Value:
		if x.Kind() == datom.KindRef {
			return c.id(x.Ref()), true
		}
	case Untyped:
		if y, err := x.As(datom.KindRef); err == nil {
			if _, again := y.(Untyped); !again {
				return c.entity(y)
			}
		}
	}
	return 0, false
}

func (c *compiler) tempid(part uint64, name string) int32 {
	c.p.bytes += len(name)
	return c.ent(ent{kind: entTempid, part: part, name: name})
}

func (c *compiler) id(id datom.ID) int32 { return c.ent(ent{kind: entID, id: id}) }

func (c *compiler) ident(kw datom.Keyword) int32 {
	if id, ok := c.s.Entid(kw); ok {
		return c.ent(ent{kind: entIdent, id: id, name: string(kw)})
	}
	return c.ent(ent{kind: entMissing, name: string(kw)})
}

// identOrNew is like ident, but the entity may take the ident in this same transaction.
func (c *compiler) identOrNew(kw datom.Keyword) int32 {
	if _, ok := c.s.Entid(kw); ok {
		return c.ident(kw)
	}
	return c.ent(ent{kind: entAlias, name: string(kw), ref: noRef})
}

// linkIdents finds the entities that take the idents which identOrNew left open.
func (c *compiler) linkIdents() {
	if !c.p.symbolic {
		return
	}
	for i := range c.p.ents {
		x := &c.p.ents[i]
		if x.kind != entAlias {
			continue
		}
		x.kind = entMissing
		for _, o := range c.p.ops {
			if o.kind == opAdd && o.a.ID == db.AttrIdent && o.v.Text() == x.name {
				x.kind, x.ref = entAlias, o.e
				break
			}
		}
	}
}

// partition is the number of the partition that kw names.
func (c *compiler) partition(kw datom.Keyword) (uint64, bool) {
	id, ok := c.s.Entid(kw)
	if !ok || id.Part() != datom.PartDB || !c.s.HasPartition(id.Seq()) {
		return 0, false
	}
	return id.Seq(), true
}

// lookup compiles a lookup ref.
func (c *compiler) lookup(attr, value any) int32 {
	if c.depth++; c.depth > c.lim.Depth {
		c.depth--
		c.fault(phaseForm, LimitExceeded, "", "", fmt.Sprintf("lookup refs are nested more than %d deep", c.lim.Depth))
		return c.ent(ent{kind: entMissing})
	}
	defer func() { c.depth-- }()
	a := c.attribute(attr)
	if a == nil {
		return c.ent(ent{kind: entMissing})
	}
	if a.Unique == db.NotUnique {
		return c.bad(InvalidLookupRef, attrName(a), "", fmt.Sprintf("%s is not unique, so %s %s cannot name an entity; a lookup ref needs "+
			"an attribute with :db/unique", attrName(a), attrName(a), show(value)))
	}
	v, ref, ok := c.valueOf(a, value)
	if !ok {
		return c.ent(ent{kind: entMissing})
	}
	return c.ent(ent{kind: entLookup, attr: a, v: v, ref: ref})
}

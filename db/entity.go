package db

import (
	"iter"

	"github.com/steledb/stele/datom"
)

// Entity is a lazy view of one entity in one database value: it holds nothing, every call reads the indexes.
type Entity struct {
	db DB
	id datom.ID
}

// Entity is the entity that e stands for, see Entid. That an id has facts is not asked.
func (d DB) Entity(e any) (Entity, error) {
	id, err := d.Entid(e)
	if err != nil {
		return Entity{}, err
	}
	return Entity{d, id}, nil
}

// ID is the entity's id.
func (e Entity) ID() datom.ID { return e.id }

// DB is the value that the entity is read from.
func (e Entity) DB() DB { return e.db }

// Get is the value of an attribute (an id or an ident): the first one if there are many. ok is false if there is none, or no such attribute.
func (e Entity) Get(attr any) (v datom.Value, ok bool) {
	for v := range e.Values(attr) {
		return v, true
	}
	return datom.Value{}, false
}

// Values is the values of an attribute in their order.
func (e Entity) Values(attr any) iter.Seq[datom.Value] {
	return func(yield func(datom.Value) bool) {
		for d, err := range e.db.Datoms(EAVT, e.id, attr) {
			if err != nil || !yield(d.V) {
				return
			}
		}
	}
}

// All is every fact of the entity: the attribute's ident and the value, by attribute. An attribute without an ident has an empty one.
func (e Entity) All() iter.Seq2[datom.Keyword, datom.Value] {
	return func(yield func(datom.Keyword, datom.Value) bool) {
		for d, err := range e.db.Datoms(EAVT, e.id) {
			if err != nil {
				return
			}
			k, _ := e.db.Ident(d.A)
			if !yield(k, d.V) {
				return
			}
		}
	}
}

// Ref is the entity that a ref attribute leads to: the first one if there are many.
func (e Entity) Ref(attr any) (Entity, bool) {
	for r := range e.Refs(attr) {
		return r, true
	}
	return Entity{}, false
}

// Refs is the entities that a ref attribute leads to.
func (e Entity) Refs(attr any) iter.Seq[Entity] {
	return func(yield func(Entity) bool) {
		for v := range e.Values(attr) {
			if v.Kind() == datom.KindRef && !yield(Entity{e.db, v.Ref()}) {
				return
			}
		}
	}
}

// Reverse is the entities whose ref attribute leads to this one.
func (e Entity) Reverse(attr any) iter.Seq[Entity] {
	return func(yield func(Entity) bool) {
		for d, err := range e.db.Datoms(VAET, e.id, attr) {
			if err != nil || !yield(Entity{e.db, d.E}) {
				return
			}
		}
	}
}

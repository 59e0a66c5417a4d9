package db

import "github.com/steledb/stele/datom"

// Every entity that a database is born with (design.md §3) is listed here, with its id: the transaction t = 1, Bootstrap,
// installs them all. The list is part of the format: nothing in it may ever change, and what a later version adds goes to
// the end.

// FirstPart is the first partition that a user can install.
const FirstPart = 5

// The ids of the built-in attributes, types and enumerations, in :db.part/db.
const (
	AttrIdent = datom.ID(datom.FirstSeq) + iota
	AttrValueType
	AttrCardinality
	AttrUnique
	AttrIndex
	AttrIsComponent
	AttrNoHistory
	AttrDoc
	AttrFulltext
	AttrTupleAttrs
	AttrTupleTypes
	AttrTupleType
	AttrPreds       // :db.attr/preds
	AttrEntityAttrs // :db.entity/attrs
	AttrEntityPreds // :db.entity/preds
	AttrEnsure
	AttrTxInstant
	AttrInstallPartition
	AttrInstallAttribute
	AttrInstallValueType
	AttrInstallFunction
	AttrAlterAttribute
	AttrTxKey         // :stele.tx/key
	AttrTxRequestHash // :stele.tx/request-hash
	AttrTxTempids     // :stele.tx/tempids

	TypeBoolean
	TypeLong
	TypeBigInt
	TypeFloat
	TypeDouble
	TypeBigDec
	TypeInstant
	TypeKeyword
	TypeSymbol
	TypeString
	TypeUUID
	TypeURI
	TypeBytes
	TypeRef
	TypeTuple

	CardinalityOne
	CardinalityMany
	UniqueValueID    // :db.unique/value
	UniqueIdentityID // :db.unique/identity

	endOfBuiltins
)

// PartDBEntity is the entity :db.part/db, the subject of :db.install/partition.
const PartDBEntity = datom.ID(0)

// IsBuiltin reports whether the entity is one of those listed here, which no transaction may alter.
func IsBuiltin(id datom.ID) bool {
	switch uint64(id) {
	case datom.PartDB, datom.PartTx, datom.PartUser: // the partitions' entities lie in :db.part/db, whose number is 0
		return true
	}
	return id >= AttrIdent && id < endOfBuiltins
}

type builtin struct {
	id    datom.ID
	ident datom.Keyword
	// Of attributes only:
	kind      datom.Kind
	many      bool
	unique    Uniqueness
	tupleType datom.Kind
}

// builtins is the list, in order of ids.
func builtins() []builtin {
	const many = true
	return []builtin{
		{id: datom.ID(datom.PartDB), ident: "db.part/db"},
		{id: datom.ID(datom.PartTx), ident: "db.part/tx"},
		{id: datom.ID(datom.PartUser), ident: "db.part/user"},

		{id: AttrIdent, ident: "db/ident", kind: datom.KindKeyword, unique: UniqueIdentity},
		{id: AttrValueType, ident: "db/valueType", kind: datom.KindRef},
		{id: AttrCardinality, ident: "db/cardinality", kind: datom.KindRef},
		{id: AttrUnique, ident: "db/unique", kind: datom.KindRef},
		{id: AttrIndex, ident: "db/index", kind: datom.KindBoolean},
		{id: AttrIsComponent, ident: "db/isComponent", kind: datom.KindBoolean},
		{id: AttrNoHistory, ident: "db/noHistory", kind: datom.KindBoolean},
		{id: AttrDoc, ident: "db/doc", kind: datom.KindString},
		{id: AttrFulltext, ident: "db/fulltext", kind: datom.KindBoolean},
		{id: AttrTupleAttrs, ident: "db/tupleAttrs", kind: datom.KindTuple, tupleType: datom.KindRef},
		{id: AttrTupleTypes, ident: "db/tupleTypes", kind: datom.KindTuple, tupleType: datom.KindKeyword},
		{id: AttrTupleType, ident: "db/tupleType", kind: datom.KindKeyword},
		{id: AttrPreds, ident: "db.attr/preds", kind: datom.KindSymbol, many: many},
		{id: AttrEntityAttrs, ident: "db.entity/attrs", kind: datom.KindKeyword, many: many},
		{id: AttrEntityPreds, ident: "db.entity/preds", kind: datom.KindSymbol, many: many},
		{id: AttrEnsure, ident: "db/ensure", kind: datom.KindRef, many: many},
		{id: AttrTxInstant, ident: "db/txInstant", kind: datom.KindInstant},
		{id: AttrInstallPartition, ident: "db.install/partition", kind: datom.KindRef, many: many},
		{id: AttrInstallAttribute, ident: "db.install/attribute", kind: datom.KindRef, many: many},
		{id: AttrInstallValueType, ident: "db.install/valueType", kind: datom.KindRef, many: many},
		{id: AttrInstallFunction, ident: "db.install/function", kind: datom.KindRef, many: many},
		{id: AttrAlterAttribute, ident: "db.alter/attribute", kind: datom.KindRef, many: many},
		{id: AttrTxKey, ident: "stele.tx/key", kind: datom.KindString, unique: UniqueValue},
		{id: AttrTxRequestHash, ident: "stele.tx/request-hash", kind: datom.KindBytes},
		{id: AttrTxTempids, ident: "stele.tx/tempids", kind: datom.KindBytes},

		{id: TypeBoolean, ident: "db.type/boolean"},
		{id: TypeLong, ident: "db.type/long"},
		{id: TypeBigInt, ident: "db.type/bigint"},
		{id: TypeFloat, ident: "db.type/float"},
		{id: TypeDouble, ident: "db.type/double"},
		{id: TypeBigDec, ident: "db.type/bigdec"},
		{id: TypeInstant, ident: "db.type/instant"},
		{id: TypeKeyword, ident: "db.type/keyword"},
		{id: TypeSymbol, ident: "db.type/symbol"},
		{id: TypeString, ident: "db.type/string"},
		{id: TypeUUID, ident: "db.type/uuid"},
		{id: TypeURI, ident: "db.type/uri"},
		{id: TypeBytes, ident: "db.type/bytes"},
		{id: TypeRef, ident: "db.type/ref"},
		{id: TypeTuple, ident: "db.type/tuple"},

		{id: CardinalityOne, ident: "db.cardinality/one"},
		{id: CardinalityMany, ident: "db.cardinality/many"},
		{id: UniqueValueID, ident: "db.unique/value"},
		{id: UniqueIdentityID, ident: "db.unique/identity"},
	}
}

// TypeKind is the kind of values that a :db.type/… entity stands for.
func TypeKind(id datom.ID) (datom.Kind, bool) {
	switch id {
	case TypeBoolean:
		return datom.KindBoolean, true
	case TypeLong:
		return datom.KindLong, true
	case TypeBigInt:
		return datom.KindBigInt, true
	case TypeFloat:
		return datom.KindFloat, true
	case TypeDouble:
		return datom.KindDouble, true
	case TypeBigDec:
		return datom.KindBigDec, true
	case TypeInstant:
		return datom.KindInstant, true
	case TypeKeyword:
		return datom.KindKeyword, true
	case TypeSymbol:
		return datom.KindSymbol, true
	case TypeString:
		return datom.KindString, true
	case TypeUUID:
		return datom.KindUUID, true
	case TypeURI:
		return datom.KindURI, true
	case TypeBytes:
		return datom.KindBytes, true
	case TypeRef:
		return datom.KindRef, true
	case TypeTuple:
		return datom.KindTuple, true
	}
	return datom.KindNil, false
}

// TypeNamed is the kind behind a keyword :db.type/….
func TypeNamed(k datom.Keyword) (datom.Kind, bool) {
	for id := TypeBoolean; id <= TypeTuple; id++ {
		if kind, _ := TypeKind(id); "db.type/"+kind.String() == string(k) {
			return kind, true
		}
	}
	return datom.KindNil, false
}

// TypeID is the :db.type/… entity of a kind.
func TypeID(k datom.Kind) (datom.ID, bool) {
	for id := TypeBoolean; id <= TypeTuple; id++ {
		if kind, _ := TypeKind(id); kind == k {
			return id, true
		}
	}
	return 0, false
}

// firstNext is the id allocator of a database that holds nothing but the built-ins.
func firstNext() datom.NextIDs { return datom.NextIDs{Part: FirstPart, Seq: uint64(endOfBuiltins)} }

// Bootstrap is the transaction that creates a database: t = 1, dated 1970-01-01, so that an import can supply its own history.
func Bootstrap() *datom.Tx {
	tx := &datom.Tx{T: 1, Instant: 0, Next: firstNext()}
	add := func(e, a datom.ID, v datom.Value) {
		tx.Datoms = append(tx.Datoms, datom.Datom{E: e, A: a, V: v, T: 1, Added: true})
	}
	add(datom.TxID(1), AttrTxInstant, datom.InstantMilli(0))
	for _, b := range builtins() {
		add(b.id, AttrIdent, datom.KeywordValue(b.ident))
		if b.id < datom.ID(datom.FirstSeq) {
			add(PartDBEntity, AttrInstallPartition, datom.Ref(b.id))
		}
		if b.kind == datom.KindNil {
			continue
		}
		t, _ := TypeID(b.kind)
		add(b.id, AttrValueType, datom.Ref(t))
		if b.many {
			add(b.id, AttrCardinality, datom.Ref(CardinalityMany))
		} else {
			add(b.id, AttrCardinality, datom.Ref(CardinalityOne))
		}
		switch b.unique {
		case UniqueValue:
			add(b.id, AttrUnique, datom.Ref(UniqueValueID))
		case UniqueIdentity:
			add(b.id, AttrUnique, datom.Ref(UniqueIdentityID))
		}
		if b.tupleType != datom.KindNil {
			add(b.id, AttrTupleType, datom.KeywordValue(datom.Keyword("db.type/"+b.tupleType.String())))
		}
	}
	return tx
}

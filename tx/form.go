// Package tx turns transaction data into datoms: it is pure, and knows nothing of logs or of time passing.
//
// # Transaction data
//
// [Data] is a list of forms, in Datomic's dialect. A form is a [List] (made by [Add], [Retract], [RetractAll], [RetractEntity],
// [CAS], [Call] and [Ensure]), or a map form: a [Map], or [Pairs], which is the same with entries in order and with
// positions, as the readers of EDN and JSON make it. A transaction is a set: the order of its forms never changes the result.
//
// What stands for an entity, also as the value of a ref attribute:
//
//	datom.ID                   an entity id; so does an int or int64 that is not negative
//	datom.Keyword              an ident
//	Lookup{Attr, Value}        the entity that has this unique value; so does a []any of an attribute and a value
//	string                     a tempid: the same text is the same entity, in one transaction
//	Tempid{Part, Name}         a tempid that says in which partition a new entity goes; a negative int is Tempid{Name: "-1"}
//	"datomic.tx" (TxEntity)    the transaction itself
//
// An attribute is a datom.Keyword or a datom.ID. A value is whatever [datom.Of] takes, converted to the attribute's type only
// where nothing can be lost. For an attribute of cardinality many, a map form's value may be a [Set], a []any or any other slice
// (but []byte, which is a value): each element is a value. For a ref attribute it may be a nested Map or Pairs.
package tx

import "github.com/steledb/stele/datom"

// Data is the content of one transaction. It is not changed by this package, and must not be changed while in use.
type Data []Form

// Form is one form of a transaction: a [List], a [Map] or [Pairs].
type Form interface{ form() }

// List is a list form: an operation and what it is applied to. Op is one of the operations below, or the name of a
// transaction function.
type List struct {
	Op   datom.Keyword
	Args []any
	Pos  Pos
}

// The operations that are built in. The second spelling of cas and retractEntity is the old one and means the same.
const (
	OpAdd              datom.Keyword = "db/add"              // e a v
	OpRetract          datom.Keyword = "db/retract"          // e a v, or e a
	OpRetractEntity    datom.Keyword = "db/retractEntity"    // e
	OpRetractEntityOld datom.Keyword = "db.fn/retractEntity" // e
	OpCAS              datom.Keyword = "db/cas"              // e a old new
	OpCASOld           datom.Keyword = "db.fn/cas"           // e a old new
	OpEnsure           datom.Keyword = "db/ensure"           // e spec
	OpExcise           datom.Keyword = "db/excise"           // refused
)

// Map is a map form: facts about one entity. The key "db/id" says which; without it, the entity is a fresh tempid. A key
// "ns/_name" is the reverse of attribute "ns/name".
type Map map[datom.Keyword]any

// Pairs is a [Map] whose entries are in order and know where they stood in the input.
type Pairs struct {
	Entries []Pair
	Pos     Pos
}

// Pair is one entry of [Pairs]. Key is a datom.Keyword or a datom.ID.
type Pair struct {
	Key   any
	Value any
	Pos   Pos
}

func (List) form()  {}
func (Map) form()   {}
func (Pairs) form() {}

// Set is many values of an attribute of cardinality many. It is never a lookup ref or a tuple.
type Set []any

// Lookup is a lookup ref: the entity that has this value of this unique attribute before the transaction.
type Lookup struct {
	Attr  datom.Keyword
	Value any
}

// Tempid names an entity within one transaction. Tempids are one if name and partition are. A string s as a tempid is Tempid{Name: s}.
type Tempid struct {
	Part datom.Keyword // where a new entity goes; "" is "db.part/user". With "db.part/tx" it is the transaction, whatever the name.
	Name string        // "": a fresh tempid at each occurrence
}

// TxEntity is the entity of the transaction that it stands in.
const TxEntity = "datomic.tx"

// Untyped is a value whose type its reader could not know, such as JSON's: it is asked for what it stands for once the
// attribute is known. It may stand wherever a value, an entity or an attribute does.
type Untyped interface {
	// As is what the value stands for where a value of kind k is wanted: anything this package's comment lists (for KindRef,
	// an entity; for KindKeyword also an attribute). KindNil asks for what it is by nature, as functions get it. An error says
	// why it cannot be had without loss.
	As(k datom.Kind) (any, error)
}

// Pos is where a form stood in the input. Zero fields are not known.
type Pos struct {
	Form   int // from 1, among the transaction's forms
	Line   int // from 1
	Column int // from 1, in bytes
}

// Add asserts the fact [e a v].
func Add(e any, a datom.Keyword, v any) List { return List{Op: OpAdd, Args: []any{e, a, v}} }

// Retract retracts the fact [e a v].
func Retract(e any, a datom.Keyword, v any) List { return List{Op: OpRetract, Args: []any{e, a, v}} }

// RetractAll retracts every value of attribute a of e.
func RetractAll(e any, a datom.Keyword) List { return List{Op: OpRetract, Args: []any{e, a}} }

// RetractEntity retracts all facts of e, all references to it and, recursively, its components.
func RetractEntity(e any) List { return List{Op: OpRetractEntity, Args: []any{e}} }

// CAS changes the value of a, of cardinality one, from old to new, and fails with [ErrCASFailed] if it is not old. A nil old
// means "no value".
func CAS(e any, a datom.Keyword, old, new any) List {
	return List{Op: OpCAS, Args: []any{e, a, old, new}}
}

// Call calls the transaction function registered as fn; what it returns stands in place of the call.
func Call(fn datom.Keyword, args ...any) List { return List{Op: fn, Args: args} }

// Ensure checks e, as the transaction leaves it, against an entity spec. It stores nothing.
func Ensure(e, spec any) List { return List{Op: OpEnsure, Args: []any{e, spec}} }

// Ref is a lookup ref.
func Ref(a datom.Keyword, v any) Lookup { return Lookup{a, v} }

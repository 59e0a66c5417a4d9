package tx

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
)

// Request is transaction data compiled against one version of the schema: checked as far as it can be without the database
// value that it will be applied to, flattened to facts, its values converted. It is immutable; Prepare may be called with it any
// number of times, and compiles it again where the schema has moved.
type Request struct {
	data Data
	lim  Limits
	p    *program
	key  string // the idempotency key; "": none
	hash [sha256.Size]byte
}

// Compile does everything that needs no order, for the caller's goroutine to do ahead of the queue. It fails only for what
// no database value could make right: data that is malformed or over a limit. Every other fault is kept, and reported by
// Prepare if it still is one then. The data belongs to the request from now on.
func Compile(s *db.Schema, d Data, lim Limits) (*Request, error) {
	r := &Request{data: d, lim: lim.orDefault()}
	r.p = compile(s, d, nil, r.lim)
	if err := r.p.faults.upTo(phaseForm); err != nil {
		return nil, err
	}
	if err := r.keyed(); err != nil {
		return nil, err
	}
	return r, nil
}

// Size is roughly how many bytes the transaction takes in a queue and in the log.
func (r *Request) Size() int { return 64 + r.p.bytes + 48*r.p.stated }

// Memory is about how many bytes the request keeps alive, the data included. What the data is made of is not looked at again: the
// estimate is one of map forms and list forms as a program writes them.
func (r *Request) Memory() int {
	p := r.p
	n := int(unsafe.Sizeof(*r)+unsafe.Sizeof(*p)) + p.bytes + perFact*p.stated + perEnt*len(p.ents)
	if cap(p.ops) > len(p.ops0) {
		n += cap(p.ops) * int(unsafe.Sizeof(op{}))
	}
	if cap(p.ents) > len(p.ents0) {
		n += cap(p.ents) * int(unsafe.Sizeof(ent{}))
	}
	if cap(p.pos) > len(p.pos0) {
		n += cap(p.pos) * int(unsafe.Sizeof(Pos{}))
	}
	return n + cap(p.tuples)*int(unsafe.Sizeof(tupleForm{})) + cap(p.olds)*int(unsafe.Sizeof(oldValue{}))
}

// What transaction data takes beside the text of its values: for each fact, and for each entity, which often has a map of its own.
const (
	perFact = 100
	perEnt  = 300
)

// Data is what the request was compiled from. It must not be changed.
func (r *Request) Data() Data { return r.data }

// program is compiled transaction data.
type program struct {
	version uint64 // of the schema that it is compiled against
	ops     []op
	ents    []ent
	tuples  []tupleForm
	olds    []oldValue // of cas
	pos     []Pos
	calls   bool // there are transaction functions to expand first; ops mean nothing
	faults  faults
	notices []string

	stated, bytes int // facts and bytes of values, for limits

	// What there is to do at all: what has no work is not entered.
	tempids    bool // there is a tempid
	named      bool // … one with a name
	identities bool // … an attribute that gives identity
	composites bool // … a composite, or a constituent of one
	schema     bool // … a built-in attribute
	strict     bool // … retractEntity or cas, which do not take every entity
	symbolic   bool // … a tuple with an entity in it

	// Room for a small transaction, so that it is one allocation.
	ops0  [4]op
	ents0 [3]ent
	pos0  [2]Pos
}

type opKind uint8

const (
	opAdd opKind = iota
	opRetract
	opRetractAll
	opRetractEntity
	opCAS
	opEnsure // e is checked against the spec that is ref
	opUse    // stores nothing: ref is used as a value, that is all
)

// op is one list form. The value is v, unless it has an entity in it, which ref then says.
type op struct {
	kind opKind
	e    int32 // index of an ent
	ref  int32 // see noRef
	old  int32 // of cas, index of the old value
	pos  int32
	a    *db.Attribute
	v    datom.Value
}

// oldValue is what cas expects: v or ref, or nothing.
type oldValue struct {
	v    datom.Value
	ref  int32
	none bool
}

type entKind uint8

const (
	entID      entKind = iota
	entIdent           // id is what the ident resolves to
	entMissing         // an ident that names nothing
	entLookup
	entTempid
	entTx
	entBad   // not an entity; bad says why
	entAlias // an ident that names nothing yet; the entity that takes it in this transaction: ref
)

// ent is an entity as it was written. Equal ones are one, except for fresh tempids.
type ent struct {
	kind     entKind
	isEntity bool // stands in entity position of an add or a retract
	isValue  bool // stands as a value
	id       datom.ID
	part     uint64        // of a tempid
	ref      int32         // of a lookup: its value's; of an alias: what it is the same as
	pos      int32         // where it stood first
	attr     *db.Attribute // of a lookup
	v        datom.Value   // of a lookup
	name     string        // of a tempid or ident; "" is a fresh tempid
	bad      *fault
}

type compiler struct {
	s       *db.Schema
	lim     Limits
	p       *program
	known   map[entKey]int32 // all ents but fresh tempids, once there are many
	depth   int
	at      Pos
	pos     int32   // index of at in p.pos, or -1 if it is not there yet
	entries []entry // a stack: those of the map at hand lie on top
}

// compile compiles forms; at says where each stood, if it is not nil.
func compile(s *db.Schema, d Data, at []Pos, lim Limits) *program {
	p := &program{version: s.Version()}
	p.ops, p.ents, p.pos = p.ops0[:0], p.ents0[:0], p.pos0[:0]
	if n := min(len(d), lim.Datoms); n > few {
		p.ops, p.ents, p.pos = make([]op, 0, 3*n), make([]ent, 0, n+n/2), make([]Pos, 0, n)
	}
	c := compiler{s: s, lim: lim, p: p}
	for i, f := range d {
		pos := Pos{Form: i + 1}
		if at != nil {
			pos = at[i]
		}
		c.form(f, pos)
	}
	c.at = Pos{}
	if p.stated > lim.Datoms {
		c.fault(phaseForm, LimitExceeded, "", "", fmt.Sprintf("the transaction states more than %d facts; split it", lim.Datoms))
	}
	if p.bytes > lim.Bytes {
		c.fault(phaseForm, LimitExceeded, "", "", fmt.Sprintf("the transaction's values take more than %d bytes; split it", lim.Bytes))
	}
	c.linkIdents()
	return p
}

func (c *compiler) fault(ph phase, k Kind, attr, value, msg string) {
	c.faultAt(ph, k, attr, value, "", msg)
}

func (c *compiler) faultAt(ph phase, k Kind, attr, value, entity, msg string) {
	c.p.faults.add(ph, &fault{Error: Error{Kind: k, Pos: c.at, Attr: attr, Value: value, Entity: entity, Msg: msg}})
}

func (c *compiler) malformed(msg string) { c.fault(phaseForm, Malformed, "", "", msg) }

// position notes where the compiler is, and returns what is to be put back afterwards.
func (c *compiler) position(pos Pos) (Pos, int32) {
	old, n := c.at, c.pos
	if pos.Form == 0 {
		pos.Form = c.at.Form
	}
	if pos.Line == 0 {
		pos.Line, pos.Column = c.at.Line, c.at.Column
	}
	if pos != c.at {
		c.at, c.pos = pos, -1
	}
	return old, n
}

func (c *compiler) here() int32 {
	if c.pos < 0 || len(c.p.pos) == 0 {
		c.p.pos = append(c.p.pos, c.at)
		c.pos = int32(len(c.p.pos) - 1)
	}
	return c.pos
}

// form compiles a top-level form that stood at pos, unless it knows better.
func (c *compiler) form(f Form, pos Pos) {
	c.at, c.pos = pos, -1
	switch f := f.(type) {
	case List:
		c.position(f.Pos)
		c.list(f)
	case Map, Pairs:
		c.mapForm(f)
	default:
		c.malformed(fmt.Sprintf("a form is a list form or a map form, not a Go %T", f))
	}
}

// arity of the built-in operations: the least and the most arguments.
func (c *compiler) arity(f List, least, most int) bool {
	if n := len(f.Args); n < least || n > most {
		takes := strconv.Itoa(least)
		if most > least {
			takes += " or " + strconv.Itoa(most)
		}
		s := "s"
		if most == 1 {
			s = ""
		}
		c.malformed(fmt.Sprintf("%s takes %s argument%s, not %d", f.Op, takes, s, n))
		return false
	}
	return true
}

func (c *compiler) list(f List) {
	switch f.Op {
	case OpAdd:
		if c.arity(f, 3, 3) {
			c.add(f.Args)
		}
	case OpRetract:
		if c.arity(f, 2, 3) {
			c.retract(f.Args)
		}
	case OpRetractEntity, OpRetractEntityOld:
		if c.arity(f, 1, 1) {
			c.emit(op{kind: opRetractEntity, e: c.entityOf(f.Args[0]), ref: noRef})
		}
	case OpCAS, OpCASOld:
		if c.arity(f, 4, 4) {
			c.cas(f.Args)
		}
	case OpEnsure:
		if c.arity(f, 2, 2) {
			c.ensure(c.entityOf(f.Args[0]), f.Args[1])
		}
	case OpExcise:
		c.malformed(noExcision)
	default:
		if !f.Op.Valid() {
			c.malformed(fmt.Sprintf("%q is not the name of an operation or a transaction function", string(f.Op)))
			return
		}
		c.p.calls = true
		c.p.stated++
	}
}

const noExcision = "excision is not supported: a database keeps all that it was ever told; to end a fact, use :db/retract"

func (c *compiler) add(args []any) {
	e := c.entityOf(args[0])
	a := c.attribute(args[1])
	switch {
	case a == nil:
	case a.ID == db.AttrEnsure:
		c.ensure(e, args[2])
	default:
		c.addValue(e, a, args[2])
	}
}

func (c *compiler) retract(args []any) {
	e := c.entityOf(args[0])
	a := c.attribute(args[1])
	if a == nil {
		return
	}
	if len(args) == 2 {
		c.emit(op{kind: opRetractAll, e: e, a: a, ref: noRef})
		return
	}
	if v, ref, ok := c.valueOf(a, args[2]); ok {
		c.emit(op{kind: opRetract, e: e, a: a, v: v, ref: ref})
	}
}

func (c *compiler) cas(args []any) {
	if args[3] == nil {
		c.malformed("the new value of :db/cas is nil; to end a fact that you know, use :db/retract")
		return
	}
	e := c.entityOf(args[0])
	a := c.attribute(args[1])
	if a == nil {
		return
	}
	old := oldValue{none: args[2] == nil, ref: noRef}
	ok := true
	if !old.none {
		old.v, old.ref, ok = c.valueOf(a, args[2])
	}
	v, ref, ok2 := c.valueOf(a, args[3])
	if !ok || !ok2 {
		return
	}
	c.p.olds = append(c.p.olds, old)
	c.emit(op{kind: opCAS, e: e, a: a, v: v, ref: ref, old: int32(len(c.p.olds) - 1)})
}

func (c *compiler) ensure(e int32, spec any) {
	if u, ok := spec.(Untyped); ok {
		var err error
		if spec, err = u.As(datom.KindRef); err != nil {
			c.wrongType(c.s.Attr(db.AttrEnsure), spec, err)
			return
		}
	}
	ref, ok := c.entity(spec)
	if !ok {
		c.fault(phaseAttrs, WrongType, ":db/ensure", show(spec), fmt.Sprintf(":db/ensure takes an entity spec, and %s names no entity", show(spec)))
		return
	}
	c.emit(op{kind: opEnsure, e: e, ref: ref})
}

// emit adds an op, unless there are too many already.
func (c *compiler) emit(o op) {
	c.p.stated++
	if c.p.stated > c.lim.Datoms {
		return
	}
	o.pos = c.here()
	switch o.kind {
	case opAdd, opRetract, opRetractAll, opEnsure:
		c.p.ents[o.e].isEntity = true
	case opCAS, opRetractEntity:
		c.p.strict = true
	}
	c.markValue(o.ref)
	if o.kind == opCAS {
		c.markValue(c.p.olds[o.old].ref)
	}
	if o.a != nil {
		c.p.identities = c.p.identities || o.a.Unique == db.UniqueIdentity
		c.p.schema = c.p.schema || builtin(o.a.ID)
		c.p.composites = c.p.composites || len(o.a.Composites) > 0 || len(o.a.TupleAttrs) > 0
	}
	c.p.ops = append(c.p.ops, o)
}

// markValue notes that the entities of a reference stand as values.
func (c *compiler) markValue(ref int32) {
	switch {
	case isEntityRef(ref):
		c.p.ents[ref].isValue = true
	case isTupleRef(ref):
		c.p.symbolic = true
		t := &c.p.tuples[tupleIndex(ref)]
		for _, e := range t.ents[:t.n] {
			if e != noRef {
				c.p.ents[e].isValue = true
			}
		}
	}
}

// attribute resolves what stands for an attribute, or reports that it is none.
func (c *compiler) attribute(x any) *db.Attribute {
	if u, ok := x.(Untyped); ok {
		if y, err := u.As(datom.KindKeyword); err == nil {
			x = y
		}
	}
	var a *db.Attribute
	switch x := x.(type) {
	case datom.Keyword:
		return c.attributeNamed(x)
	case datom.ID:
		a = c.s.Attr(x)
	case int64:
		if x >= 0 {
			a = c.s.Attr(datom.ID(x))
		}
	case int:
		if x >= 0 {
			a = c.s.Attr(datom.ID(x))
		}
	}
	if a == nil {
		c.fault(phaseAttrs, NotAnAttribute, show(x), "", fmt.Sprintf("%s is not an attribute; an attribute is written as its ident, or as its entity id", show(x)))
		return nil
	}
	return c.usable(a)
}

func (c *compiler) attributeNamed(kw datom.Keyword) *db.Attribute {
	a := c.s.AttrByIdent(kw)
	if a == nil {
		k := NotAnAttribute
		if kw == "db/fn" || kw == "db/excise" {
			k = Malformed
		}
		c.fault(phaseAttrs, k, kw.String(), "", c.noAttribute(kw))
		return nil
	}
	return c.usable(a)
}

// usable refuses the attributes that transaction data must not use.
func (c *compiler) usable(a *db.Attribute) *db.Attribute {
	switch a.ID {
	case db.AttrTxRequestHash, db.AttrTxTempids:
		c.fault(phaseAttrs, Malformed, a.Ident.String(), "", a.Ident.String()+" is written by the transactor only; give the transaction :stele.tx/key")
		return nil
	case db.AttrInstallValueType, db.AttrInstallFunction:
		c.fault(phaseAttrs, Malformed, a.Ident.String(), "", a.Ident.String()+" has no meaning here: value types are built in, and functions are Go "+
			"functions, registered with the transactor (Options.Functions)")
		return nil
	}
	return a
}

func (c *compiler) noAttribute(kw datom.Keyword) string {
	switch kw {
	case "db/fn":
		return ":db/fn cannot be stored: functions are Go functions, registered with the transactor under the name that the " +
			"transaction calls (Options.Functions)"
	case "db/excise":
		return noExcision
	}
	if _, isReverse := reverse(kw); isReverse {
		return fmt.Sprintf("%s is not an attribute; a reverse attribute can be used in map forms only", kw)
	}
	if _, ok := c.s.Entid(kw); ok {
		return fmt.Sprintf("%s is an entity, but not an attribute: it has no :db/valueType", kw)
	}
	return fmt.Sprintf("there is no attribute %s; it must be installed by an earlier transaction", kw)
}

// reverse is the attribute that :ns/_name is the reverse of.
func reverse(kw datom.Keyword) (datom.Keyword, bool) {
	i := strings.IndexByte(string(kw), '/')
	if i+1 >= len(kw) || kw[i+1] != '_' || i+2 == len(kw) {
		return "", false
	}
	return kw[:i+1] + kw[i+2:], true
}

// valueOf converts x to a's type, or reports that it cannot.
func (c *compiler) valueOf(a *db.Attribute, x any) (datom.Value, int32, bool) {
	v, ref, err := c.value(a, x)
	if err != nil {
		c.wrongType(a, x, err)
	}
	return v, ref, err == nil
}

func (c *compiler) wrongType(a *db.Attribute, x any, err error) {
	name := attrName(a)
	var over *limitError
	if errors.As(err, &over) {
		c.fault(phaseForm, LimitExceeded, name, "", name+": "+over.msg)
		return
	}
	c.fault(phaseAttrs, WrongType, name, show(x), fmt.Sprintf("%s is not a value of %s, which takes %s: %s", show(x), name, typeOf(c.s, a), err))
}

// addValue asserts one value of a, which may be a nested map.
func (c *compiler) addValue(e int32, a *db.Attribute, x any) {
	if a.Type == datom.KindRef {
		switch m := x.(type) {
		case Map:
			c.nested(e, a, m, false)
			return
		case Pairs:
			c.nested(e, a, m, false)
			return
		}
	}
	v, ref, ok := c.valueOf(a, x)
	if !ok {
		return
	}
	if a.ID == db.AttrFulltext && v.Bool() {
		c.notice(":db/fulltext has no effect: there is no full-text index; it is kept as a fact")
	}
	c.assert(e, a, v, ref)
}

// assert emits an add; what only marks an attribute as installed stores nothing.
func (c *compiler) assert(e int32, a *db.Attribute, v datom.Value, ref int32) {
	c.emit(op{kind: assertion(a), e: e, a: a, v: v, ref: ref})
}

func assertion(a *db.Attribute) opKind {
	if a.ID == db.AttrInstallAttribute || a.ID == db.AttrAlterAttribute {
		return opUse
	}
	return opAdd
}

func (c *compiler) notice(s string) {
	if !slices.Contains(c.p.notices, s) {
		c.p.notices = append(c.p.notices, s)
	}
}

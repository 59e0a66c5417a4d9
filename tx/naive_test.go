package tx_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
	"github.com/steledb/stele/tx"
)

// This file is the rules of transactions once more, as simply as they can be said, over sets of facts: no index, nothing
// remembered from one question to the next. It shares the types of forms, kinds and values with the package, and no code. It knows no
// functions and no predicates, and every tempid has a name.

type nfact struct {
	e, a datom.ID
	v    datom.Value
}

// naive is a database.
type naive struct {
	facts   map[nfact]bool // what holds now
	history []datom.Datom
	idents  map[datom.Keyword]datom.ID // former ones too
	attrs   map[datom.ID]*nattr        // derived from facts
	t       uint64
	next    datom.NextIDs
}

type nattr struct {
	id         datom.ID
	ident      datom.Keyword
	kind       datom.Kind
	many       bool
	unique     datom.ID // 0, db.UniqueValueID or db.UniqueIdentityID
	component  bool
	tupleAttrs []datom.ID
	tupleTypes []datom.Kind
	tupleType  datom.Kind
}

func newNaive() *naive {
	n := &naive{facts: map[nfact]bool{}, idents: map[datom.Keyword]datom.ID{}}
	b := db.Bootstrap()
	n.apply(b.Datoms, b.Next)
	return n
}

func (n *naive) apply(ds []datom.Datom, next datom.NextIDs) {
	for _, added := range []bool{false, true} {
		for _, d := range ds {
			if d.Added != added {
				continue
			}
			n.history = append(n.history, d)
			if added {
				n.facts[nfact{d.E, d.A, d.V}] = true
				if d.A == db.AttrIdent {
					n.idents[d.V.Keyword()] = d.E
				}
			} else {
				delete(n.facts, nfact{d.E, d.A, d.V})
			}
		}
	}
	n.t++
	n.next = next
	n.attrs = readAttrs(n.facts)
}

// readAttrs is the attributes that facts describe.
func readAttrs(facts map[nfact]bool) map[datom.ID]*nattr {
	all := map[datom.ID]*nattr{}
	card := map[datom.ID]bool{}
	get := func(e datom.ID) *nattr {
		if all[e] == nil {
			all[e] = &nattr{id: e}
		}
		return all[e]
	}
	for f := range facts {
		switch f.a {
		case db.AttrIdent:
			get(f.e).ident = f.v.Keyword()
		case db.AttrValueType:
			get(f.e).kind = kindOf(f.v.Ref())
		case db.AttrCardinality:
			card[f.e] = true
			get(f.e).many = f.v.Ref() == db.CardinalityMany
		case db.AttrUnique:
			get(f.e).unique = f.v.Ref()
		case db.AttrIsComponent:
			get(f.e).component = f.v.Bool()
		case db.AttrTupleAttrs:
			for _, x := range f.v.Tuple() {
				get(f.e).tupleAttrs = append(get(f.e).tupleAttrs, x.Ref())
			}
		case db.AttrTupleTypes:
			for _, x := range f.v.Tuple() {
				get(f.e).tupleTypes = append(get(f.e).tupleTypes, kindNamed(x.Keyword()))
			}
		case db.AttrTupleType:
			get(f.e).tupleType = kindNamed(f.v.Keyword())
		}
	}
	maps.DeleteFunc(all, func(e datom.ID, a *nattr) bool { return a.kind == datom.KindNil || !card[e] })
	return all
}

func kindOf(id datom.ID) datom.Kind {
	k, _ := db.TypeKind(id)
	return k
}

func kindNamed(kw datom.Keyword) datom.Kind { return kindsByName[kw] }

var kindsByName = func() map[datom.Keyword]datom.Kind {
	m := map[datom.Keyword]datom.Kind{}
	for k := datom.Kind(1); k < 0xff; k++ {
		m[datom.Keyword("db.type/"+k.String())] = k
	}
	return m
}()

func (n *naive) values(e, a datom.ID) (vs []datom.Value) {
	for f := range n.facts {
		if f.e == e && f.a == a {
			vs = append(vs, f.v)
		}
	}
	return vs
}

func (n *naive) holder(a datom.ID, v datom.Value) (datom.ID, bool) {
	for f := range n.facts {
		if f.a == a && f.v == v {
			return f.e, true
		}
	}
	return 0, false
}

func (n *naive) allocated(id datom.ID) bool {
	if id.IsTx() {
		return id.Seq() >= 1 && id.Seq() <= n.t
	}
	part := datom.MakeID(datom.PartDB, id.Part())
	if id >= datom.MaxID || id.Part() >= datom.FirstSeq || !n.facts[nfact{db.PartDBEntity, db.AttrInstallPartition, datom.Ref(part)}] {
		return false
	}
	if id.Seq() < datom.FirstSeq {
		return id.Part() == datom.PartDB && n.facts[nfact{db.PartDBEntity, db.AttrInstallPartition, datom.Ref(id)}]
	}
	return id.Seq() < n.next.Seq
}

// attempt is one transaction on its way.
type attempt struct {
	n       *naive
	faults  map[int]tx.Kind // by phase, the least
	prims   []prim
	parent  map[string]string // of tempids, and "datomic.tx"
	bound   map[string]datom.ID
	retract map[string]bool // bound by a retraction only
	ids     map[string]datom.ID
	fresh   map[datom.ID]bool
	delta   map[nfact]bool // true: added
	txID    datom.ID
	seq     uint64
}

const (
	atForm = iota
	atMaps
	atAttrs
	atEntities
	atUpsert
	atCAS
	atConflicts
	atUnique
	atSchema
	atInstants
	phasesEnd
)

func (x *attempt) fault(phase int, k tx.Kind) {
	if old, ok := x.faults[phase]; !ok || k < old {
		x.faults[phase] = k
	}
}

func (x *attempt) refusal(phase int) (tx.Kind, bool) {
	for p := range phase + 1 {
		if k, ok := x.faults[p]; ok {
			return k, true
		}
	}
	return 0, false
}

// prim is a list form with its attribute known.
type prim struct {
	op     datom.Keyword
	e      any
	a      *nattr
	v, old any
	hasV   bool
	hasOld bool
	quiet  bool // stores nothing
}

// transact judges data; now and instant are beside the point: the clock is always ahead and nobody supplies an instant but of older
// transactions. What comes is the delta, by ids of the attempt's own for new entities, or why it is refused.
func (n *naive) transact(data tx.Data) (*attempt, tx.Kind) {
	x := &attempt{
		n: n, faults: map[int]tx.Kind{}, parent: map[string]string{}, bound: map[string]datom.ID{}, retract: map[string]bool{},
		ids: map[string]datom.ID{}, fresh: map[datom.ID]bool{}, delta: map[nfact]bool{}, txID: datom.TxID(n.t + 1), seq: 1 << 40,
	}
	for _, f := range data {
		x.form(f)
	}
	steps := []struct {
		last int
		do   func()
	}{
		{atForm, func() {}}, {atMaps, func() {}}, {atAttrs, x.types}, {atEntities, x.entities}, {atUpsert, x.upsert}, {atCAS, x.cas}, {atConflicts, x.work},
		{atUnique, x.unique}, {atSchema, x.schema}, {atInstants, x.instants},
	}
	for _, s := range steps {
		s.do()
		if k, bad := x.refusal(s.last); bad {
			return nil, k
		}
	}
	return x, 0
}

func (x *attempt) attr(kw datom.Keyword) *nattr {
	if id, ok := x.n.idents[kw]; ok {
		return x.n.attrs[id]
	}
	return nil
}

func (x *attempt) mustAttr(a any) *nattr {
	kw, _ := a.(datom.Keyword)
	at := x.attr(kw)
	if at == nil {
		x.fault(atAttrs, tx.NotAnAttribute)
	}
	return at
}

func (x *attempt) form(f tx.Form) {
	switch f := f.(type) {
	case tx.Map:
		x.mapForm(f)
	case tx.List:
		n := len(f.Args)
		arity := map[datom.Keyword][2]int{tx.OpAdd: {3, 3}, tx.OpRetract: {2, 3}, tx.OpRetractEntity: {1, 1}, tx.OpCAS: {4, 4}}[f.Op]
		if n < arity[0] || n > arity[1] || f.Op == tx.OpCAS && f.Args[3] == nil {
			x.fault(atForm, tx.Malformed)
			return
		}
		p := prim{op: f.Op, e: f.Args[0]}
		if n > 1 {
			if p.a = x.mustAttr(f.Args[1]); p.a == nil {
				return
			}
		}
		switch f.Op {
		case tx.OpCAS:
			p.old, p.hasOld, p.v, p.hasV = f.Args[2], f.Args[2] != nil, f.Args[3], true
		case tx.OpAdd, tx.OpRetract:
			if n == 3 {
				p.v, p.hasV = f.Args[2], true
			}
		}
		if m, ok := p.v.(tx.Map); ok && f.Op == tx.OpAdd && p.a.kind == datom.KindRef {
			p.v = x.nested(p.a, m)
		}
		x.prim(p)
	}
}

func (x *attempt) prim(p prim) {
	if p.a != nil && p.op == tx.OpAdd && (p.a.id == db.AttrInstallAttribute || p.a.id == db.AttrAlterAttribute) {
		p.quiet = true
	}
	x.prims = append(x.prims, p)
}

func (x *attempt) mapForm(m tx.Map) any {
	e := m["db/id"]
	x.prim(prim{op: "use", e: e})
	for k, v := range m {
		if k == "db/id" {
			continue
		}
		back := strings.HasPrefix(k.Name(), "_")
		if back {
			k = datom.Keyword(k.Namespace() + "/" + k.Name()[1:])
		}
		a := x.mustAttr(k)
		if a == nil {
			continue
		}
		if back && a.kind != datom.KindRef {
			x.fault(atAttrs, tx.WrongType)
			continue
		}
		values := []any{v}
		if a.many || back {
			switch v := v.(type) {
			case tx.Set:
				values = v
			case []any:
				if !(a.kind == datom.KindRef && x.isLookup(v)) {
					values = v
				}
			}
		}
		for _, v := range values {
			if m, ok := v.(tx.Map); ok && a.kind == datom.KindRef {
				v = x.nested(a, m)
			}
			if back {
				if !isEntity(v) {
					x.fault(atAttrs, tx.WrongType)
					continue
				}
				x.prim(prim{op: tx.OpAdd, e: v, a: a, v: e, hasV: true})
			} else {
				x.prim(prim{op: tx.OpAdd, e: e, a: a, v: v, hasV: true})
			}
		}
	}
	return e
}

func (x *attempt) isLookup(v []any) bool {
	if len(v) != 2 {
		return false
	}
	kw, ok := v[0].(datom.Keyword)
	a := x.attr(kw)
	return ok && a != nil && a.unique != 0
}

func (x *attempt) nested(a *nattr, m tx.Map) any {
	known := a.component
	for k := range m {
		at := x.attr(k)
		known = known || k == "db/id" || at != nil && at.unique != 0
	}
	if !known {
		x.fault(atMaps, tx.NestedWithoutIdentity)
	}
	return x.mapForm(m)
}

func isEntity(v any) bool {
	switch v.(type) {
	case datom.ID, int, datom.Keyword, string, tx.Lookup, []any:
		return true
	}
	return false
}

// types checks every value, and the attributes of lookup refs.
func (x *attempt) types() {
	for _, p := range x.prims {
		x.entityTypes(p.e)
		if p.hasV && !x.typed(p.a, p.v) {
			x.fault(atAttrs, tx.WrongType)
		}
		if p.hasOld && !x.typed(p.a, p.old) {
			x.fault(atAttrs, tx.WrongType)
		}
	}
}

func (x *attempt) entityTypes(e any) {
	if v, ok := e.([]any); ok && len(v) == 2 {
		kw, _ := v[0].(datom.Keyword)
		e = tx.Lookup{Attr: kw, Value: v[1]}
	}
	if l, ok := e.(tx.Lookup); ok {
		if a := x.mustAttr(l.Attr); a != nil && a.unique != 0 && !x.typed(a, l.Value) {
			x.fault(atAttrs, tx.WrongType)
		}
	}
}

func (x *attempt) typed(a *nattr, v any) bool {
	if a.kind == datom.KindTuple {
		elems, ok := v.([]any)
		if !ok || len(elems) < 2 || len(elems) > 8 {
			return false
		}
		if n := max(len(a.tupleAttrs), len(a.tupleTypes)); n > 0 && n != len(elems) {
			return false
		}
		for i, e := range elems {
			if e != nil && !x.typedAs(x.elemKind(a, i), e) {
				return false
			}
		}
		return true
	}
	return x.typedAs(a.kind, v)
}

func (x *attempt) elemKind(a *nattr, i int) datom.Kind {
	switch {
	case len(a.tupleAttrs) > 0:
		return x.n.attrs[a.tupleAttrs[i]].kind
	case len(a.tupleTypes) > 0:
		return a.tupleTypes[i]
	}
	return a.tupleType
}

func (x *attempt) typedAs(k datom.Kind, v any) bool {
	if k == datom.KindRef {
		if !isEntity(v) {
			return false
		}
		x.entityTypes(v)
		return true
	}
	switch v.(type) {
	case string:
		return k == datom.KindString
	case int:
		return k == datom.KindLong
	case bool:
		return k == datom.KindBoolean
	case datom.Keyword:
		return k == datom.KindKeyword
	case datom.Symbol:
		return k == datom.KindSymbol
	}
	return false
}

// node is an entity: an id, or a tempid's name.
type node struct {
	id   datom.ID
	name string
}

// resolve is what stands for an entity; false if nothing does. bad says that it is no lookup ref at all.
func (x *attempt) resolve(v any) (_ node, ok, bad bool) {
	switch v := v.(type) {
	case datom.ID:
		return node{id: v}, x.n.allocated(v), false
	case int:
		return x.resolve(datom.ID(v))
	case datom.Keyword:
		id, ok := x.n.idents[v]
		return node{id: id}, ok, false
	case string:
		return node{name: v}, true, false
	case []any:
		if len(v) != 2 {
			return node{}, false, true
		}
		kw, _ := v[0].(datom.Keyword)
		return x.resolve(tx.Lookup{Attr: kw, Value: v[1]})
	case tx.Lookup:
		a := x.attr(v.Attr)
		if a == nil || a.unique == 0 {
			return node{}, false, a != nil
		}
		x.refs(a, v.Value, func(v any) {
			_, _, b := x.resolve(v)
			bad = bad || b
		})
		val, ok := x.stored(a, v.Value)
		if !ok || bad {
			return node{}, false, bad
		}
		id, ok := x.n.holder(a.id, val)
		return node{id: id}, ok, false
	}
	return node{}, false, false
}

// stored is a value whose entities are all stored.
func (x *attempt) stored(a *nattr, v any) (datom.Value, bool) {
	if a.kind != datom.KindTuple {
		return x.storedAs(a.kind, v)
	}
	var elems []datom.Value
	for i, e := range v.([]any) {
		if e == nil {
			elems = append(elems, datom.Value{})
			continue
		}
		y, ok := x.storedAs(x.elemKind(a, i), e)
		if !ok {
			return datom.Value{}, false
		}
		elems = append(elems, y)
	}
	y, err := datom.Tuple(elems...)
	return y, err == nil
}

func (x *attempt) storedAs(k datom.Kind, v any) (datom.Value, bool) {
	if k == datom.KindRef {
		r, ok, _ := x.resolve(v)
		return datom.Ref(r.id), ok && r.name == ""
	}
	y, err := datom.Of(v)
	return y, err == nil
}

// refs is every entity that stands in a value. A keyword in :db/tupleAttrs may be an ident of this same transaction.
func (x *attempt) refs(a *nattr, v any, f func(any)) {
	switch {
	case a.kind == datom.KindRef:
		f(v)
	case a.kind == datom.KindTuple:
		for i, e := range v.([]any) {
			if e == nil || x.elemKind(a, i) != datom.KindRef {
				continue
			}
			f(x.identHere(a, e))
		}
	}
}

func (x *attempt) identHere(a *nattr, e any) any {
	kw, ok := e.(datom.Keyword)
	if _, known := x.n.idents[kw]; !ok || known || a.id != db.AttrTupleAttrs {
		return e
	}
	for _, p := range x.prims {
		if p.op == tx.OpAdd && p.a.id == db.AttrIdent && p.v == any(kw) {
			return p.e
		}
	}
	return e
}

func (x *attempt) entities() {
	check := func(v any, missingIsFine bool) {
		switch _, ok, bad := x.resolve(v); {
		case bad:
			x.fault(atEntities, tx.InvalidLookupRef)
		case !ok && !missingIsFine:
			x.fault(atEntities, tx.NotAnEntity)
		}
	}
	for _, p := range x.prims {
		if s, ok := p.e.(string); ok && (p.op == tx.OpCAS || p.op == tx.OpRetractEntity) {
			_ = s
			x.fault(atEntities, tx.NotAnEntity)
		}
		check(p.e, p.op == tx.OpRetractEntity)
		if p.hasV {
			x.refs(p.a, p.v, func(v any) { check(v, false) })
		}
		if p.hasOld {
			x.refs(p.a, p.old, func(v any) { check(v, false) })
		}
	}
}

func (x *attempt) find(name string) string {
	for x.parent[name] != name {
		if x.parent[name] == "" {
			x.parent[name] = name
		}
		name = x.parent[name]
	}
	return name
}

// canon is an entity's text: of a tempid, its class, or the id that it is bound to.
func (x *attempt) canon(v any) string {
	r, _, _ := x.resolve(v)
	if r.name != "" {
		class := x.find(r.name)
		if id, ok := x.bound[class]; ok {
			return "#" + id.String()
		}
		return "class " + class
	}
	return "#" + r.id.String()
}

// text is a value's canonical text, and, if no class stands in it, the value.
func (x *attempt) text(a *nattr, v any) (string, datom.Value, bool) {
	one := func(k datom.Kind, v any) (string, datom.Value) {
		if v == nil {
			return "nil", datom.Value{}
		}
		if k == datom.KindRef {
			s := x.canon(v)
			var id datom.ID
			fmt.Sscanf(s, "#%d", &id)
			return s, datom.Ref(id)
		}
		y, _ := datom.Of(v)
		return y.String(), y
	}
	if a.kind != datom.KindTuple {
		s, y := one(a.kind, v)
		return s, y, !strings.HasPrefix(s, "class ")
	}
	var texts []string
	var elems []datom.Value
	whole := true
	for i, e := range v.([]any) {
		s, y := one(x.elemKind(a, i), e)
		whole = whole && !strings.HasPrefix(s, "class ")
		texts, elems = append(texts, s), append(elems, y)
	}
	y, _ := datom.Tuple(elems...)
	return strings.Join(texts, "|"), y, whole
}

// claim is an identity that a tempid asserts or retracts.
type claim struct {
	name     string
	key      string
	asserted bool
	holder   datom.ID
	stored   bool
}

// claims is every identity that is claimed, as things stand.
func (x *attempt) claims() (out []claim) {
	add := func(name string, a *nattr, v any, asserted bool) {
		s, y, whole := x.text(a, v)
		c := claim{name: name, key: fmt.Sprint(a.id, " ", s), asserted: asserted}
		if whole {
			c.holder, c.stored = x.n.holder(a.id, y)
		}
		out = append(out, c)
	}
	for _, p := range x.prims {
		name, ok := p.e.(string)
		if !ok || p.quiet || !p.hasV || p.op != tx.OpAdd && p.op != tx.OpRetract || p.a.unique != db.UniqueIdentityID {
			continue
		}
		if len(p.a.tupleAttrs) > 0 && slices.Contains(p.v.([]any), nil) {
			continue
		}
		add(name, p.a, p.v, p.op == tx.OpAdd)
	}
	// composites, from all their constituents
	for _, c := range x.n.attrs {
		if len(c.tupleAttrs) == 0 || c.unique != db.UniqueIdentityID {
			continue
		}
		classes := map[string][][]any{} // of each constituent, what is asserted
		for _, p := range x.prims {
			name, ok := p.e.(string)
			i := -1
			if p.a != nil {
				i = slices.Index(c.tupleAttrs, p.a.id)
			}
			if !ok || p.op != tx.OpAdd || i < 0 {
				continue
			}
			class := x.find(name)
			if classes[class] == nil {
				classes[class] = make([][]any, len(c.tupleAttrs))
			}
			classes[class][i] = append(classes[class][i], p.v)
		}
		for class, elems := range classes {
			tuples := [][]any{nil}
			for _, vs := range elems {
				var longer [][]any
				for _, t := range tuples {
					for _, v := range vs {
						longer = append(longer, append(slices.Clone(t), v))
					}
				}
				tuples = longer
			}
			for _, t := range tuples {
				add(class, c, t, true)
			}
		}
	}
	return out
}

const theTx = "datomic.tx"

// upsert finds which tempids are which entity, in rounds.
func (x *attempt) upsert() {
	entity := map[string]bool{}
	value := map[string]bool{}
	for _, p := range x.prims {
		if name, ok := p.e.(string); ok && p.op != "use" {
			x.find(name)
			if !p.quiet {
				entity[name] = true
			}
		}
		see := func(v any) {
			if name, ok := v.(string); ok {
				x.find(name)
				value[name] = true
			}
		}
		if p.hasV {
			x.refs(p.a, p.v, see)
		}
		if p.hasOld {
			x.refs(p.a, p.old, see)
		}
	}
	if _, ok := x.parent[theTx]; ok {
		x.bound[theTx] = x.txID
	}
	for changed := true; changed; {
		changed = false
		claims := x.claims()
		bonds := map[string]map[datom.ID]bool{} // of each class, as it is after uniting, the ids it is bound to; true: only by a retraction
		before := maps.Clone(x.bound)
		retract := maps.Clone(x.retract)
		for i, c := range claims {
			for _, d := range claims[:i] {
				if c.asserted && d.asserted && c.key == d.key && x.find(c.name) != x.find(d.name) {
					changed = true
					x.parent[x.find(c.name)] = x.find(d.name)
				}
			}
		}
		x.bound, x.retract = map[string]datom.ID{}, map[string]bool{}
		for class, id := range before {
			c := x.find(class)
			if bonds[c] == nil {
				bonds[c] = map[datom.ID]bool{}
			}
			old, ok := bonds[c][id]
			bonds[c][id] = retract[class] && (old || !ok)
		}
		for c, ids := range bonds {
			_, isTx := ids[x.txID]
			for id, byRetract := range ids {
				if !isTx || id == x.txID {
					x.bound[c], x.retract[c] = id, byRetract
				} else if byRetract {
					x.fault(atUpsert, tx.ConflictingUpsert)
				}
			}
			if !isTx && len(ids) > 1 {
				x.fault(atUpsert, tx.ConflictingUpsert)
			}
		}
		for _, c := range claims {
			if !c.stored {
				continue
			}
			class := x.find(c.name)
			id, ok := x.bound[class]
			switch {
			case id == x.txID && ok:
			case !ok:
				x.bound[class], x.retract[class] = c.holder, !c.asserted
				changed = true
			case id != c.holder:
				x.fault(atUpsert, tx.ConflictingUpsert)
			case c.asserted:
				x.retract[class] = false
			}
		}
		if _, bad := x.refusal(atUpsert); bad {
			break
		}
	}
	for name := range value {
		if !entity[name] && name != theTx {
			x.fault(atUpsert, tx.TempidNotAnEntity)
		}
	}
	names := slices.Sorted(maps.Keys(x.parent))
	for _, name := range names {
		class := x.find(name)
		if _, ok := x.bound[class]; !ok {
			x.seq++
			x.bound[class] = datom.MakeID(datom.PartUser, x.seq)
			x.fresh[x.bound[class]] = true
		}
		x.ids[name] = x.bound[class]
	}
	x.fresh[x.txID] = true
}

func (x *attempt) id(v any) datom.ID {
	r, _, _ := x.resolve(v)
	if r.name != "" {
		return x.ids[r.name]
	}
	return r.id
}

// final is a value with every entity an id.
func (x *attempt) final(a *nattr, v any) datom.Value {
	one := func(k datom.Kind, v any) datom.Value {
		if k == datom.KindRef {
			return datom.Ref(x.id(v))
		}
		y, _ := datom.Of(v)
		return y
	}
	if a.kind != datom.KindTuple {
		return one(a.kind, v)
	}
	var elems []datom.Value
	for i, e := range v.([]any) {
		if e == nil {
			elems = append(elems, datom.Value{})
		} else {
			elems = append(elems, one(x.elemKind(a, i), x.identHere(a, e)))
		}
	}
	y, _ := datom.Tuple(elems...)
	return y
}

func (x *attempt) cas() {
	for _, p := range x.prims {
		if p.op != tx.OpCAS {
			continue
		}
		if p.a.many {
			x.fault(atCAS, tx.CASCardinality)
			continue
		}
		vs := x.n.values(x.id(p.e), p.a.id)
		if p.hasOld != (len(vs) == 1) || p.hasOld && vs[0] != x.final(p.a, p.old) {
			x.fault(atCAS, tx.CASFailed)
		}
	}
}

// work is conflicts and the delta.
func (x *attempt) work() {
	adds, retracts := map[nfact]bool{}, map[nfact]bool{}
	for _, p := range x.prims {
		if p.quiet {
			continue
		}
		switch p.op {
		case tx.OpAdd:
			adds[nfact{x.id(p.e), p.a.id, x.final(p.a, p.v)}] = true
		case tx.OpRetract:
			if p.hasV {
				retracts[nfact{x.id(p.e), p.a.id, x.final(p.a, p.v)}] = true
			} else {
				for _, v := range x.n.values(x.id(p.e), p.a.id) {
					retracts[nfact{x.id(p.e), p.a.id, v}] = true
				}
			}
		case tx.OpRetractEntity:
			if r, ok, _ := x.resolve(p.e); ok {
				x.retractEntity(r.id, retracts, map[datom.ID]bool{})
			}
		case tx.OpCAS:
			v := x.final(p.a, p.v)
			adds[nfact{x.id(p.e), p.a.id, v}] = true
			if p.hasOld && x.final(p.a, p.old) != v {
				retracts[nfact{x.id(p.e), p.a.id, x.final(p.a, p.old)}] = true
			}
		}
	}
	for _, set := range []map[nfact]bool{adds, retracts} {
		for f := range set {
			for g := range set {
				if f.e == g.e && f.a == g.a && f.v != g.v && !x.n.attrs[f.a].many {
					x.fault(atConflicts, tx.DatomsConflict)
				}
			}
		}
	}
	for f := range adds {
		if retracts[f] {
			x.fault(atConflicts, tx.DatomsConflict)
		}
	}
	if _, bad := x.refusal(atConflicts); bad {
		return
	}
	after := maps.Clone(x.n.facts)
	touched := map[[2]datom.ID]bool{} // composites to be made anew: entity, attribute
	note := func(f nfact) {
		for _, c := range x.n.attrs {
			if slices.Contains(c.tupleAttrs, f.a) {
				touched[[2]datom.ID{f.e, c.id}] = true
			}
		}
	}
	for f := range retracts {
		note(f)
		if len(x.n.attrs[f.a].tupleAttrs) == 0 {
			delete(after, f)
		}
	}
	for f := range adds {
		note(f)
		if len(x.n.attrs[f.a].tupleAttrs) > 0 {
			continue
		}
		if !x.n.attrs[f.a].many {
			for _, v := range x.n.values(f.e, f.a) {
				delete(after, nfact{f.e, f.a, v})
			}
		}
		after[f] = true
	}
	made := func(e datom.ID, c *nattr) (datom.Value, bool) {
		elems := make([]datom.Value, len(c.tupleAttrs))
		some := false
		for g := range after {
			if i := slices.Index(c.tupleAttrs, g.a); g.e == e && i >= 0 {
				elems[i], some = g.v, true
			}
		}
		v, _ := datom.Tuple(elems...)
		return v, some
	}
	for ec := range touched {
		for _, v := range x.n.values(ec[0], ec[1]) {
			delete(after, nfact{ec[0], ec[1], v})
		}
		if v, some := made(ec[0], x.n.attrs[ec[1]]); some {
			after[nfact{ec[0], ec[1], v}] = true
		}
	}
	for _, set := range []map[nfact]bool{adds, retracts} {
		for f := range set {
			if c := x.n.attrs[f.a]; len(c.tupleAttrs) > 0 {
				if v, some := made(f.e, c); !some || v != f.v {
					x.fault(atConflicts, tx.DatomsConflict)
				}
			}
		}
	}
	for f := range after {
		if !x.n.facts[f] {
			x.delta[f] = true
		}
	}
	for f := range x.n.facts {
		if !after[f] {
			x.delta[f] = false
		}
	}
}

func (x *attempt) retractEntity(e datom.ID, retracts map[nfact]bool, seen map[datom.ID]bool) {
	if seen[e] {
		return
	}
	seen[e] = true
	for f := range x.n.facts {
		a := x.n.attrs[f.a]
		switch {
		case len(a.tupleAttrs) > 0:
		case f.e == e:
			retracts[f] = true
			if a.component {
				x.retractEntity(f.v.Ref(), retracts, seen)
			}
		case a.kind == datom.KindRef && f.v.Ref() == e:
			retracts[f] = true
		}
	}
}

func (x *attempt) after() map[nfact]bool {
	after := maps.Clone(x.n.facts)
	for f, added := range x.delta {
		if added {
			after[f] = true
		} else {
			delete(after, f)
		}
	}
	return after
}

func (x *attempt) unique() {
	owner := map[nfact]datom.ID{}
	for f := range x.after() {
		if x.n.attrs[f.a].unique == 0 {
			continue
		}
		k := nfact{a: f.a, v: f.v}
		if e, ok := owner[k]; ok && e != f.e {
			x.fault(atUnique, tx.UniqueConflict)
		}
		owner[k] = f.e
	}
	for f, added := range x.delta {
		a := x.n.attrs[f.a]
		if !added || f.e != x.txID || a.unique != db.UniqueIdentityID {
			continue
		}
		if len(a.tupleAttrs) > 0 && slices.Contains(f.v.Tuple(), datom.Value{}) {
			continue
		}
		if _, ok := x.n.holder(f.a, f.v); ok {
			x.fault(atUnique, tx.UniqueConflict)
		}
	}
}

var schemaAttrs = []datom.ID{
	db.AttrValueType, db.AttrCardinality, db.AttrUnique, db.AttrIndex, db.AttrIsComponent, db.AttrNoHistory, db.AttrFulltext, db.AttrTupleAttrs, db.AttrTupleTypes,
	db.AttrTupleType, db.AttrPreds,
}

var bootstrapped = db.Bootstrap().Next

// born reports whether an entity is built in.
func born(id datom.ID) bool {
	next := bootstrapped
	return id.Part() == datom.PartDB && (id.Seq() < next.Part || id.Seq() >= datom.FirstSeq && id.Seq() < next.Seq)
}

// schema judges what the delta does to attributes and partitions.
func (x *attempt) schema() {
	after := x.after()
	attrs := readAttrs(after)
	ofE := map[datom.ID]map[datom.ID]datom.Value{}
	for f := range after {
		if ofE[f.e] == nil {
			ofE[f.e] = map[datom.ID]datom.Value{}
		}
		ofE[f.e][f.a] = f.v
	}
	touched := map[datom.ID]bool{}
	for f, added := range x.delta {
		switch {
		case f.a == db.AttrInstallPartition:
			id := f.v.Ref()
			_, named := ofE[id][db.AttrIdent]
			_, typed := ofE[id][db.AttrValueType]
			switch {
			case !added:
				x.fault(atSchema, tx.InvalidAlteration)
			case f.e != db.PartDBEntity || !x.fresh[id] || id == x.txID || !named || typed:
				x.fault(atSchema, tx.InvalidSchema)
			}
		case born(f.e) && born(f.a):
			x.fault(atSchema, tx.InvalidAlteration)
		case f.a == db.AttrIdent || slices.Contains(schemaAttrs, f.a):
			touched[f.e] = true
		}
	}
	for e := range touched {
		facts := ofE[e]
		some := slices.ContainsFunc(schemaAttrs, func(a datom.ID) bool { _, ok := facts[a]; return ok })
		_, hasIdent := facts[db.AttrIdent]
		_, hasType := facts[db.AttrValueType]
		_, hasCard := facts[db.AttrCardinality]
		whole := hasIdent && hasType && hasCard
		was, now := x.n.attrs[e], attrs[e]
		switch {
		case was != nil && !whole:
			used := slices.ContainsFunc(x.n.history, func(d datom.Datom) bool { return d.A == e })
			for f := range x.delta {
				used = used || f.a == e
			}
			switch {
			case used:
				x.fault(atSchema, tx.InvalidAlteration)
			case some:
				x.fault(atSchema, tx.InvalidSchema)
			default:
				for _, c := range attrs {
					if old := x.n.attrs[c.id]; old != nil && slices.Contains(old.tupleAttrs, e) {
						x.fault(atSchema, tx.InvalidAlteration)
					}
				}
			}
		case !some:
		case !whole:
			x.fault(atSchema, tx.InvalidSchema)
		default:
			x.attribute(facts, was, now, attrs, after)
		}
	}
}

func (x *attempt) attribute(facts map[datom.ID]datom.Value, was, now *nattr, attrs map[datom.ID]*nattr, after map[nfact]bool) {
	kind := kindOf(facts[db.AttrValueType].Ref())
	if kind == datom.KindNil {
		x.fault(atSchema, tx.InvalidSchema)
		return
	}
	invalid := func(is bool) {
		if is {
			x.fault(atSchema, tx.InvalidSchema)
		}
	}
	card := facts[db.AttrCardinality].Ref()
	invalid(card != db.CardinalityOne && card != db.CardinalityMany)
	u, isUnique := facts[db.AttrUnique]
	invalid(isUnique && u.Ref() != db.UniqueValueID && u.Ref() != db.UniqueIdentityID)
	c := facts[db.AttrIsComponent]
	invalid(!c.IsNil() && c.Bool() && kind != datom.KindRef)
	invalid(strings.HasPrefix(facts[db.AttrIdent].Keyword().Name(), "_"))
	makeups := 0
	for _, a := range []datom.ID{db.AttrTupleAttrs, db.AttrTupleTypes, db.AttrTupleType} {
		if _, ok := facts[a]; ok {
			makeups++
		}
	}
	invalid(kind != datom.KindTuple && makeups > 0 || kind == datom.KindTuple && makeups != 1)
	if kind == datom.KindTuple && makeups == 1 {
		elem := func(k datom.Kind) { invalid(k == datom.KindNil || k == datom.KindTuple) }
		if _, ok := facts[db.AttrTupleType]; ok {
			elem(now.tupleType)
		}
		for _, k := range now.tupleTypes {
			elem(k)
		}
		invalid(len(now.tupleAttrs) > 0 && now.many)
		for i, id := range now.tupleAttrs {
			a := attrs[id]
			invalid(a == nil || a.many || a.kind == datom.KindTuple || slices.Contains(now.tupleAttrs[:i], id))
		}
	}
	if was == nil {
		return
	}
	never := func(is bool) {
		if is {
			x.fault(atSchema, tx.InvalidAlteration)
		}
	}
	if kind != was.kind {
		never(true)
		return
	}
	if kind == datom.KindTuple && makeups == 1 && !(slices.Equal(now.tupleAttrs, was.tupleAttrs) && slices.Equal(now.tupleTypes, was.tupleTypes) && now.tupleType == was.tupleType) {
		never(true)
		return
	}
	if kind == datom.KindTuple && makeups != 1 {
		never(true)
		return
	}
	perE, perV := map[datom.ID]int{}, map[datom.Value]int{}
	for f := range after {
		if f.a == was.id {
			perE[f.e]++
			perV[f.v]++
		}
	}
	most := func(counts []int) int { return slices.Max(append(counts, 0)) }
	never(was.many && !now.many && most(slices.Collect(maps.Values(perE))) > 1)
	constituent := false
	for _, a := range x.n.attrs {
		constituent = constituent || slices.Contains(a.tupleAttrs, was.id)
	}
	never(!was.many && now.many && constituent)
	never(was.unique == 0 && isUnique && most(slices.Collect(maps.Values(perV))) > 1)
}

func (x *attempt) instants() {
	for f := range x.delta {
		if f.a != db.AttrTxInstant || f.e == x.txID {
			continue
		}
		if f.e.IsTx() {
			x.fault(atInstants, tx.ImmutableFact)
		} else {
			x.fault(atInstants, tx.Malformed)
		}
	}
}

// datoms is the delta with the ids that really were given out: real says which of the attempt's own is which.
func (x *attempt) datoms(real map[datom.ID]datom.ID) (out []datom.Datom) {
	to := func(id datom.ID) datom.ID {
		if r, ok := real[id]; ok {
			return r
		}
		return id
	}
	value := func(v datom.Value) datom.Value {
		switch v.Kind() {
		case datom.KindRef:
			return datom.Ref(to(v.Ref()))
		case datom.KindTuple:
			elems := v.Tuple()
			for i, e := range elems {
				if e.Kind() == datom.KindRef {
					elems[i] = datom.Ref(to(e.Ref()))
				}
			}
			v, _ = datom.Tuple(elems...)
		}
		return v
	}
	for f, added := range x.delta {
		out = append(out, datom.Datom{E: to(f.e), A: f.a, V: value(f.v), T: x.n.t + 1, Added: added})
	}
	sortDatoms(out)
	return out
}

func sortDatoms(ds []datom.Datom) {
	slices.SortFunc(ds, func(x, y datom.Datom) int {
		added := 0
		if x.Added != y.Added {
			added = 1
			if y.Added {
				added = -1
			}
		}
		return cmp.Or(cmp.Compare(x.E, y.E), cmp.Compare(x.A, y.A), datom.Compare(x.V, y.V), cmp.Compare(x.T, y.T), added)
	})
}

package tx

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
)

// A transaction may carry an idempotency key (P8): the fact :stele.tx/key of the transaction itself. It is stored together with a
// hash of the request and with what its tempids became, so a resubmission — after a timeout, to another owner, days later — is
// recognized by any database value, commits nothing, and has the original's report.

// maxKey bounds an idempotency key, in bytes.
const maxKey = 1 << 10

// WithKey is data that carries an idempotency key, as {:db/id "datomic.tx" :stele.tx/key key} among its forms would make it. d
// is not changed.
func WithKey(d Data, key string) Data {
	return append(slices.Clone(d), Add(TxEntity, keyAttr, key))
}

const keyAttr datom.Keyword = "stele.tx/key"

// key is the idempotency key that the program states. It states none if it states two: that is a conflict, which is found later.
func (p *program) key() (key string, at Pos, ok bool) {
	if !p.schema {
		return "", Pos{}, false // there is no built-in attribute at all
	}
	for i := range p.ops {
		o := &p.ops[i]
		switch {
		case o.kind != opAdd || o.a.ID != db.AttrTxKey || p.ents[o.e].kind != entTx:
		case ok && o.v.Text() != key:
			return "", Pos{}, false
		default:
			key, at, ok = o.v.Text(), p.pos[o.pos], true
		}
	}
	return key, at, ok
}

// keyed finds the request's key and hashes the request.
func (r *Request) keyed() error {
	key, at, ok := r.p.key()
	switch {
	case !ok:
		return nil
	case key == "":
		return &Error{Kind: Malformed, Pos: at, Attr: keyAttr.String(), Msg: "the idempotency key is empty"}
	case len(key) > maxKey:
		return &Error{Kind: LimitExceeded, Pos: at, Attr: keyAttr.String(), Msg: fmt.Sprintf("the idempotency key takes %d bytes; the limit is %d", len(key), maxKey)}
	}
	hash, err := hashOf(r.data)
	if err != nil {
		return &Error{Kind: Malformed, Pos: at, Attr: keyAttr.String(), Msg: err.Error()}
	}
	r.key, r.hash = key, hash
	return nil
}

// original finds the transaction that was committed, or is staged, under the request's key. An error says that it was another request.
func (p *Preparer) original(r *Request) (*Prepared, error) {
	if r.key == "" {
		return nil, nil
	}
	e, found := p.st.Lookup(db.AttrTxKey, datom.String(r.key))
	if !found {
		return nil, nil
	}
	if hash, _, _ := p.st.One(e, db.AttrTxRequestHash); hash.Text() != string(r.hash[:]) {
		return nil, &Error{Kind: IdempotencyMismatch, Attr: keyAttr.String(), Value: datom.String(r.key).String(), Entity: e.String(),
			Msg: fmt.Sprintf("the idempotency key %s belongs to another request, which was committed as t = %d: a key names one request for ever",
				datom.String(r.key), e.Seq())}
	}
	x := &Prepared{Original: e.Seq(), Notices: r.p.notices}
	if v, _, ok := p.st.One(e, db.AttrTxTempids); ok {
		if x.ents, x.ids, ok = decodeTempids([]byte(v.Text())); !ok {
			return nil, &Error{Kind: Malformed, Attr: ":stele.tx/tempids", Entity: e.String(), Msg: "the tempids of the transaction with this key were written by a newer version"}
		}
	}
	return x, nil
}

// keyFacts are what a transaction with a key says of itself beside the key.
func (p *Preparer) keyFacts(r *Request, x *Prepared) []datom.Datom {
	if r.key == "" {
		return nil
	}
	fact := func(a datom.ID, b []byte) datom.Datom {
		return datom.Datom{E: p.txID, A: a, V: datom.Bytes(b), T: p.basis + 1, Added: true}
	}
	facts := []datom.Datom{fact(db.AttrTxRequestHash, r.hash[:])}
	if b := encodeTempids(x.Tempids()); b != nil {
		facts = append(facts, fact(db.AttrTxTempids, b))
	}
	return facts
}

// Repeat is the report of the original of a resubmission, given a value that has it and its delta: DBBefore and DBAfter are views of d at
// the original's time, with d's schema.
func (p *Prepared) Repeat(d db.DB, delta []datom.Datom) *Report {
	return &Report{
		DBBefore: d.WithBasis(p.Original - 1),
		DBAfter:  d.WithBasis(p.Original),
		T:        p.Original,
		Tx:       datom.TxID(p.Original),
		TxData:   delta,
		Tempids:  p.Tempids(),
		Repeated: true,
		Notices:  p.Notices,
	}
}

// The encoding of tempids: a version, their number, then partition, name and entity of each. All numbers are uvarints.
const tempidsVersion = 1

func encodeTempids(t Tempids) (b []byte) {
	n := uint64(0)
	for i := range t.ents {
		e := &t.ents[i]
		if e.kind != entTempid || e.name == "" || !e.isEntity {
			continue
		}
		n++
		b = binary.AppendUvarint(b, e.part)
		b = binary.AppendUvarint(b, uint64(len(e.name)))
		b = append(b, e.name...)
		b = binary.AppendUvarint(b, uint64(t.ids[i]))
	}
	if n == 0 {
		return nil
	}
	return append(binary.AppendUvarint([]byte{tempidsVersion}, n), b...)
}

func decodeTempids(b []byte) (ents []ent, ids []datom.ID, ok bool) {
	if len(b) == 0 || b[0] != tempidsVersion {
		return nil, nil, false
	}
	b = b[1:]
	number := func() uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			b, ok = nil, false
			return 0
		}
		b = b[n:]
		return v
	}
	ok = true
	for n := number(); ok && n > 0; n-- {
		e := ent{kind: entTempid, isEntity: true, part: number()}
		size := number()
		if size > uint64(len(b)) {
			return nil, nil, false
		}
		e.name, b = string(b[:size]), b[size:]
		ents, ids = append(ents, e), append(ids, datom.ID(number()))
	}
	return ents, ids, ok && len(b) == 0
}

// hashVersion is the first byte that is hashed. What was hashed by one version is compared with that version's hash only.
const hashVersion = 1

// hashOf is the SHA-256 of the canonical encoding of the forms in the order given, before expansion and without the key. Positions do not
// count, nor does whether a map is a Map or Pairs, nor the order of its entries or of a Set's elements.
func hashOf(d Data) ([sha256.Size]byte, error) {
	c := canon{b: []byte{hashVersion}}
	for _, f := range d {
		start := len(c.b)
		if c.form(f); c.onlyKey {
			c.b, c.onlyKey = c.b[:start], false
		}
	}
	if c.err != nil {
		return [sha256.Size]byte{}, c.err
	}
	return sha256.Sum256(c.b), nil
}

// canon writes the canonical encoding. Each thing is a tag and, framed by its length or number, what is in it, so no two
// requests have one encoding.
type canon struct {
	b       []byte
	depth   int
	onlyKey bool // the form just written says nothing but the key
	err     error
}

// The tags of the canonical encoding. Numbers are never reused.
const (
	canonNil byte = iota + 1
	canonList
	canonMap
	canonSeq
	canonSet
	canonLookup
	canonTempid
	canonValue
)

// maxCanonDepth bounds what is within one another, in the arguments of functions too, which nothing else bounds.
const maxCanonDepth = 256

func (c *canon) form(f any) {
	switch f := f.(type) {
	case List:
		if c.depth == 0 && f.Op == OpAdd && len(f.Args) == 3 && isKeyAttr(f.Args[1]) {
			c.onlyKey = true
			return
		}
		c.list(f)
	case Map:
		entries := make([]Pair, 0, len(f))
		for k, v := range f {
			entries = append(entries, Pair{Key: k, Value: v})
		}
		c.entries(entries)
	case Pairs:
		c.entries(f.Entries)
	}
}

func isKeyAttr(x any) bool {
	switch x := untyped(x, datom.KindKeyword).(type) {
	case datom.Keyword:
		return x == keyAttr
	case datom.ID:
		return x == db.AttrTxKey
	case int64:
		return x == int64(db.AttrTxKey)
	case int:
		return x == int(db.AttrTxKey)
	}
	return false
}

func (c *canon) list(f List) {
	c.b = append(c.b, canonList)
	c.text(string(f.Op))
	c.count(len(f.Args))
	for _, x := range f.Args {
		c.value(x)
	}
}

// entries writes a map's entries in the order of their encodings.
func (c *canon) entries(entries []Pair) {
	kept := entries[:0:0]
	about := 0
	for _, x := range entries {
		switch {
		case c.depth == 0 && isKeyAttr(x.Key): // what lies deeper is no form of the transaction's
			continue
		case untyped(x.Key, datom.KindKeyword) == any(keyID):
			about++
		}
		kept = append(kept, x)
	}
	c.onlyKey = len(kept) < len(entries) && len(kept) == about
	c.b = append(c.b, canonMap)
	c.sorted(len(kept), func(i int) {
		c.value(untyped(kept[i].Key, datom.KindKeyword))
		c.value(kept[i].Value)
	})
}

// sorted writes n things in the order of their encodings.
func (c *canon) sorted(n int, write func(i int)) {
	c.count(n)
	start := len(c.b)
	ends := make([]int, 0, n)
	for i := range n {
		write(i)
		ends = append(ends, len(c.b))
	}
	parts := make([][]byte, 0, n)
	written := slices.Clone(c.b[start:])
	from := start
	for _, end := range ends {
		parts = append(parts, written[from-start:end-start])
		from = end
	}
	slices.SortFunc(parts, bytes.Compare)
	c.b = c.b[:start]
	for _, p := range parts {
		c.b = append(c.b, p...)
	}
}

func (c *canon) value(x any) {
	if c.depth++; c.depth > maxCanonDepth {
		c.fail("what it holds lies more than %d deep within one another", maxCanonDepth)
	}
	defer func() { c.depth-- }()
	if c.err != nil {
		return
	}
	if u, ok := x.(Untyped); ok {
		var err error
		if x, err = u.As(datom.KindNil); err != nil {
			c.fail("%s: %v", show(u), err)
			return
		}
	}
	switch x := x.(type) {
	case nil:
		c.b = append(c.b, canonNil)
	case List, Map, Pairs:
		outer := c.onlyKey
		c.form(x)
		c.onlyKey = outer
	case Set:
		c.b = append(c.b, canonSet)
		c.sorted(len(x), func(i int) { c.value(x[i]) })
	case Lookup:
		c.b = append(c.b, canonLookup)
		c.text(string(x.Attr))
		c.value(x.Value)
	case Tempid:
		c.b = append(c.b, canonTempid)
		c.text(string(x.Part))
		c.text(x.Name)
	case datom.ID:
		c.scalar(datom.Long(int64(min(uint64(x), math.MaxInt64)))) // as an int that stands for an entity
	case []any:
		c.seq(len(x), func(i int) any { return x[i] })
	default:
		if v, err := datom.Of(x); err == nil {
			c.scalar(v)
			return
		}
		c.reflected(reflect.ValueOf(x))
	}
}

func (c *canon) seq(n int, at func(i int) any) {
	c.b = append(c.b, canonSeq)
	c.count(n)
	for i := range n {
		c.value(at(i))
	}
}

func (c *canon) scalar(v datom.Value) {
	if v.Kind() == datom.KindTuple {
		elems := v.Tuple()
		c.seq(len(elems), func(i int) any {
			if elems[i].IsNil() {
				return nil
			}
			return elems[i]
		})
		return
	}
	c.b = append(c.b, canonValue, byte(v.Kind()))
	key := v.AppendKey(nil)
	c.count(len(key))
	c.b = append(c.b, key...)
}

// reflected writes slices and maps of other Go types, as functions may get them.
func (c *canon) reflected(v reflect.Value) {
	switch v.Kind() {
	case reflect.Slice, reflect.Array:
		c.seq(v.Len(), func(i int) any { return v.Index(i).Interface() })
	case reflect.Map:
		keys := v.MapKeys()
		c.b = append(c.b, canonMap)
		c.sorted(len(keys), func(i int) {
			c.value(keys[i].Interface())
			c.value(v.MapIndex(keys[i]).Interface())
		})
	default:
		c.fail("a Go %s has no canonical form", v.Type())
	}
}

func (c *canon) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("the request cannot have an idempotency key: "+format, args...)
	}
}

func (c *canon) count(n int) { c.b = binary.AppendUvarint(c.b, uint64(n)) }

func (c *canon) text(s string) {
	c.count(len(s))
	c.b = append(c.b, s...)
}

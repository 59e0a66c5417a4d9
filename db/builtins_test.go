package db

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/steledb/stele/datom"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The list of built-ins is part of every database ever created: a change here is a change of format.
func TestBuiltinsGolden(t *testing.T) {
	var b strings.Builder
	for _, x := range builtins() {
		fmt.Fprintf(&b, "%d %s", x.id, x.ident)
		if x.kind != datom.KindNil {
			fmt.Fprintf(&b, " %s", x.kind)
			if x.tupleType != datom.KindNil {
				fmt.Fprintf(&b, " of %s", x.tupleType)
			}
			if x.many {
				b.WriteString(" many")
			}
			if x.unique != NotUnique {
				fmt.Fprintf(&b, " unique %s", x.unique)
			}
		}
		b.WriteByte('\n')
	}
	b.WriteString("\nt = 1\n")
	tx := Bootstrap()
	for _, d := range tx.Datoms {
		fmt.Fprintln(&b, d)
	}
	fmt.Fprintf(&b, "next %+v\n", tx.Next)

	const file = "testdata/builtins.golden"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the built-ins changed:\n%s", b.String())
	}
}

func TestBuiltinsAreConsistent(t *testing.T) {
	next := AttrIdent
	for _, b := range builtins() {
		if !IsBuiltin(b.id) {
			t.Errorf("%s is not built in", b.ident)
		}
		if b.id < AttrIdent {
			continue
		}
		if b.id != next {
			t.Errorf("%s has id %d, not %d", b.ident, b.id, next)
		}
		next++
	}
	if next != endOfBuiltins {
		t.Errorf("the list ends at %d, not %d", next, endOfBuiltins)
	}
	for _, id := range []datom.ID{1, 2, 5, endOfBuiltins, datom.TxID(1), datom.MakeID(datom.PartUser, 2048)} {
		if IsBuiltin(id) {
			t.Errorf("%d is built in", id)
		}
	}
	for id := TypeBoolean; id <= TypeTuple; id++ {
		k, ok := TypeKind(id)
		if back, ok2 := TypeID(k); !ok || !ok2 || back != id {
			t.Errorf("type %d is %s, which is %d", id, k, back)
		}
		if named, ok := TypeNamed(datom.Keyword("db.type/" + k.String())); !ok || named != k {
			t.Errorf("type %s is not found by name", k)
		}
	}
}

// Creating a database installs exactly what an empty value knows already.
func TestBootstrapInstallsTheBuiltins(t *testing.T) {
	s := NewStage(Empty())
	before := s.Schema()
	s.Apply(Bootstrap())
	if s.Schema() != before {
		t.Error("the schema changed")
	}
	if s.NextIDs() != Empty().NextIDs() {
		t.Errorf("next ids %v, of the empty value %v", s.NextIDs(), Empty().NextIDs())
	}
	// And what it installs can be read back, as from any other transaction.
	read := &Schema{attrs: map[datom.ID]*Attribute{}}
	read, _ = read.advance(Bootstrap().Datoms, s.Facts)
	if !maps.EqualFunc(read.attrs, before.attrs, func(a, b *Attribute) bool { return a.equal(b) }) {
		t.Error("the attributes that the datoms describe are others")
	}
	if !slices.Equal(read.parts, before.parts) {
		t.Errorf("partitions %v, want %v", read.parts, before.parts)
	}
	for _, b := range builtins() {
		if id, ok := read.CurrentEntid(b.ident); !ok || id != b.id {
			t.Errorf("%s is %d, want %d", b.ident, id, b.id)
		}
		if k, ok := read.Ident(b.id); !ok || k != b.ident {
			t.Errorf("%d is %s, want %s", b.id, k, b.ident)
		}
	}
	d := s.Snapshot()
	if d.BasisT() != 1 || d.Instant() != 0 {
		t.Errorf("t %d, instant %d", d.BasisT(), d.Instant())
	}
	if id, ok := d.Lookup(AttrIdent, datom.KeywordValue("db/ident")); !ok || id != AttrIdent {
		t.Errorf("lookup of :db/ident: %d %t", id, ok)
	}
}

func TestZeroValue(t *testing.T) {
	var d DB
	if d.BasisT() != 0 || d.NextIDs() != Empty().NextIDs() || d.Schema().Attr(AttrIdent) == nil {
		t.Error("the zero DB is not the empty one")
	}
	for range d.History().Datoms(EAVT) {
		t.Error("it holds a datom")
	}
	if _, ok := d.Lookup(AttrIdent, datom.KeywordValue("db/ident")); ok {
		t.Error("it finds an entity")
	}
	s := NewStage(d)
	s.Apply(Bootstrap())
	if s.Snapshot().BasisT() != 1 {
		t.Error("it is no base of a stage")
	}
}

package tx

import (
	"testing"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
)

// BenchmarkStruct: a struct of ten fields with a struct within it, by the functions and by a Mapper.
func BenchmarkStruct(b *testing.B) {
	d := schemaDB[person](b)
	v := person{Email: "ann@x.org", Age: ptr(int64(31)), Mood: "good", Tags: []string{"a", "b"}, Home: &address{Street: "High Street"}, Path: []int64{1, 2}}
	f, err := Struct(v)
	if err != nil {
		b.Fatal(err)
	}
	d = with(b, d, f).DBAfter
	id, err := d.Entid(db.LookupRef{Attr: datom.Keyword("person/email"), Value: "ann@x.org"})
	if err != nil {
		b.Fatal(err)
	}
	var m Mapper
	write := func(struct_ func(any) (Map, error)) func(*testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := struct_(&v); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	read := func(into func(db.DB, any, *person) error) func(*testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var p person
				if err := into(d, id, &p); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.Run("write/function", write(Struct))
	b.Run("write/mapper", write(m.Struct))
	b.Run("read/function", read(ReadInto[person]))
	b.Run("read/mapper", read(func(d db.DB, e any, p *person) error { return m.ReadInto(d, e, p) }))
}

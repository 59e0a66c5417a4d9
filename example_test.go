package stele_test

import (
	"context"
	"fmt"

	"github.com/steledb/stele/config"
	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
	"github.com/steledb/stele/transactor"
	"github.com/steledb/stele/tx"
)

func Example() {
	type kw = datom.Keyword
	ctx := context.Background()
	x := must(config.Open(ctx, "mem:readme", transactor.Options{})) // or "fs:data", "postgres://…", "s3://bucket"
	defer x.Close(ctx)

	must(x.Transact(ctx, tx.Data{ // schema is data
		tx.Map{"db/ident": kw("user/email"), "db/valueType": kw("db.type/string"),
			"db/cardinality": kw("db.cardinality/one"), "db/unique": kw("db.unique/identity")},
		tx.Map{"db/ident": kw("user/name"), "db/valueType": kw("db.type/string"),
			"db/cardinality": kw("db.cardinality/one")},
	}))
	first := must(x.Transact(ctx, tx.Data{
		tx.Map{"user/email": "ada@example.com", "user/name": "Ada Byron"}, // a new entity
	}))
	must(x.Transact(ctx, tx.Data{
		tx.Map{"user/email": "ada@example.com", "user/name": "Ada Lovelace"}, // the same one: the email says so
	}))

	now := x.DB() // an immutable value
	for _, value := range []db.DB{now, now.AsOf(first.T)} {
		ada := must(value.Entity(db.LookupRef{Attr: kw("user/email"), Value: "ada@example.com"}))
		name, _ := ada.Get(kw("user/name"))
		fmt.Println(name)
	}
	for d := range now.History().Datoms(db.AEVT, kw("user/name")) {
		fmt.Println(d.V, "asserted:", d.Added)
	}
	// Output:
	// "Ada Lovelace"
	// "Ada Byron"
	// "Ada Byron" asserted: false
	// "Ada Byron" asserted: true
	// "Ada Lovelace" asserted: true
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

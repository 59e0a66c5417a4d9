package tx_test

// The code of docs/transactions.md: TestDocs compares it with the page.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
	"github.com/steledb/stele/tx"
)

// docsNow is the clock of the page, in milliseconds: 2026-01-01.
const docsNow = 1767225600000

// docsEnv is the functions and predicates of the page.
func docsEnv() *tx.Env {
	return &tx.Env{
		Now:         docsNow,
		Functions:   map[datom.Keyword]tx.Func{"account/withdraw": withdraw, "account/transfer": transfer},
		AttrPreds:   map[datom.Symbol]tx.AttrPred{"shop/positive?": positive},
		EntityPreds: map[datom.Symbol]tx.EntityPred{"shop/adult?": adult},
	}
}

func withdraw(ctx context.Context, before db.DB, args []any) (tx.Data, error) {
	account, err := before.Entity(args[0])
	if err != nil {
		return nil, err
	}
	amount, ok := args[1].(int64)
	if !ok {
		return nil, errors.New("the amount is a long")
	}
	balance, _ := account.Get(datom.Keyword("account/balance"))
	if balance.Long() < amount {
		return nil, fmt.Errorf("the balance is %d", balance.Long())
	}
	return tx.Data{tx.Add(account.ID(), "account/balance", balance.Long()-amount)}, nil
}

func transfer(ctx context.Context, before db.DB, args []any) (tx.Data, error) {
	from, to, amount := args[0], args[1], args[2].(int64)
	return tx.Data{
		tx.Call("account/withdraw", from, amount),
		tx.Call("account/withdraw", to, -amount),
	}, nil
}

func positive(ctx context.Context, v datom.Value) error {
	if v.Long() <= 0 {
		return errors.New("it is not positive")
	}
	return nil
}

func adult(ctx context.Context, after db.DB, e datom.ID) error {
	person, err := after.Entity(e)
	if err != nil {
		return err
	}
	if age, ok := person.Get(datom.Keyword("person/age")); !ok || age.Long() < 18 {
		return errors.New("not 18 yet")
	}
	return nil
}

// peopleDB is a database with the attributes that the examples in Go use.
func peopleDB() db.DB {
	type kw = datom.Keyword
	r, err := tx.With(emptyDB(), tx.Data{
		tx.Map{"db/ident": kw("person/email"), "db/valueType": kw("db.type/string"), "db/cardinality": kw("db.cardinality/one"),
			"db/unique": kw("db.unique/identity")},
		tx.Map{"db/ident": kw("person/name"), "db/valueType": kw("db.type/string"), "db/cardinality": kw("db.cardinality/one")},
		tx.Map{"db/ident": kw("person/age"), "db/valueType": kw("db.type/long"), "db/cardinality": kw("db.cardinality/one")},
		tx.Map{"db/ident": kw("person/tags"), "db/valueType": kw("db.type/keyword"), "db/cardinality": kw("db.cardinality/many")},
	})
	if err != nil {
		panic(err)
	}
	return r.DBAfter
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func Example_forms() {
	people := peopleDB()

	report, err := tx.With(people, tx.Data{
		tx.Map{"db/id": "ann", "person/email": "ann@example.com", "person/tags": tx.Set{datom.Keyword("tea"), datom.Keyword("chess")}},
		tx.Add("ann", "person/age", 31),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ann, _ := report.Tempids.Get("ann")
	next, err := tx.With(report.DBAfter, tx.Data{
		tx.CAS(ann, "person/age", 31, 32),
		tx.Retract(tx.Ref("person/email", "ann@example.com"), "person/tags", datom.Keyword("tea")),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, d := range next.TxData {
		if d.E == ann {
			fmt.Println(d.V, d.Added)
		}
	}
	// Output:
	// 31 false
	// 32 true
	// :tea false
}

func Example_refusal() {
	people := peopleDB()

	_, err := tx.With(people, tx.Data{tx.Add("ann", "person/age", "31")})
	fmt.Println(errors.Is(err, tx.ErrWrongType))
	var refused *tx.Error
	if errors.As(err, &refused) {
		fmt.Println(refused.Kind, refused.Attr, refused.Value, refused.Pos.Form, refused.Conflict())
	}
	// Output:
	// true
	// wrong-type-for-attribute :person/age "31" 1 false
}

func Example_limits() {
	people := peopleDB()

	_, err := tx.WithEnv(people, tx.Data{
		tx.Map{"person/email": "ann@example.com", "person/age": 31},
	}, tx.Limits{ValueBytes: 8}, &tx.Env{})
	fmt.Println(err)
	// Output:
	// limit-exceeded: :person/email: the value takes 15 bytes; the limit is 8
}

func Example_time() {
	people := peopleDB()

	email := db.LookupRef{Attr: datom.Keyword("person/email"), Value: "ann@example.com"}
	first := must(tx.With(people, tx.Data{tx.Map{"person/email": "ann@example.com", "person/age": 31}}))
	second := must(tx.With(first.DBAfter, tx.Data{tx.Map{"person/email": "ann@example.com", "person/age": 32}}))
	now := second.DBAfter

	age := func(d db.DB) any {
		v, _ := must(d.Entity(email)).Get(datom.Keyword("person/age"))
		return v.Any()
	}
	fmt.Println("now:", age(now))
	fmt.Println("after the first:", age(now.AsOf(first.T)))
	fmt.Println("as of a moment:", age(now.AsOfTime(time.Now())))
	for d := range now.Since(first.T).Datoms(db.AEVT, datom.Keyword("person/age")) {
		fmt.Println("since:", d.V)
	}
	for d := range now.History().Datoms(db.AEVT, datom.Keyword("person/age")) {
		fmt.Println("history:", d.V, d.Added, d.T == first.T)
	}
	// Output:
	// now: 32
	// after the first: 31
	// as of a moment: 32
	// since: 32
	// history: 31 false false
	// history: 31 true true
	// history: 32 true false
}

func Example_import() {
	empty := emptyDB()

	report := must(tx.With(empty, tx.Data{
		tx.Map{"db/id": tx.TxEntity, "db/txInstant": time.Date(1999, 12, 31, 0, 0, 0, 0, time.UTC), "db/doc": "from the old books"},
	}))
	fmt.Println(time.UnixMilli(report.DBAfter.Instant()).UTC())
	// Output:
	// 1999-12-31 00:00:00 +0000 UTC
}

type Person struct {
	ID    datom.ID `stele:",id"`
	Email string   `stele:"person/email,unique=identity"`
	Name  string   `stele:"person/name,omitempty"` // "" is no value
	Age   *int64   `stele:"person/age"`            // nil is no value
	Mood  string   `stele:"person/mood,type=keyword,omitempty"`
	Tags  []string `stele:"person/tags"` // of cardinality many
	Boss  *Person  `stele:"person/boss"` // a ref
	Home  *Home    `stele:"person/home,component"`
	Desk  *Desk    `stele:"person/desk,tuple"`
}

type Home struct {
	ID     datom.ID `stele:",id"`
	Street string   `stele:"home/street"`
}

type Desk struct {
	Floor int64
	Row   *string
}

func Example_structs() {
	empty := emptyDB()

	installed := must(tx.With(empty, must(tx.SchemaOf[Person]())))

	row := "B"
	ann := Person{Email: "ann@example.com", Tags: []string{"tea"}, Desk: &Desk{2, &row}, Home: &Home{Street: "High Street"}}
	bob := Person{Email: "bob@example.com", Boss: &ann}
	hired := must(tx.With(installed.DBAfter, must(tx.Structs(bob))))

	email := db.LookupRef{Attr: datom.Keyword("person/email"), Value: "bob@example.com"}
	got := must(tx.Read[Person](hired.DBAfter, email))
	fmt.Println(got.Boss.Email, got.Boss.Home.Street, *got.Boss.Desk.Row, got.Age)

	got.Name = "Bob"
	named := must(tx.With(hired.DBAfter, must(tx.Structs(got))))
	for _, d := range named.TxData[:len(named.TxData)-1] { // the last one is the instant
		fmt.Println(d.E == got.ID, d.V, d.Added)
	}
	// Output:
	// ann@example.com High Street B <nil>
	// true "Bob" true
}

func Example_structErrors() {
	installed := must(tx.With(emptyDB(), must(tx.SchemaOf[Person]())))

	type Part struct {
		Count uint64 `stele:"part/count"`
	}
	_, err := tx.Struct(Part{Count: 1 << 63})
	var unmapped *tx.StructError
	if errors.As(err, &unmapped) {
		fmt.Println(unmapped.Field, unmapped.Attr, unmapped.Err)
	}

	_, err = tx.Read[Part](installed.DBAfter, datom.Keyword("person/email"))
	fmt.Println(errors.Is(err, db.ErrNotAttribute))
	// Output:
	// Count :part/count 9223372036854775808 is out of the range of a long; a field tagged type=bigint takes it
	// true
}

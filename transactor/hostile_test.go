package transactor

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
	"github.com/steledb/stele/log/mem"
	"github.com/steledb/stele/tx"
)

// nilError is an error whose nil pointer panics when it is asked for its text.
type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

// sour is a value and an error that panics whenever it is asked for a text.
type sour struct{}

func (sour) String() string { panic("no text") }
func (sour) Error() string  { panic("no text") }

// P9: whatever a function or a predicate returns or does instead of returning fails its own transaction, and neither the process nor anybody
// else's.
func TestP9_WhatAFunctionReturnsIsHostile(t *testing.T) {
	hostile := map[string]func() (tx.Data, error){
		"a panic":                func() (tx.Data, error) { panic("oh") },
		"a panic with an error":  func() (tx.Data, error) { panic(errors.New("oh")) },
		"a panic that panics":    func() (tx.Data, error) { panic(sour{}) },
		"Goexit":                 func() (tx.Data, error) { runtime.Goexit(); return nil, nil },
		"a typed nil error":      func() (tx.Data, error) { return nil, (*nilError)(nil) },
		"an error without text":  func() (tx.Data, error) { return nil, sour{} },
		"an error around such":   func() (tx.Data, error) { return nil, fmt.Errorf("around: %w", error(&nilError{"x"})) },
		"somebody else's stuck":  func() (tx.Data, error) { return nil, tx.ErrStuck },
		"our own ErrStuck":       func() (tx.Data, error) { return nil, fmt.Errorf("with: %w", ErrFunctionStuck) },
		"a nil form":             func() (tx.Data, error) { return tx.Data{nil}, nil },
		"a nil pointer to a map": func() (tx.Data, error) { return tx.Data{(*tx.Map)(nil)}, nil },
		"a value that panics":    func() (tx.Data, error) { return tx.Data{tx.Map{"p/id": sour{}}}, nil },
		"an entity that panics":  func() (tx.Data, error) { return tx.Data{tx.Add(sour{}, "p/n", int64(1))}, nil },
		"an Untyped that panics": func() (tx.Data, error) { return tx.Data{tx.Map{"p/id": bitter{}}}, nil },
		"a nil pointer":          func() (tx.Data, error) { return tx.Data{tx.Map{"p/id": (*uuid.UUID)(nil)}}, nil },
		"a list without args":    func() (tx.Data, error) { return tx.Data{tx.List{Op: tx.OpAdd}}, nil },
		"a map within itself": func() (tx.Data, error) {
			m := tx.Map{"p/id": "x"}
			m["db.install/_attribute"] = m
			return tx.Data{m}, nil
		},
		"a slice within itself": func() (tx.Data, error) {
			s := []any{nil, nil}
			s[0], s[1] = s, s
			return tx.Data{tx.Map{"p/id": s}, tx.Add(s, "p/n", s)}, nil
		},
		"itself": func() (tx.Data, error) { return tx.Data{tx.Call("f/hostile", "itself")}, nil },
		"itself, with a slice within itself": func() (tx.Data, error) {
			s := []any{nil}
			s[0] = s
			return tx.Data{tx.Call("f/none", s)}, nil
		},
	}
	for name, what := range hostile {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				x, _ := w.open(Options{
					Functions: map[datom.Keyword]tx.Func{
						"f/hostile": func(context.Context, db.DB, []any) (tx.Data, error) { return what() },
						"f/none":    func(context.Context, db.DB, []any) (tx.Data, error) { return nil, nil },
					},
					Predicates: Predicates{
						Attr:   map[datom.Symbol]tx.AttrPred{"p/a": func(context.Context, datom.Value) error { _, err := what(); return err }},
						Entity: map[datom.Symbol]tx.EntityPred{"p/e": func(context.Context, db.DB, datom.ID) error { _, err := what(); return err }},
					},
				})
				defer closeIn(t, x, time.Hour)
				mustTransact(t, x, people)
				mustTransact(t, x, tx.Data{tx.Map{"db/ident": datom.Keyword("p/checked"), "db/valueType": datom.Keyword("db.type/long"),
					"db/cardinality": datom.Keyword("db.cardinality/one"), "db.attr/preds": datom.Symbol("p/a")},
					tx.Map{"db/ident": datom.Keyword("p/spec"), "db.entity/preds": datom.Symbol("p/e")}})
				_, fails := what1(what)
				harmless := strings.Contains(name, "slice within itself") && strings.HasPrefix(name, "itself")
				for i, data := range []tx.Data{
					{tx.Call("f/hostile")},
					{tx.Map{"p/checked": int64(1)}},
					{tx.Map{"p/id": "spec", "p/n": int64(1), "db/ensure": datom.Keyword("p/spec")}},
				} {
					before := mustSubmit(t, x, person(fmt.Sprint("before", i), 1))
					f := mustSubmit(t, x, data)
					after := mustSubmit(t, x, person(fmt.Sprint("after", i), 1))
					_, err := f.Wait(t.Context())
					var refused *tx.Error
					if !errors.As(err, &refused) && (i == 0 && !harmless || fails) {
						t.Errorf("%d: %v", i, err)
					}
					for _, f := range []*Future{before, after} {
						if _, err := f.Wait(t.Context()); err != nil {
							t.Errorf("%d: somebody else's: %v", i, err)
						}
					}
				}
				if isClosed(x.ended) {
					t.Errorf("the transactor has ended: %v", x.Err())
				}
			})
		})
	}
}

// bitter is a value that panics when it is asked what it is.
type bitter struct{}

func (bitter) As(datom.Kind) (any, error) { panic("not me") }

// P6, P9: data that was harmless when it was compiled, since its attribute was not known yet, is compiled again by the goroutine that
// prepares everybody's.
func TestP6_P9_DataThatPanicsOnceItsAttributeIsKnown(t *testing.T) {
	for name, hostile := range map[string]any{"a nil pointer": (*uuid.UUID)(nil), "a Stringer": sour{}, "an Untyped": bitter{}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			v := newValve(mem.OpAppend)
			x, l := w.open(Options{})
			l.SetHook(v.hook)
			v.close() // so that nobody knows the schema yet
			schema := mustSubmit(t, x, people)
			f := mustSubmit(t, x, tx.Data{tx.Map{"p/n": hostile}})
			other := mustSubmit(t, x, person("other", 1))
			v.open()
			_, err := f.Wait(t.Context())
			if refused := new(tx.Error); !errors.As(err, &refused) {
				t.Errorf("%v", err)
			}
			for _, f := range []*Future{schema, other} {
				if _, err := f.Wait(t.Context()); err != nil {
					t.Errorf("somebody else's: %v", err)
				}
			}
		})
	}
}

// what1 tells whether what fails also where its data does not matter.
func what1(what func() (tx.Data, error)) (ok, fails bool) {
	done := make(chan bool, 1)
	go func() {
		failed := true
		defer func() { recover(); done <- failed }()
		_, err := what()
		failed = err != nil
	}()
	fails = <-done
	return !fails, fails
}

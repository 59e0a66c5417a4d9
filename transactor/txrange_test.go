package transactor

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/log/mem"
)

func TestTxRangeYieldsExactlyTheRange(t *testing.T) {
	w := newWorld(t)
	x, _ := w.open(Options{MaxBatch: 3})
	mustTransact(t, x, people)
	reports := make(map[uint64][]datom.Datom)
	var futures []*Future
	for i := range 900 { // more objects than lie between two marks
		futures = append(futures, mustSubmit(t, x, person(fmt.Sprint(i%50), i)))
	}
	for _, f := range futures {
		r, err := f.Wait(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		reports[r.T] = r.TxData
	}
	if err := closeIn(t, x, time.Minute); err != nil {
		t.Fatal(err)
	}
	y, l := w.open(Options{MaxBatch: 3}) // a second epoch
	for i := range 20 {
		r := mustTransact(t, y, person("z", i))
		reports[r.T] = r.TxData
	}
	basis := y.DB().BasisT()
	check := func(from, to uint64) {
		t.Helper()
		next := from
		for tx, err := range y.TxRange(context.Background(), from, to) {
			if err != nil {
				t.Fatal(err)
			}
			if tx.T != next {
				t.Fatalf("[%d, %d): t = %d, want %d", from, to, tx.T, next)
			}
			if want, ok := reports[tx.T]; ok && fmt.Sprint(tx.Datoms) != fmt.Sprint(want) {
				t.Errorf("t = %d: %v, reported as %v", tx.T, tx.Datoms, want)
			}
			next++
		}
		end := to
		if to == 0 || to > basis+1 {
			end = basis + 1
		}
		if next != max(end, from) {
			t.Errorf("[%d, %d) ended before %d", from, to, next)
		}
	}
	check(1, 0)
	check(1, 2)
	check(500, 510)
	check(basis-25, basis-15) // over the epoch's end
	check(basis, basis+100)
	check(basis+1, 0)
	check(7, 7)

	// A range near the end reads little of the log.
	reads := 0
	l.SetHook(func(c mem.Call) mem.Fault {
		if c.Op == mem.OpRead && c.Key.FirstT < 500 {
			reads++
		}
		return mem.Fault{}
	})
	check(880, 885)
	if reads > 0 {
		t.Error("it read the log from the beginning")
	}
	for range y.TxRange(context.Background(), 1, 0) {
		break // stopping early is fine
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var got error
	for _, err := range y.TxRange(ctx, 1, 0) {
		got = err
	}
	if !errors.Is(got, context.Canceled) {
		t.Errorf("a context that has ended: %v", got)
	}
	r := w.read()
	n := uint64(0)
	for _, err := range r.TxRange(context.Background(), 1, 0) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != basis {
		t.Errorf("the reader's range has %d transactions of %d", n, basis)
	}
}

func TestTxRange_CanBeUsedTwice(t *testing.T) {
	w := newWorld(t)
	x, _ := w.open(Options{})
	mustTransact(t, x, people)
	seq := x.TxRange(t.Context(), 1, 0)
	for round := range 2 {
		n := 0
		for _, err := range seq {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != 2 {
			t.Errorf("round %d: %d transactions", round, n)
		}
	}
}

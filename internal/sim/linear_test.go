package sim

import (
	"errors"
	"math"

	"github.com/anishathalye/porcupine"

	"github.com/steledb/stele/transactor"
	"github.com/steledb/stele/tx"
)

// step is one operation on one register: a read, a write, or a compare-and-swap.
type step struct {
	reg      int
	read     bool
	cas      bool
	old, new int64
}

// outcome is what came of it.
type outcome struct {
	value   int64 // that was read
	refused bool  // the register was not what the swap expected
}

// register1 is a register as it should be.
var registerModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := make([][]porcupine.Operation, registers)
		for _, o := range history {
			r := o.Input.(step).reg
			parts[r] = append(parts[r], o)
		}
		return parts
	},
	Init: func() any { return int64(0) },
	Step: func(state, input, output any) (bool, any) {
		now, in, out := state.(int64), input.(step), output.(outcome)
		switch {
		case in.read:
			return now == out.value, now
		case out.refused:
			return now != in.old, now
		case in.cas:
			return now == in.old, in.new
		default:
			return true, in.new
		}
	},
}

// checkRegisters sees that what the clients did to the registers, and found in them, is linearizable. Of a write whose outcome nobody knows the log
// says whether it happened, and it may have happened at any time since it was submitted; one that is not in the log has not happened, or else somebody has read what
// nobody wrote.
func (w *world) checkRegisters(l *truth) {
	var history []porcupine.Operation
	for i, o := range w.ops {
		if o.reg < 0 {
			continue
		}
		in := step{reg: o.reg, cas: o.cas, old: o.old, new: o.value}
		op := porcupine.Operation{ClientId: i, Input: in, Call: o.call, Output: outcome{}, Return: o.ret}
		switch unknown := o.lost || errors.Is(o.err, transactor.ErrUnknownOutcome); {
		case unknown && l.at[o.mark] == 0:
			continue
		case unknown:
			op.Return = math.MaxInt64
		case errors.Is(o.err, tx.ErrCASFailed):
			op.Output = outcome{refused: true}
		case o.err != nil:
			continue
		}
		history = append(history, op)
	}
	for i, r := range w.reads {
		for reg, v := range r.values {
			history = append(history, porcupine.Operation{ClientId: len(w.ops) + i, Input: step{reg: reg, read: true}, Call: r.call, Output: outcome{value: v}, Return: r.ret})
		}
	}
	w.history = history
}

// linearizable is called outside of the bubble: porcupine has goroutines of its own.
func (w *world) linearizable() bool {
	return porcupine.CheckOperations(registerModel, w.history)
}

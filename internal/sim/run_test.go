package sim

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/cryptotest"
	"testing/synctest"

	"github.com/steledb/stele/transactor"
	"github.com/steledb/stele/tx"
)

// play makes one run, and writes its transcript to out as it goes.
func play(t *testing.T, seed uint64, out io.Writer) (wrong []string, sum counts) {
	var w *world
	defer func() {
		if r := recover(); r != nil { // goroutines that never end, most likely
			fmt.Fprintf(out, "%sWRONG  %v\n", noTime, r)
			panic(r)
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		cryptotest.SetGlobalRandom(t, seed)
		w = newWorld(seed, out)
		w.run()
	})
	if len(w.wrong) == 0 && !w.linearizable() {
		w.wrong = append(w.wrong, "what was done to the registers is not linearizable")
		fmt.Fprintf(out, "%sWRONG  %s\n", noTime, w.wrong[0])
		for _, o := range w.history {
			fmt.Fprintf(out, "%s%+v from %d to %d: %+v\n", noTime, o.Input, o.Call, o.Return, o.Output)
		}
	}
	return w.wrong, w.count()
}

// noTime stands in front of a transcript's lines where others have their time.
const noTime = "            "

// seedVar is the environment variable that names the seed of a run.
const seedVar = "STELE_SIM_SEED"

// countsMark begins the line that holds the counts.
const countsMark = "counted  "

// counts tell whether the runs were worth it.
type counts struct {
	Committed, Repeated, Refused, Mismatched, Failed, Unknown, Lost, Busy, Epochs, Reads, Reports, Calls int
}

func (c *counts) add(o counts) {
	c.Committed += o.Committed
	c.Repeated += o.Repeated
	c.Refused += o.Refused
	c.Mismatched += o.Mismatched
	c.Failed += o.Failed
	c.Unknown += o.Unknown
	c.Lost += o.Lost
	c.Busy += o.Busy
	c.Epochs += o.Epochs
	c.Reads += o.Reads
	c.Reports += o.Reports
	c.Calls += o.Calls
}

func (w *world) count() counts {
	c := counts{Epochs: len(w.claims), Reads: len(w.reads), Calls: w.sent}
	for _, s := range w.subs {
		c.Reports += int(s.next - max(s.from, 1))
	}
	var failed *transactor.CommitError
	for _, o := range w.ops {
		switch err := o.err; {
		case o.lost:
			c.Lost++
		case err == nil && o.repeated:
			c.Repeated++
		case err == nil:
			c.Committed++
		case errors.Is(err, transactor.ErrUnknownOutcome):
			c.Unknown++
		case errors.Is(err, tx.ErrIdempotencyMismatch):
			c.Mismatched++
		case errors.Is(err, transactor.ErrBusy):
			c.Busy++
		case errors.As(err, &failed), errors.Is(err, transactor.ErrClosed):
			c.Failed++
		case errors.Is(err, tx.ErrCASFailed):
			c.Refused++
		}
	}
	return c
}

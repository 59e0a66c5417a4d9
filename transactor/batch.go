package transactor

import (
	"fmt"
	"time"

	"github.com/steledb/stele/datom"
	"github.com/steledb/stele/db"
	"github.com/steledb/stele/log"
	"github.com/steledb/stele/tx"
)

// batch is the transactions that were judged together, and the object that holds those of them that were not refused. A
// batch of refusals alone has no object, but is fenced all the same (L7).
//
// It passes from the preparing goroutine to its flight, and to whoever installs it (flight.go); each touches it only while it
// holds it. done orders the flight's results before everybody else's reading.
type batch struct {
	judged []*Future   // in queue order, refused ones among them
	txs    []*datom.Tx // the deltas, in t order
	size   int         // estimated bytes of the object, uncompressed
	memory int         // bytes that txs keep alive, without the text of their values
	before db.DB       // the value before the batch
	after  db.DB       // the value after it

	replaced int64 // bytes that before holds and after does not

	oldest time.Time // when its first transaction was admitted

	closed   time.Time // when it was closed
	gathered int       // how many it held when it last waited for more
	patience time.Time // until when it may

	obj       *log.Object // nil: refusals only
	head      log.Head    // once obj is on the chain
	sent      bool        // a store call may have seen obj
	encodeErr error       // why there is no obj
	maybe     bool        // some try's outcome was not that nothing was written
	inFlight  int         // flushes in flight when it was sent, itself included
	verified  time.Time
	appendErr error
	verifyErr error
	done      chan struct{}
	over      bool // done was closed before the epoch's end gave up what was still under way; of the run loop
}

func newBatch(before db.DB, max int) *batch {
	return &batch{
		judged: make([]*Future, 0, max), txs: make([]*datom.Tx, 0, max),
		before: before, after: before, done: make(chan struct{}),
	}
}

func (b *batch) add(f *Future) {
	if len(b.judged) == 0 {
		b.oldest = f.born
	}
	b.judged = append(b.judged, f)
}

// maxTransaction bounds what sizeOf says of a transaction, and of a batch: twice that, which escaped zero bytes could make
// of it, still fits an object.
const maxTransaction = log.MaxPayload / 2

func tooLarge(size int) error {
	return &tx.Error{Kind: tx.LimitExceeded, Msg: fmt.Sprintf("what the transaction changes takes about %d bytes, and one log object at most %d: split it", size, maxTransaction)}
}

// sizeOf estimates the bytes of a transaction's record, escapes aside from above.
func sizeOf(t *datom.Tx) int {
	n := 32
	for i := range t.Datoms {
		n += 12 + t.Datoms[i].V.Size()
	}
	return n
}

// Package transactor is the commit pipeline: it orders transactions, makes them durable in a log, fences, and answers.
//
// # The pipeline
//
//	Submit ─▶ admission ─▶ queue ─▶ prepare ─▶ flush (≤ depth in flight) ─▶ fence ─▶ install ─▶ answer
//	           bounded      FIFO     one thread   concurrent, create-only      in t order, one thread
//
// As pseudocode, with the goroutine that does each step:
//
//	Submit (the caller's)      compile the data against the installed schema; admit it, or ErrBusy         future.go queue.go
//	prepare (one)              for each transaction: judge it against the stage; commit: stage += delta     epoch.go
//	                           when the batch is full, or a flush is free and nothing waits: close it,
//	                           stage.Snapshot()
//	send (one)                 object = encode(batch, previous = hash of the object before); let it fly
//	fly (one per flush)        AppendVerify: make the object durable, then fence: the root still names our claim
//	install (one)              for each batch in order: wait for its flight; DB() = its snapshot; answer all in it
//
// The stage, the staged value and the object chain belong to one goroutine each; a batch passes from one to the next and
// is touched by its holder alone. The world outside — append, verify, clock — is injected: a [log.Log] and Options.Clock.
//
// # Invariants (design.md §5, protocol.md §3)
//
//   - P1: t order = queue order = install order. One goroutine judges, one sends, one installs; channels keep the order between them.
//   - P2: a transaction is judged against exactly its predecessors, durable or not; a refused one changes nothing.
//   - P3 and L7: nothing shows before the fence of all that it was judged against has succeeded. Every object, and every
//     batch of refusals, has a Verify of its own that began after it was durable (after its transactions were admitted); a batch is
//     installed after its own and every predecessor's have succeeded.
//   - P4: batches are capped by count and bytes, go on filling while no flush is free, and are never held back in an idle transactor.
//   - P5: the queue is bounded; beyond it, ErrBusy.
//   - P6: a caller's context ends that caller's wait and nothing else.
//   - P7: an epoch that fails is followed by the next one, taken from oneself, whose fenced start decides what had landed (takeover.go).
//   - P10: every call to the store has a deadline, and Close returns.
//
// Rejected: one Verify in the installing goroutine for all batches that became durable meanwhile. It saves reads of the root when
// flushes are many, but costs a serial round trip per batch where they are few, and a store with a one-trip
// AppendVerify (PostgreSQL) would pay it twice.
package transactor

// Package transactor is the commit pipeline: it orders transactions, makes them durable in a log, fences, and answers.
//
// # The pipeline
//
//	Submit ─▶ admission ─▶ queue ─▶ prepare ─▶ flush (≤ depth in flight) ─▶ fence ─▶ install ─▶ answer
//	           bounded      FIFO     one thread   concurrent, create-only      in t order, one at a time
//
// As pseudocode, with the goroutine that does each step:
//
//	Submit (the caller's)      compile the data against the installed schema; admit it, or ErrBusy         future.go queue.go
//	prepare (one)              for each transaction: judge it against the stage; commit: stage += delta     epoch.go
//	                           when the batch is full, or a flush is free and yielding brings no more: close it,
//	                           stage.Snapshot(); let it fly
//	fly (one per flush)        object = encode(batch, previous = the hash that the flight before hands on)
//	                           AppendVerify: make the object durable, then fence: the root still names our claim
//	                           unless somebody is at it: for each batch whose turn has come, in order:                 flight.go
//	                               DB() = its snapshot; answer all in it
//
// So two goroutines stand between a caller and its answer, beside the store's own, and each hands on only once. That matters more than what they do: where
// callers are many, whoever is woken waits behind all of those who were answered before.
//
// The stage and the staged value belong to the preparing goroutine; a batch passes from it to its flight, the head of the object chain from
// flight to flight, and each is touched by its holder alone. The world outside — append, verify, clock — is injected: a [log.Log] and Options.Clock.
//
// # Invariants (design.md §5, protocol.md §3)
//
//   - P1: t order = queue order = install order. One goroutine judges and closes batches; flights stand in line in that order,
//     and one at a time installs from the front of it.
//   - P2: a transaction is judged against exactly its predecessors, durable or not; a refused one changes nothing.
//   - P3 and L7: nothing shows before the fence of all that it was judged against has succeeded. Every object, and every
//     batch of refusals, has a Verify of its own that began after it was durable (after its transactions were admitted); a batch is
//     installed after its own and every predecessor's have succeeded.
//   - P4: batches are capped by count and bytes, go on filling while no flush is free or others are ready to submit, for about as long as a
//     flush takes, and are never held back in an idle transactor.
//   - P5: the queue is bounded; beyond it, ErrBusy, or waiting in line (queue.go). So is memory: beyond the budget, ErrMemoryBudget (memory.go).
//   - P6: a caller's context ends that caller's wait and nothing else.
//   - P7: an epoch that fails is followed by the next one, taken from oneself, whose fenced start decides what had landed (takeover.go).
//   - P8: a request under an idempotency key is committed once, and every answer is the first one's report (repeat.go).
//   - P9: what applications bring along — functions, predicates, subscribers — fails what called it and nothing else.
//   - L3 and L9: every takeover is one CAS with a fresh claim; leases decide when it is tried, never whether it is safe (lease.go).
//   - P10: every call to the store has a deadline, and Close returns.
//
// Rejected: one Verify, by whoever installs, for all batches that became durable meanwhile. It saves reads of the root when
// flushes are many, but costs a serial round trip per batch where they are few, and a store with a one-trip
// AppendVerify (PostgreSQL) would pay it twice. Goroutines of their own for encoding and for installing: see
// docs/perf-targets.md.
package transactor

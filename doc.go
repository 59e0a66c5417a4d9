// Package stele is the root of an embeddable, Datomic-style transactor. It holds no code; these packages do:
//
//   - config opens a database by its URL, and is where a program starts.
//   - transactor is the database opened for writing, or for reading beside its owner.
//   - tx is transaction data and what becomes of it.
//   - db is the immutable database value, for reading: indexes, ranges, entities, views in time.
//   - datom is values, facts and entity ids.
//   - log is the durable log and the contract of its backends, log/fs and log/mem.
//
// docs/architecture.md shows how they fit together.
package stele

// Package pg keeps logs in PostgreSQL, 12 or newer. It implements the contract of log.Log.
//
// # Layout
//
// All Stele databases in one database of a server share the schema stele (schema.go), which the first Open makes.
//
//	log   (db_id, epoch, first_t) primary key; hash, payload: the object's chain hash and bytes. db_id is the instance id
//	root  name primary key; bytes: the root record; swapped_at: when it was written, by the server's clock
//	blob  (db_id, name) primary key; bytes
//	meta  the version of these tables
//
// Numbers are stored as they are, in a bigint: an epoch or t of 2^63 or more is refused. Payloads are stored out of line, uncompressed.
//
// # Crash safety, operation by operation
//
// Assumptions: a commit that the server answers without a warning is in its WAL, flushed, and with synchronous standbys in theirs; the WAL
// is replayed in order; a server in recovery never becomes a primary and then one in recovery again without losing its connections. fsync
// is on (looked at on every connection). synchronous_commit is set to on in each transaction that must be durable, unless it is remote_apply.
//
//	Append        INSERT … ON CONFLICT DO UPDATE to what is there; its commit is the commit. On a key that is there, the UPDATE's own commit
//	              lies behind the first one's in the WAL, so that it is durable only once that is. After a crash: the row is there or not.
//	AppendVerify  Append; Sync; one SELECT; Sync, in one flush: the server begins the SELECT, with a new snapshot, after the INSERT's transaction
//	              has ended. If that failed, the SELECT says nothing.
//	Verify        one SELECT: the root, and which keys are missing. Beside those that it is given it looks for what this handle has made durable since.
//	root          UPDATE of one row where the bytes are those expected; its commit is the commit.
//	tables        one transaction under an advisory lock.
//	Delete        some thousand rows at a time, lowest first; not waited for.
//
// What cannot be detected: with asynchronous replication, a failover loses what was not replicated. Verify tells as long as the owner lives
// (log.ErrRolledBack); the chain tells later owners if anything that was acknowledged later is there. With synchronous replication, a
// primary that crashes and restarts while commits wait for a standby shows them before the standby has them: what was read then may
// be gone after a failover.
//
// # Failures
//
// No statement is ever cancelled. When a context ends, its connection is abandoned and the statement goes on in the server; the append is
// unknown, and appending the same bytes again settles it, waiting for the first if that is still under way. What an error means is one table (errors.go):
// what could not be sent is not written; an ERROR ends a transaction without a commit, and is not written, or rejected where another try would
// not help; a session that ends, in whatever way, leaves a commit unknown, and so does a commit that answers with a warning (a synchronous standby
// that was not waited for). A connection that fails, or finds its server in recovery, is replaced, and the idle ones of its pool with it.
//
// Flushes, the lease (CompareAndSwap and RootAge) and everything else have connections of their own, so that none waits behind another. A read holds
// its connection for one page at a time, whatever its caller does meanwhile.
//
// # Poolers
//
// Behind a pooler that gives a server connection for one transaction at a time (PgBouncer, pool_mode = transaction), open with Transaction: statements
// are then sent unnamed, parsed in the same flush, one at a time: AppendVerify takes two round trips. Nothing depends on a session: settings are made inside the transaction that they are for.
//
// PgBouncer waits server_login_retry (15 s) before it tries a server again that it could not reach: set it to a second, or a restart costs that.
//
// Followers poll; LISTEN and NOTIFY are not used, which need a session and go through no pooler.
package pg

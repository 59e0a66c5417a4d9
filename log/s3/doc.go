// Package s3 keeps logs in S3 and in what speaks like it (MinIO): one object in the bucket for each object of the log, one for the root. It
// has two clients, aws-sdk-go-v2 and minio-go, behind one small interface (store.go).
//
// # Keys
//
// Everything of a database lies under PREFIX/NAME/ (NAME/ if there is no prefix):
//
//	ROOT                     the root record
//	INSTANCE/log/KEY         an object; INSTANCE is the root's instance id in 32 hexadecimal digits, KEY a log.Key's name: 33 bytes, so
//	                         that a listing is in the order of keys
//	INSTANCE/blobs/NAME      a blob
//
// PREFIX/.probe/ID/ holds what a probe writes, for as long as it runs.
//
// # Writing
//
// Every write is one PUT under a condition: If-None-Match: * for objects and blobs, and for a root where there is none; If-Match with the ETag of the
// root that is replaced for a root. There is no multipart upload, and the clients' own retries are off. The commit point is the store's answer to
// the PUT, or where that was lost, the moment at which the bytes are found by reading back.
//
// classify (store.go) is the one table of what answers mean. In short:
//
//	412                      the condition does not hold. Of an object: read it; the same bytes are success, others a conflict, none: send
//	                         the same bytes again. Of a root: a conflict, unless an answer was lost before.
//	404 of an If-Match       there is no root: a conflict
//	409, 429                 nothing was done: again, after a pause with jitter
//	5xx, timeouts, resets    not known until read back, 503 too: read, and where nothing is found send the same bytes again
//	301, other 4xx, 501      rejected
//	401, 403, dial errors    not written
//
// After a few tries within one call the rest is left to the caller, who sends the same bytes again. A PUT that was given up may land at any
// time later. Of an object it then meets its own bytes or lands where its owner will find it; of a root it lands only if the root is still the one that
// it was to replace.
//
// # Reading
//
// A fence reads the root, on the connections of appends. CompareAndSwap, Root and RootAge have connections of their own. Read lists a page
// at a time and fetches several objects at once. What it holds ahead is bounded in number and bytes.
//
// # What the store must do
//
// Strongly consistent GET and LIST, and conditions that hold when several write at once. Open probes that (probe.go), once for each bucket in a
// process, and refuses a store that fails; a probe can show that a store is unfit, and not that it never will be. Versioned buckets work; what is
// deleted stays in them as older versions. Lifecycle rules must not touch the prefix.
package s3

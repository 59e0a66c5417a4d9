package log

import "time"

// Root is the one small mutable record of a database (protocol.md §2). It is changed by CompareAndSwap only; every change raises
// Version by one.
type Root struct {
	Version  uint64 // 1 for the first
	Format   uint32 // the object format that writers write
	Lineage  ID     // fixed at creation, kept by copies
	Instance ID     // of this copy; a prefix of every object's name
	Epoch    uint64 // 0 until somebody has owned it
	Claim    ID     // fresh at every acquisition
	Deleted  bool   // a tombstone

	Owner        string        // who, for people
	Endpoint     string        // where the owner can be reached, if anywhere
	LeaseCounter uint64        // raised at every renewal
	Lease        time.Duration // as the owner set it; 0: released

	Sealed   Sealed
	Chunks   string // the blob that lists the sealed chunks, or ""
	Snapshot string // the blob of the newest snapshot, or ""
	Collect  uint64 // collect generation
}

// Sealed is the position up to which the log lies in chunks. Zero: nothing is sealed.
type Sealed struct {
	Epoch uint64
	LastT uint64 // 0 with an epoch: nothing but starts
	Hash  Hash
}

// Package fs keeps a log in a directory of a local file system: the default store, embedded, with no server. It implements the
// contract of log.Log.
//
// # Layout
//
// A store is a directory, which holds databases by name. Numbers in names are hexadecimal and of fixed width (names.go).
//
//	DIR/NAME/LOCK                      flock for the life of the owner; holds its pid and host, for people
//	DIR/NAME/ROOT                      the root record, as package log encodes it
//	DIR/NAME/ROOT.lock                 flock for the time of one change of the root
//	DIR/NAME/ROOT.next, ROOT.reserve   a root on its way; room for one on a full disk
//	DIR/NAME/INSTANCE/                 what belongs to one instance id
//	    NUMBER-EPOCH.log               an epoch file; numbers are dense, in the order in which files were made
//	    next, reserve                  an epoch file on its way; room for one start on a full disk
//	    blobs/BLOB                     blobs; names that begin with a dot are on their way
//
// # Epoch files
//
// An epoch file holds objects of one epoch, in the order in which they were flushed, which may differ from the order of their keys by as
// much as appends run concurrently. It is only appended to, and allocated in steps: zeros are the end. All numbers are big-endian; CRC is CRC-32C.
// The file's header, a frame's head and a mark have 80 bytes each.
//
//	header  0 "STELELOG"   8 CRC of [12,80)   12 u32 format, 1   16 instance id   32 u64 nonce, random   40 u64 epoch
//	        48 u32 number   56 u64 base: up to which t the epoch's earlier files hold everything; 0 in the first   rest zero
//
//	object  0 "STFO"   4 CRC   8 u32 the object's length   16 u64 epoch, 24 u64 first t of its key   32 u64 its last t
//	        40 u64 fenced   48 chain hash   80 the object, then zeros up to a multiple of 8
//
//	mark    0 "STFM"   4 CRC   8 u32 flags (1: final)   16 u64 synced   24, 32 u64 first t of the lowest and of the highest key in the
//	        file so far   40 u64 the highest t   48 chain hash of the last object below synced
//
// The CRC of a frame's head and of a mark covers the nonce, the offset at which it stands (u64 each), and its 80 bytes but the CRC: what a user
// stored inside an object is never taken for a frame, nor is a frame that was copied elsewhere.
//
// A sync mark says that everything in the file below the offset synced has been synced. It is written after that sync and before any of
// its appends returns, behind the objects; the next sync, or Close, makes it durable. The last frame of a file that is not the newest is a final
// mark: it says that nothing of the file is missing, and what keys a reader would find.
//
// # Crash safety, operation by operation
//
// Assumptions: a sector is written whole or not at all; fdatasync and fsync tell the truth when they return nil; a rename within a directory is
// atomic; after a failed fdatasync anything of what it was to write may be on the disk, and no later one writes it again; a directory whose sync
// failed can be synced by a later one. Package crashfs simulates all of it.
//
//	Append      write; fdatasync — the commit; write the mark; answer. After a crash: what was answered lies below the last mark or, if
//	            the mark is lost, is whole and read by the next owner. What was not answered is whole, torn or absent.
//	new file    a temporary file gets header and room, and is synced; the file before it gets its final mark, is cut to its length and
//	            synced; rename; sync of the directory. Objects come after that. After a crash: the file is there, without objects, or is not.
//	root        under the flock on ROOT.lock: read and compare; write ROOT.next, fsync, rename over ROOT, sync the directory — the commit.
//	            After a crash: the old root or the new one.
//	settle      (the owner, when it first looks) what lies above the newest file's last mark is written again in place and synced, then read
//	            anew: what the owner sees is durable. After a crash: the same again.
//	open        (the owner, at the first Adopt or Append) a final mark behind it, then what is torn is cut off, then all of it is synced.
//	            After a crash: the same again. A newest file that holds no object is removed.
//	Adopt       open; every object that it is given is written again in place and synced.
//	blob        write a temporary file, fsync, rename, sync the directory — the commit.
//	Delete      whole files, lowest first, each followed by a sync of the directory. After a crash: fewer files, no gap.
//
// # Damage
//
// What an owner finds in the newest file behind the last whole frame, or in an object that no mark covers and whose bytes are not those
// of its hash, is torn, unless something behind it proves that it was durable: a mark that covers it, or an object whose fenced is
// beyond what the file holds before the damage. Torn bytes are cut off and reported; everything else is log.ErrCorrupt, with file and offset, and so is a
// missing file. An owner judges by what is on the disk: what the page cache alone still has of a failed sync is settled before, or gone and
// torn. What cannot be told: the loss of the end of the newest file, exactly at a frame's boundary, or of a whole newest file.
//
// Readers, in this or another process, take no lock, never write and never sync. They see what a mark covers, or what a later
// object of the file proves to have been acknowledged by its fenced, and take what lies behind as not yet written.
//
// # Failures
//
// A write or a sync that fails ends the use of the handle for writing (log.ErrFailed): what was in that flush is unknown, what was only queued is
// not written, and no sync is ever tried again, because what the page cache shows may never reach the disk. A new Open is the way on.
// Only what fails before any byte is written, for want of room, is "not written", and the handle goes on; room for one root and one start
// is kept allocated from Lock on, so that a full disk still lets an epoch end and another begin.
package fs

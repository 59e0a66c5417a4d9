package fs

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/steledb/stele/log"
)

// The byte format of an epoch file; the package comment describes it.
const (
	formatVersion = 1
	headSize      = 80 // the file's header, an object's frame before the object, and a sync mark
	align         = 8  // frames start at multiples

	fileMagic   = "STELELOG"
	objectMagic = "STFO"
	markMagic   = "STFM"

	flagFinal = 1 << 0
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header is what an epoch file begins with.
type header struct {
	instance log.ID
	nonce    uint64 // random: the frames of another file, or bytes inside an object, are no frames of this one
	epoch    uint64
	seq      uint32
	base     uint64 // up to which t the epoch's earlier files hold everything; 0 in the first
}

func newHeader(inst log.ID, epoch uint64, seq uint32, base uint64) (header, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return header{}, err
	}
	return header{inst, binary.BigEndian.Uint64(b[:]), epoch, seq, base}, nil
}

func (h header) encode() []byte {
	b := make([]byte, headSize)
	copy(b, fileMagic)
	be := binary.BigEndian
	be.PutUint32(b[12:], formatVersion)
	copy(b[16:], h.instance[:])
	be.PutUint64(b[32:], h.nonce)
	be.PutUint64(b[40:], h.epoch)
	be.PutUint32(b[48:], h.seq)
	be.PutUint64(b[56:], h.base)
	be.PutUint32(b[8:], crc32.Checksum(b[12:], castagnoli))
	return b
}

// decodeHeader is the inverse of header.encode. The error says what is wrong, for a person.
func decodeHeader(b []byte) (header, error) {
	be := binary.BigEndian
	switch {
	case len(b) < headSize:
		return header{}, fmt.Errorf("the file has %d bytes, its header alone would be %d", len(b), headSize)
	case string(b[:8]) != fileMagic:
		return header{}, fmt.Errorf("a log file begins with %q, this one with %q", fileMagic, b[:8])
	case crc32.Checksum(b[12:headSize], castagnoli) != be.Uint32(b[8:]):
		return header{}, fmt.Errorf("the header's checksum does not match")
	case be.Uint32(b[12:]) != formatVersion:
		return header{}, fmt.Errorf("file format %d is not known; this library reads %d: use a newer one", be.Uint32(b[12:]), formatVersion)
	}
	return header{
		instance: log.ID(b[16:32]),
		nonce:    be.Uint64(b[32:]),
		epoch:    be.Uint64(b[40:]),
		seq:      be.Uint32(b[48:]),
		base:     be.Uint64(b[56:]),
	}, nil
}

// frame is what stands before an object, or a sync mark.
type frame struct {
	object bool

	// An object's.
	size   int // of the object, in bytes
	key    log.Key
	lastT  uint64
	fenced uint64

	// A mark's.
	final    bool   // nothing follows in this file
	synced   int64  // everything in the file below this offset has been synced
	min, max uint64 // the first t of the lowest and highest key in the file so far
	maxT     uint64 // the highest t in it

	hash log.Hash // the object's; of a mark: the chain hash of the last object below synced
}

// length is how many bytes the frame takes in the file.
func (f *frame) length() int64 {
	if !f.object {
		return headSize
	}
	return roundUp(headSize+int64(f.size), align)
}

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }

// put encodes the frame's head into b, headSize bytes, for the offset at in the file of this nonce.
func (f *frame) put(b []byte, nonce uint64, at int64) {
	clear(b[:headSize])
	be := binary.BigEndian
	if f.object {
		copy(b, objectMagic)
		be.PutUint32(b[8:], uint32(f.size))
		be.PutUint64(b[16:], f.key.Epoch)
		be.PutUint64(b[24:], f.key.FirstT)
		be.PutUint64(b[32:], f.lastT)
		be.PutUint64(b[40:], f.fenced)
	} else {
		copy(b, markMagic)
		if f.final {
			be.PutUint32(b[8:], flagFinal)
		}
		be.PutUint64(b[16:], uint64(f.synced))
		be.PutUint64(b[24:], f.min)
		be.PutUint64(b[32:], f.max)
		be.PutUint64(b[40:], f.maxT)
	}
	copy(b[48:], f.hash[:])
	be.PutUint32(b[4:], frameSum(b, nonce, at))
}

// frameSum is a frame head's checksum: it covers where the frame stands, so that a copy of one elsewhere is none.
func frameSum(b []byte, nonce uint64, at int64) uint32 {
	var place [16]byte
	binary.BigEndian.PutUint64(place[:], nonce)
	binary.BigEndian.PutUint64(place[8:], uint64(at))
	sum := crc32.Update(0, castagnoli, place[:])
	sum = crc32.Update(sum, castagnoli, b[:4])
	return crc32.Update(sum, castagnoli, b[8:headSize])
}

// parse decodes a frame's head and reports whether b begins with one that belongs at the offset at.
func (h *header) parse(b []byte, at int64) (f frame, ok bool) {
	if len(b) < headSize {
		return f, false
	}
	be := binary.BigEndian
	switch string(b[:4]) {
	case objectMagic:
		f.object = true
	case markMagic:
	default:
		return f, false
	}
	if be.Uint32(b[4:]) != frameSum(b, h.nonce, at) {
		return f, false
	}
	f.hash = log.Hash(b[48:80])
	if f.object {
		f.size = int(be.Uint32(b[8:]))
		f.key = log.Key{Epoch: be.Uint64(b[16:]), FirstT: be.Uint64(b[24:])}
		f.lastT = be.Uint64(b[32:])
		f.fenced = be.Uint64(b[40:])
		return f, f.size <= log.MaxObject && f.key.Epoch == h.epoch
	}
	f.final = be.Uint32(b[8:])&flagFinal != 0
	f.synced = int64(be.Uint64(b[16:]))
	f.min, f.max, f.maxT = be.Uint64(b[24:]), be.Uint64(b[32:]), be.Uint64(b[40:])
	return f, f.synced >= headSize && f.synced <= at
}

// objectFrame is the frame of an object.
func objectFrame(o *log.Object) frame {
	return frame{object: true, size: o.Size(), key: o.Key(), lastT: o.LastT(), fenced: o.Fenced, hash: o.Hash()}
}

// proves is the lowest `fenced` in a later object that shows the framed object to have been durable: its last t; for a start,
// the first t behind it, which nobody acknowledges before the start is durable.
func (f *frame) proves() uint64 {
	if f.key.IsStart() {
		return f.lastT + 1
	}
	return f.lastT
}

// coverage follows up to which t an epoch's objects hold everything, in whatever order they come.
type coverage struct {
	t     uint64
	any   bool
	ahead map[uint64]uint64 // last t by first t, of what lies behind a gap
}

func (c *coverage) add(f *frame) {
	switch {
	case f.key.IsStart() || !c.any:
		c.t, c.any = f.lastT, true
	case f.key.FirstT <= c.t+1:
		c.t = max(c.t, f.lastT)
	default:
		if c.ahead == nil {
			c.ahead = map[uint64]uint64{}
		}
		c.ahead[f.key.FirstT] = f.lastT
		return
	}
	for last, ok := c.ahead[c.t+1]; ok; last, ok = c.ahead[c.t+1] {
		delete(c.ahead, c.t+1)
		c.t = last
	}
}

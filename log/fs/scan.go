package fs

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"

	"github.com/steledb/stele/log"
)

// entry is where an object lies in a file.
type entry struct {
	at     int64 // of its frame
	size   uint32
	firstT uint64 // the key's
	lastT  uint64
	fenced uint64
	proves uint64
	hash   log.Hash
}

func (f *frame) entry(at int64) entry {
	return entry{at, uint32(f.size), f.key.FirstT, f.lastT, f.fenced, f.proves(), f.hash}
}

// length is how many bytes the object and its frame take.
func (e *entry) length() int64 { return roundUp(headSize+int64(e.size), align) }

// scanned is what a scan found in a file.
type scanned struct {
	ino     uint64
	head    header
	entries []entry // in the order of the file
	synced  int64   // what the last mark says
	resume  int64   // behind the last mark: where a later scan goes on
	end     int64   // behind the last whole frame
	final   bool    // the last frame is a final mark
	size    int64   // of the file
	torn    string  // owner: what is wrong with the bytes in [end, size), or "" if they are zeros
	stat    Stat
	fenced  uint64 // the highest fenced of whole frames' heads behind end
}

// scanner reads one file from its header, or from behind the last mark that an earlier scan saw, to its end.
type scanner struct {
	file   *file
	w      window
	newest bool // the file may end torn
	owner  bool // nobody writes: verify what no mark covers, and judge the tail
	have   scanned
	mut    mutation
}

// scan reads on from have. An error is about the file layer or a *log.CorruptError.
func (s *scanner) scan(have scanned) (scanned, error) {
	s.have = have
	st, err := s.w.f.Stat()
	if err != nil {
		return have, err
	}
	s.w.size = st.Size
	if have.ino != st.Ino { // another file of the same name
		have = scanned{ino: st.Ino}
		s.have = have
	}
	if have.resume == 0 {
		b, err := s.w.get(0, headSize)
		if err != nil {
			return have, err
		}
		h, err := decodeHeader(b)
		if err == nil && (h.seq != s.file.seq || h.epoch != s.file.epoch || h.instance != s.file.inst) {
			err = fmt.Errorf("it is file %s of instance %s", fileName(h.seq, h.epoch), h.instance)
		}
		if err != nil {
			return have, s.file.corrupt(0, log.Key{}, err.Error())
		}
		s.have.head, s.have.synced, s.have.resume = h, headSize, headSize
	}
	s.have.size, s.have.end = st.Size, s.have.resume
	at := s.have.resume
	for n := len(s.have.entries); n > 0 && s.have.entries[n-1].at >= at; n-- {
		s.have.entries = s.have.entries[:n-1]
	}
	for {
		if at, err = s.frames(at); err != nil {
			return have, err
		}
		if again, err := s.tail(at, st); err != nil || !again {
			return s.have, err
		}
	}
}

// frames reads frames from at on, and returns the offset of the first that is none.
func (s *scanner) frames(at int64) (int64, error) {
	for !s.have.final {
		f, ok, err := s.frame(at)
		if err != nil || !ok {
			return at, err
		}
		if f.object {
			s.have.entries = append(s.have.entries, f.entry(at))
		} else {
			if err := s.mark(&f, at); err != nil {
				return at, err
			}
		}
		at += f.length()
		s.have.end = at
		if !f.object {
			s.have.resume = at
		}
	}
	return at, nil
}

// frame reads the head of the frame at an offset, and reports whether one lies there, whole.
func (s *scanner) frame(at int64) (frame, bool, error) {
	b, err := s.w.get(at, headSize)
	if err != nil {
		return frame{}, false, err
	}
	f, ok := s.have.head.parse(b, at)
	return f, ok && at+f.length() <= s.w.size, nil
}

func (s *scanner) mark(f *frame, at int64) error {
	var last *entry
	for i := len(s.have.entries) - 1; i >= 0 && last == nil; i-- {
		if e := &s.have.entries[i]; e.at < f.synced {
			last = e
		}
	}
	if f.synced < s.have.synced || last == nil || last.hash != f.hash {
		return s.file.corrupt(at, log.Key{}, "the sync mark is not one of what stands before it")
	}
	s.have.synced, s.have.final = f.synced, f.final
	return nil
}

// tail judges what lies from at on, where no frame begins. It reports that frames must be read again from there, because the
// owner wrote meanwhile.
func (s *scanner) tail(at int64, st Stat) (again bool, err error) {
	if !s.newest {
		zero, err := s.w.zeros(at)
		switch {
		case err != nil:
			return false, err
		case !s.have.final:
			return false, s.file.corrupt(at, log.Key{}, "neither an object nor a mark begins here, and the file is not the last")
		case !zero:
			return false, s.file.corrupt(at, log.Key{}, "something stands behind the file's final mark")
		}
		return false, nil
	}
	s.have.torn = ""
	if !s.owner {
		if s.have.stat == st {
			return false, nil // judged before
		}
		// What a mark or a later object proves to be durable was written before it: read once more.
		proof, err := s.proof(at, len(s.have.entries))
		if err != nil {
			return false, err
		}
		if proof == "" {
			s.have.stat = st
			return false, nil
		}
		s.w.drop()
		if _, ok, err := s.frame(at); ok || err != nil {
			return ok, err
		}
		return false, s.file.corrupt(at, log.Key{}, proof)
	}
	bad := "neither an object nor a mark begins here"
	n := len(s.have.entries)
	for i := range s.have.entries {
		e := &s.have.entries[i]
		if e.at < s.have.synced {
			continue // whoever reads it verifies it
		}
		ok, err := s.whole(e)
		if err != nil {
			return false, err
		}
		if !ok {
			at, bad, n = e.at, "the object's bytes are not those of its chain hash", i
			break
		}
	}
	zero, err := s.w.zeros(at)
	if err != nil || zero {
		return false, err
	}
	proof, err := s.proof(at, n)
	if err != nil {
		return false, err
	}
	if proof != "" && s.mut != mutBelowMarkTorn {
		return false, s.file.corrupt(at, log.Key{}, bad+"; "+proof)
	}
	s.have.torn = bad
	s.have.end = at
	s.have.entries = s.have.entries[:n]
	if at < s.have.resume { // a mark behind it, which proves nothing: of a sync that had not covered it
		s.have.resume, s.have.final = at, false
	}
	return false, nil
}

// proof says what shows that the bytes at an offset were durable: a mark behind it that covers it, or an object behind it
// that was written when more had been acknowledged than the first n entries hold. Empty: nothing does.
func (s *scanner) proof(at int64, n int) (string, error) {
	covered := coverage{t: s.have.head.base, any: s.have.head.base > 0}
	for i := range s.have.entries[:n] {
		e := &s.have.entries[i]
		covered.add(&frame{object: true, key: log.Key{Epoch: s.file.epoch, FirstT: e.firstT}, lastT: e.lastT})
	}
	for from := at; from+headSize <= s.w.size; {
		b, err := s.w.get(from, windowSize)
		if err != nil {
			return "", err
		}
		for i := 0; i+headSize <= len(b); i += align {
			if b[i] != objectMagic[0] {
				continue
			}
			behind := from + int64(i)
			f, ok := s.have.head.parse(b[i:], behind)
			if !ok || behind == at {
				continue
			}
			if f.object {
				s.have.fenced = max(s.have.fenced, f.fenced)
			}
			switch {
			case !f.object && f.synced > at:
				return fmt.Sprintf("the sync mark at offset %d says that everything below %d was synced", behind, f.synced), nil
			case f.object && f.fenced > covered.t:
				return fmt.Sprintf("object %s at offset %d says that everything up to t %d was acknowledged, and t %d is not there",
					f.key, behind, f.fenced, covered.t+1), nil
			}
		}
		if len(b) < windowSize {
			break
		}
		from += windowSize - headSize
	}
	return "", nil
}

// whole reports whether an object's bytes are those of its hash, and its padding zeros.
func (s *scanner) whole(e *entry) (bool, error) {
	h := sha256.New()
	at, end := e.at+headSize, e.at+headSize+int64(e.size)
	for at < end {
		b, err := s.w.get(at, int(min(windowSize, end-at)))
		if err != nil || len(b) == 0 {
			return false, err
		}
		h.Write(b)
		at += int64(len(b))
	}
	if log.Hash(h.Sum(nil)) != e.hash {
		return false, nil
	}
	pad, err := s.w.get(end, int(e.at+e.length()-end))
	return isZero(pad), err
}

// summary reads the final mark at the end of a file that is not the newest, which says what keys it holds. It reports false if
// there is none at the very end; the file must then be scanned.
func (s *scanner) summary() (lo, hi, maxT uint64, ok bool, err error) {
	st, err := s.w.f.Stat()
	if err != nil {
		return 0, 0, 0, false, err
	}
	s.w.size = st.Size
	b, err := s.w.get(0, headSize)
	if err != nil {
		return 0, 0, 0, false, err
	}
	h, err := decodeHeader(b)
	if err != nil || h.seq != s.file.seq || h.epoch != s.file.epoch || h.instance != s.file.inst || st.Size < 2*headSize {
		return 0, 0, 0, false, nil // the scan says so
	}
	if b, err = s.w.get(st.Size-headSize, headSize); err != nil {
		return 0, 0, 0, false, err
	}
	f, ok := h.parse(b, st.Size-headSize)
	return f.min, f.max, f.maxT, ok && !f.object && f.final, nil
}

// windowSize is how many bytes are read at once, a multiple of align.
const windowSize = 64 << 10

// window reads a file through a buffer.
type window struct {
	f    File
	size int64 // of the file
	at   int64
	buf  []byte
	n    int
}

// get returns n bytes at an offset, at most windowSize, or fewer at the file's end, until the next get.
func (w *window) get(off int64, n int) ([]byte, error) {
	n = int(max(0, min(int64(n), w.size-off)))
	if n == 0 {
		return nil, nil
	}
	if off < w.at || off+int64(n) > w.at+int64(w.n) {
		if w.buf == nil {
			w.buf = make([]byte, min(windowSize, w.size))
		}
		w.at, w.n = off, 0
		want := int(min(windowSize, w.size-off))
		got, err := w.f.ReadAt(w.buf[:want], off)
		if err == io.EOF { // the owner has given room back meanwhile
			w.size = off + int64(got)
			n = min(n, got)
		} else if err != nil {
			return nil, err
		}
		w.n = got
	}
	return w.buf[off-w.at:][:n], nil
}

// drop forgets what the buffer holds.
func (w *window) drop() { w.n = 0 }

// zeros reports whether nothing but zeros lies from an offset on.
func (w *window) zeros(off int64) (bool, error) {
	for off < w.size {
		b, err := w.get(off, windowSize)
		if err != nil || !isZero(b) {
			return false, err
		}
		off += int64(len(b))
	}
	return true, nil
}

func isZero(b []byte) bool {
	var zeros [512]byte
	for len(b) > len(zeros) {
		if !bytes.Equal(b[:len(zeros)], zeros[:]) {
			return false
		}
		b = b[len(zeros):]
	}
	return bytes.Equal(b, zeros[:len(b)])
}

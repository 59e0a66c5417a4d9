package db

// seen is the set of everything that was ever asserted of a unique attribute, as far as 32 bits of a hash tell: a miss is
// certain, so that a value never seen needs no look into the index; a hit says nothing yet. It belongs to one Stage, only
// grows, and has no pointers.
//
// It is 256 tables, so that growing one stops the stage for microseconds. In a table, a fingerprint's place is its upper bits, so
// growing reads and writes in order.
type seen struct {
	tables [256]seenTable
	slots  int // of all tables
}

type seenTable struct {
	slots []uint32 // 0: free
	shift uint8    // 32 - log2(len(slots))
	n     int
}

func (s *seen) split(h uint64) (*seenTable, uint32) {
	f := uint32(h >> 8)
	if f == 0 {
		f = 1
	}
	return &s.tables[h&0xff], f
}

func (s *seen) has(h uint64) bool {
	t, f := s.split(h)
	if t.n == 0 {
		return false
	}
	mask := uint32(len(t.slots) - 1)
	for i := f >> t.shift; ; i++ {
		switch t.slots[i&mask] {
		case f:
			return true
		case 0:
			return false
		}
	}
}

func (s *seen) add(h uint64) {
	t, f := s.split(h)
	if n := len(t.slots); t.n*4 >= n*3 {
		t.grow()
		s.slots += len(t.slots) - n
	}
	t.put(f)
}

func (t *seenTable) put(f uint32) {
	mask := uint32(len(t.slots) - 1)
	for i := f >> t.shift; ; i++ {
		switch t.slots[i&mask] {
		case f:
			return
		case 0:
			t.slots[i&mask] = f
			t.n++
			return
		}
	}
}

func (t *seenTable) grow() {
	old := t.slots
	if len(old) == 0 {
		t.slots, t.shift = make([]uint32, 16), 32-4
		return
	}
	t.slots, t.shift, t.n = make([]uint32, 2*len(old)), t.shift-1, 0
	for _, f := range old {
		if f != 0 {
			t.put(f)
		}
	}
}

package transactor

import "sync"

// flights counts the flushes in flight, at most depth of them and at most so many bytes together (P4).
type flights struct {
	depth    int
	maxBytes int
	freed    chan struct{} // a token: a flush ended since somebody looked

	mu    sync.Mutex
	n     int
	bytes int
}

func newFlights(depth, maxBytes int) *flights {
	return &flights{depth: depth, maxBytes: maxBytes, freed: make(chan struct{}, 1)}
}

// free reports whether a batch of so many bytes may be sent, and how many are in flight.
func (f *flights) free(bytes int) (ok bool, inFlight int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n == 0 || f.n < f.depth && f.bytes+bytes <= f.maxBytes, f.n
}

func (f *flights) began(bytes int) (inFlight int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	f.bytes += bytes
	return f.n
}

func (f *flights) ended(bytes int) {
	f.mu.Lock()
	f.n--
	f.bytes -= bytes
	f.mu.Unlock()
	select {
	case f.freed <- struct{}{}:
	default:
	}
}

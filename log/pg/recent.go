package pg

import (
	"slices"
	"sync"

	"github.com/steledb/stele/log"
)

// recent holds the keys that this handle has made durable in its epoch and that a fence has not been told to be acknowledged: what
// a server that went back, after a failover to a standby that lagged, may have lost without the caller's naming it.
type recent struct {
	keep int // how many keys at most, the latest

	mu   sync.Mutex
	inst log.ID
	// epoch is that of keys.
	epoch uint64
	keys  []log.Key
}

// add notes that k is durable.
func (r *recent) add(inst log.ID, k log.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.inst != inst || r.epoch < k.Epoch:
		r.inst, r.epoch, r.keys = inst, k.Epoch, r.keys[:0]
	case r.epoch > k.Epoch:
		return // of a deposed owner
	}
	if slices.Contains(r.keys, k) {
		return
	}
	if len(r.keys) >= r.keep {
		r.keys = slices.Delete(r.keys, 0, 1)
	}
	r.keys = append(r.keys, k)
}

// covering is the keys that a fence of c looks for: those of c, and those that are durable and lie behind the first of several, which
// is the last acknowledged one. What lies up to there is forgotten.
func (r *recent) covering(c log.Check) []log.Key {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inst != c.Instance || r.epoch != c.Epoch || len(r.keys) == 0 {
		return c.Keys
	}
	if len(c.Keys) > 1 {
		acknowledged := slices.MinFunc(c.Keys, log.Key.Compare)
		r.keys = slices.DeleteFunc(r.keys, func(k log.Key) bool { return k.Compare(acknowledged) <= 0 })
	}
	keys := slices.Clip(c.Keys) // the caller's own are not changed
	for _, k := range r.keys {
		if !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	return keys
}

package fs

import "github.com/steledb/stele/log"

// Mutation breaks one rule; for tests.
type Mutation = mutation

// The rules that can be broken.
const (
	MutMarkFirst     = mutMarkFirst
	MutSkipSync      = mutSkipSync
	MutRetrySync     = mutRetrySync
	MutSkipDirSync   = mutSkipDirSync
	MutBelowMarkTorn = mutBelowMarkTorn
	MutNoRewrite     = mutNoRewrite
	MutLookOnce      = mutLookOnce
	MutGoOn          = mutGoOn
	MutFinalUnsynced = mutFinalUnsynced
	MutShowUnmarked  = mutShowUnmarked
	MutPathUnchecked = mutPathUnchecked
)

// Break breaks a rule in what the handle does from now on. It must be called before anything else is.
func (l *Log) Break(m Mutation) { l.mut = m }

// The names of files.
var (
	FileName      = fileName
	ParseFileName = parseFileName
)

// Queued is how many appends wait for the next flush.
func (l *Log) Queued(inst log.ID) int {
	w, err := l.writer(inst)
	if err != nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queue)
}

package fs

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
	MutGoOn          = mutGoOn
)

// Break breaks a rule in what the handle does from now on. It must be called before anything else is.
func (l *Log) Break(m Mutation) { l.mut = m }

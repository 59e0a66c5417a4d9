package log

// mutation names a rule that a test of the tests breaks (see mutate_test.go): go test -tags mutate.
type mutation int

const (
	_ mutation = iota
	ignoreGap
	ignoreDamage
	skipHash
	anchorNewest
	noReread
	byT
	olderUnproven
	ignoreSealed
	noWitness
)

package logtest

import "slices"

// CaseNames are the names of all cases, in order.
func CaseNames() (names []string) {
	for _, c := range slices.Concat(rootCases, appendCases, readCases, ownerCases, chainCases, databaseCases, handleCases) {
		names = append(names, c.name)
	}
	return names
}

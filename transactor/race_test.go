//go:build race

package transactor

const underRace = true

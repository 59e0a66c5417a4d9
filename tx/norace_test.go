//go:build !race

package tx_test

const underRace = false

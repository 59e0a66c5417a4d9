//go:build race

package sim

// raced: the race detector makes everything many times slower, and fewer seeds must do.
const raced = true

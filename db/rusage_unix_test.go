//go:build unix

package db

import (
	"syscall"
	"time"
)

// cpuTime is the processor time that the process has used, merges and garbage collection included: on a busy machine it says
// more than the time that has passed.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

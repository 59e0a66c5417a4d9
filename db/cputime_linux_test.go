package db

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is the processor time that the process has used, merges and garbage collection included; threadTime that of the calling
// thread. On a busy machine they say more than the time that has passed.
func cpuTime() time.Duration    { return clock(unix.CLOCK_PROCESS_CPUTIME_ID) }
func threadTime() time.Duration { return clock(unix.CLOCK_THREAD_CPUTIME_ID) }

func clock(id int32) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(id, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

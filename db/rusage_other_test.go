//go:build !unix

package db

import "time"

func cpuTime() time.Duration { return 0 }

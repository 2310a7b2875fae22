package leader

import (
	"time"

	"golang.org/x/sys/unix"
)

// suspended returns for how long the machine has been suspended since it was started. During a suspension
// CLOCK_MONOTONIC, Go's monotonic clock, stops, and CLOCK_BOOTTIME continues.
func suspended() time.Duration {
	const (
		maxInterval = time.Millisecond // between the readings; a longer one would count as a suspension
		attempts    = 100
	)
	var difference time.Duration
	for range attempts {
		var before, monotonic, after unix.Timespec
		if unix.ClockGettime(unix.CLOCK_BOOTTIME, &before) != nil ||
			unix.ClockGettime(unix.CLOCK_MONOTONIC, &monotonic) != nil ||
			unix.ClockGettime(unix.CLOCK_BOOTTIME, &after) != nil {
			return 0
		}
		difference = time.Duration(before.Nano() - monotonic.Nano())
		if time.Duration(after.Nano()-before.Nano()) < maxInterval {
			break
		}
	}
	return difference
}

package leader

import (
	"time"

	"golang.org/x/sys/unix"
)

// suspended returns for how long the machine has been suspended since it was started. Go's monotonic
// clock, CLOCK_MONOTONIC, stands still meanwhile, and CLOCK_BOOTTIME does not.
func suspended() time.Duration {
	const (
		longest = time.Millisecond // between two readings, which would be taken for a suspension
		tries   = 100
	)
	var difference time.Duration
	for range tries {
		var before, monotonic, after unix.Timespec
		if unix.ClockGettime(unix.CLOCK_BOOTTIME, &before) != nil ||
			unix.ClockGettime(unix.CLOCK_MONOTONIC, &monotonic) != nil ||
			unix.ClockGettime(unix.CLOCK_BOOTTIME, &after) != nil {
			return 0
		}
		difference = time.Duration(before.Nano() - monotonic.Nano())
		if time.Duration(after.Nano()-before.Nano()) < longest {
			break
		}
	}
	return difference
}

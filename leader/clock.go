package leader

import "time"

// minSuspension is how much of a difference between two clocks is taken for a suspension of the
// machine: two clocks cannot be read in the same instant.
const minSuspension = 100 * time.Millisecond

// newClock returns a clock for leases: the time since now, on the operating system's monotonic clock,
// with the time for which the machine was suspended meanwhile. suspended returns that time since the
// machine was started.
func newClock(suspended func() time.Duration) func() time.Duration {
	start, before := time.Now(), suspended()
	return func() time.Duration {
		passed := time.Since(start)
		if more := suspended() - before; more >= minSuspension {
			passed += more
		}
		return passed
	}
}

package leader

import "time"

// minSuspension is the smallest difference between two clocks that counts as a suspension of the machine. Two clocks
// cannot be read at the same instant.
const minSuspension = 100 * time.Millisecond

// newClock returns a clock for leases: the time since newClock was called, by the monotonic clock of the operating
// system, plus the time for which the machine was suspended since then. suspended returns the total time of suspension
// since the machine was started.
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

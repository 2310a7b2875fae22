//go:build !linux

package leader

import "time"

// suspended returns 0, because the time of suspensions is unknown here. The operating system determines whether its
// monotonic clock includes it.
func suspended() time.Duration { return 0 }

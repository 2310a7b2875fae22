//go:build !linux

package leader

import "time"

// suspended returns 0: time for which the machine was suspended is not known here. Whether the
// monotonic clock includes it depends on the operating system.
func suspended() time.Duration { return 0 }

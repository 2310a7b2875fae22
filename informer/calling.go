package informer

import (
	"sync/atomic"
	"time"
)

// blockedAfter is the duration after which a subscriber that has not returned is reported.
const blockedAfter = time.Minute

// calling stores the start of the current call of the subscribers. Predicates and the functions of sources run in this
// call. The informer processes no change until they have returned.
type calling struct {
	since  atomic.Int64 // nanoseconds since the informer was made; 0: no call is running
	logged atomic.Int64 // value of since for the last call that was logged
}

// begin records the start of a call, as a duration since the informer was made.
func (c *calling) begin(now time.Duration) { c.since.Store(max(int64(now), 1)) }

// end records that the subscribers have returned.
func (c *calling) end() { c.since.Store(0) }

// blockedFor returns the duration of the current call, or 0 if it is shorter than blockedAfter.
func (c *calling) blockedFor(now time.Duration) time.Duration {
	since := time.Duration(c.since.Load())
	if since == 0 || now-since < blockedAfter {
		return 0
	}
	return now - since
}

// newlyBlockedFor does the same as blockedFor, but returns 0 after the first report of a call.
func (c *calling) newlyBlockedFor(now time.Duration) time.Duration {
	since, blocked := c.since.Load(), c.blockedFor(now)
	if blocked == 0 || c.logged.Swap(since) == since {
		return 0
	}
	return blocked
}

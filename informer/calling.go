package informer

import (
	"context"
	"sync/atomic"
	"time"
)

// blockedAfter is the duration after which a subscriber that has not returned is reported.
const blockedAfter = time.Minute

// calling stores when the current call of the subscribers began. Predicates and the functions of sources run in
// it, and the informer takes no change until they have returned.
type calling struct {
	since  atomic.Int64 // nanoseconds since the informer was made; 0: none is being called
	logged atomic.Int64 // since, of the last call that was logged
}

// begin notes a call at a time since the informer was made.
func (c *calling) begin(now time.Duration) { c.since.Store(max(int64(now), 1)) }

// end notes that the subscribers have returned.
func (c *calling) end() { c.since.Store(0) }

// blockedFor returns for how long subscribers have not returned, or 0 while that is not long.
func (c *calling) blockedFor(now time.Duration) time.Duration {
	since := time.Duration(c.since.Load())
	if since == 0 || now-since < blockedAfter {
		return 0
	}
	return now - since
}

// reportBlocked logs once that subscribers do not return.
func (p *part) reportBlocked(ctx context.Context) {
	c := p.core
	since, blocked := c.calling.since.Load(), c.calling.blockedFor(time.Since(c.made))
	if blocked == 0 || c.calling.logged.Swap(since) == since {
		return
	}
	c.logger.WarnContext(ctx, "informer takes no changes: a predicate or a function of a source has not returned",
		"informer", c.name, "retrieves", p.describes, "for", blocked.Round(time.Second))
}

// Package resync determines when an object is handled again without a change: once per interval.
//
//   - An object that runs only for lists and resyncs has a fixed offset in the interval. The offsets of all objects are
//     spread evenly.
//   - An object whose last success had another cause is due when the interval since that success has passed. It is
//     resynced at most a quarter of an interval later.
//
// The package keeps no timer per object: Run walks the objects, one share at a time. So an idle object costs nothing,
// and an object with a recorded success costs an entry of Successes.
package resync

import (
	"context"
	"time"

	"github.com/evenkeel-go/evenkeel/kube"
)

const (
	// maxShares is the number of shares into which the objects are divided.
	maxShares = 256
	// minStep is the minimum time between two shares: short intervals have fewer shares.
	minStep = 20 * time.Millisecond
	// checksPerInterval is how often an object with a recorded success is checked per interval.
	checksPerInterval = 8
)

// Config configures Run.
type Config struct {
	// Interval is the time between two resyncs of an object. If it is negative, there are no resyncs.
	Interval time.Duration
	// Successes are the recorded successes.
	Successes *Successes
	// Resync resyncs the objects of one of shares equal shares for which due returns true. An object must always be in
	// the same share. Calls are sequential.
	Resync func(share, shares int, due func(key kube.Key) bool)
}

// Run resyncs every object once per interval until ctx ends.
func Run(ctx context.Context, config Config) {
	interval := config.Interval
	if interval < 0 {
		return
	}
	shares := int(max(1, min(maxShares, interval/minStep)))
	step, order := max(shares/checksPerInterval, 1), shareOrder(shares)
	began := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ; ; began = began.Add(interval) {
		// A missed interval is skipped: the process was stopped, or a walk takes longer than the interval.
		if now := time.Now(); now.Sub(began) > interval {
			began = now
		}
		for turn := range shares {
			timer.Reset(time.Until(began.Add(offset(interval, turn, shares))))
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			config.resyncShare(order[turn], shares, true)
			for other := turn + step; other < turn+shares && step < shares; other += step {
				config.resyncShare(order[other%shares], shares, false)
			}
		}
	}
}

// resyncShare resyncs the due objects of a share. atOffset is true at the share's offset in the interval.
func (c *Config) resyncShare(share, shares int, atOffset bool) {
	if !atOffset && c.Successes.Len() == 0 {
		return
	}
	now := time.Now()
	c.Resync(share, shares, func(key kube.Key) bool {
		if succeeded, found := c.Successes.last(key); found {
			return now.Sub(succeeded) >= c.Interval
		}
		return atOffset
	})
}

// offset returns the time of a turn, from the start of an interval. It is in the last nine tenths of the interval, so
// that the first resync does not follow the first pass immediately.
func offset(interval time.Duration, turn, shares int) time.Duration {
	spread := interval / 10 * 9
	return interval - spread + time.Duration(float64(spread)*float64(turn+1)/float64(shares))
}

// shareOrder returns the share of each turn. Neighbouring shares are far apart: with fewer objects than shares, each
// object is alone in one of the first shares, and the resyncs must still be spread over the interval.
func shareOrder(shares int) []int {
	stride := max(shares*618/1000, 1) // golden ratio: spreads any number of first shares evenly
	for gcd(stride, shares) != 1 {
		stride++
	}
	order := make([]int, shares)
	for share := range shares {
		order[share*stride%shares] = share
	}
	return order
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

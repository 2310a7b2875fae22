package detect

import "time"

const (
	// GrowthInterval is the interval at which Sample should be called.
	GrowthInterval = 10 * time.Second
	// GrowthMinimum is the length up to which a queue is never reported as growing.
	GrowthMinimum = 100
	// GrowthMinWait is the minimum wait of the oldest key.
	GrowthMinWait = 10 * time.Second
	// growthSteps is how many times in a row the length must have risen: for one minute.
	growthSteps = 6
)

// Growth detects a queue that only grows: keys are added faster than the workers handle them.
//
// That is the case if the length has risen at each of six samples in a row, which takes a minute, is more than
// GrowthMinimum, and the oldest key has been ready for at least GrowthMinWait. (If the length rises while keys are
// handled within seconds, the queue is only busy.) The episode ends when the length is below half of its peak: if the
// queue merely stops growing, the problem remains.
//
// The zero value is ready for use. It is not safe for concurrent use.
type Growth struct {
	seen   bool
	last   int       // the length at the last sample
	at     time.Time // time of the last sample
	rises  int       // number of samples in a row that were above the one before
	from   time.Time // time of the sample before the first of them
	growth bool      // an episode is active
	since  time.Time // its start
	peak   int       // its highest length
}

// Sample adds a sample: the length of the queue (keys that are ready and wait for a worker), and how long the oldest
// of them has been ready. It returns whether the queue grows, and whether this is the first sample of an episode.
// Call it every GrowthInterval; a sample that comes sooner can only end an episode.
func (g *Growth) Sample(length int, oldest time.Duration, now time.Time) (grows, first bool) {
	if g.growth {
		g.peak = max(g.peak, length)
		if length < g.peak/2 {
			*g = Growth{}
		}
	}
	// A ticker may be slightly early after it was late.
	if g.seen && now.Sub(g.at) < GrowthInterval*3/4 {
		return g.growth, false
	}
	if g.seen && length > g.last {
		if g.rises == 0 {
			g.from = g.at
		}
		g.rises++
	} else {
		g.rises = 0
	}
	g.seen, g.last, g.at = true, length, now
	if g.growth || g.rises < growthSteps || length <= GrowthMinimum || oldest < GrowthMinWait {
		return g.growth, false
	}
	g.growth, g.since, g.peak = true, g.from, length
	return true, true
}

// Since returns when the queue started to grow; zero if it does not grow.
func (g *Growth) Since() time.Time { return g.since }

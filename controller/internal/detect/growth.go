package detect

import "time"

const (
	// GrowthInterval is how often Growth wants to be told the queue's length.
	GrowthInterval = 10 * time.Second
	// GrowthMinimum is the length up to which a queue is never said to grow.
	GrowthMinimum = 100
	// GrowthMinWait is how long the oldest key must have waited.
	GrowthMinWait = 10 * time.Second
	// growthSteps is how many times in a row the length must have risen: for a minute.
	growthSteps = 6
)

// Growth tells when a queue only grows: more keys come than the workers handle.
//
// That is so when its length has risen at each of six samples in a row, which takes a minute; it
// is more than GrowthMinimum; and its oldest key has been due for at least GrowthMinWait (a
// length that rises while keys are handed out within seconds is a busy moment, not problem).
// The episode is over when the length is below half of its peak: a queue that has merely
// stopped growing still has the same thing to say.
//
// The zero value is ready for use. It is not safe for concurrent use.
type Growth struct {
	seen   bool
	last   int       // the length at the last sample
	at     time.Time // of the last sample
	rises  int       // how many samples in a row have been above the one before
	from   time.Time // the sample before the first of them
	growth bool      // an episode lasts
	since  time.Time // its beginning
	peak   int       // its highest length
}

// Sample tells the length of the queue (keys that are due and wait for a worker) and how long
// the oldest of them has been due. It returns whether the queue grows, and whether this is the
// first sample that says so, once per episode. Call it every GrowthInterval; of samples that
// come sooner, only the end of an episode is read.
func (g *Growth) Sample(length int, oldest time.Duration, now time.Time) (grows, first bool) {
	if g.growth {
		g.peak = max(g.peak, length)
		if length < g.peak/2 {
			*g = Growth{}
		}
	}
	// A ticker may be a little early after it was late.
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

// Since returns when the queue began to grow; zero when it does not.
func (g *Growth) Since() time.Time { return g.since }

package informer

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

const (
	// againWithin is the time between two of the three reads after which an object is kept. It is shorter than the
	// default interval of resyncs, which read each object. Keeping costs about as much as decoding, so that it is too
	// early after the second read: a handler gets the object, and perhaps another one reads it once.
	againWithin = time.Minute
	// seenPlaces is the number of places in which the read of a state may be recorded.
	seenPlaces = 4
	// recorded: if all places have recent reads, one of so many reads takes one. With 1, objects that are read in turn
	// would never be seen again if there are more than places. With a large number, objects that are read often would
	// be seen again late while many others are read once, as by handlers.
	recorded = 2
	// tick is the unit of the times of reads. A shorter one would cause more stores for objects that are read often.
	tick = time.Second / 4
)

// ticks are the time of a read in Unix time. They are never 0, and differences of less than 17 years are right.
type ticks uint32

// maxTicks leaves a bit of 32 for record.
const maxTicks = 1<<31 - 1

func ticksOf(now time.Time) ticks {
	return ticks(max(1, now.UnixMilli()/tick.Milliseconds()&maxTicks)) //nolint:gosec // it has 31 bits
}

// since returns the time since a former read.
func (t ticks) since(before ticks) ticks { return (t - before) & maxTicks }

// reading is a read of a state that is not kept decoded.
type reading struct {
	now    ticks
	ago    ticks // since the read before it
	again  bool  // the two reads before it were within againWithin of the next
	shared bool  // the reader does not need a copy
}

// record records the read of a state with this hash. It returns the time since the read before, and whether the two
// reads before it were within againWithin of the next.
//
// A place has the upper half of the hash, the ticks of the read, and a bit: the read before it was within againWithin.
// A hash has a few places, of which it takes the oldest. A read that is not recorded costs one more decoding.
func record(seen []atomic.Uint64, hash uint64, now ticks) (ago ticks, again bool) {
	const upper = math.MaxUint64 &^ math.MaxUint32
	first := hash&upper | uint64(now)<<1
	oldest, oldestAgo := &seen[0], ticks(0)
	for n := range uint64(seenPlaces) {
		place := &seen[(hash+n)&uint64(len(seen)-1)]
		before := place.Load()
		ago := now.since(ticks(uint32(before) >> 1)) //nolint:gosec // the lower half
		switch isRecent := ago < ticks(againWithin/tick); {
		case before&upper == hash&upper && isRecent:
			place.Store(first | 1)
			return ago, before&1 != 0
		case before&upper == hash&upper:
			place.Store(first)
			return ago, false
		}
		if ago >= oldestAgo {
			oldest, oldestAgo = place, ago
		}
	}
	if oldestAgo >= ticks(againWithin/tick) || rand.IntN(recorded) == 0 {
		oldest.Store(first)
	}
	return 0, false
}

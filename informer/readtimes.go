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
	// recordedPart: if all places have recent reads, one of four reads takes the place of the oldest. With 1, twice as
	// many objects as places, read in turn, would all lose their place before their next read. With a large number,
	// objects that are read often would get a place late while handlers read many others once.
	recordedPart = 4
	// tick is the unit of the times of reads. A shorter one would cause more stores for objects that are read often.
	tick = time.Second / 4
)

// ticks are the time of a read in Unix time. They are never 0, and differences of less than 8 years are right.
type ticks uint32

const (
	// maxTicks leaves two bits of 32 for recordRead.
	maxTicks = 1<<30 - 1
	// slowRead is the time, in ticks, for which a read may last. Another goroutine can have read the same object since
	// it began.
	slowRead = 8
)

func ticksOf(now time.Time) ticks {
	return ticks(max(1, now.UnixMilli()/tick.Milliseconds()&maxTicks)) //nolint:gosec // it has 30 bits
}

// since returns the time since another read, which may be a little later.
func (t ticks) since(other ticks) ticks {
	if ago := (t - other) & maxTicks; ago <= maxTicks-slowRead {
		return ago
	}
	return 0
}

// reading is a read of a state that is not kept decoded.
type reading struct {
	now    ticks
	ago    ticks // since the read before it
	again  bool  // the two reads before it were within againWithin of the next
	spread bool  // the reads were in different ticks: it was not read by one handler only, for example
	shared bool  // the reader does not need a copy
	equal  bool  // it may replace an object that is read as often
}

// recordRead records the read of a state with this hash.
//
// A place has the upper half of the hash, the ticks of the read, and two bits: the read before it was within
// againWithin, and the reads were in different ticks. A hash has a few places, of which it takes the oldest. A read
// that is not recorded costs one more decoding.
func recordRead(seen []atomic.Uint64, hash uint64, now ticks) reading {
	const upper, isAgain, isSpread = math.MaxUint64 &^ math.MaxUint32, 1, 2
	first := hash&upper | uint64(now)<<2
	oldest, oldestAgo := &seen[0], ticks(0)
	for n := range uint64(seenPlaces) {
		place := &seen[(hash+n)&uint64(len(seen)-1)]
		before := place.Load()
		ago := now.since(ticks(uint32(before) >> 2)) //nolint:gosec // the lower half
		switch isRecent := ago < ticks(againWithin/tick); {
		case before&upper == hash&upper && isRecent:
			bits := before&isSpread | isAgain
			if ago > 0 {
				bits |= isSpread
			}
			place.Store(first | bits)
			return reading{now: now, ago: ago, again: before&isAgain != 0, spread: bits&isSpread != 0}
		case before&upper == hash&upper:
			place.Store(first)
			return reading{now: now, ago: ago}
		}
		if ago >= oldestAgo {
			oldest, oldestAgo = place, ago
		}
	}
	if oldestAgo >= ticks(againWithin/tick) || rand.IntN(recordedPart) == 0 {
		oldest.Store(first)
	}
	return reading{now: now}
}

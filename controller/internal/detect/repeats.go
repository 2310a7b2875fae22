package detect

import (
	"cmp"
	"hash/maphash"
	"sync"
	"time"

	"github.com/evenkeel-go/evenkeel/kube"
)

const (
	// RepeatInterval is the minimum time between equal lines about a key.
	RepeatInterval = time.Second
	// maxRepeats is the number of different lines that are tracked.
	maxRepeats = 1024
)

// Repeats prevents the same line about the same key from being logged twice within RepeatInterval. It tracks the last
// 512 different lines at least. A line that was evicted may be logged too soon, and its count is lost. Repeats is safe
// for concurrent use. Create it with NewRepeats.
type Repeats struct {
	seed maphash.Seed

	mu sync.Mutex
	// recent are the lines since it was empty, and older the ones before; guarded by mu. When recent is full, it
	// becomes older, so that what comes often is kept.
	recent, older map[line]*repeat
}

type line struct {
	key  kube.Key
	text uint64 // hash: error texts can be long
}

type repeat struct {
	reportedAt time.Time
	suppressed int
}

// NewRepeats returns a Repeats without any lines.
func NewRepeats() *Repeats {
	return &Repeats{seed: maphash.MakeSeed(), recent: map[line]*repeat{}}
}

// Allow reports whether text about key may be logged at now. If so, suppressed is how many times it was suppressed
// since it was last logged, to be added to the line.
func (r *Repeats) Allow(key kube.Key, text string, now time.Time) (ok bool, suppressed int) {
	l := line{key: key, text: maphash.String(r.seed, text)}
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.recent[l]
	if known == nil {
		if len(r.recent) == maxRepeats/2 {
			r.recent, r.older = map[line]*repeat{}, r.recent
		}
		known = r.older[l]
		r.recent[l] = cmp.Or(known, &repeat{reportedAt: now})
	}
	if known == nil {
		return true, 0
	}
	if now.Sub(known.reportedAt) < RepeatInterval {
		known.suppressed++
		return false, 0
	}
	suppressed = known.suppressed
	*known = repeat{reportedAt: now}
	return true, suppressed
}

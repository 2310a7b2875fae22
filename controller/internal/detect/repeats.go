package detect

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/evenkeel-go/evenkeel/kube"
)

const (
	// RepeatInterval is how long a line about a key is not said again.
	RepeatInterval = time.Second
	// maxRepeats is how many different lines are remembered.
	maxRepeats = 1024
)

// Repeats keeps the same line about the same key from being logged twice within RepeatInterval.
// It remembers the last 1,024 different lines; of those that it has forgotten, one may come too
// soon, and its count is lost. It is safe for concurrent use. Made by NewRepeats.
type Repeats struct {
	seed maphash.Seed

	mu    sync.Mutex
	lines *lru[line, *repeat] // guarded by mu
}

type line struct {
	key  kube.Key
	text uint64 // its hash: error texts can be long
}

type repeat struct {
	said       time.Time
	suppressed int
}

// NewRepeats returns a Repeats that has seen nothing.
func NewRepeats() *Repeats {
	return &Repeats{seed: maphash.MakeSeed(), lines: newLRU[line, *repeat](maxRepeats)}
}

// Allow returns whether text about key may be logged at now, and if so, how many times it was
// not since it was logged last: a number to add to the line.
func (r *Repeats) Allow(key kube.Key, text string, now time.Time) (ok bool, suppressed int) {
	l := line{key: key, text: maphash.String(r.seed, text)}
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.lines.get(l)
	if !ok {
		r.lines.add(l, &repeat{said: now}, false)
		return true, 0
	}
	if now.Sub(known.said) < RepeatInterval {
		known.suppressed++
		return false, 0
	}
	suppressed = known.suppressed
	*known = repeat{said: now}
	return true, suppressed
}

package resync

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/shrink"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Successes contains the time of the last success of each object that ran for another reason than a list or a resync.
// It keeps hashes instead of keys, about 26 B per object. Two keys with the same hash are resynced at the time of one
// of them, which is harmless.
type Successes struct {
	seed  maphash.Seed
	epoch time.Time

	mu      sync.Mutex
	at      map[uint64]uint32 // guarded by mu; ticks since epoch, enough for 8 years
	maxKeys int               // guarded by mu; see shrink.Delete
}

// tick is the resolution of the recorded times.
const tick = 64 * time.Millisecond

// NewSuccesses returns Successes without any key.
func NewSuccesses() *Successes {
	return &Successes{seed: maphash.MakeSeed(), epoch: time.Now(), at: map[uint64]uint32{}}
}

// Record records a success of key at now. scheduled is true if the run was only for a list or a resync: then a key that
// is not recorded yet keeps its fixed offset, and Record returns false.
func (s *Successes) Record(key kube.Key, now time.Time, scheduled bool) (recorded bool) {
	hash := maphash.Comparable(s.seed, key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, found := s.at[hash]; !found && scheduled {
		return false
	}
	s.at[hash] = uint32(now.Sub(s.epoch) / tick)
	return true
}

// Forget removes key, because its object was deleted.
func (s *Successes) Forget(key kube.Key) {
	hash := maphash.Comparable(s.seed, key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = shrink.Delete(s.at, hash, &s.maxKeys)
}

// Len returns the number of recorded keys.
func (s *Successes) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.at)
}

func (s *Successes) last(key kube.Key) (at time.Time, found bool) {
	hash := maphash.Comparable(s.seed, key)
	s.mu.Lock()
	defer s.mu.Unlock()
	ticks, found := s.at[hash]
	return s.epoch.Add(time.Duration(ticks) * tick), found
}

package controller

import (
	"context"
	"hash/maphash"
	"sync"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
)

const (
	// walkShares is in how many shares the objects are walked.
	walkShares = 256
	// resyncStep is the least time between two shares of a resync: short intervals have fewer.
	resyncStep = 20 * time.Millisecond
)

// looks is how often each object is looked at in a resync interval: one that ran of late is run
// again when the interval since its last success has passed, or a quarter of it later at the most.
const looks = 8

// resync enqueues every object once per interval, a share of them at a time, until ctx ends.
//
// It walks the informer instead of keeping a timer per object: objects at rest cost nothing.
// Each of those has its moment in the interval. What has been run for another reason than a
// list or a resync is resynced an interval after its last success (see successes).
func (l *loop[T]) resync(ctx context.Context) {
	interval := l.config.ResyncInterval
	if interval < 0 {
		return
	}
	shares := int(max(1, min(walkShares, interval/resyncStep)))
	step, order := max(shares/looks, 1), shareOrder(shares)
	began := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ; ; began = began.Add(interval) {
		// What was missed, because the process was stopped or a walk takes longer than the
		// interval, is not made up for.
		if now := time.Now(); now.Sub(began) > interval {
			began = now
		}
		for share := range shares {
			timer.Reset(time.Until(began.Add(resyncMoment(interval, share, shares))))
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			l.resyncShare(order[share], shares, true)
			for other := share + step; other < share+shares && step < shares; other += step {
				l.resyncShare(order[other%shares], shares, false)
			}
		}
	}
}

// shareOrder returns the order in which shares have their turns. Shares that follow each other have
// turns that are far apart: where there are fewer objects than shares, each is alone in one of the
// first shares, and their resyncs must be spread over the interval all the same.
func shareOrder(shares int) []int {
	stride := max(shares*618/1000, 1) // the golden ratio: any number of first shares is spread evenly
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

// resyncShare enqueues those objects of a share that are due: those that ran of late when that
// is an interval ago, and all others if their moment has come.
func (l *loop[T]) resyncShare(share, shares int, moment bool) {
	if !moment && l.successes.none() {
		return
	}
	now := time.Now()
	for c := range l.informer.Listed(share, shares) {
		due := moment
		if at, recent := l.successes.of(c.Key); recent {
			due = now.Sub(at) >= l.config.ResyncInterval
		}
		if due && l.matters(c) && l.failures.resyncs(c) {
			l.again(c.Key, Cause{Type: CauseResync}, queueOptions{Priority: workqueue.PriorityLow})
		}
	}
}

// resyncMoment is when a share's turn is, from the beginning of an interval: in the last nine
// tenths of it, so that the first resync does not follow the first pass at once.
func resyncMoment(interval time.Duration, share, shares int) time.Duration {
	spread := interval / 10 * 9
	return interval - spread + time.Duration(float64(spread)*float64(share+1)/float64(shares))
}

// successes are the moments of the last success of objects that have been run for another
// reason than a list or a resync. It keeps hashes instead of keys, about 26 B for an object: two
// keys of one hash would be resynced at the moment of one of them, which does no harm.
type successes struct {
	seed  maphash.Seed
	epoch time.Time

	mu   sync.Mutex
	at   map[uint64]uint32 // guarded by mu; milliseconds/64 since epoch, which lasts for 8 years
	most int               // guarded by mu; see deleted
}

const successTick = 64 * time.Millisecond

func newSuccesses() successes {
	return successes{seed: maphash.MakeSeed(), epoch: time.Now(), at: map[uint64]uint32{}}
}

// note notes a success of key at a moment. It returns false when there was nothing to note.
func (s *successes) note(key kube.Key, causes Causes, now time.Time) bool {
	hash := maphash.Comparable(s.seed, key)
	ordinary := causes.only(CauseListed, CauseResync)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, recent := s.at[hash]; !recent && ordinary {
		return false
	}
	s.at[hash] = uint32(now.Sub(s.epoch) / successTick)
	return true
}

func (s *successes) of(key kube.Key) (at time.Time, recent bool) {
	hash := maphash.Comparable(s.seed, key)
	s.mu.Lock()
	defer s.mu.Unlock()
	ticks, recent := s.at[hash]
	return s.epoch.Add(time.Duration(ticks) * successTick), recent
}

func (s *successes) none() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.at) == 0
}

func (s *successes) forget(key kube.Key) {
	hash := maphash.Comparable(s.seed, key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = deleted(s.at, hash, &s.most)
}

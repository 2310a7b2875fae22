package controller

import (
	"context"
	"hash/maphash"
	"sync"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/shrink"
	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
)

const (
	// walkShares is the number of shares in which the objects are walked.
	walkShares = 256
	// resyncStep is the minimum time between two shares of a resync: short intervals have fewer shares.
	resyncStep = 20 * time.Millisecond
)

// looks is how often each object is checked per resync interval. An object that ran recently is resynced when the
// interval since its last success has passed, or at most a quarter of an interval later.
const looks = 8

// resync enqueues every object once per interval, one share at a time, until ctx ends.
//
// It walks the informer and keeps no timer per object, so idle objects cost nothing. Each idle object has a fixed
// offset in the interval. An object that ran for another reason than a list or a resync is resynced one interval
// after its last success (see successes).
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
		// An interval that was missed is not made up for: the process was stopped, or a walk takes longer than the
		// interval.
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

// shareOrder returns the order in which the shares are walked. Neighbouring shares are walked far apart in time: with
// fewer objects than shares, each object is alone in one of the first shares, and the resyncs must still be spread
// over the interval.
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

// resyncShare enqueues the objects of a share that are due: an object that ran recently if its last success was at
// least an interval ago, and every other object if moment is true.
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
		if due && matters(l.config.Predicate, c) && l.failures.resyncs(c) {
			l.enqueuer.addOwn(c.Key, Cause{Type: CauseResync}, queueOptions{Priority: workqueue.PriorityLow})
		}
	}
}

// resyncMoment returns when a share is walked, from the start of an interval. It is in the last nine tenths of the
// interval, so that the first resync does not follow the first pass immediately.
func resyncMoment(interval time.Duration, share, shares int) time.Duration {
	spread := interval / 10 * 9
	return interval - spread + time.Duration(float64(spread)*float64(share+1)/float64(shares))
}

// successes contains the time of the last success of each object that ran for another reason than a list or a resync.
// It keeps hashes instead of keys, about 26 B per object. Two keys with the same hash are resynced at the time of one
// of them, which is harmless.
type successes struct {
	seed  maphash.Seed
	epoch time.Time

	mu   sync.Mutex
	at   map[uint64]uint32 // guarded by mu; milliseconds/64 since epoch, enough for 8 years
	most int               // guarded by mu; see deleted
}

const successTick = 64 * time.Millisecond

func newSuccesses() successes {
	return successes{seed: maphash.MakeSeed(), epoch: time.Now(), at: map[uint64]uint32{}}
}

// note records a success of key at now. It returns false if there was nothing to record.
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
	s.at = shrink.Delete(s.at, hash, &s.most)
}

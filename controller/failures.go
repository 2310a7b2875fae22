package controller

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/shrink"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// A key is reported as failing (ProblemFailing) after both failingAttempts and failingTime.
const (
	failingAttempts = 10
	failingTime     = 10 * time.Minute
)

// meaningful are the parts of an object whose change may have removed the reason of a failure.
const meaningful = kube.ChangedAnything &^ (kube.ChangedStatus | kube.ChangedResourceVersion)

// endsBackoffByDefault is the default of Config.Queue.EndBackoffIf. It reports whether cause may have removed the
// reason of a failure.
func endsBackoffByDefault(cause Cause) bool {
	if cause.Object == (kube.Key{}) && cause.Kind.Empty() && cause.Source != SourceLoop {
		return true // not the change of an object
	}
	switch cause.Type {
	case CauseTriggered, CauseTimer:
		return true
	case CauseUpdated:
		return cause.Source == SourceSelf && cause.Changed.Has(meaningful)
	}
	return cause.Source == SourceSelf
}

// mayHelp reports whether cause is a change of another object that may have removed the reason of a failure: a handler
// often fails because an object is missing. Such a cause brings the next run forward once in each backoff.
func mayHelp(cause Cause) bool {
	cause = cause.compared()
	switch {
	case cause.Source == SourceSelf, cause.Source == SourceLoop:
		return false
	case cause.Type == CauseUpdated:
		return cause.Changed.Has(kube.ChangedSpec)
	}
	return cause.Type == CauseAdded || cause.Type == CauseDeleted
}

// orOtherObject returns configured, extended by two conditions: it also ends a backoff if the object is deleted, or if
// another object of the same name, which has not failed yet, is created.
func orOtherObject(configured func(Cause) bool) func(Cause) bool {
	return func(cause Cause) bool {
		cause = cause.compared()
		if cause.Source == SourceSelf {
			switch cause.Type {
			case CauseAdded, CauseDeleted:
				return true
			case CauseUpdated:
				if cause.Changed.Has(kube.ChangedUID) {
					return true
				}
			}
		}
		return configured(cause)
	}
}

// maxClasses is the maximum number of error classes that are counted per key.
const maxClasses = 32

// failures contains the keys whose last run failed. It reports those that fail for a long time and those that were
// given up.
type failures struct {
	observers observerList

	mu      sync.Mutex
	keys    map[kube.Key]*failing // guarded by mu
	maxKeys int                   // guarded by mu; see shrink.Delete
	n       atomic.Int64          // number of keys; most events and runs need only this
}

// any reports whether the last run of any key failed.
func (f *failures) any() bool { return f.n.Load() > 0 }

// failing is the record of a key whose last run failed.
type failing struct {
	since       time.Time // time of the first consecutive failure
	consecutive int       // consecutive failures of all classes
	class       retry.Class
	ofClass     int // failures of class; those of other classes may lie between
	err         string
	stack       bool // the stack of a panic was logged

	// counts contains the number of consecutive failures of each class. A failure of another class does not reset it:
	// otherwise alternating classes would never back off.
	counts map[retry.Class]int // must not be read from copies

	// backoff is the end of the current backoff. broughtForward is true if a cause has ended it before: then the key
	// waits for the rest of it after another failure, which does not count as a retry. So children that a failing run
	// creates, and objects that change all the time, do not make a loop.
	backoff        time.Time
	broughtForward bool

	stalled  bool // given up after the last retry, and reported as ProblemStalled
	reported bool // reported as ProblemFailing
	// uid identifies the object that failed: another object of the same name starts with no failures. Empty: the runs
	// found no object.
	uid types.UID
	// terminal is true if the key was given up until its object changes. generation is the generation that failed.
	terminal   bool
	generation int64
}

// exists reports whether f is the record of a key, and not the zero value.
func (f *failing) exists() bool { return !f.since.IsZero() }

// of returns a copy of key's record, or the zero value if its last run has not failed.
func (f *failures) of(key kube.Key) failing {
	if !f.any() {
		return failing{}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if known := f.keys[key]; known != nil {
		return *known
	}
	return failing{}
}

// failed counts a failure of the object uid, and calls note to add to the record. It returns a copy of the record.
func (f *failures) failed(
	key kube.Key, uid types.UID, class retry.Class, err error, now time.Time, note func(*failing),
) failing {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.keys[key]
	if known == nil || known.uid != uid {
		if known == nil {
			f.n.Add(1)
		}
		known = &failing{since: now, uid: uid, counts: map[retry.Class]int{}}
		f.keys[key] = known
	}
	if len(known.counts) == maxClasses {
		clear(known.counts) // too many classes: errors should have few
	}
	if !known.inBackoff(now) {
		known.broughtForward, known.backoff = false, time.Time{}
		known.consecutive++
		known.counts[class]++
	}
	known.class, known.ofClass = class, max(known.counts[class], 1)
	known.err = err.Error()
	known.terminal = false
	note(known)
	return *known
}

// inBackoff reports whether the last run was brought forward, and the backoff before it has not ended.
func (f *failing) inBackoff(now time.Time) bool { return f.broughtForward && now.Before(f.backoff) }

// backOff records the backoff of a key. It returns a function that reports whether a cause ends it now: endBackoffIf,
// or if mayHelp is not nil, the first cause for which that is true.
func (f *failures) backOff(
	key kube.Key, until time.Time, endBackoffIf, mayHelp func(Cause) bool,
) (endsNow func(Cause) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known := f.keys[key]; known != nil {
		known.backoff = until
	}
	return f.endBackoffIf(key, endBackoffIf, mayHelp)
}

// endBackoffIf returns a function that reports whether a cause ends the present backoff of key. The queue calls it with
// its lock held.
func (f *failures) endBackoffIf(key kube.Key, endBackoffIf, mayHelp func(Cause) bool) func(Cause) bool {
	if mayHelp == nil {
		return endBackoffIf
	}
	return func(cause Cause) bool { return endBackoffIf(cause) || mayHelp(cause) && f.bringForward(key) }
}

// bringForward records that the next run of key is brought forward. It returns false if that was done before in the
// present backoff.
func (f *failures) bringForward(key kube.Key) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.keys[key]
	if known == nil || known.broughtForward {
		return false
	}
	known.broughtForward = true
	return true
}

// giveUp records that a key has no retries left, and reports it. The next failure starts a new retry budget. It returns
// false if the key was given up before, without a success since then.
func (f *failures) giveUp(ctx context.Context, key kube.Key) (isNew bool) {
	f.mu.Lock()
	known := f.keys[key]
	if known == nil {
		f.mu.Unlock()
		return false
	}
	before := *known
	known.stalled, known.consecutive, known.ofClass, known.broughtForward = true, 0, 0, false
	clear(known.counts)
	f.mu.Unlock()
	if before.stalled {
		return false
	}
	stalled := Problem{
		Type: ProblemStalled, Key: key, Since: before.since,
		Message: fmt.Sprintf("retries exhausted after %s, until something changes or the object is resynced: %s",
			counted(before.consecutive, "attempt"), before.err),
	}
	f.observers.each(func(o observer) { o.keepsFailing(ctx, stalled, true) })
	return true
}

// markTerminal records that key is given up until its object, now at generation, changes.
func (f *failures) markTerminal(key kube.Key, generation int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known := f.keys[key]; known != nil {
		known.terminal, known.generation, known.broughtForward = true, generation, false
	}
}

// reportFailing reports a key that has failed often and for a long time. It reports it once.
func (f *failures) reportFailing(ctx context.Context, key kube.Key) {
	f.mu.Lock()
	known := f.keys[key]
	if known == nil || known.reported || known.consecutive < failingAttempts || time.Since(known.since) < failingTime {
		f.mu.Unlock()
		return
	}
	known.reported = true
	failing := Problem{
		Type: ProblemFailing, Key: key, Since: known.since,
		Message: fmt.Sprintf("has failed %s in a row, for %s, the last time with: %s",
			counted(known.consecutive, "time"), rounded(time.Since(known.since)), known.err),
	}
	f.mu.Unlock()
	f.observers.each(func(o observer) { o.keepsFailing(ctx, failing, false) })
}

// forget removes key, because its run has not failed or its object is gone. It returns the removed record.
func (f *failures) forget(key kube.Key) failing {
	f.observers.each(func(o observer) { o.failuresEnded(key) })
	if !f.any() {
		return failing{}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.keys[key]
	if known == nil {
		return failing{}
	}
	f.keys = shrink.Delete(f.keys, key, &f.maxKeys)
	f.n.Add(-1)
	return *known
}

// givenUp returns the keys that wait for no retry: after a terminal error, or after their last retry.
func (f *failures) givenUp() (keys []kube.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, known := range f.keys {
		if known.terminal || known.stalled && known.consecutive == 0 {
			keys = append(keys, key)
		}
	}
	return keys
}

// resyncs reports whether a resync may run a listed object. It must not if the key waits for a retry, which has its own
// schedule, or if only a change can fix it. It may if the key was given up after its last retry.
func (f *failures) resyncs(c informer.Change) bool {
	known := f.of(c.Key)
	if known.consecutive == 0 && !known.terminal {
		return true
	}
	obj, err := cache.Of(c).New()
	return err == nil && obj != nil && obj.UID != known.uid // the failed object was an earlier one of the same name
}

// objectEnded reports whether c is the end of the object with which key failed.
func (f *failures) objectEnded(c informer.Change) bool {
	known := f.of(c.Key)
	if !known.exists() {
		return false
	}
	old, err := cache.Of(c).Old()
	return err == nil && old != nil && old.UID == known.uid
}

// ignores reports whether a change does not run a key that was given up until its object changes: the generation, which
// the API server increments when the desired state changes, is the same. Kinds without generations have generation 0:
// then every change runs the key.
func (f *failures) ignores(c informer.Change) bool {
	known := f.of(c.Key)
	if !known.terminal || known.generation == 0 || c.Type == informer.Deleted {
		return false
	}
	obj, err := cache.Of(c).New()
	return err == nil && obj != nil && obj.UID == known.uid && obj.Generation == known.generation
}

// figures returns the number of failing keys, and the start of the longest failure.
func (f *failures) figures() (failing int, oldest time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, known := range f.keys {
		if oldest.IsZero() || known.since.Before(oldest) {
			oldest = known.since
		}
	}
	return len(f.keys), oldest
}

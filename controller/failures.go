package controller

import (
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// When a key that keeps failing is called failing (ProblemFailing): after both.
const (
	failingAttempts = 10
	failingTime     = 10 * time.Minute
)

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
		const meaningful = kube.ChangedAnything &^ (kube.ChangedStatus | kube.ChangedResourceVersion)
		return cause.Source == SourceSelf && cause.Changed.Has(meaningful)
	}
	return cause.Source == SourceSelf
}

// orOtherObject returns a condition that ends a backoff also when the object is deleted, or another one of the same
// name is created, which has not failed yet.
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

// maxClasses is how many classes of errors are counted of one key.
const maxClasses = 32

// failures remembers the keys whose last run has failed.
type failures struct {
	mu   sync.Mutex
	keys map[kube.Key]*failing // guarded by mu
	most int                   // guarded by mu; see deleted
	n    atomic.Int64          // how many keys there are: most events and runs need to know no more
}

// some reports whether any key has failed at its last run.
func (f *failures) some() bool { return f.n.Load() > 0 }

// failing is what is remembered of a key whose last run has failed.
type failing struct {
	since   time.Time // of the first failure in a row
	inARow  int       // of all classes
	class   retry.Class
	ofClass int // of the class of the last one; others may have come in between
	err     string
	stack   bool // the stack of a panic was logged

	// counts are how many failures in a row are of each class. A class counts on when others
	// come in between: by turns they would never back off.
	counts map[retry.Class]int // not to be read from copies

	stalled  bool // it was given up after the last retry
	reported bool // as failing for long
	// uid is the object that failed: another one of the same name begins anew. Empty: the runs
	// found no object.
	uid types.UID
	// terminal is true when it was given up until its object changes, which was in generation.
	terminal   bool
	generation int64
}

// of returns a copy of what is known of key; zero when it has not failed.
func (f *failures) of(key kube.Key) failing {
	if !f.some() {
		return failing{}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if known := f.keys[key]; known != nil {
		return *known
	}
	return failing{}
}

// failed counts a failure of the object uid, and lets note say more of it. It returns what is known
// then.
func (f *failures) failed(key kube.Key, uid types.UID, class retry.Class, err error, now time.Time, note func(*failing)) failing {
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
		clear(known.counts) // classes are to be few: these are not
	}
	known.inARow++
	known.counts[class]++
	known.class, known.ofClass = class, known.counts[class]
	known.err = err.Error()
	known.terminal = false
	note(known)
	return *known
}

// gaveUp notes that a key has no retries left: what follows begins a new budget. It returns
// false when it had been given up before without a success since.
func (f *failures) gaveUp(key kube.Key) (news bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.keys[key]
	if known == nil {
		return false
	}
	news = !known.stalled
	known.stalled, known.inARow, known.ofClass = true, 0, 0
	clear(known.counts)
	return news
}

// forGood notes that key is given up until its object, which is in generation, changes.
func (f *failures) forGood(key kube.Key, generation int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known := f.keys[key]; known != nil {
		known.terminal, known.generation = true, generation
	}
}

// reported notes that key has been reported as failing for long.
func (f *failures) reported(key kube.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known := f.keys[key]; known != nil {
		known.reported = true
	}
}

// forget drops key, whose run has not failed, or has no object any more. It returns what was
// known.
func (f *failures) forget(key kube.Key) failing {
	if !f.some() {
		return failing{}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.keys[key]
	if known == nil {
		return failing{}
	}
	f.keys = deleted(f.keys, key, &f.most)
	f.n.Add(-1)
	return *known
}

// resyncs reports whether a resync may run a listed object: not while it waits for its retry, which
// has its own times, nor when only a change can mend it. One that was given up it may.
func (f *failures) resyncs(c informer.Change) bool {
	if !f.some() {
		return true
	}
	f.mu.Lock()
	known := f.keys[c.Key]
	may := known == nil || known.stalled && known.inARow == 0 && !known.terminal
	var uid types.UID
	if !may {
		uid = known.uid
	}
	f.mu.Unlock()
	if may {
		return true
	}
	obj, err := c.States().New()
	return err == nil && obj != nil && obj.UID != uid // an earlier object of the name has failed
}

// objectEnded reports whether key is known to have failed with the object whose end c is.
func (f *failures) objectEnded(c informer.Change) bool {
	if !f.some() {
		return false
	}
	f.mu.Lock()
	known := f.keys[c.Key]
	var uid types.UID
	if known != nil {
		uid = known.uid
	}
	f.mu.Unlock()
	if known == nil {
		return false
	}
	old, err := c.States().Old()
	return err == nil && old != nil && old.UID == uid
}

// ignores reports whether a change of a key's object is none to a key that has failed for good:
// the generation, by which the API server counts the states that are wanted, is the same. Kinds
// that count none have generation 0: each change counts.
func (f *failures) ignores(c informer.Change) bool {
	if !f.some() {
		return false
	}
	f.mu.Lock()
	known := f.keys[c.Key]
	ignores := known != nil && known.terminal && known.generation != 0
	var uid types.UID
	var generation int64
	if ignores {
		uid, generation = known.uid, known.generation
	}
	f.mu.Unlock()
	if !ignores || c.Type == informer.Deleted {
		return false
	}
	obj, err := c.States().New()
	return err == nil && obj != nil && obj.UID == uid && obj.Generation == generation
}

// figures are how many keys fail now, and since when the one that has failed for longest.
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

package ownwrites

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/shrink"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Tracker contains the writes of each key's last run that informers do not show yet.
//
// Lock order: an informer's events, then mu. Run.End takes the first, so it must be called without the other.
type Tracker struct {
	// Immutable.
	config    Config
	responses cache.Responses

	tracked atomic.Int64 // number of keys in keys; most events need only this
	mu      sync.Mutex
	keys    map[kube.Key]*unseen // guarded by mu
	maxKeys int                  // guarded by mu; see shrink.Delete
}

// MaxTimeouts is the number of Config.Timeouts for which a key is held at most, if an informer reports that it is
// behind.
const MaxTimeouts = 30

// Config configures a Tracker.
type Config struct {
	// Timeout is how long a key is held for its own writes. If it is negative, writes are not tracked.
	Timeout time.Duration
	// Release lets a key run for which Hold has returned a time.
	Release func(key kube.Key)
	// Informers returns the informers of a kind that the controller runs.
	Informers func(kind schema.GroupKind) []cache.Informer
}

// New returns a Tracker without any writes.
func New(config Config) *Tracker {
	return &Tracker{config: config, responses: cache.NewResponses(), keys: map[kube.Key]*unseen{}}
}

// unseen contains the writes of a key's last run that informers do not show yet.
type unseen struct {
	writes    []*unseenWrite
	running   bool      // the run that writes has not ended
	deadline  time.Time // end of the key's wait; set when the run has ended
	limit     time.Time // of extended deadlines; set when the run has ended
	held      bool      // Hold has returned a time
	isOverdue bool      // the deadline has passed once
}

type unseenWrite struct {
	ownWrite
	by      []cache.Informer // informers that must show it
	waiting int              // number of them that do not show it yet
	cancel  []func()
}

// record records a write of a run, and lets removeCauses remove the causes whose events are echoes of it. It returns
// false if the run has ended: then nothing waits for the write.
func (t *Tracker) record(r *Run, w ownWrite, removeCauses func(isEcho func(Event) bool)) bool {
	if t.config.Timeout < 0 {
		return true
	}
	by := t.config.Informers(w.kind)
	t.mu.Lock()
	defer t.mu.Unlock()
	// ended must be read with the lock: the code after a run relies on everything that was added for the key during the
	// run.
	if r.ended.Load() {
		return false
	}
	if len(by) > 0 {
		u := t.keys[r.Key]
		if u == nil {
			u = &unseen{}
			t.keys[r.Key] = u
			t.tracked.Add(1)
		}
		u.running = true
		u.writes = append(u.writes, &unseenWrite{ownWrite: w, by: by, waiting: len(by)})
	}
	if removeCauses != nil {
		removeCauses(w.isEcho)
	}
	return true
}

// IsEcho reports whether an event contains exactly a write of the last run of key.
func (t *Tracker) IsEcho(key kube.Key, e Event) bool {
	if t.tracked.Load() == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.keys[key]
	return u != nil && slices.ContainsFunc(u.writes, func(w *unseenWrite) bool { return w.isEcho(e) })
}

// lastWritten returns the latest state of an object of a kind and an API server that the current run of key wrote, or
// nil.
func (t *Tracker) lastWritten(
	key kube.Key, server string, kind schema.GroupVersionKind, object kube.Key,
) (last *State) {
	if t.tracked.Load() == 0 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if u := t.keys[key]; u != nil {
		for _, w := range u.writes {
			switch {
			case w.kind != kind.GroupKind() || w.Key != object || w.Server != server:
			case w.Object == nil: // a deletion
				last = nil
			default:
				last = &State{w.Object, w.whole == kind}
			}
		}
	}
	return last
}

// writesOf returns copies of the writes that r has recorded so far. It returns false if r has ended.
func (t *Tracker) writesOf(r *Run) (writes []unseenWrite, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.ended.Load() {
		return nil, false
	}
	if u := t.keys[r.Key]; u != nil && u.running {
		for _, w := range u.writes {
			writes = append(writes, *w)
		}
	}
	return writes, true
}

// end ends a run, and starts the wait for its writes.
func (t *Tracker) end(r *Run) {
	t.mu.Lock()
	r.ended.Store(true)
	u := t.keys[r.Key]
	if u == nil || !u.running {
		t.mu.Unlock()
		return
	}
	now := time.Now()
	u.running, u.deadline, u.limit = false, now.Add(t.config.Timeout), now.Add(MaxTimeouts*t.config.Timeout)
	writes := slices.Clone(u.writes)
	t.mu.Unlock()
	for _, w := range writes {
		var cancels []func()
		for _, informer := range w.by {
			cancels = append(cancels, informer.Await(w.Write, func() { t.shown(r.Key, u, w) }))
		}
		t.mu.Lock()
		w.cancel = cancels
		w.Object = nil // only the run needed it, and it holds the body of a response
		t.mu.Unlock()
	}
}

// shown records that one more informer shows w. It releases the key after the last one.
func (t *Tracker) shown(key kube.Key, u *unseen, w *unseenWrite) {
	t.mu.Lock()
	w.waiting--
	if w.waiting > 0 || t.keys[key] != u {
		t.mu.Unlock()
		return
	}
	u.writes = slices.DeleteFunc(u.writes, func(other *unseenWrite) bool { return other == w })
	all := len(u.writes) == 0
	held := u.held
	if all {
		t.forget(key)
	}
	t.mu.Unlock()
	if all && held {
		t.config.Release(key)
	}
}

// forget removes the record of key. mu must be held.
func (t *Tracker) forget(key kube.Key) {
	if _, known := t.keys[key]; known {
		t.keys = shrink.Delete(t.keys, key, &t.maxKeys)
		t.tracked.Add(-1)
	}
}

// Hold returns for how long key, which a worker has just taken, must wait at most until informers show the writes of
// its last run. 0: it may run. If they show them earlier, Config.Release is called. overdue describes the writes whose
// deadline has just passed.
func (t *Tracker) Hold(key kube.Key) (atMost time.Duration, overdue []string) {
	if t.tracked.Load() == 0 {
		return 0, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if u := t.keys[key]; u != nil {
		if atMost = time.Until(u.deadline); atMost <= 0 {
			atMost, overdue = t.overdue(key, u)
		}
		u.held = atMost > 0
	}
	return atMost, overdue
}

// overdue determines what follows when the deadline of key has passed: it gives the writes up, or extends the deadline
// if an informer reports that it is behind, because until it has caught up each run would use stale data. It is called
// with mu held, and unlocks it meanwhile.
func (t *Tracker) overdue(key kube.Key, u *unseen) (atMost time.Duration, writes []string) {
	if !u.isOverdue {
		u.isOverdue, writes = true, u.texts()
	}
	left := slices.Clone(u.writes)
	t.mu.Unlock()
	failing := slices.ContainsFunc(left, (*unseenWrite).isDelayed) // without mu: it calls informers
	t.mu.Lock()
	if t.keys[key] != u {
		return 0, nil // informers show all writes by now
	}
	if now := time.Now(); failing && now.Before(u.limit) {
		u.deadline = now.Add(t.config.Timeout)
		return t.config.Timeout, writes
	}
	t.forget(key)
	cancels := u.cancels()
	t.mu.Unlock()
	for _, cancel := range cancels {
		cancel()
	}
	t.mu.Lock()
	return 0, writes
}

// isDelayed reports whether an informer that must show w reports that it cannot.
func (w *unseenWrite) isDelayed() bool {
	return slices.ContainsFunc(w.by, func(i cache.Informer) bool { return i.ReadyFor(w.Write) != nil })
}

// Unseen describes the writes of key's last run that informers do not show yet.
func (t *Tracker) Unseen(key kube.Key) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if u := t.keys[key]; u != nil {
		return u.texts()
	}
	return nil
}

// Stop cancels the requests to informers after the controller has ended.
func (t *Tracker) Stop() {
	t.mu.Lock()
	var cancels []func()
	for key, u := range t.keys {
		cancels = append(cancels, u.cancels()...)
		t.forget(key)
	}
	t.mu.Unlock()
	for _, cancel := range cancels {
		cancel()
	}
}

// texts describes the writes. Tracker.mu must be held.
func (u *unseen) texts() []string {
	texts := make([]string, len(u.writes))
	for i, w := range u.writes {
		texts[i] = w.String()
	}
	return texts
}

// cancels returns the functions that cancel the requests to informers. Tracker.mu must be held, but the functions must
// be called without it.
func (u *unseen) cancels() []func() {
	var all []func()
	for _, w := range u.writes {
		all = append(all, w.cancel...)
	}
	return all
}

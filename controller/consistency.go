package controller

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/kube"
)

// consistency remembers what the runs of each key wrote, until the informers show it. It is
// why a handler sees its own writes, and why those do not make it run again.
//
// A write is remembered when its answer comes, before the client returns it. When the run has
// ended, the informers of the written kind are asked to say when they show it (Await); the
// last answer forgets it, so that nothing is kept of keys at rest. A key that is to run before
// is given back to the queue (workqueue.Hold), which no worker waits for.
//
// Lock order: an informer's events, then mu, then the queue's. So Await, which takes the
// first, is called without the others.
type consistency struct {
	// Immutable.
	timeout time.Duration // negative: off
	queue   *queue
	watched func(kind schema.GroupKind) []cache.Informer

	any  atomic.Int64 // how many keys are in unseen: most events need to know no more
	mu   sync.Mutex
	keys map[kube.Key]*unseen // guarded by mu
	most int                  // guarded by mu; see deleted
}

// unseen is what the last run of a key wrote, as far as it has not been seen.
type unseen struct {
	writes   []*unseenWrite
	running  bool      // the run that writes has not ended
	deadline time.Time // until when the key waits; set when the run has ended
	held     bool      // the queue holds the key
	late     bool      // the deadline has passed once
}

type unseenWrite struct {
	ownWrite
	by      []cache.Informer // who is to show it
	waiting int              // how many of them have not yet
	cancel  []func()
}

// wrote remembers a write of a run that has not ended. With forgive it also takes back that the
// key was enqueued because of it: the informer may have been faster than the answer. It returns
// what was taken back, and false when the run has ended: nobody will wait for the write.
func (c *consistency) wrote(r *running, w ownWrite, forgive bool) (echo Cause, forgiven, noted bool) {
	if c.timeout < 0 {
		return echo, false, true
	}
	key, by := r.run.Key, c.watched(w.kind)
	c.mu.Lock()
	defer c.mu.Unlock()
	// With the lock, because what follows a run relies on what has been added for the key
	// while it went on.
	if r.finished.Load() {
		return echo, false, false
	}
	if len(by) > 0 {
		u := c.keys[key]
		if u == nil {
			u = &unseen{}
			c.keys[key] = u
			c.any.Add(1)
		}
		u.running = true
		u.writes = append(u.writes, &unseenWrite{ownWrite: w, by: by, waiting: len(by)})
	}
	if forgive {
		forgiven = c.queue.RemoveCauses(key, func(cause Cause) bool {
			if cause.Count > 1 || !w.isBehind(&cause) { // a repeated cause stands for other changes too
				return false
			}
			echo = cause
			return true
		}) > 0
	}
	return echo, forgiven, true
}

// isEcho reports whether a change is exactly what the last run of key wrote; see ownWrite.
func (c *consistency) isEcho(key kube.Key, cause *Cause) bool {
	if c.any.Load() == 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.keys[key]
	return u != nil && slices.ContainsFunc(u.writes, func(w *unseenWrite) bool { return w.isBehind(cause) })
}

// last returns the latest state that the present run of key has given an object of a kind, or nil.
func (c *consistency) last(key kube.Key, kind schema.GroupVersionKind, object kube.Key) (last *before) {
	if c.any.Load() == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if u := c.keys[key]; u != nil {
		for _, w := range u.writes {
			switch {
			case w.kind != kind.GroupKind() || w.Key != object:
			case w.Object == nil: // a deletion
				last = nil
			default:
				last = &before{w.Object, w.whole == kind}
			}
		}
	}
	return last
}

// ended ends a run, and begins the wait for what it wrote.
func (c *consistency) ended(r *running) {
	key := r.run.Key
	c.mu.Lock()
	r.finished.Store(true)
	u := c.keys[key]
	if u == nil || !u.running {
		c.mu.Unlock()
		return
	}
	u.running, u.deadline = false, time.Now().Add(c.timeout)
	writes := slices.Clone(u.writes)
	c.mu.Unlock()
	for _, w := range writes {
		for _, informer := range w.by {
			cancel := informer.Await(w.Write, func() { c.seen(key, u, w) })
			c.mu.Lock()
			w.cancel = append(w.cancel, cancel)
			c.mu.Unlock()
		}
		// It was for the run, which has ended, and holds the body of an answer.
		c.mu.Lock()
		w.Object = nil
		c.mu.Unlock()
	}
}

// seen notes that one more informer shows w.
func (c *consistency) seen(key kube.Key, u *unseen, w *unseenWrite) {
	c.mu.Lock()
	w.waiting--
	if w.waiting > 0 || c.keys[key] != u {
		c.mu.Unlock()
		return
	}
	u.writes = slices.DeleteFunc(u.writes, func(other *unseenWrite) bool { return other == w })
	all := len(u.writes) == 0
	held := u.held
	if all {
		c.forget(key)
	}
	c.mu.Unlock()
	if all && held {
		c.queue.Release(key)
	}
}

// forget drops what is known of key. It is called with mu held.
func (c *consistency) forget(key kube.Key) {
	if _, known := c.keys[key]; known {
		c.keys = deleted(c.keys, key, &c.most)
		c.any.Add(-1)
	}
}

// hold gives key, which has just been taken, back to the queue when its last run's writes are
// not seen yet and the time for that is not over. late are those for which it is over now.
func (c *consistency) hold(key kube.Key) (held bool, late []*unseenWrite) {
	if c.any.Load() == 0 {
		return false, nil
	}
	c.mu.Lock()
	u := c.keys[key]
	if u == nil {
		c.mu.Unlock()
		return false, nil
	}
	left := time.Until(u.deadline)
	if left <= 0 {
		if !u.late {
			u.late, late = true, slices.Clone(u.writes)
		}
		writes := slices.Clone(u.writes)
		c.mu.Unlock()
		failing := slices.ContainsFunc(writes, (*unseenWrite).isDelayed) // without mu: it calls informers
		c.mu.Lock()
		if c.keys[key] != u {
			c.mu.Unlock()
			return false, nil // all has been seen meanwhile
		}
		if failing {
			// The informer knows that it is behind, and says so: until it is not, each run would
			// be misled.
			left = c.timeout
			u.deadline = time.Now().Add(left)
		}
	}
	if left > 0 {
		u.held = true
		c.queue.Hold(key, left)
		c.mu.Unlock()
		return true, late
	}
	c.forget(key)
	cancels := u.cancels()
	c.mu.Unlock()
	for _, cancel := range cancels {
		cancel()
	}
	return false, late
}

// cancels makes the informers forget what they were asked. They are to be called without mu.
func (u *unseen) cancels() []func() {
	var all []func()
	for _, w := range u.writes {
		all = append(all, w.cancel...)
	}
	return all
}

// isDelayed reports whether an informer that is to show w says that it cannot.
func (w *unseenWrite) isDelayed() bool {
	return slices.ContainsFunc(w.by, func(i cache.Informer) bool { return i.ReadyFor(w.Write) != nil })
}

// unseenOf returns what the last run of key wrote and informers do not show yet.
func (c *consistency) unseenOf(key kube.Key) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.keys[key]
	if u == nil {
		return nil
	}
	var all []string
	for _, w := range u.writes {
		all = append(all, w.String())
	}
	return all
}

// String names a write for people.
func (w *unseenWrite) String() string {
	if w.Deleted {
		return "the deletion of " + w.kind.Kind + " " + w.Key.String()
	}
	return w.kind.Kind + " " + w.Key.String() + " at resource version " + w.ResourceVersion
}

// stop makes the informers forget what they were asked. The loop has ended.
func (c *consistency) stop() {
	c.mu.Lock()
	var cancels []func()
	for key, u := range c.keys {
		cancels = append(cancels, u.cancels()...)
		c.forget(key)
	}
	c.mu.Unlock()
	for _, cancel := range cancels {
		cancel()
	}
}

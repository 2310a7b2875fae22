package controller

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

// consistency records what the runs of each key wrote, until the informers show it. It ensures that a handler sees its
// own writes, and that these do not run the key again.
//
// A write is recorded when its response arrives, before the client returns it. After the run has ended, the informers
// of the written kind are asked to report when they show the write (Await). The last report removes the record, so that
// nothing is kept for idle keys. A key that is due earlier is given back to the queue (workqueue.Hold); no worker waits
// for it.
//
// Lock order: an informer's events, then mu, then the queue's lock. Await takes the first, so it must be called without
// the others.
type consistency struct {
	// Immutable.
	timeout time.Duration // negative: off
	queue   *queue
	watched func(kind schema.GroupKind) []cache.Informer

	any  atomic.Int64 // number of keys in keys; most events need only this
	mu   sync.Mutex
	keys map[kube.Key]*unseen // guarded by mu
	most int                  // guarded by mu; see deleted
}

// unseen contains the writes of a key's last run that informers do not show yet.
type unseen struct {
	writes   []*unseenWrite
	running  bool      // the run that writes has not ended
	deadline time.Time // end of the key's wait; set when the run has ended
	held     bool      // the queue holds the key
	late     bool      // the deadline has passed once
}

type unseenWrite struct {
	ownWrite
	by      []cache.Informer // informers that must show it
	waiting int              // number of them that do not show it yet
	cancel  []func()
}

// wrote records a write of a run that has not ended. With forgive, it also removes the cause that the write added to
// the queue, because the informer may have been faster than the response. It returns the removed cause. noted is false
// if the run has ended: then nothing waits for the write.
func (c *consistency) wrote(r *running, w ownWrite, forgive bool) (echo Cause, forgiven, noted bool) {
	if c.timeout < 0 {
		return echo, false, true
	}
	key, by := r.run.Key, c.watched(w.kind)
	c.mu.Lock()
	defer c.mu.Unlock()
	// finished must be read with the lock: the code after a run relies on everything that was added for the key during
	// the run.
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

// last returns the latest state of an object of a kind that the current run of key wrote, or nil.
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

// ended ends a run, and starts the wait for its writes.
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
		// Only the run needed the object, which holds the body of a response.
		c.mu.Lock()
		w.Object = nil
		c.mu.Unlock()
	}
}

// seen records that one more informer shows w.
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

// forget removes the record of key. mu must be held.
func (c *consistency) forget(key kube.Key) {
	if _, known := c.keys[key]; known {
		c.keys = shrink.Delete(c.keys, key, &c.most)
		c.any.Add(-1)
	}
}

// hold gives key, which was just taken, back to the queue if informers do not show the writes of its last run yet and
// the deadline has not passed. late contains the writes whose deadline has just passed.
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
			return false, nil // informers show all writes by now
		}
		if failing {
			// The informer reports that it is behind: until it has caught up, each run would use stale data.
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

// cancels returns the functions that cancel the requests to informers. They must be called without mu.
func (u *unseen) cancels() []func() {
	var all []func()
	for _, w := range u.writes {
		all = append(all, w.cancel...)
	}
	return all
}

// isDelayed reports whether an informer that must show w reports that it cannot.
func (w *unseenWrite) isDelayed() bool {
	return slices.ContainsFunc(w.by, func(i cache.Informer) bool { return i.ReadyFor(w.Write) != nil })
}

// unseenOf describes the writes of key's last run that informers do not show yet.
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

// String returns a description of the write for people.
func (w *unseenWrite) String() string {
	if w.Deleted {
		return "the deletion of " + w.kind.Kind + " " + w.Key.String()
	}
	return w.kind.Kind + " " + w.Key.String() + " at resource version " + w.ResourceVersion
}

// stop cancels the requests to informers after the loop has ended.
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

package controller

import (
	"slices"
	"time"

	"github.com/evenkeel-go/evenkeel/kube"
)

// RecentRuns returns the latest runs, latest first, those under way included: 256 at the most. They
// outlive terms of leadership, not the process.
func (c *Controller[T]) RecentRuns() []RunRecord { return c.history.all() }

// Problems returns the problems that last, oldest first, and what keeps sources and
// informers from doing their work.
func (c *Controller[T]) Problems() []Problem {
	all := c.problems.all()
	c.mu.Lock()
	l := c.loop
	c.mu.Unlock()
	if l == nil {
		return all
	}
	for _, err := range l.sources.notReady() {
		all = append(all, Problem{Type: ProblemSource, Message: err.Error()})
	}
	for _, read := range c.reads() {
		if h := read.Health(); h.Err != nil && !h.Degraded {
			problem := Problem{Type: ProblemInformer, Since: h.ErrSince, Message: h.Ready().Error()}
			if !slices.ContainsFunc(all, func(t Problem) bool { return t.Type == problem.Type && t.Message == problem.Message }) {
				all = append(all, problem) // once, however many sources share the informer
			}
		}
	}
	return all
}

// Queue returns at most limit of the keys that are queued, waiting or being handled, in no
// order.
func (c *Controller[T]) Queue(limit int) []QueueEntry {
	c.mu.Lock()
	l := c.loop
	c.mu.Unlock()
	if l == nil {
		return nil
	}
	entries := l.queue.Snapshot(limit)
	all := make([]QueueEntry, len(entries))
	for i := range entries {
		all[i] = queueEntry(entries[i])
	}
	return all
}

// Explanation says of one key why it ran, why it runs, or why it does not.
type Explanation struct {
	Key kube.Key
	// Phase is the controller's.
	Phase Phase
	// NotReady is what Controller.Ready says: a list that cannot be had, for instance. Empty: it
	// is ready.
	NotReady string
	// Exists is true when the informer has the object. Retrieves is what it retrieves.
	Exists    bool
	Retrieves string
	// Queued is the key's place in the queue. Nil: it is not in it.
	Queued *QueueEntry
	// Found is why the key is to be enqueued, at low priority, when there is room in the queue:
	// lists and polls have found it. Empty: it does not wait for that.
	Found Causes
	// Stats are the controller's figures: what else it has to do.
	Stats Stats
	// Failures is how many runs failed in a row, the last one with LastError, since
	// FailingSince. Terminal is true when nothing but a change of the object runs the key again.
	Failures     int
	FailingSince time.Time
	LastError    string
	Terminal     bool
	// Unseen is what the last run has written and informers do not show yet.
	Unseen []string
	// Runs are the latest runs of the key, latest first, one under way included. At most 4, of
	// the 256 keys that ran last.
	Runs []RunRecord
	// Skipped is what of late did not make it run, latest first: of the last 256 of all keys.
	Skipped []Skip
	// Problems are those of the key that last.
	Problems []Problem
}

// Explain says of a key why it ran, why it runs, or why it does not. It makes no request.
func (c *Controller[T]) Explain(key kube.Key) Explanation {
	e := Explanation{Key: key, Stats: c.Stats()}
	if err := c.Ready(); err != nil {
		e.NotReady = err.Error()
	}
	c.mu.Lock()
	l := c.loop
	e.Phase = c.phase
	c.mu.Unlock()
	e.Exists, e.Retrieves = c.informer.Has(key), c.informer.Health().Retrieves
	e.Runs, e.Skipped = c.history.of(key)
	for _, t := range c.problems.all() {
		if t.Key == key {
			e.Problems = append(e.Problems, t)
		}
	}
	if l == nil {
		return e
	}
	if found, ok := l.queue.Lookup(key); ok {
		entry := queueEntry(found)
		e.Queued = &entry
	}
	e.Found, _ = l.backlog.of(key)
	f := l.failures.of(key)
	e.Failures, e.FailingSince, e.LastError, e.Terminal = f.inARow, f.since, f.err, f.terminal
	e.Unseen = l.consistency.unseenOf(key)
	return e
}

package controller

import (
	"fmt"
	"slices"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/kube"
)

// RecentRuns returns the latest runs, latest first, including runs in progress: at most 256. They survive a change of
// leadership, but not a restart of the process.
func (c *Controller[T]) RecentRuns() []RunRecord { return c.history.all() }

// Problems returns the current problems, oldest first, and then the errors that prevent sources and informers from
// working.
func (c *Controller[T]) Problems() []Problem {
	all := c.problems.all()
	_, l := c.current()
	if l == nil {
		return all
	}
	for _, err := range l.sources.notReady() {
		all = append(all, Problem{Type: ProblemSource, Message: err.Error()})
	}
	for _, read := range c.reads() {
		if h := read.Health(); h.Err != nil {
			problem := Problem{
				Type: ProblemInformer, Since: h.ErrSince, Message: fmt.Sprintf("informer %q: %v", h.Informer, h.Err),
			}
			if !slices.ContainsFunc(all, func(t Problem) bool {
				return t.Type == problem.Type && t.Message == problem.Message
			}) {
				all = append(all, problem) // once, even if several sources share the informer
			}
		}
	}
	return all
}

// queued returns at most limit of the keys that are ready, delayed or processing, in no particular order.
func (c *Controller[T]) queued(limit int) []queueEntry {
	_, l := c.current()
	if l == nil {
		return nil
	}
	entries := l.queue.Snapshot(limit)
	all := make([]queueEntry, len(entries))
	for i := range entries {
		all[i] = queueEntryOf(entries[i])
	}
	return all
}

// explanation describes why a key ran, why it will run, or why it does not run.
type explanation struct {
	Key kube.Key
	// Phase is the controller's phase.
	Phase Phase
	// NotReady is the error of Controller.Ready, for example of a list that fails. Empty: the controller is ready.
	NotReady string
	// Exists is true if the informer has the object. Retrieves describes the objects that the informer retrieves. For
	// NoObject, Exists is true if a source lists the key, which then has resyncs, and Retrieves is empty.
	Exists    bool
	Retrieves string
	// Queued is the key's entry in the queue. Nil: the key is not in the queue.
	Queued *queueEntry
	// WaitingForRoom contains the causes of a key that lists and polls found and that waits for room in the queue, to
	// be enqueued at low priority. Empty: the key does not wait for room.
	WaitingForRoom Causes
	// Stats contains the controller's figures, such as the number of ready keys.
	Stats Stats
	// Failures is the number of consecutive failed runs since FailingSince; LastError is the error of the last one.
	// Terminal is true if only a change of the object runs the key again.
	Failures     int
	FailingSince time.Time
	LastError    string
	Terminal     bool
	// Unseen describes the writes of the last run that informers do not show yet.
	Unseen []string
	// Runs contains the latest runs of the key, latest first, including a run in progress: at most 4. Only the runs of
	// the 256 keys that ran last are kept.
	Runs []RunRecord
	// Skipped contains recent changes that did not run the key, latest first. Only the last 256 skips of all keys are
	// kept.
	Skipped []skip
	// Problems contains the current problems of the key.
	Problems []Problem
}

// Explain returns, as text for people, why a key ran, why it will run, or why it does not run: first the state of the
// key and what blocks it, then its runs, of which the last 4 are kept for the 256 keys that ran last, and the changes
// that did not run it, latest first. Debug returns the same for encoding/json. Explain makes no request.
func (c *Controller[T]) Explain(key kube.Key) string { return c.explain(key).String() }

func (c *Controller[T]) explain(key kube.Key) explanation {
	e := explanation{Key: key, Stats: c.Stats()}
	if err := c.Ready(); err != nil {
		e.NotReady = err.Error()
	}
	var l *loop[T]
	e.Phase, l = c.current()
	if c.informer != nil {
		e.Exists, e.Retrieves = cache.Of(c.informer).Has(key), c.informer.Health().Retrieves
	}
	e.Runs, e.Skipped = c.history.of(key)
	for _, t := range c.problems.all() {
		if t.Key == key {
			e.Problems = append(e.Problems, t)
		}
	}
	if l == nil {
		return e
	}
	e.Exists = l.own.Has(key)
	if found, ok := l.queue.Lookup(key); ok {
		entry := queueEntryOf(found)
		e.Queued = &entry
	}
	e.WaitingForRoom, _ = l.feeder.backlog.causesOf(key)
	f := l.failures.of(key)
	e.Failures, e.FailingSince, e.LastError, e.Terminal = f.consecutive, f.since, f.err, f.terminal
	e.Unseen = l.ownWrites.tracker.Unseen(key)
	return e
}

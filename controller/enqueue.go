package controller

import (
	"time"

	"github.com/evenkeel-go/evenkeel/controller/internal/ownwrites"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// enqueuer adds keys to the queue for a cause, and reports what was added and what was skipped to the observers. It has
// no state of its own.
type enqueuer struct {
	// Immutable.
	queue     *queue
	observers observerList
	informer  cache.Informer // of the controller's own objects
}

// add adds key to the queue, unless the controller is ending.
func (e *enqueuer) add(key kube.Key, o *queueOptions) {
	o.Cause.Count = max(o.Cause.Count, 1)
	o.Cause.Detail = usercode.ShortenTo(o.Cause.Detail, maxDetail)
	if e.queue.Add(key, *o) {
		e.observers.each(func(by observer) { by.added(key, &o.Cause, o.Delay > 0) })
	}
}

// addOwn adds key for a cause of the controller itself, such as a retry.
func (e *enqueuer) addOwn(key kube.Key, cause Cause, o queueOptions) {
	cause.Source, cause.Time, cause.Staleness = SourceLoop, time.Now(), e.informer.Staleness()
	o.Cause = cause
	e.add(key, &o)
}

// skip records a change that does not add its key to the queue.
func (e *enqueuer) skip(why SkipReason, key kube.Key, cause Cause) {
	if cause.Time.IsZero() {
		cause.Time = time.Now()
	}
	e.observers.each(func(o observer) { o.skipped(key, why, &cause) })
}

// skipEchoOf removes the cause of key, which is running, whose event is event, and records the skip.
func (e *enqueuer) skipEchoOf(key kube.Key, event ownwrites.Event) {
	if echo := e.removeEcho(key, func(other ownwrites.Event) bool { return other == event }); echo != nil {
		e.skip(SkipOwnWrite, key, *echo)
	}
}

// removeEcho removes the cause of key, which is running, whose event is an echo of an own write. It returns nil if
// there is none. The caller must record the skip, without a lock.
func (e *enqueuer) removeEcho(key kube.Key, isEcho func(ownwrites.Event) bool) (echo *Cause) {
	e.queue.RemoveCauses(key, func(cause Cause) bool {
		if cause.Count > 1 || !isEcho(cause.event()) { // a repeated cause stands for other changes too
			return false
		}
		echo = &cause
		return true
	})
	return echo
}

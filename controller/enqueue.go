package controller

import (
	"slices"
	"time"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
)

// changed handles a change of the controller's own objects. It subscribes to the informer.
func (l *loop[T]) changed(c informer.Change) {
	if c.Key.Namespace == "" && !l.clusterScoped.Load() {
		l.clusterScoped.Store(true)
	}
	// The first pass finds these objects in the store.
	if c.Type == informer.Listed && !l.works.Load() {
		return
	}
	matters := l.matters(c)
	l.noteEnd(c, matters)
	switch {
	case !matters:
		if c.Type == informer.Deleted { // no run will detect the deletion
			l.forgetFailures(c.Key)
		}
		l.skip(SkipPredicate, c.Key, Cause{Type: typeOf(c), Source: SourceSelf, Kind: l.kind, Object: c.Key})
		return
	case l.failures.ignores(c):
		l.skip(SkipTerminal, c.Key, l.causeOf(SourceSelf, c))
		return
	}
	l.enqueue(c)
}

// noteEnd records the end of an object: its deletion, or its replacement by another one. told is true if its key will
// run.
func (l *loop[T]) noteEnd(c informer.Change, told bool) {
	replaced := c.Type == informer.Updated && c.Changed(kube.ChangedUID) != 0
	if c.Type != informer.Deleted && !replaced {
		return
	}
	l.timers.stopAll(c.Key)
	l.forgetHotLoops(c.Key)
	if l.failures.objectEnded(c) {
		l.forgetFailures(c.Key)
	}
	if l.config.Deleted != nil && told {
		l.noteLastState(c)
	}
	if c.Type == informer.Deleted {
		l.successes.forget(c.Key)
	}
}

// matters reports whether a change of the controller's own objects must run the handler.
func (l *loop[T]) matters(c informer.Change) bool {
	return l.config.Predicate == nil || l.config.Predicate(c)
}

// enqueue enqueues the key of a change of the controller's own objects.
func (l *loop[T]) enqueue(c informer.Change) {
	priority := PriorityNormal
	switch {
	case c.Type == informer.Listed:
		priority = PriorityLow
	case l.config.Queue.Priority != nil:
		priority = l.config.Queue.Priority(c)
	}
	cause := l.causeOf(SourceSelf, c)
	l.othersChange(c.Key, c, cause.Manager)
	l.offer(c.Key, &cause, priority, c.FromList())
}

// triggered returns the function that a source calls to enqueue keys.
func (l *loop[T]) triggered(source string) Enqueue {
	return func(key kube.Key, why Trigger) {
		if l.clusterScoped.Load() {
			key.Namespace = ""
		}
		cause := Cause{Type: CauseTriggered, Source: source, Time: time.Now()}
		found := why.FromList || why.Type == CauseListed
		if why.Change.Key != (kube.Key{}) {
			cause = l.causeOf(source, why.Change)
			found = found || why.Change.FromList()
			l.othersChange(key, why.Change, cause.Manager)
		}
		if why.Type != "" {
			cause.Type = why.Type
		}
		cause.Detail = why.Detail
		if !why.All {
			l.offer(key, &cause, why.Priority, found)
		} else if l.works.Load() { // otherwise the first pass is still to come
			l.passes.ask(&cause)
			signal(l.feeder.wake)
		}
	}
}

// causeOf returns the cause for a change. It does not read listed objects: there are many of them, and no earlier state
// to compare them with.
func (l *loop[T]) causeOf(source string, c informer.Change) Cause {
	cause := Cause{Type: typeOf(c), Source: source, Kind: c.Kind().GroupKind(), Object: c.Key, Time: time.Now()}
	if c.Type != informer.Added && c.Type != informer.Updated {
		return cause
	}
	if state, err := c.States().New(); err == nil && state != nil {
		cause.UID, cause.ResourceVersion = state.UID, state.ResourceVersion
	}
	cause.Manager = c.Manager()
	if c.Type == informer.Updated {
		cause.Previous, cause.difference = c.States().OldVersion(), newDifference(c.Later())
		if c.Changed(kube.ChangedDeletion) != 0 {
			cause.Manager = "" // a delete has no field manager: the object names the manager that wrote it before
		}
	}
	return cause
}

func typeOf(c informer.Change) CauseType {
	switch c.Type {
	case informer.Listed:
		return CauseListed
	case informer.Added:
		return CauseAdded
	case informer.Deleted:
		return CauseDeleted
	}
	return CauseUpdated
}

// offer enqueues key for cause, unless cause is the key's own write. found is true if a list or a poll found the key:
// such a key waits in the backlog until there is room, unless its priority is high.
func (l *loop[T]) offer(key kube.Key, cause *Cause, priority Priority, found bool) {
	if !found && !l.config.OwnWrites.Handle && l.consistency.isEcho(key, cause) {
		l.skip(SkipOwnWrite, key, *cause)
		return
	}
	if found && priority < PriorityHigh {
		if !l.works.Load() && l.config.Predicate == nil && l.informer.Has(key) {
			return // the first pass, or the object's deletion, will handle it
		}
		l.backlog.add(key, *cause)
		signal(l.feeder.wake)
		return
	}
	l.willRun(key, NewCauses(*cause))
	l.add(key, &queueOptions{Cause: *cause, Priority: workqueue.Priority(priority), Debounce: l.config.Queue.Debounce, EndBackoffIf: l.config.Queue.EndBackoffIf})
}

// willRun records that key is about to be enqueued for causes, so that passes skip it.
func (l *loop[T]) willRun(key kube.Key, causes Causes) {
	if l.passes.active.Load() {
		l.passes.enqueued(key, l.runsFor(key, causes))
	}
}

// runsFor reports whether key is certain to run soon, and from its beginning, when it is enqueued for causes. A key
// that is running is not certain: causes may prove to be the run's own writes, and be removed (Queue.RemoveCauses). A
// key in backoff is not certain either, unless one of causes ends the backoff.
func (l *loop[T]) runsFor(key kube.Key, causes Causes) bool {
	switch entry, _ := l.queue.Lookup(key); entry.State {
	case workqueue.Processing, workqueue.ProcessingAgain:
		return false
	}
	return l.endsBackoff(key, causes)
}

// endsBackoff reports whether key is not in backoff, or one of causes ends the backoff.
func (l *loop[T]) endsBackoff(key kube.Key, causes Causes) bool {
	entry, _ := l.queue.Lookup(key)
	return entry.State != workqueue.Backoff || causes.Dropped() > 0 || slices.ContainsFunc(causes.List(), l.config.Queue.EndBackoffIf)
}

// again enqueues key for a cause of the loop itself.
func (l *loop[T]) again(key kube.Key, cause Cause, o queueOptions) bool {
	cause.Source, cause.Time, cause.Staleness = SourceLoop, time.Now(), l.informer.Untyped().Staleness()
	o.Cause = cause
	return l.add(key, &o)
}

func (l *loop[T]) add(key kube.Key, o *queueOptions) bool {
	o.Cause.Count = max(o.Cause.Count, 1)
	o.Cause.Detail = usercode.ShortenTo(o.Cause.Detail, maxDetail)
	added := l.queue.Add(key, *o)
	if added && l.config.Metrics != nil {
		l.config.Metrics.Triggered(l.config.Name, o.Cause.Source, o.Cause.Type)
	}
	return added
}

func (l *loop[T]) skip(why SkipReason, key kube.Key, cause Cause) {
	if cause.Time.IsZero() {
		cause.Time = time.Now()
	}
	l.history.skip(Skip{Time: cause.Time, Key: key, Why: why, Cause: cause})
	if l.config.Metrics != nil {
		l.config.Metrics.Skipped(l.config.Name, why)
	}
}

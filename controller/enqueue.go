package controller

import (
	"slices"
	"time"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
)

// changed is the informer's subscriber: a change of the controller's own objects.
func (l *loop[T]) changed(c informer.Change) {
	if c.Key.Namespace == "" && !l.clusterScoped.Load() {
		l.clusterScoped.Store(true)
	}
	// What is listed before the controller works is in the store when the first pass walks it.
	if c.Type == informer.Listed && !l.works.Load() {
		return
	}
	matters := l.matters(c)
	l.noteEnd(c, matters)
	switch {
	case !matters:
		if c.Type == informer.Deleted { // no run will find that it is gone
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

// noteEnd notes the end of an object, which may be that another has taken its place. told says
// that its key will run.
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

// matters reports whether a change of the controller's own objects is to make the handler run.
func (l *loop[T]) matters(c informer.Change) bool {
	return l.config.Predicate == nil || l.config.Predicate(c)
}

// enqueue adds the key of a change of the controller's own objects.
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

// triggered is what the source of a name calls.
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
		} else if l.works.Load() { // otherwise the first pass is yet to come
			l.passes.ask(&cause)
			signal(l.feeder.wake)
		}
	}
}

// causeOf returns the cause that a change is. What a list brings is not looked at: there is
// much of it, and nothing to compare it with.
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
			cause.Manager = "" // who deletes is no field manager: the object names who wrote it before
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

// offer puts key into the queue because something has happened, unless that was the key's own
// write. found says that a list or a poll has found it: such a key waits in the backlog until there
// is room, unless its priority is high.
func (l *loop[T]) offer(key kube.Key, cause *Cause, priority Priority, found bool) {
	if !found && !l.config.OwnWrites.Handle && l.consistency.isEcho(key, cause) {
		l.skip(SkipOwnWrite, key, *cause)
		return
	}
	if found && priority < PriorityHigh {
		if !l.works.Load() && l.config.Predicate == nil && l.informer.Has(key) {
			return // the first pass is yet to come, and handles it; or its deletion does
		}
		l.backlog.add(key, *cause)
		signal(l.feeder.wake)
		return
	}
	l.willRun(key, NewCauses(*cause))
	l.add(key, &queueOptions{Cause: *cause, Priority: workqueue.Priority(priority), Debounce: l.config.Queue.Debounce, EndBackoffIf: l.config.Queue.EndBackoffIf})
}

// willRun notes that key is about to be enqueued for causes, so that no pass has to.
func (l *loop[T]) willRun(key kube.Key, causes Causes) {
	if l.passes.active.Load() {
		l.passes.enqueued(key, l.runsFor(key, causes))
	}
}

// runsFor reports whether it is certain that key runs soon, and from its beginning, when it is enqueued for causes. It
// is not while the key is running: causes may turn out to be the run's own writes, and be removed (Queue.RemoveCauses).
// Neither is it while the key is in back-off, unless one of causes ends that.
func (l *loop[T]) runsFor(key kube.Key, causes Causes) bool {
	switch entry, _ := l.queue.Lookup(key); entry.State {
	case workqueue.Processing, workqueue.ProcessingAgain:
		return false
	}
	return l.endsBackoff(key, causes)
}

// endsBackoff reports whether key is not in back-off, or one of causes ends that.
func (l *loop[T]) endsBackoff(key kube.Key, causes Causes) bool {
	entry, _ := l.queue.Lookup(key)
	return entry.State != workqueue.Backoff || causes.Dropped() > 0 || slices.ContainsFunc(causes.List(), l.config.Queue.EndBackoffIf)
}

// again puts key into the queue for a reason of the loop's own.
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

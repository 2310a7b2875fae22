package controller

import (
	"time"

	"github.com/evenkeel-go/evenkeel/informer"
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
	matters := matters(l.config.Predicate, c)
	l.noteEnd(c, matters)
	switch {
	case !matters:
		if c.Type == informer.Deleted { // no run will detect the deletion
			l.forgetFailures(c.Key)
		}
		l.enqueuer.skip(SkipPredicate, c.Key, Cause{Type: typeOf(c), Source: SourceSelf, Kind: l.kind, Object: c.Key})
		return
	case l.failures.ignores(c):
		l.enqueuer.skip(SkipTerminal, c.Key, causeOf(SourceSelf, c))
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
	l.hot.forget(c.Key)
	if l.failures.objectEnded(c) {
		l.forgetFailures(c.Key)
	}
	if l.config.Deleted != nil && told {
		l.noteLastState(c)
	}
	if c.Type == informer.Deleted {
		l.successes.Forget(c.Key)
	}
}

// matters reports whether a change of the controller's own objects must run the handler: whether predicate, which may
// be nil, selects it.
func matters(predicate informer.Predicate, c informer.Change) bool {
	return predicate == nil || predicate(c)
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
	cause := causeOf(SourceSelf, c)
	l.hot.changed(c.Key, c, cause.Manager)
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
			cause = causeOf(source, why.Change)
			found = found || why.Change.FromList()
			l.hot.changed(key, why.Change, cause.Manager)
		}
		if why.Type != "" {
			cause.Type = why.Type
		}
		cause.Detail = why.Detail
		if !why.All {
			l.offer(key, &cause, why.Priority, found)
		} else if l.works.Load() { // otherwise the first pass is still to come
			l.feeder.requestPass(&cause)
		}
	}
}

// causeOf returns the cause for a change. It does not read listed objects: there are many of them, and no earlier state
// to compare them with.
func causeOf(source string, c informer.Change) Cause {
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
		l.enqueuer.skip(SkipOwnWrite, key, *cause)
		return
	}
	if found && priority < PriorityHigh {
		if !l.works.Load() && l.config.Predicate == nil && l.informer.Has(key) {
			return // the first pass, or the object's deletion, will handle it
		}
		l.feeder.found(key, *cause)
		return
	}
	l.feeder.willRun(key, NewCauses(*cause))
	l.enqueuer.add(key, &queueOptions{Cause: *cause, Priority: workqueue.Priority(priority), Debounce: l.config.Queue.Debounce, EndBackoffIf: l.config.Queue.EndBackoffIf})
}

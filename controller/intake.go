package controller

import (
	"sync/atomic"
	"time"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
)

// intake turns changes of the controller's own objects, and the keys that sources enqueue, into keys with a cause. It
// adds each to the queue, or to the backlog of the feeder, or skips it.
//
// Invariants:
//   - Until begin is called, listed objects are ignored: the first pass, which comes later, enqueues them.
//   - What is kept of an object is removed when its deletion arrives, whether or not the deletion runs the key.
//   - A change is skipped only if the predicate drops it, if it is exactly what the key's last run wrote, or if the key
//     has failed for good and the change does not concern its generation.
type intake struct {
	// Immutable.
	enqueuer  *enqueuer
	feeder    *feeder
	schedule  *schedule
	failures  *failures
	gates     gateList
	objects   objects
	predicate informer.Predicate // may be nil
	config    QueueConfig

	begun atomic.Bool // the first pass has begun, or is about to
	// clusterScoped is set when an object without a namespace was seen: either all objects of a kind have a
	// namespace, or no object has.
	clusterScoped atomic.Bool
}

// begin must be called before the first pass begins and workers start.
func (i *intake) begin() { i.begun.Store(true) }

// changed handles a change of the controller's own objects. It subscribes to the informer.
func (i *intake) changed(c informer.Change) {
	if c.Key.Namespace == "" {
		i.clusterScoped.Store(true)
	}
	// The first pass finds these objects in the store.
	if c.Type == informer.Listed && !i.begun.Load() {
		return
	}
	matters := matters(i.predicate, c)
	i.schedule.objectEnded(c, matters)
	if !matters { // there are many such changes: nothing is read from the object
		i.enqueuer.skip(SkipPredicate, c.Key,
			Cause{Type: typeOf(c), Source: SourceSelf, Kind: i.objects.Kind().GroupKind(), Object: c.Key})
		return
	}
	cause := causeOf(SourceSelf, c)
	if i.failures.ignores(c) {
		i.enqueuer.skip(SkipTerminal, c.Key, cause)
		return
	}
	priority := PriorityNormal
	switch {
	case c.Type == informer.Listed:
		priority = PriorityLow
	case i.config.Priority != nil:
		priority = i.config.Priority(c)
	}
	i.enqueuer.observers.each(func(o observer) { o.changed(c.Key, c, cause.Manager) })
	i.offer(c.Key, &cause, Trigger{Priority: priority, FromList: c.FromList()})
}

// matters reports whether a change of the controller's own objects must run the handler: whether predicate, which may
// be nil, selects it.
func matters(predicate informer.Predicate, c informer.Change) bool {
	return predicate == nil || predicate(c)
}

// triggered returns the function that a source calls to enqueue keys.
func (i *intake) triggered(source *namedSource) Enqueue {
	return func(key kube.Key, why Trigger) {
		if i.clusterScoped.Load() {
			key.Namespace = ""
		}
		cause := Cause{Type: CauseTriggered, Source: source.Name, Time: time.Now()}
		why.FromList = why.FromList || why.Type == CauseListed
		if why.Change.Key != (kube.Key{}) {
			cause = causeOf(source.Name, why.Change)
			why.FromList = why.FromList || why.Change.FromList()
			i.enqueuer.observers.each(func(o observer) { o.changed(key, why.Change, cause.Manager) })
		}
		if why.Type != "" {
			cause.Type = why.Type
		}
		cause.Detail = why.Detail
		if source.Keys != nil && !why.All {
			i.objects.listed(key)
		}
		if !why.All {
			i.offer(key, &cause, why)
		} else if i.begun.Load() { // otherwise the first pass is still to come
			i.feeder.requestPass(&cause)
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
	if state, err := cache.Of(c).New(); err == nil && state != nil {
		cause.UID, cause.ResourceVersion = state.UID, state.ResourceVersion
	}
	cause.Manager = c.Manager()
	if c.Type == informer.Updated {
		cause.previous = cache.Of(c).OldVersion()
		cause.difference = newDifference(cache.Of(c).Later(), cache.Of(c).KeptSize())
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

// offer enqueues key for cause, unless cause is the key's own write. Of why it uses After, Priority and FromList. A key
// that a list or a poll found waits in the backlog until there is room, unless its priority is high; with After it
// waits in the queue instead.
func (i *intake) offer(key kube.Key, cause *Cause, why Trigger) {
	event := cause.event()
	skips := func() bool { return !why.FromList && i.gates.skips(key, event) }
	if skips() {
		i.enqueuer.skip(SkipOwnWrite, key, *cause)
		return
	}
	if why.FromList && why.Priority < PriorityHigh {
		if !i.begun.Load() && i.predicate == nil && i.feeder.passes.active() && i.objects.Has(key) {
			return // the first pass, or the object's deletion, will handle it
		}
		if why.After <= 0 {
			i.feeder.found(key, *cause)
			return
		}
		why.Priority = PriorityLow
	}
	if why.After <= 0 { // a pass does not wait for a key that is delayed
		i.feeder.willRun(key, NewCauses(*cause))
	}
	endBackoffIf := i.config.EndBackoffIf
	if cause.Source != SourceSelf { // mayHelp is false for the object's own changes
		endBackoffIf = i.failures.endBackoffIf(key, endBackoffIf, i.schedule.mayHelp)
	}
	i.enqueuer.add(key, &queueOptions{
		Cause: *cause, Delay: why.After, Priority: workqueue.Priority(why.Priority),
		Debounce: i.config.Debounce, EndBackoffIf: endBackoffIf,
	})
	if skips() { // the write was recorded after the first check, and perhaps before add
		i.enqueuer.skipEchoOf(key, event)
	}
}

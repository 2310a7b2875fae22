package controller

import (
	"context"
	"slices"
	"time"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
)

// passShares is the number of shares in which a pass walks the objects.
const passShares = 256

// A running list finds some keys again and again: owners with many children.
const (
	listQuiet = 50 * time.Millisecond // time without new keys after which a list counts as ended
	listLasts = 2 * time.Second       // maximum wait for the end of a list
)

// feeder enqueues the keys of lists, polls and passes over all objects, at low priority and only while few keys are
// ready. One goroutine does this: feedNext, and then feed. Otherwise the queue would contain every owner, with its
// causes, after each list of children. Children that are listed at the start cannot be ignored: keys without an object,
// and objects that a predicate drops, have no other trigger. So a change that a list finds after a broken watch waits
// behind changes from watches.
//
// Invariants:
//   - A key that was found is in the backlog until it is enqueued, or until a run of it starts: no wake-up is lost.
//   - A pass enqueues every object that no run has handled since the pass was requested, unless the object is certain
//     to run for another reason.
//   - The backlog does not delay passes, and passes do not delay the backlog: each gets a batch in turn.
type feeder struct {
	// Immutable after newFeeder.
	enqueuer  *enqueuer
	queue     *queue
	config    QueueConfig
	objects   objects
	predicate informer.Predicate // may be nil

	passes   passes
	backlog  backlog
	throttle throttle
	wake     chan struct{} // has a token when the backlog has a key, or a pass was requested
}

func newFeeder(
	q *queue, e *enqueuer, config QueueConfig, own objects, predicate informer.Predicate, workers *pool,
) *feeder {
	return &feeder{
		enqueuer: e, queue: q, config: config, objects: own, predicate: predicate,
		throttle: throttle{queue: q, pool: workers, room: make(chan struct{}, 1)}, wake: make(chan struct{}, 1),
	}
}

// found adds a key that a list or a poll found to the backlog.
func (f *feeder) found(key kube.Key, cause Cause) {
	f.backlog.add(key, cause)
	signal(f.wake)
}

// requestPass requests a pass over all objects for cause.
func (f *feeder) requestPass(cause *Cause) {
	f.passes.request(cause)
	signal(f.wake)
}

// willRun records that key is about to be enqueued for causes, so that passes skip it.
func (f *feeder) willRun(key kube.Key, causes Causes) {
	if f.passes.active() {
		f.passes.enqueued(key, f.runsFor(key, causes))
	}
}

// runsFor reports whether key is certain to run soon, and from its beginning, when it is enqueued for causes. A key
// that is running is not certain: causes may prove to be the run's own writes, and be removed (Queue.RemoveCauses). A
// key in backoff is not certain either, unless one of causes ends the backoff.
func (f *feeder) runsFor(key kube.Key, causes Causes) bool {
	switch entry, _ := f.queue.Lookup(key); entry.State {
	case workqueue.Processing, workqueue.ProcessingAgain:
		return false
	case workqueue.Backoff:
		return causes.list.Dropped() > 0 || slices.ContainsFunc(causes.List(), f.config.EndBackoffIf)
	}
	return true
}

// runStarted removes key from the backlog, because its handler reads the state that was found, and returns the causes
// for which it waited there. It must be called before the object is read.
func (f *feeder) runStarted(key kube.Key) (waited Causes, found bool) {
	f.passes.runStarted(key)
	return f.backlog.remove(key)
}

// signal sends a token to a channel of capacity 1, unless the channel has one.
func signal(channel chan struct{}) {
	select {
	case channel <- struct{}{}:
	default:
	}
}

// feed enqueues the backlog and requested passes until ctx ends. The first pass must have ended: see feedNext.
func (f *feeder) feed(ctx context.Context) {
	for {
		passed, ok := f.feedNext(ctx)
		if !ok {
			return
		}
		if passed {
			continue // another pass may have been requested
		}
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
			f.waitForEndOfList(ctx)
		}
	}
}

// feedNext enqueues the keys of the requested pass, if there is one, and then the keys that are in the backlog at that
// time: keys that are found continuously must not delay passes and resyncs. passed is true if there was a pass. ok is
// false when ctx ends.
func (f *feeder) feedNext(ctx context.Context) (passed, ok bool) {
	pass := f.passes.begin()
	if pass != nil && !f.walk(ctx, pass) {
		return true, false
	}
	return pass != nil, f.feedBacklog(ctx, f.backlog.size())
}

// waitForEndOfList waits until no more keys are found, at most listLasts: a key that is handled before the last of its
// children is listed would be handled again.
func (f *feeder) waitForEndOfList(ctx context.Context) {
	latest := time.After(listLasts)
	for {
		select {
		case <-ctx.Done():
			return
		case <-latest:
			return
		case <-time.After(listQuiet):
		}
		select {
		case <-f.wake:
		default:
			return
		}
	}
}

// walk enqueues the objects of a pass, and a batch of the backlog after each batch. It returns false when ctx ends.
func (f *feeder) walk(ctx context.Context, pass *pass) bool {
	added := 0
	for share := range passShares {
		if ctx.Err() != nil {
			return false
		}
		for c := range f.objects.Walk(share, passShares) {
			if !matters(f.predicate, c) || !f.passes.needs(pass, c.Key) {
				continue
			}
			o, needed := f.passOptions(pass, c)
			if !needed {
				continue
			}
			if !f.feedKey(ctx, c.Key, &o) {
				return false
			}
			if added++; added%batch == 0 && !f.feedBacklog(ctx, batch) {
				return false
			}
		}
	}
	f.passes.end()
	return true
}

// passOptions returns the causes for which a pass enqueues an object: its own, and those of the backlog, from which it
// removes the key. needed is false if the backlog will enqueue the key, and the pass need not do it.
func (f *feeder) passOptions(pass *pass, c informer.Change) (o queueOptions, needed bool) {
	if pass.cause == nil {
		o.Cause = causeOf(SourceSelf, c)
		// The key must be removed before it is enqueued: if it is found again from here on, the backlog contains it
		// again.
		if causes, found := f.backlog.remove(c.Key); found && !causes.only(CauseListed) {
			o.Causes = causes.without(&o.Cause)
		}
		return o, true
	}
	o.Cause = *pass.cause
	if causes, found := f.backlog.causesOf(c.Key); found {
		if f.runsFor(c.Key, causes) {
			return o, false // the backlog will enqueue it, for more specific causes
		}
		f.backlog.remove(c.Key)
		o.Causes = causes.without(&o.Cause)
	}
	return o, true
}

// feedBacklog moves at most limit keys from the backlog to the queue. It returns false when ctx ends.
func (f *feeder) feedBacklog(ctx context.Context, limit int) bool {
	for range limit {
		key, causes, ok := f.backlog.take()
		if !ok {
			break
		}
		f.willRun(key, causes)
		first, rest := causes.list.First()
		if !f.feedKey(ctx, key, &queueOptions{Cause: first, Causes: rest}) {
			return false
		}
	}
	return ctx.Err() == nil
}

// feedKey enqueues a key as soon as there is room. It does not debounce the key: the object has not just changed, and a
// debounced key is not ready, so it would leave room for further keys. It returns false when ctx ends.
func (f *feeder) feedKey(ctx context.Context, key kube.Key, o *queueOptions) bool {
	if !f.throttle.wait(ctx, key) {
		return false
	}
	o.Priority, o.EndBackoffIf = workqueue.PriorityLow, f.config.EndBackoffIf
	if f.config.Debounce > 0 {
		if entry, ok := f.queue.Lookup(key); ok && entry.State == workqueue.Delayed {
			o.Debounce = f.config.Debounce // the key stays debounced
		}
	}
	f.enqueuer.add(key, o)
	f.throttle.keyAdded()
	return true
}

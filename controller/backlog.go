package controller

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
)

// batch is the number of keys from lists that are enqueued at once, as soon as fewer than fewQueued keys are ready: a
// queue with all objects of a large cluster would be larger than the cache.
const (
	batch     = 512
	fewQueued = 512
	// manyQueued is the maximum number of ready keys while workers are idle because the groups of the ready keys are at
	// their limit: keys of other groups may come after them.
	manyQueued = 16_384
	// feedInterval is the interval at which the feeder checks for idle workers. A worker is idle after it has waited
	// for idleAfter: if many keys are ready by then, group limits may prevent it from taking any of them.
	feedInterval = time.Second
	idleAfter    = 100 * time.Millisecond
)

// backlog holds the keys that lists and polls found, until the queue has room for them: a list adds any number of keys
// at once. A key is in the backlog at most once. A run of the key that starts in the meantime removes it, because the
// handler then reads the state that was found.
type backlog struct {
	n  atomic.Int64 // number of keys; most runs need only this
	mu sync.Mutex
	// keys contains the items by key, and first and last are the ends of their list in order of arrival; guarded by mu.
	keys        map[kube.Key]*backlogItem
	first, last *backlogItem
}

// backlogItem is a key in the backlog.
type backlogItem struct {
	previous, next *backlogItem
	key            kube.Key
	causes         Causes
}

// add adds a key, or a cause to a key that is in the backlog.
func (b *backlog) add(key kube.Key, cause Cause) {
	b.mu.Lock()
	defer b.mu.Unlock()
	it := b.keys[key]
	switch {
	case it == nil:
		it = &backlogItem{key: key, previous: b.last}
		if b.last == nil {
			b.first = it
		} else {
			b.last.next = it
		}
		b.last = it
		if b.keys == nil {
			b.keys = map[kube.Key]*backlogItem{}
		}
		b.keys[key] = it
		b.n.Add(1)
	case cause.Type == CauseListed:
		// An owner can have thousands of children: only the first is identified, the others are counted.
		cause.Object = kube.Key{}
	}
	it.causes.add(cause)
}

// remove removes a key that runs, or is about to be enqueued. It returns the key's item, or nil if the backlog does not
// contain the key.
func (b *backlog) remove(key kube.Key) *backlogItem {
	if b.n.Load() == 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	it := b.keys[key]
	if it != nil {
		b.drop(it)
	}
	return it
}

// take removes and returns the key that has been in the backlog for the longest time.
func (b *backlog) take() (it *backlogItem, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.first == nil {
		return nil, false
	}
	it = b.first
	b.drop(it)
	return it, true
}

// drop removes an item. mu must be held.
func (b *backlog) drop(it *backlogItem) {
	if it.previous == nil {
		b.first = it.next
	} else {
		it.previous.next = it.next
	}
	if it.next == nil {
		b.last = it.previous
	} else {
		it.next.previous = it.previous
	}
	delete(b.keys, it.key)
	if b.n.Add(-1) == 0 {
		b.keys = nil // a map does not shrink by itself
	}
}

// of returns the causes of a key in the backlog.
func (b *backlog) of(key kube.Key) (causes Causes, ok bool) {
	if b.n.Load() == 0 {
		return Causes{}, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	it := b.keys[key]
	if it == nil {
		return Causes{}, false
	}
	return NewCauses(it.causes.List()...), true // a copy: the original changes while the key waits
}

// passes contains the passes over all objects that are running or requested: the first pass, and one for each time that
// a source requests all objects (Trigger.All).
type passes struct {
	active atomic.Bool // a pass is running or requested

	mu   sync.Mutex
	now  *pass // guarded by mu; running, or the next to start
	next *pass // guarded by mu; requested while now was running
}

// pass enqueues every object once, except objects that run for another reason after the pass was requested.
type pass struct {
	cause *Cause // nil for the first pass: its objects have CauseListed
	begun bool   // guarded by passes.mu
	// ran contains the keys that have run, or were enqueued for another reason, since the pass was requested; guarded
	// by passes.mu. For the first pass it contains only the latter: no key runs for the first time without being
	// enqueued by the pass or for another reason.
	ran map[kube.Key]struct{}
}

func (p *passes) ask(cause *Cause) {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked := &pass{cause: cause, ran: map[kube.Key]struct{}{}}
	if p.now != nil && p.now.begun {
		p.next = asked
	} else {
		p.now = asked
	}
	p.active.Store(true)
}

// begin marks the current pass as begun and returns it, or returns nil if no pass is running or requested.
func (p *passes) begin() *pass {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now != nil {
		p.now.begun = true
	}
	return p.now
}

// end ends the current pass.
func (p *passes) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now, p.next = p.next, nil
	p.active.Store(p.now != nil)
}

// enqueued records a key that passes need not enqueue, because it will run. If that is not certain, only the first pass
// skips the key, because any run is enough for it.
func (p *passes) enqueued(key kube.Key, certain bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pass := range [...]*pass{p.now, p.next} {
		if pass != nil && (certain || pass.cause == nil) {
			pass.ran[key] = struct{}{}
		}
	}
}

// began records that a run has started. It must be called before the object is read.
func (p *passes) began(key kube.Key) {
	if !p.active.Load() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now != nil && p.now.cause != nil {
		p.now.ran[key] = struct{}{}
	}
	if p.next != nil {
		p.next.ran[key] = struct{}{}
	}
}

// needs reports whether a pass must enqueue key.
func (p *passes) needs(pass *pass, key kube.Key) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ran := pass.ran[key]
	return !ran
}

// feeder is the state of the goroutine that enqueues the keys of passes and of the backlog.
type feeder struct {
	wake   chan struct{} // has a token when the backlog has a key, or a pass was requested
	room   chan struct{} // has a token when there may be room
	wanted atomic.Bool   // the goroutine waits for room
	// batch contains the keys that the goroutine enqueued last, and at is the time of the last one. Only the goroutine
	// accesses them.
	batch []kube.Key
	at    time.Time
}

// taken is called when a worker asks for its next key. It wakes the goroutine when there is room.
func (f *feeder) taken(queued func() int) {
	if f.wanted.Load() && queued() < fewQueued {
		signal(f.room)
	}
}

// signal sends a token to a channel of capacity 1, unless the channel has one.
func signal(channel chan struct{}) {
	select {
	case channel <- struct{}{}:
	default:
	}
}

// feed enqueues every object in the first pass, then the backlog and further passes, until ctx ends. It pauses while
// many keys are ready. It moves only the keys that are in the backlog at that time: keys that are found continuously
// must not delay passes and resyncs.
func (l *loop[T]) feed(ctx context.Context) {
	var resync sync.WaitGroup
	defer resync.Wait()
	for first := true; ; first = false {
		pass := l.passes.begin()
		if pass != nil && !l.walk(ctx, pass) || !l.feedBacklog(ctx, int(l.backlog.n.Load())) {
			return
		}
		if first {
			resync.Go(func() { l.resync(ctx) }) // the deferred Wait waits for it
		}
		if pass != nil {
			continue // another may have been asked for
		}
		select {
		case <-ctx.Done():
			return
		case <-l.feeder.wake:
			l.waitForEndOfList(ctx)
		}
	}
}

// A running list finds some keys again and again: owners with many children.
const (
	listQuiet = 50 * time.Millisecond // time without new keys after which a list counts as ended
	listLasts = 2 * time.Second       // maximum wait for the end of a list
)

// waitForEndOfList waits until no more keys are found, at most listLasts: a key that is handled before the last of its
// children is listed would be handled again.
func (l *loop[T]) waitForEndOfList(ctx context.Context) {
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
		case <-l.feeder.wake:
		default:
			return
		}
	}
}

// walk runs a pass. It returns false when ctx ends.
func (l *loop[T]) walk(ctx context.Context, pass *pass) bool {
	added := 0
	for share := range walkShares {
		if ctx.Err() != nil {
			return false
		}
		for c := range l.informer.Listed(share, walkShares) {
			if !l.matters(c) || !l.passes.needs(pass, c.Key) {
				continue
			}
			o := queueOptions{}
			if pass.cause == nil {
				o.Cause = l.causeOf(SourceSelf, c)
				// The item must be removed before the key is enqueued: a key found from here on is added to the backlog
				// again.
				if it := l.backlog.remove(c.Key); it != nil && !it.causes.only(CauseListed) {
					o.Causes = it.causes.without(&o.Cause)
				}
			} else {
				o.Cause = *pass.cause
				if causes, found := l.backlog.of(c.Key); found {
					if l.runsFor(c.Key, causes) {
						continue // the backlog will enqueue it, for more specific causes
					}
					l.backlog.remove(c.Key)
					o.Causes = causes.without(&o.Cause)
				}
			}
			if !l.feedKey(ctx, c.Key, &o) {
				return false
			}
			if added++; added%batch == 0 && !l.feedBacklog(ctx, batch) {
				return false
			}
		}
	}
	l.passes.end()
	return true
}

// feedBacklog moves at most limit keys from the backlog to the queue. It returns false when ctx ends.
func (l *loop[T]) feedBacklog(ctx context.Context, limit int) bool {
	for range limit {
		it, ok := l.backlog.take()
		if !ok {
			break
		}
		l.willRun(it.key, it.causes)
		first, others := it.causes.list.First()
		if !l.feedKey(ctx, it.key, &queueOptions{Cause: first, Causes: others}) {
			return false
		}
	}
	return ctx.Err() == nil
}

// feedKey enqueues a key that a list, a poll or a pass found, as soon as there is room. It does not debounce the key:
// the object has not just changed, and a debounced key is not ready, so it would leave room for further keys. It
// returns false when ctx ends.
func (l *loop[T]) feedKey(ctx context.Context, key kube.Key, o *queueOptions) bool {
	if len(l.feeder.batch) == batch {
		if !l.waitForRoom(ctx) {
			return false
		}
		l.feeder.batch = l.feeder.batch[:0]
	}
	l.feeder.batch = append(l.feeder.batch, key)
	o.Priority, o.EndBackoffIf = workqueue.PriorityLow, l.config.Queue.EndBackoffIf
	if l.config.Queue.Debounce > 0 {
		if entry, ok := l.queue.Lookup(key); ok && entry.State == workqueue.Delayed {
			o.Debounce = l.config.Queue.Debounce // the key stays debounced
		}
	}
	l.add(key, o)
	l.feeder.at = time.Now()
	return true
}

// waitForRoom waits until few keys are ready. If changes keep the queue full, it waits until workers have taken the
// latest batch: a key must be in the queue to get older than the changes (workqueue.StarvationTimeout). If groups are
// at their limit and workers are idle, it waits at most feedInterval, unless manyQueued keys are ready. It returns
// false when ctx ends.
func (l *loop[T]) waitForRoom(ctx context.Context) bool {
	l.feeder.wanted.Store(true)
	defer l.feeder.wanted.Store(false)
	ticker := time.NewTicker(feedInterval)
	defer ticker.Stop()
	for l.queued() >= fewQueued {
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
			if l.isIdle() && l.queued() < manyQueued || l.batchTaken() {
				return true
			}
		case <-l.feeder.room:
		}
	}
	return ctx.Err() == nil
}

// isIdle reports whether a worker is idle.
func (l *loop[T]) isIdle() bool {
	latest := time.Now().Add(-idleAfter).UnixNano()
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.workers {
		if since := w.waitsSince.Load(); since != 0 && since <= latest {
			return true
		}
	}
	return false
}

// batchTaken reports whether workers have taken all keys of the latest batch.
func (l *loop[T]) batchTaken() bool {
	for _, key := range l.feeder.batch {
		if entry, ok := l.queue.Lookup(key); ok && entry.State == workqueue.Ready && !entry.Due.After(l.feeder.at) {
			return false // ready since it was fed: it was not taken and added again
		}
	}
	return true
}

func (l *loop[T]) queued() int { return l.queue.Stats().Ready }

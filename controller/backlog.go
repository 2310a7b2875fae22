package controller

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
)

// What lists find is put into the queue in batches, each when fewer than fewQueued keys wait for
// workers: a queue of all objects of a large cluster would be larger than the cache.
const (
	batch     = 512
	fewQueued = 512
	// manyQueued is how many keys may wait while workers have nothing to do, because the keys' groups are at
	// their limit: those of other groups may be behind them.
	manyQueued = 16_384
	// feedInterval is how often the feeder looks whether workers have nothing to do, and idleAfter after how long
	// a worker has: one that waits for as long, while many keys are due, may take none of them.
	feedInterval = time.Second
	idleAfter    = 100 * time.Millisecond
)

// backlog holds the keys that lists and polls have found, until there is room for them in the
// queue: a list brings any number of keys at once. A key is in the backlog at most once. A run of
// the key that begins meanwhile removes it, because the handler then reads what was found.
type backlog struct {
	n  atomic.Int64 // how many keys are in it: most runs need to know no more
	mu sync.Mutex
	// keys are the items by key, and first and last those in the order of arrival; guarded by mu.
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
		// An owner can have thousands of children: only the first is named, the others are counted.
		cause.Object = kube.Key{}
	}
	it.causes.add(cause)
}

// remove removes a key, which runs, or is about to be enqueued, and returns its item; nil when
// there is none.
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

// take removes the key that has been in the backlog for longest, and returns it.
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

// drop removes an item. It is called with mu held.
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

// of returns why a key is in the backlog.
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
	return NewCauses(it.causes.List()...), true // it grows while it waits
}

// passes are the walks over all objects that are under way or asked for: the first pass, and one
// whenever a source asks for all objects (Trigger.All).
type passes struct {
	active atomic.Bool // there is a pass

	mu   sync.Mutex
	now  *pass // guarded by mu; under way, or to be begun
	next *pass // guarded by mu; asked for while now was under way
}

// pass enqueues every object once, but for those that run for another reason after it was asked
// for.
type pass struct {
	cause *Cause // why; nil for the first pass, whose objects are listed
	begun bool   // guarded by passes.mu
	// ran are the keys that have run since the pass was asked for, or that others than the pass
	// have enqueued since; guarded by passes.mu. For the first pass it has only the latter: nothing
	// else runs a key for the first time.
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

// begin returns the pass that is to be walked now, or nil.
func (p *passes) begin() *pass {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now != nil {
		p.now.begun = true
	}
	return p.now
}

// end ends the pass that is under way.
func (p *passes) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now, p.next = p.next, nil
	p.active.Store(p.now != nil)
}

// enqueued notes a key that passes need not enqueue any more: it will run. When that is not certain, it is
// noted for the first pass only, which any run satisfies.
func (p *passes) enqueued(key kube.Key, certain bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pass := range [...]*pass{p.now, p.next} {
		if pass != nil && (certain || pass.cause == nil) {
			pass.ran[key] = struct{}{}
		}
	}
}

// began notes a run. It is called before the object is read.
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

// needs reports whether a pass has to enqueue key.
func (p *passes) needs(pass *pass, key kube.Key) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ran := pass.ran[key]
	return !ran
}

// feeder is what the goroutine knows that puts into the queue what nobody waits for.
type feeder struct {
	wake   chan struct{} // has a token when the backlog has a key, or a pass was asked for
	room   chan struct{} // has a token when there may be room
	wanted atomic.Bool   // the goroutine waits for room
	// batch are the latest keys that the goroutine has put into the queue, the last one at a moment;
	// it owns both.
	batch []kube.Key
	at    time.Time
}

// taken notes that a worker wants its next key.
func (f *feeder) taken(queued func() int) {
	if f.wanted.Load() && queued() < fewQueued {
		signal(f.room)
	}
}

// signal puts a token into a channel with room for one, unless there is one.
func signal(channel chan struct{}) {
	select {
	case channel <- struct{}{}:
	default:
	}
}

// feed puts into the queue what nobody waits for, until ctx ends: every object in the first pass,
// the backlog, and further passes. It stops while many keys wait for workers. Of the backlog it moves what is there
// when it begins: keys that are found all the time must not keep passes and resyncs from going on.
func (l *loop[T]) feed(ctx context.Context) {
	var resync sync.WaitGroup
	defer resync.Wait()
	for first := true; ; first = false {
		pass := l.passes.begin()
		if pass != nil && !l.walk(ctx, pass) || !l.feedBacklog(ctx, int(l.backlog.n.Load())) {
			return
		}
		if first {
			resync.Go(func() { l.resync(ctx) }) // waited for above
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

// While a list comes, keys are found again and again: those of owners with many children.
const (
	listQuiet = 50 * time.Millisecond // after which a list is taken to have ended
	listLasts = 2 * time.Second       // for which it is waited for at most
)

// waitForEndOfList waits until nothing more is found, or for long enough: a key that is handled
// before the last of its children is listed is handled again.
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

// walk is a pass. It returns false when ctx ends.
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
				// It is removed before it is enqueued: what is found from here on comes again.
				if it := l.backlog.remove(c.Key); it != nil && !it.causes.only(CauseListed) {
					o.Causes = it.causes.without(&o.Cause)
				}
			} else {
				o.Cause = *pass.cause
				if causes, found := l.backlog.of(c.Key); found {
					if l.runsFor(c.Key, causes) {
						continue // it is enqueued for reasons that say more
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

// feedBacklog moves up to limit keys from the backlog into the queue. It returns false when ctx
// ends.
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

// feedKey puts a key into the queue that a list, a poll or a pass has found, when there is room. It
// is not debounced: nothing has just happened to it, and keys that are debounced would leave room
// for others. It returns false when ctx ends.
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
			o.Debounce = l.config.Queue.Debounce // it does not end the quiet time that the key waits for
		}
	}
	l.add(key, o)
	l.feeder.at = time.Now()
	return true
}

// waitForRoom waits until few keys wait for workers. Where changes keep the queue full, it waits
// until a batch has been taken: keys have to be in the queue to get older than those
// (workqueue.StarvationTimeout). Where groups are at their limit and workers have nothing to do, it does not wait for
// long. It returns false when ctx ends.
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

// isIdle reports whether a worker has nothing to do.
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

// batchTaken reports whether no key of the latest batch waits for a worker any more.
func (l *loop[T]) batchTaken() bool {
	for _, key := range l.feeder.batch {
		if entry, ok := l.queue.Lookup(key); ok && entry.State == workqueue.Ready && !entry.Due.After(l.feeder.at) {
			return false // since then: it has not been taken and added again
		}
	}
	return true
}

func (l *loop[T]) queued() int { return l.queue.Stats().Ready }

package controllerruntime

import (
	"cmp"
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
)

// queue takes the requests of the event handlers. It keeps them until the engine runs, and then enqueues them there.
// From the engine it takes runs, and passes them on to the workers of controller-runtime.
type queue struct {
	limiter workqueue.TypedRateLimiter[reconcile.Request]

	runs     chan *run     // not buffered: a worker takes a run
	synced   chan struct{} // closed by the first Get: all sources have synced
	isSynced sync.Once
	closed   chan struct{} // closed by ShutDown
	isClosed sync.Once

	mu      sync.Mutex
	enqueue controller.Enqueue              // guarded by mu; nil until the engine runs
	waiting map[kube.Key]controller.Trigger // guarded by mu; for enqueue
	taken   map[reconcile.Request]*run      // guarded by mu; runs that workers have taken
}

func newQueue(limiter workqueue.TypedRateLimiter[reconcile.Request]) *queue {
	return &queue{
		limiter: limiter, runs: make(chan *run), synced: make(chan struct{}), closed: make(chan struct{}),
		waiting: map[kube.Key]controller.Trigger{}, taken: map[reconcile.Request]*run{},
	}
}

// attach enqueues what is waiting, and from then on everything else at once.
func (q *queue) attach(enqueue controller.Enqueue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for key, why := range q.waiting {
		enqueue(key, why)
	}
	q.enqueue, q.waiting = enqueue, nil
}

func (q *queue) add(req reconcile.Request, why controller.Trigger) {
	key := kube.Key{Namespace: req.Namespace, Name: req.Name}
	q.mu.Lock()
	enqueue := q.enqueue
	if enqueue == nil {
		q.wait(key, why)
	}
	q.mu.Unlock()
	if enqueue != nil {
		enqueue(key, why)
	}
}

// wait keeps a key until the engine runs: with Warmup, for as long as another process leads. So it keeps each key once,
// and no states of objects, except for the names of listed ones. mu must be held.
func (q *queue) wait(key kube.Key, why controller.Trigger) {
	if why.Change.Type != informer.Listed {
		why.Change, why.Detail = informer.Change{}, cmp.Or(why.Detail, "before the start")
	}
	if before, found := q.waiting[key]; found {
		before.After = min(before.After, why.After)
		before.Priority = max(before.Priority, why.Priority)
		why = before
	}
	q.waiting[key] = why
}

// call lets a worker of controller-runtime call the Reconciler, and waits for it. ok is false if there is no worker
// anymore.
func (q *queue) call(ctx context.Context, req reconcile.Request) (r *run, ok bool) {
	r = &run{ctx: ctx, req: req, ended: make(chan struct{}), err: errNotCalled}
	select {
	case q.runs <- r:
		<-r.ended
		return r, true
	case <-ctx.Done():
	case <-q.closed:
	}
	return nil, false
}

// runOf returns the run of a request that a worker has taken.
func (q *queue) runOf(req reconcile.Request) *run {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.taken[req]
}

// workerQueue is the queue as the workers of controller-runtime see it. It implements priorityqueue.PriorityQueue. What
// they add after a run has no effect, because the engine determines the next run.
type workerQueue struct{ *queue }

// GetWithPriority returns the next run.
func (q workerQueue) GetWithPriority() (req reconcile.Request, priority int, shutdown bool) {
	q.isSynced.Do(func() { close(q.synced) })
	select {
	case r := <-q.runs:
		q.mu.Lock()
		defer q.mu.Unlock()
		q.taken[r.req] = r
		return r.req, 0, false
	case <-q.closed:
		return req, 0, true
	}
}

// Get is GetWithPriority.
func (q workerQueue) Get() (req reconcile.Request, shutdown bool) {
	req, _, shutdown = q.GetWithPriority()
	return req, shutdown
}

// Done ends a run.
func (q workerQueue) Done(req reconcile.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	close(q.taken[req].ended)
	delete(q.taken, req)
}

// Add does nothing.
func (workerQueue) Add(reconcile.Request) {}

// AddAfter does nothing.
func (workerQueue) AddAfter(reconcile.Request, time.Duration) {}

// AddRateLimited does nothing.
func (workerQueue) AddRateLimited(reconcile.Request) {}

// AddWithOpts does nothing.
func (workerQueue) AddWithOpts(priorityqueue.AddOpts, ...reconcile.Request) {}

// ShutDown ends the workers.
func (q *queue) ShutDown() { q.isClosed.Do(func() { close(q.closed) }) }

// ShutDownWithDrain ends the workers.
func (q *queue) ShutDownWithDrain() { q.ShutDown() }

// ShuttingDown reports whether ShutDown was called.
func (q *queue) ShuttingDown() bool { return isClosed(q.closed) }

// Len returns the number of requests that wait for the start of the engine.
func (q *queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// Forget resets the delay of AddRateLimited.
func (q *queue) Forget(req reconcile.Request) { q.limiter.Forget(req) }

// NumRequeues returns how often the delay of a request grew.
func (q *queue) NumRequeues(req reconcile.Request) int { return q.limiter.NumRequeues(req) }

// eventQueue is the queue as an event handler sees it during one event, which becomes the cause of the requests that it
// adds. It implements priorityqueue.PriorityQueue.
type eventQueue struct {
	workerQueue

	mu  sync.Mutex
	why controller.Trigger // guarded by mu; empty after the event
}

// end ends the event. A handler may keep the queue, but what it adds later has another cause.
func (q *eventQueue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.why = controller.Trigger{}
}

// Add adds a request.
func (q *eventQueue) Add(req reconcile.Request) { q.AddWithOpts(priorityqueue.AddOpts{}, req) }

// AddAfter adds a request after a delay.
func (q *eventQueue) AddAfter(req reconcile.Request, after time.Duration) {
	q.AddWithOpts(priorityqueue.AddOpts{After: after}, req)
}

// AddRateLimited adds a request after the delay of the rate limiter.
func (q *eventQueue) AddRateLimited(req reconcile.Request) {
	q.AddWithOpts(priorityqueue.AddOpts{RateLimited: true}, req)
}

// AddWithOpts adds requests.
func (q *eventQueue) AddWithOpts(o priorityqueue.AddOpts, requests ...reconcile.Request) {
	q.mu.Lock()
	why := q.why
	q.mu.Unlock()
	why.Priority = priorityOf(o.Priority)
	for _, req := range requests {
		why.After = o.After
		if o.RateLimited {
			if delay := q.limiter.When(req); why.After <= 0 || delay < why.After {
				why.After = delay
			}
		}
		q.add(req, why)
	}
}

// priorityOf returns the priority of the engine for one of controller-runtime.
func priorityOf(priority *int) controller.Priority {
	switch {
	case priority == nil || *priority == 0:
		return controller.PriorityNormal
	case *priority < 0:
		return controller.PriorityLow
	}
	return controller.PriorityHigh
}

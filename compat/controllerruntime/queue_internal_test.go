package controllerruntime

import (
	"context"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"
	ctrlhandler "sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/evenkeel-go/evenkeel/controller"
)

// Requests for generic events, which no kind has, would be enqueued too. Those of workers, after a run, are not.
func TestRequestsOfHandlersAndWorkers(t *testing.T) {
	t.Parallel()
	q := workerQueue{newQueue(nil)}
	q.Add(reconcile.Request{})
	q.AddAfter(reconcile.Request{}, 1)
	q.AddRateLimited(reconcile.Request{})
	if q.Len() > 0 {
		t.Errorf("%d requests of workers", q.Len())
	}
	h := causing{EventHandler: ctrlhandler.Funcs{
		GenericFunc: func(_ context.Context, _ ctrlevent.GenericEvent, q requests) { q.Add(reconcile.Request{}) },
	}}
	h.Generic(t.Context(), ctrlevent.GenericEvent{}, q)
	if q.Len() != 1 {
		t.Errorf("%d requests of a handler, want 1", q.Len())
	}
}

// The engine gets priorities and delays. The limiter's delay grows, unless another one is shorter.
func TestTriggersOfRequests(t *testing.T) {
	t.Parallel()
	low, none, high := ctrlhandler.LowPriority, 0, 1
	q := newQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, time.Minute))
	for want, o := range map[controller.Trigger]priorityqueue.AddOpts{
		{}:                                  {Priority: &none},
		{Priority: controller.PriorityLow}:  {Priority: &low},
		{Priority: controller.PriorityHigh}: {Priority: &high},
		{After: time.Hour}:                  {After: time.Hour},
		{After: time.Second}:                {RateLimited: true},
		{After: time.Second + 1}:            {RateLimited: true, After: time.Second + 1},
	} {
		req := reconcile.Request{}
		if want.After == time.Second+1 {
			req.Name = "second time"
			q.limiter.When(req)
		}
		q.waiting = nil
		(&eventQueue{workerQueue: workerQueue{q}}).AddWithOpts(o, req)
		if got := q.waiting[0].why; got != want {
			t.Errorf("%+v: trigger %+v, want %+v", o, got, want)
		}
	}
}

// A run that no worker takes ends with the workers, or with its context.
func TestRunWithoutWorker(t *testing.T) {
	t.Parallel()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	q := newQueue(nil)
	if _, ok := q.call(cancelled, reconcile.Request{}); ok {
		t.Error("a run whose context has ended was taken")
	}
	q.ShutDown()
	if _, ok := q.call(t.Context(), reconcile.Request{}); ok || !q.ShuttingDown() {
		t.Error("a run was taken after the end")
	}
}

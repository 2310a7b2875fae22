package controllerruntime

import (
	"context"
	"testing"

	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"
	ctrlhandler "sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
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

package controllerruntime

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"
	ctrlhandler "sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
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
		want.Detail = "before the start"
		req := reconcile.Request{}
		if want.After == time.Second+1 {
			req.Name = "second time"
			q.limiter.When(req)
		}
		clear(q.waiting)
		(&eventQueue{workerQueue: workerQueue{q}}).AddWithOpts(o, req)
		if got := q.waiting[kube.Key{Name: req.Name}]; got != want {
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

// A process that does not lead keeps each key once, and no states of objects.
func TestWaitingKeysAreKeptOnce(t *testing.T) {
	t.Parallel()
	q := newQueue(nil)
	change, err := informer.NewChange(informer.Updated, corev1.SchemeGroupVersion.WithKind("ConfigMap"), &corev1.ConfigMap{}, &corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	for _, after := range []time.Duration{time.Minute, time.Second, time.Hour} {
		q.add(reconcile.Request{}, controller.Trigger{Change: change, After: after})
	}
	q.add(reconcile.Request{}, controller.Trigger{After: time.Hour, Priority: controller.PriorityHigh})
	want := controller.Trigger{Detail: "before the start", After: time.Second, Priority: controller.PriorityHigh}
	if got := q.waiting[kube.Key{}]; len(q.waiting) != 1 || got != want {
		t.Errorf("%d keys with %+v, want %+v", len(q.waiting), got, want)
	}
}

// The objects that exist at the start may wait for long: their causes have a kind and a name of their own, and share
// everything else.
func TestListedObjectsShareChange(t *testing.T) {
	t.Parallel()
	h := causing{scheme: scheme.Scheme, listed: &sync.Map{}}
	shared := map[informer.Change]bool{}
	for i, obj := range []client.Object{
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "0"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "1"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "2"}},
	} {
		c := h.listedChange(obj)
		if want := (kube.Key{Namespace: "shop", Name: strconv.Itoa(i)}); c.Key != want || !c.FromList() || c.Type != informer.Listed {
			t.Errorf("change %v %v %t, want %v listed", c.Key, c.Type, c.FromList(), want)
		}
		if want := map[bool]string{true: "Pod", false: "Secret"}[i < 2]; c.Kind().Kind != want {
			t.Errorf("kind %v, want %s", c.Kind(), want)
		}
		c.Key = kube.Key{}
		shared[c] = true
	}
	if len(shared) != 2 {
		t.Errorf("%d changes without their names, want one for each of 2 kinds", len(shared))
	}
}

package controllerruntime

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"
	ctrlhandler "sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// requests is the queue that event handlers get.
type requests = workqueue.TypedRateLimitingInterface[reconcile.Request]

// causing calls an event handler with a queue for which the event is the cause of the requests that it adds.
type causing struct {
	ctrlhandler.EventHandler

	scheme *runtime.Scheme
	listed *sync.Map // from a schema.GroupVersionKind to its informer.Change without a name
}

// Create implements handler.EventHandler.
func (h causing) Create(ctx context.Context, e ctrlevent.CreateEvent, q requests) {
	why := controller.Trigger{}
	if e.IsInInitialList {
		why.Change = h.listedChange(e.Object)
	} else {
		why.Change = h.change(informer.Added, e.Object, nil, e.Object, false)
	}
	during(q, why, func(q requests) { h.EventHandler.Create(ctx, e, q) })
}

// Update implements handler.EventHandler.
func (h causing) Update(ctx context.Context, e ctrlevent.UpdateEvent, q requests) {
	before, after := e.ObjectOld, e.ObjectNew
	why := controller.Trigger{FromList: true, Detail: "resync of the cache"}
	if before.GetResourceVersion() != after.GetResourceVersion() {
		why = controller.Trigger{Change: h.change(informer.Updated, after, before, after, false)}
	}
	during(q, why, func(q requests) { h.EventHandler.Update(ctx, e, q) })
}

// Delete implements handler.EventHandler.
func (h causing) Delete(ctx context.Context, e ctrlevent.DeleteEvent, q requests) {
	why := controller.Trigger{Change: h.change(informer.Deleted, e.Object, e.Object, nil, e.DeleteStateUnknown)}
	during(q, why, func(q requests) { h.EventHandler.Delete(ctx, e, q) })
}

// Generic implements handler.EventHandler. Sources of kinds have no such events.
func (h causing) Generic(ctx context.Context, e ctrlevent.GenericEvent, q requests) {
	during(q, controller.Trigger{}, func(q requests) { h.EventHandler.Generic(ctx, e, q) })
}

// during calls a handler with a queue for which why is the reason until the call returns.
func during(q requests, why controller.Trigger, call func(q requests)) {
	of := &eventQueue{workerQueue: q.(workerQueue), why: why} // of newSources
	defer of.end()
	call(of)
}

// listedChange returns the change of an object that existed at the start. There are many, which may wait for long, and
// the engine reads only their kinds and names: those of one kind share the rest.
func (h causing) listedChange(obj client.Object) (change informer.Change) {
	kind, err := apiutil.GVKForObject(obj, h.scheme)
	if err != nil {
		return change
	}
	shared, found := h.listed.Load(kind)
	if !found {
		if change, err = informer.NewChange(informer.Listed, kind, nil, nil); err != nil {
			return change
		}
		shared, _ = h.listed.LoadOrStore(kind, change)
	}
	change = shared.(informer.Change)
	change.Key = kube.KeyOf(obj)
	return change
}

// change returns the change of obj. It is empty if a state cannot be encoded: then the cause lacks the object.
func (h causing) change(
	as informer.ChangeType, obj, before, after client.Object, uncertain bool,
) (change informer.Change) {
	kind, err := apiutil.GVKForObject(obj, h.scheme)
	if err != nil {
		return change
	}
	var old, current kube.Object
	if before != nil {
		encoded, err := wire.FromObject(before, nil)
		if err != nil {
			return change
		}
		old = &wire.EncodedObject{Encoded: encoded, Uncertain: uncertain}
	}
	if after != nil {
		current = after
	}
	if change, err = informer.NewChange(as, kind, old, current); err != nil {
		return informer.Change{}
	}
	return change
}

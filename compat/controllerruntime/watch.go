package controllerruntime

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
}

// Create implements handler.EventHandler.
func (h causing) Create(ctx context.Context, e ctrlevent.CreateEvent, q requests) {
	why := controller.Trigger{}
	if e.IsInInitialList {
		// There are many, and the engine reads only their names.
		named := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: e.Object.GetNamespace(), Name: e.Object.GetName(),
			UID: e.Object.GetUID(), ResourceVersion: e.Object.GetResourceVersion(),
		}}
		why.Change = h.change(informer.Listed, e.Object, nil, named, false)
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

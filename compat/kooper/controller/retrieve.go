package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Retriever lists and watches the objects of a controller, of any Go types.
type Retriever interface {
	List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// RetrieverFromListerWatcher returns a Retriever that uses lw. It passes its context on if lw accepts one. A nil lw is
// an error.
func RetrieverFromListerWatcher(lw cache.ListerWatcher) (Retriever, error) {
	if usercode.IsNil(lw) {
		return nil, errors.New("listerWatcher can't be nil")
	}
	return listerWatcher{cache.ToListerWatcherWithContext(lw)}, nil
}

// MustRetrieverFromListerWatcher is RetrieverFromListerWatcher, and panics in case of an error.
func MustRetrieverFromListerWatcher(lw cache.ListerWatcher) Retriever {
	r, err := RetrieverFromListerWatcher(lw)
	if err != nil {
		panic(err)
	}
	return r
}

type listerWatcher struct {
	from cache.ListerWatcherWithContext
}

func (l listerWatcher) List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	return l.from.ListWithContext(ctx, options)
}

func (l listerWatcher) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return l.from.WatchWithContext(ctx, options)
}

// objects is a Retriever of the engine. The engine gets some metadata of each object, and decides which state is the
// current one; objects keeps the states as the Retriever returned them, whatever their Go types.
//
// Invariant: a state is kept from the time at which it is passed to the engine, until the engine announces a later one
// or the deletion.
type objects struct {
	from Retriever

	mu     sync.Mutex
	lastID int64                // guarded by mu
	states map[kube.Key][]state // guarded by mu; of each object the earlier states first
}

// state is one state of an object. The engine has its id and its revision as the generation.
type state struct {
	id       int64
	revision int64 // incremented when a list has another object with the same resource version
	obj      runtime.Object
	uid      types.UID
	version  string
}

// revisions is the number of revisions of a state, in a generation.
const revisions = 1 << 16

// Describe implements the engine's Retriever. Lists are not streamed: client-go's fake clients do not support it, and a
// Retriever of Kooper cannot report whether it does.
func (o *objects) Describe() informer.Description[*metav1.PartialObjectMetadata] {
	// The kind is for messages: it is not known, and there may be several.
	return informer.Description[*metav1.PartialObjectMetadata]{
		GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Object"},
	}
}

// List implements the engine's Retriever.
func (o *objects) List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list, err := o.from.List(ctx, options)
	if err != nil {
		return nil, err
	}
	if usercode.IsNil(list) {
		return nil, errors.New("the Retriever returned no list")
	}
	from, err := apimeta.ListAccessor(list)
	if err != nil {
		return nil, fmt.Errorf("the Retriever returned a %T where a list was expected: %w", list, err)
	}
	partial := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{
		ResourceVersion: from.GetResourceVersion(), Continue: from.GetContinue(),
		RemainingItemCount: from.GetRemainingItemCount(),
	}}
	return partial, apimeta.EachListItemWithAlloc(list, func(item runtime.Object) error {
		obj, err := metadataOf(item)
		if err == nil {
			o.keep(obj, item, true)
			partial.Items = append(partial.Items, *obj)
		}
		return err
	})
}

// Watch implements the engine's Retriever.
func (o *objects) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	from, err := o.from.Watch(ctx, options)
	if err != nil {
		return nil, err
	}
	if usercode.IsNil(from) {
		return nil, errors.New("the Retriever returned no watch")
	}
	return watch.Filter(from, func(event watch.Event) (watch.Event, bool) {
		if event.Type == watch.Error {
			return event, true
		}
		obj, err := metadataOf(event.Object)
		if err != nil {
			return watch.Event{Type: watch.Error, Object: &apierrors.NewInternalError(err).ErrStatus}, true
		}
		if event.Type == watch.Added || event.Type == watch.Modified {
			o.keep(obj, event.Object, false)
		}
		return watch.Event{Type: event.Type, Object: obj}, true
	}), nil
}

// metadataOf returns the metadata of an object that the engine needs. A fake client may give objects no names.
func metadataOf(obj runtime.Object) (*metav1.PartialObjectMetadata, error) {
	if usercode.IsNil(obj) {
		return nil, errors.New("the Retriever returned a nil object")
	}
	from, err := apimeta.Accessor(obj)
	if err != nil {
		return nil, fmt.Errorf("the Retriever returned a %T, which has no metadata: %w", obj, err)
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: from.GetNamespace(), Name: cmp.Or(from.GetName(), "(no name)"), UID: from.GetUID(),
		ResourceVersion: from.GetResourceVersion(), DeletionTimestamp: from.GetDeletionTimestamp(),
	}}, nil
}

// keep keeps a state, and sets the generation of about, which the engine gets.
//
// Every event runs the handler, as in Kooper: if the resource version is not later than the one of before, the engine
// gets none, because it would ignore the event. A listed object with a resource version that is kept already is a
// change for the engine only if it differs.
func (o *objects) keep(about *metav1.PartialObjectMetadata, obj runtime.Object, listed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	key, version := kube.KeyOf(about), about.ResourceVersion
	states := o.states[key]
	known := slices.IndexFunc(states, func(s state) bool { return version != "" && s.version == version })
	if known >= 0 && listed {
		s := &states[known]
		if !reflect.DeepEqual(s.obj, obj) {
			s.obj, s.revision = obj, s.revision+1
		}
		about.Generation = s.id*revisions + s.revision%revisions
		return
	}
	isLater := func(s state) bool { return apiobject.OlderVersion(version, s.version) }
	if known >= 0 || !listed && slices.ContainsFunc(states, isLater) {
		about.ResourceVersion = ""
	}
	o.lastID++
	o.states[key] = append(states, state{id: o.lastID, obj: obj, uid: about.UID, version: version})
	about.Generation = o.lastID * revisions
}

// announced removes the states before one that the engine announces. It subscribes to the informer before the
// controller does.
func (o *objects) announced(c informer.Change) {
	before, after, err := informer.Decode[*metav1.PartialObjectMetadata](c)
	if err != nil {
		return // the states are removed at the next change
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	kept := slices.DeleteFunc(o.states[c.Key], func(s state) bool {
		if c.Type == informer.Deleted {
			return s.id <= before.Generation/revisions || s.uid != "" && s.uid == before.UID
		}
		return s.id < after.Generation/revisions
	})
	if o.states[c.Key] = kept; len(kept) == 0 {
		delete(o.states, c.Key)
	}
}

// copyOf returns a copy of the object that about belongs to, or of a later state; nil if the object was deleted.
func (o *objects) copyOf(about *metav1.PartialObjectMetadata) runtime.Object {
	o.mu.Lock()
	states := slices.Clone(o.states[kube.KeyOf(about)])
	o.mu.Unlock()
	if len(states) == 0 {
		return nil
	}
	i := slices.IndexFunc(states, func(s state) bool { return s.id == about.Generation/revisions })
	return states[max(i, 0)].obj.DeepCopyObject()
}

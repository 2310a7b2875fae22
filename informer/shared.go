package informer

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"weak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Shared is New for parts that need not know of each other: while an informer of Shared with the same settings, for the
// same objects of the same kube.Cluster, runs or has not run yet, it returns that one. So such parts have one list, one
// watch and one cache. It has the Name, Logger and Metrics of the first call. Controllers, source.Owned and children
// (package watched) use it for the informers that they create.
//
// An informer is not shared if its config has a Transform, OnError or Indexes (SetDefaults apart), if its Retriever is
// not one of Retrieve, RetrieveSelected or RetrieveMetadata of one Cluster, and once AddIndex or SetRetriever was
// called. SetRetriever returns an error if the informer was shared already, also if the other users have ended.
// Subscribers and predicates are called one after another: one that blocks holds up all users. A Cluster must not be
// used in two bubbles of testing/synctest.
//
// Errors: those of New.
func Shared[T kube.Object](config Config[T]) (*Informer[T], error) {
	i, err := New(config)
	if err != nil {
		return nil, err
	}
	key, ok := config.withDefaults().sharedKey()
	// Functions cannot be compared. Those of SetDefaults are the same.
	if !ok || config.Transform != nil || config.OnError != nil || config.Indexes != nil {
		return i, nil
	}
	apiobject.ObserversOf(i.core.cluster).Shared(func(informers map[any]any) {
		maps.DeleteFunc(informers, func(_, other any) bool {
			pointer, ok := other.(weak.Pointer[core]) // otherwise defaults
			return ok && pointer.Value() == nil
		})
		if other, ok := informers[key].(weak.Pointer[core]); ok {
			if present := other.Value(); present != nil && present.share() {
				i.core = present
				return
			}
		}
		i.core.users = 1
		informers[key] = weak.Make(i.core)
	})
	return i, nil
}

// sharedKey are the settings of informers that may be shared.
type sharedKey struct {
	kind          schema.GroupVersionKind
	object        reflect.Type
	settings      string // the selections, and the other settings that are texts
	optional      bool
	managedFields bool
}

// sharedKey returns the key of the config, unless the Retriever is not one of a Cluster.
func (c Config[T]) sharedKey() (key sharedKey, ok bool) {
	var selections []string
	for _, r := range directParts(c.Retriever) {
		key.kind = r.kind
		selections = append(selections, fmt.Sprintf("%q %q %q %q", r.namespace, r.limit, r.labels, r.fields))
	}
	slices.Sort(selections)
	key.object = reflect.TypeFor[T]()
	key.settings = fmt.Sprintf("%s %q %q", selections, c.Cut, c.KeepAppliedBy)
	key.optional, key.managedFields = c.Optional, c.KeepManagedFields
	return key, selections != nil
}

// share adds a user to an informer of Shared. It returns false if the informer is not shared, or has ended.
func (c *core) share() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.own || c.ran && c.session == nil {
		return false
	}
	c.users++
	return true
}

// unshare makes the informer one that later calls of Shared do not return. It returns the number of those that did; 0:
// it is one of New.
func (c *core) unshare() (users int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.own = true
	return c.users
}

// As returns a view of an informer through another type: its objects as unstructured, as metadata only, or as a Go
// type. The view and i are the same informer, with the same list, watch, store and subscribers. Running one of them
// runs both.
//
// Errors: an informer of metadata has only metadata, and one Go type cannot be read as another Go type.
func As[U, T kube.Object](i *Informer[T]) (*Informer[U], error) {
	from, to := reflect.TypeFor[T](), reflect.TypeFor[U]()
	fail := func(reason string) (*Informer[U], error) {
		return nil, fmt.Errorf("view informer %q of %s as %s: %s", i.Name(), from, to, reason)
	}
	metadataOnly, dynamic := reflect.TypeFor[*metav1.PartialObjectMetadata](),
		reflect.TypeFor[*unstructured.Unstructured]()
	if from == metadataOnly && to != metadataOnly {
		return fail("it keeps nothing but metadata")
	}
	if from != to && from != dynamic && to != metadataOnly && to != dynamic {
		return fail("view it as *unstructured.Unstructured or *metav1.PartialObjectMetadata, or retrieve " +
			"unstructured objects")
	}
	decoder, err := wire.NewDecoderVia[U](i.core.kind, func() kube.Object { return apiobject.New[T]() })
	if err != nil {
		return fail(err.Error())
	}
	return newInformer(i.core, decoder, i.cut), nil
}

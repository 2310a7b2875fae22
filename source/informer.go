package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/wire"
)

// Informer is an informer of any type: *informer.Informer[T] is one for every T.
type Informer interface {
	controller.Readable
	Name() string
	Subscribe(notify func(informer.Change)) (unsubscribe func())
}

// Owner says which owner references name objects of the controller.
type Owner struct {
	// Kind is the owners' kind; the version does not matter. Group may be empty (core).
	// Required.
	Kind schema.GroupKind
	// ClusterScoped is true when the owners live in no namespace. Default false: an owner is
	// in the namespace of what it owns.
	ClusterScoped bool
	// Any takes every owner. Default false: only the one that is the controller, of which
	// there is one at most (metadata.ownerReferences.controller).
	Any bool
}

// Owned is a source that enqueues the owner of each object of type T that comes, changes or
// goes, when one of predicates' changes it is: a controller of Websites hears of the
// Deployments that it made for them.
//
// It watches the metadata of all objects of the kind, with an informer of its own: owner
// references are all that it needs. To select objects, or to share an informer that the
// handler reads from, use OwnedIn.
func Owned[T kube.Object](cluster *kube.Cluster, owner Owner, predicates ...informer.Predicate) controller.Source {
	objects, err := metadataOf[T](cluster)
	s := OwnedIn(objects, owner, predicates...).(*mapped)
	s.problem = errors.Join(err, s.problem)
	return s
}

// OwnedIn is Owned for the objects of an informer, of any type. The controller runs it.
func OwnedIn(objects Informer, owner Owner, predicates ...informer.Predicate) controller.Source {
	s := newMapped("owned", objects, predicates, func(c informer.Change) ([]kube.Key, error) {
		return keysOfStates(c, owner.keys)
	})
	if owner.Kind.Kind == "" {
		s.problem = errors.Join(s.problem, errors.New("Owner.Kind is required: the kind that the controller's objects are of"))
	}
	return s
}

func (w Owner) keys(o *wire.Object) []kube.Key {
	var keys []kube.Key
	for _, reference := range o.OwnerReferences() {
		version, err := schema.ParseGroupVersion(reference.APIVersion)
		if err != nil || version.Group != w.Kind.Group || reference.Kind != w.Kind.Kind {
			continue
		}
		if !w.Any && (reference.Controller == nil || !*reference.Controller) {
			continue
		}
		key := kube.Key{Namespace: o.Key.Namespace, Name: reference.Name}
		if w.ClusterScoped {
			key.Namespace = ""
		}
		keys = append(keys, key)
	}
	return keys
}

// OwnerLabel is a source that enqueues the object that a label of each object of type T
// names, in the same namespace: for objects that cannot have an owner reference, or that
// other tools make. It watches metadata only, as Owned does.
func OwnerLabel[T kube.Object](cluster *kube.Cluster, label string, predicates ...informer.Predicate) controller.Source {
	objects, err := metadataOf[T](cluster)
	s := OwnerLabelIn(objects, label, predicates...).(*mapped)
	s.problem = errors.Join(err, s.problem)
	return s
}

// OwnerLabelIn is OwnerLabel for the objects of an informer, of any type.
func OwnerLabelIn(objects Informer, label string, predicates ...informer.Predicate) controller.Source {
	s := newMapped("owner label", objects, predicates, func(c informer.Change) ([]kube.Key, error) {
		return keysOfStates(c, func(o *wire.Object) []kube.Key {
			if name := o.Labels()[label]; name != "" {
				return []kube.Key{{Namespace: o.Key.Namespace, Name: name}}
			}
			return nil
		})
	})
	if label == "" {
		s.problem = errors.Join(s.problem, errors.New("the label is required"))
	}
	return s
}

// Mapped is a source that enqueues the keys that keys returns for each object that comes,
// changes or goes. For an object that changed, keys is asked about the state before and the
// state after, so that what it no longer points to is enqueued as well.
//
// keys is called while the informer announces the change: it must be quick, and may read
// informers, but make no requests. Each change costs decoding the object twice; where
// metadata is enough, give it an informer of informer.RetrieveMetadata.
func Mapped[T kube.Object](objects *informer.Informer[T], keys func(obj T) []kube.Key, predicates ...informer.Predicate) controller.Source {
	var inf Informer
	if objects != nil {
		inf = objects
	}
	s := newMapped("mapped", inf, predicates, func(c informer.Change) ([]kube.Key, error) {
		before, after, err := informer.Decode[T](c)
		if err != nil {
			return nil, err
		}
		var all []kube.Key
		for _, obj := range []T{before, after} {
			if !reflect.ValueOf(obj).IsNil() {
				all = append(all, keys(obj)...)
			}
		}
		return all, nil
	})
	if keys == nil {
		s.problem = errors.Join(s.problem, errors.New("the function is required"))
	}
	return s
}

func metadataOf[T kube.Object](cluster *kube.Cluster) (Informer, error) {
	objects, err := informer.New(informer.Config[*metav1.PartialObjectMetadata]{
		Retriever: informer.RetrieveMetadata[T](cluster, informer.Selection{}),
	})
	if err != nil {
		return nil, err
	}
	return objects, nil
}

// keysOfStates returns the keys of both states of a change.
func keysOfStates(c informer.Change, keys func(*wire.Object) []kube.Key) ([]kube.Key, error) {
	before, err := c.Old()
	if err != nil {
		return nil, err
	}
	after, err := c.New()
	if err != nil {
		return nil, err
	}
	var all []kube.Key
	for _, o := range []*wire.Object{before, after} {
		if o != nil {
			all = append(all, keys(o)...)
		}
	}
	return all, nil
}

// mapped enqueues keys for the changes of an informer.
type mapped struct {
	what       string
	objects    Informer
	predicates []informer.Predicate
	keys       func(informer.Change) ([]kube.Key, error)
	problem    error
}

func newMapped(what string, objects Informer, predicates []informer.Predicate, keys func(informer.Change) ([]kube.Key, error)) *mapped {
	s := &mapped{what: what, objects: objects, predicates: predicates, keys: keys}
	if objects == nil {
		s.problem = errors.New("the informer is required")
	}
	return s
}

// Validate returns the mistakes that were made when the source was made.
func (s *mapped) Validate() error {
	if s.problem != nil {
		return fmt.Errorf("source %s: %w", s.what, s.problem)
	}
	return nil
}

// Reads returns the informer, which the controller runs.
func (s *mapped) Reads() []controller.Readable { return []controller.Readable{s.objects} }

// Run implements controller.Source.
func (s *mapped) Run(ctx context.Context, enqueue func(kube.Key, string)) error {
	unsubscribe := s.objects.Subscribe(func(c informer.Change) { s.changed(ctx, c, enqueue) })
	<-ctx.Done()
	unsubscribe()
	return nil
}

func (s *mapped) changed(ctx context.Context, c informer.Change, enqueue func(kube.Key, string)) {
	for _, matters := range s.predicates {
		if !matters(c) {
			return
		}
	}
	keys, err := s.keys(c)
	if err != nil {
		slog.WarnContext(ctx, "a change enqueues nothing: the object cannot be read",
			"source", s.what, "informer", s.objects.Name(), "key", c.Key.String(), "error", err)
		return
	}
	if len(keys) == 0 {
		return
	}
	detail := s.objects.Name() + " " + c.Key.String() + " " + c.Type.String()
	for _, key := range keys {
		enqueue(key, detail)
	}
}

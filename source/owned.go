package source

import (
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Owner says which owner references name objects of the controller.
type Owner struct {
	// Kind is the owners' kind; the version does not matter. Group may be empty (core).
	// Required.
	Kind schema.GroupKind
	// ClusterScoped must be true when the owners live in no namespace. Default false: an owner is
	// in the namespace of what it owns. (A controller whose own objects live in none notices that
	// it was forgotten, handles the right ones, and says so in its log.)
	ClusterScoped bool
	// Any takes every owner. Default false: only the one that is the controller, of which
	// there is one at most (metadata.ownerReferences.controller).
	Any bool
}

// Owned is a source that enqueues the owner of each object of type T that comes, changes or
// goes: a controller of Websites hears of the Deployments that it made for them. When the
// owner references of an object change, the owners before and after are enqueued. A change
// that one of predicates drops enqueues nothing.
//
// It watches the metadata of all objects of the kind, with an informer of its own that logs to
// slog.Default() and has no metrics: owner references are all that it needs. So predicates see
// metadata only: predicate.StatusChanged passes every update, and predicate.Func gets objects
// without spec and status. To compare those, to select objects, or to share an informer that
// the handler reads from, use OwnedIn.
func Owned[T kube.Object](cluster *kube.Cluster, owner Owner, predicates ...informer.Predicate) controller.Source {
	objects, err := metadataOf[T](cluster)
	if err != nil {
		return &mapped{what: "owned", problem: errors.Join(err, owner.validate())}
	}
	return OwnedIn(objects, owner, predicates...)
}

// OwnedIn is Owned for the objects of an informer, of any type. The controller runs it.
func OwnedIn(objects informer.Any, owner Owner, predicates ...informer.Predicate) controller.Source {
	return newMapped("owned", objects, predicates, owner.validate(), keysOfStates(owner.keys))
}

// OwnedBy is OwnedIn where something else than an owner reference tells whose an object is, such as
// the marks that package owned leaves on children, which lead from every namespace to every
// other: owners returns the keys of the owners of a child, under the rules of Mapped. The child
// is not decoded for it: it has a name, namespace, uid, resourceVersion, generation, labels,
// annotations, owner references and finalizers, and nothing else. The controller runs the
// informer.
func OwnedBy(objects informer.Any, owners func(child *metav1.PartialObjectMetadata) []kube.Key, predicates ...informer.Predicate) controller.Source {
	var problem error
	if owners == nil {
		problem = errors.New("the function is required")
	}
	return newMapped("owned", objects, predicates, problem, keysOfStates(func(o *wire.Object) ([]kube.Key, error) {
		return owners(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Key.Namespace, Name: o.Key.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Generation: o.Generation,
			Labels: o.Labels(), Annotations: o.Annotations(), OwnerReferences: o.OwnerReferences(), Finalizers: o.Finalizers(),
		}}), nil
	}))
}

func (w Owner) validate() error {
	if w.Kind.Kind == "" {
		return errors.New("Owner.Kind is required: the kind that the controller's objects are of")
	}
	if strings.Contains(w.Kind.Group, "/") {
		return fmt.Errorf("Owner.Kind.Group is %q: it is a group without its version", w.Kind.Group)
	}
	return nil
}

func (w Owner) keys(o *wire.Object) ([]kube.Key, error) {
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
	return keys, nil
}

// OwnerLabel is a source that enqueues the object that a label of each object of type T
// names, in the same namespace: for objects that cannot have an owner reference, or that
// other tools make. When the label changes, the objects that it named before and after are
// enqueued. It watches metadata only, as Owned does.
func OwnerLabel[T kube.Object](cluster *kube.Cluster, label string, predicates ...informer.Predicate) controller.Source {
	objects, err := metadataOf[T](cluster)
	if err != nil {
		return &mapped{what: "owner label", problem: errors.Join(err, validateLabel(label))}
	}
	return OwnerLabelIn(objects, label, predicates...)
}

// OwnerLabelIn is OwnerLabel for the objects of an informer, of any type. The controller runs
// it.
func OwnerLabelIn(objects informer.Any, label string, predicates ...informer.Predicate) controller.Source {
	return newMapped("owner label", objects, predicates, validateLabel(label), keysOfStates(func(o *wire.Object) ([]kube.Key, error) {
		if name := o.Labels()[label]; name != "" {
			return []kube.Key{{Namespace: o.Key.Namespace, Name: name}}, nil
		}
		return nil, nil
	}))
}

func validateLabel(label string) error {
	if label == "" {
		return errors.New("the label is required")
	}
	if problems := validation.IsQualifiedName(label); len(problems) > 0 {
		return fmt.Errorf("no object can have the label %q: %s", label, strings.Join(problems, "; "))
	}
	return nil
}

// metadataOf makes an informer of the metadata of all objects of type T.
func metadataOf[T kube.Object](cluster *kube.Cluster) (informer.Any, error) {
	objects, err := informer.New(informer.Config[*metav1.PartialObjectMetadata]{
		Retriever: informer.RetrieveMetadata[T](cluster, informer.Selection{}),
	})
	if err != nil {
		return nil, err
	}
	return objects, nil
}

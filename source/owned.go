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

// Owner selects the owner references that identify objects of the controller. The zero value selects the controller
// references to the controller's kind.
type Owner struct {
	// Kind is the owners' kind; the version does not matter. Default: the kind of the controller's objects.
	Kind schema.GroupKind
	// Any selects every owner reference of the kind. Default false: only the controller reference
	// (metadata.ownerReferences.controller), of which an object has at most one.
	Any bool
}

// Owned is a source that enqueues the owner of each object of type T that is listed, added, updated or deleted: a
// controller of Websites runs when one of the Deployments that it created for them changes. The owner is the object of
// the controller's kind that is named in the controller reference, in the namespace of the dependent if the kind is
// namespaced. When the owner references of an object change, the owners before and after the change are enqueued. A
// change that one of predicates drops enqueues nothing.
//
// Owned watches the metadata of all objects of the kind, or of those in the namespaces to which the Cluster is limited,
// because owner references need no more. Controllers share its informer, which has the logger and the metrics of the
// Cluster. So predicates see metadata only: predicate.StatusChanged passes every update, and predicate.Func gets
// objects without spec and status. Use OwnedIn to compare spec or status, to select objects (also in other namespaces),
// to share an informer that the handler reads from, for a kind that the cluster may not serve
// (informer.Config.Optional), or for other owner references.
func Owned[T kube.Object](cluster *kube.Cluster, predicates ...informer.Predicate) controller.Source {
	return ownedIn(metadataOf[T](cluster), Owner{}, predicates)
}

func ownedIn(open openInformer, owner Owner, predicates []informer.Predicate) controller.Source {
	s := newMapped("owned", open, predicates, nil, nil)
	s.owner = &owner
	return s
}

// OwnedIn is Owned for the objects of an existing informer, of any type, and for the owner references that owner
// selects. The controller runs the informer.
func OwnedIn(objects informer.Any, owner Owner, predicates ...informer.Predicate) controller.Source {
	return ownedIn(existing(objects), owner, predicates)
}

// OwnedBy is OwnedIn for children that refer to their owners by other means than owner references, such as the labels
// and annotations that package owned sets. The owners may be in other namespaces. owners returns the keys of the owners
// of a child, under the rules of Mapped. The child is not decoded: it has a name, namespace, uid, resourceVersion,
// generation, labels, annotations, owner references and finalizers, and nothing else. The controller runs the informer.
func OwnedBy(
	objects informer.Any, owners func(child *metav1.PartialObjectMetadata) []kube.Key, predicates ...informer.Predicate,
) controller.Source {
	var problem error
	if owners == nil {
		problem = errors.New("the function is required")
	}
	return newMapped("owned", existing(objects), predicates, problem,
		keysOfStates(func(o *wire.Object) ([]kube.Key, error) {
			return owners(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Namespace: o.Key.Namespace, Name: o.Key.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
				Generation: o.Generation,
				Labels:     o.Labels(), Annotations: o.Annotations(), OwnerReferences: o.OwnerReferences(),
				Finalizers: o.Finalizers(),
			}}), nil
		}))
}

// forController returns the owner with its default kind.
func (w Owner) forController(kind schema.GroupKind) (Owner, error) {
	if w.Kind.Kind == "" {
		w.Kind = kind
	}
	if w.Kind.Kind == "" {
		return w, errors.New("Owner.Kind is required: the kind of the controller's objects is not known")
	}
	if strings.Contains(w.Kind.Group, "/") {
		return w, fmt.Errorf("Owner.Kind.Group is %q: it is a group without its version", w.Kind.Group)
	}
	return w, nil
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
		// The controller ignores the namespace if its objects are cluster-scoped.
		keys = append(keys, kube.Key{Namespace: o.Key.Namespace, Name: reference.Name})
	}
	return keys, nil
}

// OwnerLabel is a source that enqueues the object that is named in a label of each object of an informer, in the same
// namespace. It is for objects that cannot have an owner reference, or that other tools create. When the label changes,
// the objects that it named before and after the change are enqueued. An informer of informer.RetrieveMetadata is
// enough. The controller runs the informer.
func OwnerLabel(objects informer.Any, label string, predicates ...informer.Predicate) controller.Source {
	return newMapped("owner label", existing(objects), predicates, validateLabel(label),
		keysOfStates(func(o *wire.Object) ([]kube.Key, error) {
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

// metadataOf opens an informer of the metadata of all objects of type T.
func metadataOf[T kube.Object](cluster *kube.Cluster) openInformer {
	return func(controller.Target) (informer.Any, error) {
		// Controllers share the informer, so it has the logger and the metrics of the connection.
		objects, err := informer.Shared(informer.Config[*metav1.PartialObjectMetadata]{
			Retriever: informer.RetrieveMetadata[T](cluster, kube.Selection{}),
		})
		if err != nil {
			return nil, err
		}
		return objects, nil
	}
}

package predicate

import (
	"reflect"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/wire"
)

// GenerationChanged passes updates of metadata.generation, which the API server counts up
// when the desired state changes: what a handler needs that reads the spec and writes the
// status, and is not to be woken by its own writes.
//
// The generation counts, and so passes:
//   - a change of the spec. For a custom resource without the status subresource that is
//     everything but the metadata, its status too. For a Deployment, annotations count.
//   - the beginning of a deletion (the first deletionTimestamp).
//
// It drops changes of the status, labels, annotations, owner references and finalizers, which
// are metadata. A handler that waits until another controller has removed its finalizer needs
// Or(GenerationChanged(), FinalizersChanged()).
//
// Kinds that count no generations, among them ConfigMap, Secret, Service, Node and Namespace,
// have generation 0 for ever: all their updates pass. SpecChanged can tell for these.
//
// The rules are the API server's: BeforeDelete in k8s.io/apiserver/pkg/registry/rest, and
// PrepareForUpdate of each kind's strategy.
func GenerationChanged() informer.Predicate {
	return updated(func(before, after *wire.Object) bool {
		return before.Generation != after.Generation || after.Generation == 0
	})
}

// ResourceVersionChanged passes updates of metadata.resourceVersion, which every write that
// changes anything gives a new value. Informers announce no others, except that an object
// which several parts of a joined Retriever have may be announced again; so it is of use for
// changes from elsewhere, and inside Not.
func ResourceVersionChanged() informer.Predicate { return differs(kube.ChangedResourceVersion) }

// LabelsChanged passes updates of the labels.
func LabelsChanged() informer.Predicate { return differs(kube.ChangedLabels) }

// AnnotationsChanged passes updates of the annotations. Many tools write annotations of their
// own: where one of them matters, Func can look at that one alone.
func AnnotationsChanged() informer.Predicate { return differs(kube.ChangedAnnotations) }

// FinalizersChanged passes updates of the finalizers, or of their order.
func FinalizersChanged() informer.Predicate { return differs(kube.ChangedFinalizers) }

// OwnersChanged passes updates of the owner references, or of their order.
func OwnersChanged() informer.Predicate { return differs(kube.ChangedOwnerReferences) }

// DeletionChanged passes the update in which an object gets its deletionTimestamp: its
// deletion has begun, and its finalizers are to be worked off. (Deleted, which passes as
// well, is the end of it, and all there is for an object without finalizers and grace period.)
func DeletionChanged() informer.Predicate { return differs(kube.ChangedDeletion) }

// StatusChanged passes updates of the status. T is the type of the informer's objects: in
// protobuf, which names no fields, it tells which of them the status is. In JSON it is the
// key "status".
//
// The bytes are compared, without decoding them, and without what the informer cuts. An
// informer of metadata has no status, and nothing to tell by that it changed: all updates
// pass. source.Owned has such an informer; use source.OwnedIn with one of whole objects.
func StatusChanged[T kube.Object]() informer.Predicate { return contentDiffers[T](kube.ChangedStatus) }

// SpecChanged passes updates of anything outside the metadata and the status, whatever it is
// called: the data of a Secret, the spec of a Node. It is for kinds that count no generations;
// where they do, GenerationChanged is as good and cheaper. T and limits are those of
// StatusChanged. For a T that the informer does not keep in its own encoding, such as an
// unstructured view of typed objects, a change of the status passes, too.
func SpecChanged[T kube.Object]() informer.Predicate { return contentDiffers[T](kube.ChangedSpec) }

// updated passes all but updates of one object, which passes decides about.
func updated(passes func(before, after *wire.Object) bool) informer.Predicate {
	return func(c informer.Change) bool {
		if c.Type != informer.Updated {
			return true
		}
		// New comes first: it is at hand, where Old has to be unpacked.
		after, err := c.New()
		if err != nil || after == nil {
			return true
		}
		before, err := c.Old()
		if err != nil || before == nil {
			return true
		}
		return before.UID != after.UID || passes(before, after)
	}
}

func differs(part kube.Change) informer.Predicate {
	return updated(func(before, after *wire.Object) bool {
		return wire.Comparer{}.Compare(before, after, part) != 0
	})
}

func contentDiffers[T kube.Object](part kube.Change) informer.Predicate {
	comparer := wire.NewComparer(reflect.TypeFor[T]())
	return updated(func(before, after *wire.Object) bool {
		return comparer.Compare(before, after, part) != 0 || onlyMetadata(before) && onlyMetadata(after)
	})
}

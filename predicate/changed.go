package predicate

import (
	"reflect"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// GenerationChanged passes updates that change metadata.generation, which the API server increments when the
// desired state changes. Use it for handlers that read the spec and write the status: their own writes of the
// status do not start another run.
//
// The API server increments the generation for:
//   - a change of the spec. For a custom resource without the status subresource it is a change of any field
//     outside metadata, including status. For a Deployment it is also a change of annotations.
//   - the start of a deletion (when deletionTimestamp is set).
//
// The predicate drops changes of status, labels, annotations, owner references and finalizers. A handler that
// waits until another controller removes a finalizer needs Or(GenerationChanged(), Changed(kube.ChangedFinalizers)).
//
// Kinds without generations, among them ConfigMap, Secret, Service, Node and Namespace, always have generation
// 0: all their updates pass. Use SpecChanged for these kinds.
//
// The rules are those of the API server: BeforeDelete in k8s.io/apiserver/pkg/registry/rest, and
// PrepareForUpdate of each kind's strategy.
func GenerationChanged() informer.Predicate {
	return updated(func(before, after *wire.Object) bool {
		return before.Generation != after.Generation || after.Generation == 0
	})
}

// Changed passes updates that change one of these parts of the metadata: kube.ChangedLabels|kube.ChangedFinalizers.
// Many tools write annotations: to compare a single one, use Func. For the status and the rest of the object, use
// StatusChanged and SpecChanged, which know the type.
func Changed(parts kube.ChangedParts) informer.Predicate {
	return updated(func(before, after *wire.Object) bool {
		return wire.Comparer{}.Compare(before, after, parts) != 0
	})
}

// StatusChanged passes updates that change the status. T must be the type of the informer's objects, because it
// determines the number of the status field in protobuf. In JSON the field is "status".
//
// The predicate compares the encoded bytes without decoding them, and ignores fields that the informer cuts. A
// metadata-only informer has no status, so all its updates pass. source.Owned has such an informer: use
// source.OwnedIn with an informer of whole objects instead.
func StatusChanged[T kube.Object]() informer.Predicate { return contentDiffers[T](kube.ChangedStatus) }

// SpecChanged passes updates that change any field outside metadata and status, such as the data of a Secret or
// the spec of a Node. Use it for kinds without generations; for other kinds GenerationChanged is cheaper. T and
// the limits are those of StatusChanged. If T does not match the encoding of the informer's objects, such as
// unstructured for objects in protobuf, changes of the status pass too.
func SpecChanged[T kube.Object]() informer.Predicate { return contentDiffers[T](kube.ChangedSpec) }

// updated passes every change except an Updated of one object with both states known, for which passes decides.
func updated(passes func(before, after *wire.Object) bool) informer.Predicate {
	return func(c informer.Change) bool {
		if c.Type != informer.Updated {
			return true
		}
		// New comes first because it is cheaper: Old must be decompressed.
		after, err := cache.Of(c).New()
		if err != nil || after == nil {
			return true
		}
		before, err := cache.Of(c).Old()
		if err != nil || before == nil {
			return true
		}
		return before.UID != after.UID || passes(before, after)
	}
}

func contentDiffers[T kube.Object](part kube.ChangedParts) informer.Predicate {
	comparer := wire.NewComparer(reflect.TypeFor[T]())
	return updated(func(before, after *wire.Object) bool {
		return comparer.Compare(before, after, part) != 0 || onlyMetadata(before) && onlyMetadata(after)
	})
}

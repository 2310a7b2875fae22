package owned

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Labels and annotations of every child. They are part of the API: later versions of the library must find children
// of earlier ones.
const (
	// LabelSet is the label with the name of the set.
	//
	// A set identifies its children by their metadata:
	//
	//   - label evenkeel.dev/set (LabelSet): the name of the set
	//   - label evenkeel.dev/owner-uid: the uid of the owner
	//   - annotations evenkeel.dev/owner and evenkeel.dev/owner-kind: the key and kind of the owner, for OwnerKeys
	//   - annotation evenkeel.dev/child: the key of the child; a copy of a child has another name, so it is not a child
	//   - annotation evenkeel.dev/wave: the wave, unless it is 0; children are deleted in reverse order
	//   - annotation evenkeel.dev/configuration: a hash of the applied fields
	//   - annotation evenkeel.dev/taken-over: see Former.Managers
	//
	// The owner has the annotation evenkeel.dev/finished: see Child.Once.
	LabelSet = "evenkeel.dev/set"
	// labelOwnerUID is the label with the uid of the owner.
	labelOwnerUID = "evenkeel.dev/owner-uid"
	// annotationOwner is the annotation with the key of the owner, in the format of kube.Key.String.
	annotationOwner = "evenkeel.dev/owner"
	// annotationOwnerKind is the annotation with the kind of the owner, as "WebApp.example.com": sets of two kinds may
	// have one name.
	annotationOwnerKind = "evenkeel.dev/owner-kind"
	// annotationChild is the annotation with the key of the child itself. A copy of a child has the key of the original
	// here, so it is not taken for a child.
	annotationChild = "evenkeel.dev/child"
	// annotationWave is the annotation with the wave of a child, unless it is 0. It determines when a child that is not
	// desired anymore is deleted.
	annotationWave = "evenkeel.dev/wave"
	// annotationTakenOver is the annotation that lists the former managers (Former.Managers) with taken-over
	// fields.
	annotationTakenOver = "evenkeel.dev/taken-over"
	// annotationConfiguration is the annotation with a hash of the fields that were applied last. It shows, also after
	// a restart, that a child needs no apply. A CreateOnly child has none.
	annotationConfiguration = "evenkeel.dev/configuration"
)

// OwnerKeys returns a function that maps a child of the named set to the key of its owner, in any namespace. Use it as
// the function of source.Mapped, or of source.OwnedBy (with T a *metav1.PartialObjectMetadata), so that the controller
// handles an owner when one of its children changes. Package watched creates such sources.
//
//	source.Mapped(configs, owned.OwnerKeys[*corev1.ConfigMap]("proxy"))
//
// It needs only metadata, so the informer may be one of metadata, of all objects or of those with the label LabelSet.
//
// With kinds, it returns only owners of these kinds, for sets of one name that have owners of several kinds.
func OwnerKeys[T kube.Object](set string, kinds ...schema.GroupKind) func(child T) []kube.Key {
	return func(child T) []kube.Key {
		owner, err := kube.ParseKey(child.GetAnnotations()[annotationOwner])
		if err != nil || child.GetLabels()[LabelSet] != set {
			return nil
		}
		isOfKind := func(kind schema.GroupKind) bool { return isOwnedBy(child, kind) }
		if len(kinds) > 0 && !slices.ContainsFunc(kinds, isOfKind) {
			return nil
		}
		return []kube.Key{owner}
	}
}

// isOwnedBy reports whether the owner of a child may be of a kind. Children of early versions do not have the kind.
func isOwnedBy(child metav1.Object, kind schema.GroupKind) bool {
	noted, known := child.GetAnnotations()[annotationOwnerKind]
	return !known || noted == kind.String()
}

// labelsOf returns the labels of the children of an owner.
func (s *Set) labelsOf(owner metav1.Object) map[string]string {
	return map[string]string{LabelSet: s.config.Name, labelOwnerUID: string(owner.GetUID())}
}

// mark sets the labels and annotations of the set on a child.
func (s *Set) mark(kind schema.GroupKind, owner, child metav1.Object, wave int) {
	child.SetLabels(with(child.GetLabels(), s.labelsOf(owner)))
	annotations := with(child.GetAnnotations(), map[string]string{
		annotationOwner: kube.KeyOf(owner).String(), annotationChild: kube.KeyOf(child).String(),
		annotationOwnerKind: kind.String(),
	})
	delete(annotations, annotationWave) // it may have been in another wave
	if wave != 0 {
		annotations[annotationWave] = strconv.Itoa(wave)
	}
	child.SetAnnotations(annotations)
}

// waveOf returns the wave in the annotation of a child.
func waveOf(child metav1.Object) int {
	wave, err := strconv.Atoi(child.GetAnnotations()[annotationWave])
	if err != nil {
		return 0 // no annotation, or another client has changed it to something else
	}
	return wave
}

// with returns all with the entries of more added.
func with(all, more map[string]string) map[string]string {
	joined := maps.Clone(more)
	for name, value := range all {
		if _, replaced := more[name]; !replaced {
			joined[name] = value
		}
	}
	return joined
}

// ownershipState classifies the object with the name of a child by its owner.
type ownershipState int

const (
	own     ownershipState = iota // a child of the owner in this set
	orphan                        // it has no owner, or an earlier one of the same name
	foreign                       // it belongs to another owner or another set
)

func (p *pass) ownershipOf(obj metav1.Object) (ownership ownershipState, holder string) {
	return p.set.ownershipOf(p.ownerKind.GroupKind(), p.owner, obj)
}

// ownershipOf classifies obj. kind is the owner's. holder describes the current owner for messages.
func (s *Set) ownershipOf(kind schema.GroupKind, owner, obj metav1.Object) (ownership ownershipState, holder string) {
	labels, annotations := obj.GetLabels(), obj.GetAnnotations()
	set, uid := labels[LabelSet], labels[labelOwnerUID]
	if ref := metav1.GetControllerOfNoCopy(obj); ref != nil {
		switch {
		case ref.UID != owner.GetUID():
			return foreign, describeOwner(*ref)
		case set != "" && set != s.config.Name:
			return foreign, "set " + set + " of the same owner"
		}
		return own, ""
	}
	former := set == s.config.Name && annotations[annotationOwner] == kube.KeyOf(owner).String() && isOwnedBy(obj, kind)
	original, marked := annotations[annotationChild]
	copied := marked && original != kube.KeyOf(obj).String()
	switch {
	case set == s.config.Name && uid == string(owner.GetUID()) && !copied:
		return own, ""
	case set != "" && !former:
		return foreign, "set " + set + " of " + annotations[annotationOwner] + " (uid " + uid + ")"
	}
	if refs := obj.GetOwnerReferences(); len(refs) > 0 {
		return foreign, describeOwner(refs[0])
	}
	if copied {
		return orphan, "no owner: it is a copy of " + original
	}
	if former && uid != "" {
		return orphan, "an earlier " + kube.KeyOf(owner).String() + " (uid " + uid + ")"
	}
	return orphan, "no owner"
}

// mayDelete reports whether obj is certainly a child of owner. A cache has shown it with the labels of owner's
// children, but it may have changed since, or be a copy. If it is not certain, ok is false, and reason explains it.
func (s *Set) mayDelete(owner, obj metav1.Object, referable bool) (ok bool, reason string) {
	if s.isFormerChild(owner, obj) {
		return true, ""
	}
	for name, value := range s.labelsOf(owner) {
		if obj.GetLabels()[name] != value {
			return false, "it was removed from the set: it does not have the labels of a child anymore"
		}
	}
	if original := obj.GetAnnotations()[annotationChild]; original != kube.KeyOf(obj).String() {
		return false, fmt.Sprintf("it has the labels of a child, but it is not a child: annotation %s is %q",
			annotationChild, original)
	}
	ref := metav1.GetControllerOfNoCopy(obj)
	switch {
	case ref != nil && ref.UID != owner.GetUID():
		return false, "it has the labels of a child, but its controller is " + describeOwner(*ref)
	case referable && ref == nil:
		return false, "it has the labels of a child, but no controller"
	case referable && owner.GetDeletionTimestamp() != nil &&
		slices.Contains(owner.GetFinalizers(), metav1.FinalizerOrphanDependents):
		return false, "the owner is deleted with orphans: the garbage collector removes the owner reference"
	}
	return true, ""
}

// describeOwner returns kind, name and uid of the referenced owner for messages: "Deployment web (uid 1234)".
func describeOwner(ref metav1.OwnerReference) string {
	return fmt.Sprintf("%s %s (uid %s)", ref.Kind, ref.Name, ref.UID)
}

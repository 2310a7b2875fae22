package owned

import (
	"fmt"
	"maps"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/ownerref"
)

// What every child carries.
const (
	// LabelSet is the label with the name of the set.
	LabelSet = "evenkeel.dev/set"
	// LabelOwnerUID is the label with the uid of the owner.
	labelOwnerUID = "evenkeel.dev/owner-uid"
	// AnnotationOwner is the annotation with the key of the owner, as kube.Key.String writes it.
	annotationOwner = "evenkeel.dev/owner"
	// AnnotationChild is the annotation with the child's own key. What was copied from a child
	// carries that of the original, and is no child.
	annotationChild = "evenkeel.dev/child"
	// AnnotationWave is the annotation with the wave of a child that is not of wave 0: when nobody
	// names the child any more, it says when it is its turn to go.
	annotationWave = "evenkeel.dev/wave"
	// AnnotationTakenOver is the annotation with the names of Config.FormerManagers whose fields were
	// taken over.
	annotationTakenOver = "evenkeel.dev/taken-over"
	// AnnotationConfiguration is the annotation with a hash of the fields that were applied last. By it
	// the set knows, also after a restart, that a child needs no apply. A child of Child.CreateOnly
	// has none.
	annotationConfiguration = "evenkeel.dev/configuration"
)

// OwnerOf returns the key of the owner of a child, of any set. It reads nothing but metadata.
func ownerOf(child metav1.Object) (kube.Key, bool) {
	key, err := kube.ParseKey(child.GetAnnotations()[annotationOwner])
	return key, err == nil
}

// OwnerKeys returns a function that finds the owner of a child of the set with that name, in
// whatever namespace that is: what source.OwnedBy asks for (with T a *metav1.PartialObjectMetadata),
// and source.Mapped, so that an owner is handled when one of its children changes.
//
//	source.Mapped(configs, owned.OwnerKeys[*corev1.ConfigMap]("proxy"))
//
// An informer of metadata will do, of all objects or of those with the label LabelSet. Package
// watched makes such sources.
func OwnerKeys[T kube.Object](set string) func(child T) []kube.Key {
	return func(child T) []kube.Key {
		if key, ok := ownerOf(child); ok && child.GetLabels()[LabelSet] == set {
			return []kube.Key{key}
		}
		return nil
	}
}

// labelsOf are the labels of the children of an owner.
func (s *Set) labelsOf(owner metav1.Object) map[string]string {
	return map[string]string{LabelSet: s.config.Name, labelOwnerUID: string(owner.GetUID())}
}

// mark puts labels and annotations on a child.
func (s *Set) mark(owner, child metav1.Object, wave int) {
	child.SetLabels(with(child.GetLabels(), s.labelsOf(owner)))
	annotations := with(child.GetAnnotations(), map[string]string{
		annotationOwner: kube.KeyOf(owner).String(), annotationChild: kube.KeyOf(child).String(),
	})
	delete(annotations, annotationWave) // of an earlier wave
	if wave != 0 {
		annotations[annotationWave] = strconv.Itoa(wave)
	}
	child.SetAnnotations(annotations)
}

// waveOf returns the wave that a child says it is of.
func waveOf(child metav1.Object) int {
	wave, err := strconv.Atoi(child.GetAnnotations()[annotationWave])
	if err != nil {
		return 0 // none, or what is no number any more
	}
	return wave
}

func with(all, more map[string]string) map[string]string {
	joined := maps.Clone(more)
	for name, value := range all {
		if _, own := more[name]; !own {
			joined[name] = value
		}
	}
	return joined
}

// ownershipState is whose an object is, that is in the place of a child.
type ownershipState int

const (
	own     ownershipState = iota
	orphan                 // nobody's, or an earlier owner's of the same name
	foreign                // somebody else's
)

// ownershipOf tells whose obj is; holder names others, for people.
func (s *Set) ownershipOf(owner, obj metav1.Object) (ownership ownershipState, holder string) {
	labels, annotations := obj.GetLabels(), obj.GetAnnotations()
	set, uid := labels[LabelSet], labels[labelOwnerUID]
	if ref, ok := ownerref.ControllerOf(obj); ok {
		switch {
		case ref.UID != owner.GetUID():
			return foreign, describeOwner(ref)
		case set != "" && set != s.config.Name:
			return foreign, "set " + set + " of the same owner"
		}
		return own, ""
	}
	former := set == s.config.Name && annotations[annotationOwner] == kube.KeyOf(owner).String()
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
		return orphan, "nobody: it is a copy of " + original
	}
	if former && uid != "" {
		return orphan, "an earlier " + kube.KeyOf(owner).String() + " (uid " + uid + ")"
	}
	return orphan, "nobody"
}

// mayDelete reports whether obj, which carries the labels of owner's children or did so when a
// cache saw it, is certainly one of them; if not, why.
func (s *Set) mayDelete(owner, obj metav1.Object, referable bool) (ok bool, why string) {
	if s.isFormerChild(owner, obj) {
		return true, ""
	}
	for name, value := range s.labelsOf(owner) {
		if obj.GetLabels()[name] != value {
			return false, "it has been taken out of the set: it has not the labels of a child any more"
		}
	}
	if original := obj.GetAnnotations()[annotationChild]; original != kube.KeyOf(obj).String() {
		return false, "it has the labels of a child, and is none: annotation " + annotationChild + " is " + quoted(original)
	}
	ref, has := ownerref.ControllerOf(obj)
	switch {
	case has && ref.UID != owner.GetUID():
		return false, "it has the labels of a child, and its controller is " + describeOwner(ref)
	case referable && !has:
		return false, "it has the labels of a child, and its controller is nobody"
	}
	return true, ""
}

// describeOwner returns kind, name and uid of the referenced owner for messages: "Deployment web (uid 1234)".
func describeOwner(ref metav1.OwnerReference) string {
	return fmt.Sprintf("%s %s (uid %s)", ref.Kind, ref.Name, ref.UID)
}

func quoted(text string) string { return `"` + text + `"` }

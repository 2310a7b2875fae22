package owned

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/readiness"
)

// Child is a desired child. It is a kube.Object itself, so that it can stand among the objects for Of, Wave and the
// Apply of an operator's run.
type Child struct {
	// Object contains the fields to apply, and no others: typed or unstructured, as for client.Apply. A namespaced
	// object without a namespace gets that of the owner. The Set does not change Object. Required.
	//
	// A zero value that the Go type omits from JSON is not applied: a Deployment with Paused: false does not undo a
	// pause by another client. Use an unstructured object to apply such a value.
	kube.Object
	// Wave orders children. A child is created or changed only when all children of lower waves are ready. Children are
	// deleted in reverse order: each when all undesired children of higher waves are gone. Default 0.
	Wave int
	// Ready determines whether the child is ready. Default readiness.Of.
	Ready readiness.Check
	// Recreate permits to delete the child and create it again if immutable fields must change. Its Pods, data and
	// addresses are lost. Default false: an immutable field is the error of the child.
	Recreate bool
	// Propagation determines what happens to the dependents of the child when it is recreated. With
	// metav1.DeletePropagationOrphan the Pods of a StatefulSet stay, and the new StatefulSet adopts them. Default
	// Config.Propagation.
	Propagation metav1.DeletionPropagation
	// CreateOnly creates the child if it does not exist, and then leaves its fields to other clients: for content that
	// is generated once, such as a password. Default false.
	CreateOnly bool
	// Once creates the child until it has finished: for a Job with ttlSecondsAfterFinished, which is deleted then. When
	// Ready finds it Current or Failed, the Set notes that in an annotation of the owner (evenkeel.dev/finished), which
	// needs the verbs get and patch for the owner. evenkeel.Manifests have patch if Jobs or Pods are among the kinds;
	// otherwise declare it by Program.Permit. A finished child is not created again, also with Recreate, and keeps
	// its state. A child that is deleted before that runs again, so it may run more than once. Change its name to run
	// it again. Default false: a Job with a TTL is created again each time, which is logged once.
	Once bool
}

// Of returns children of wave 0. An object that is a Child keeps its settings, also its wave.
func Of(objects ...kube.Object) []Child { return Wave(0, objects...) }

// Wave returns children of one wave, as Of.
func Wave(wave int, objects ...kube.Object) []Child {
	children := make([]Child, 0, len(objects))
	for _, object := range objects {
		if pointer, ok := object.(*Child); ok && pointer != nil {
			object = *pointer
		}
		child, ok := object.(Child)
		if !ok {
			child.Object = object
		}
		child.Wave = cmp.Or(child.Wave, wave)
		children = append(children, child)
	}
	return children
}

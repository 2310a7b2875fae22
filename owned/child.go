package owned

import (
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/readiness"
)

// Child is an object that an owner should have.
type Child struct {
	// Object holds the fields that the child should have, and no others: typed or
	// unstructured, as for client.Apply. Without a namespace it gets the owner's, if its kind
	// lives in namespaces. It is not changed. Required.
	Object kube.Object
	// Wave orders children: one is applied when all children of lower waves are ready. Until
	// then it is neither created nor changed, nor deleted. Children are deleted in reverse: one
	// goes when all that are to go of higher waves are gone. Default 0.
	Wave int
	// Ready tells whether the child is ready. Default readiness.Of.
	Ready readiness.Check
	// Recreate allows that the child be deleted and created anew when fields of it are to change
	// which cannot be changed, with all that it has kept: Pods, data, addresses. Default false:
	// that is the child's error.
	Recreate bool
	// CreateOnly creates the child when it is missing, and then leaves its fields to others: for
	// what is generated once, such as a password. Default false.
	CreateOnly bool
}

// Of makes children of objects, of wave 0.
func Of(objects ...kube.Object) []Child { return Wave(0, objects...) }

// Wave makes children of objects, of one wave.
func Wave(wave int, objects ...kube.Object) []Child {
	children := make([]Child, 0, len(objects))
	for _, object := range objects {
		children = append(children, Child{Object: object, Wave: wave})
	}
	return children
}

package ownerref

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/kube"
)

// ErrScope says that no owner reference can lead from the child to the owner: a namespaced
// owner owns only what is in its own namespace.
var ErrScope = errors.New("no owner reference is possible here")

// AlreadyOwnedError says that an object has a controller already, which is another one: there
// is one at most.
type AlreadyOwnedError struct {
	// Kind and Key name the object.
	Kind schema.GroupVersionKind
	Key  kube.Key
	// Controller is the one that it has.
	Controller metav1.OwnerReference
	// Former is true when the controller has the kind and name of the owner that was to be set,
	// and another uid: that was an owner which has been deleted, and the garbage collector will
	// delete the object too.
	Former bool
}

// Error implements error.
func (e *AlreadyOwnedError) Error() string {
	text := fmt.Sprintf("%s %s has a controller already: %s", e.Kind.Kind, e.Key, Describe(e.Controller))
	if e.Former {
		return text + ", an earlier object of that name: the garbage collector deletes what it owned"
	}
	return text
}

// Describe names the owner of a reference for people: "Deployment web (uid 1234)".
func Describe(ref metav1.OwnerReference) string {
	return fmt.Sprintf("%s %s (uid %s)", ref.Kind, ref.Name, ref.UID)
}

package ownerref

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/kube"
)

// ErrScope reports that the child cannot have a reference to the owner: a namespaced owner can own only objects
// in its own namespace.
var ErrScope = errors.New("no owner reference is possible here")

// AlreadyOwnedError reports that an object has another controller already. An object has at most one.
type AlreadyOwnedError struct {
	kind schema.GroupVersionKind
	key  kube.Key
	// Controller is the reference to the existing controller.
	Controller metav1.OwnerReference
	// Former is true if the existing controller has the kind and name of the new owner and another uid:
	// it was deleted and created again, and the garbage collector will delete the object too.
	Former bool
}

// Error implements error.
func (e *AlreadyOwnedError) Error() string {
	text := fmt.Sprintf("%s %s has a controller already: %s", e.kind.Kind, e.key, describeRef(e.Controller))
	if e.Former {
		return text + ", an earlier object of that name: the garbage collector deletes what it owned"
	}
	return text
}

// describeRef returns kind, name and uid of the referenced owner for messages: "Deployment web (uid 1234)".
func describeRef(ref metav1.OwnerReference) string {
	return fmt.Sprintf("%s %s (uid %s)", ref.Kind, ref.Name, ref.UID)
}

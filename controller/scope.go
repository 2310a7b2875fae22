package controller

import (
	"github.com/evenkeel-go/evenkeel/kube"
)

// redirect reports, for a key without an object, whether the controller's objects are cluster-scoped and one of them was
// meant, and enqueues that one. It was not known yet when the source enqueued the key: owner references do not contain the
// owner's namespace, so sources assume that of the child.
func (l *loop[T]) redirect(key kube.Key, causes Causes) bool {
	meant := kube.Key{Name: key.Name}
	if key.Namespace == "" || !l.informer.Has(meant) {
		return false
	}
	for _, cause := range causes.List() {
		l.offer(meant, &cause, PriorityNormal, cause.Type == CauseListed)
	}
	return true
}

package controller

import (
	"github.com/evenkeel-go/evenkeel/kube"
)

// redirect handles a key without an object. If the controller's objects are cluster-scoped and one has the key's
// name, it enqueues that object and returns true. The scope was not known yet when the source enqueued the key: owner
// references do not contain the owner's namespace, so sources use the child's namespace.
func (i *intake) redirect(key kube.Key, causes Causes) bool {
	unscoped := kube.Key{Name: key.Name}
	if key.Namespace == "" || !isObject(i.objects, unscoped) {
		return false
	}
	for _, cause := range causes.List() {
		i.offer(unscoped, &cause, Trigger{FromList: cause.Type == CauseListed})
	}
	return true
}

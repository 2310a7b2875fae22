package controller

import (
	"context"

	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
)

// misplaced reports, of a key without an object, whether a source has named an object of a kind
// that lives in no namespace as if it lived in that of its child, and puts the object that was
// meant into the queue. An owner
// reference does not tell in which scope the owner is: a source.Owner without ClusterScoped would
// otherwise be heard by nobody. It is said once a term.
func (l *loop[T]) misplaced(ctx context.Context, key kube.Key, causes workqueue.Causes) bool {
	meant := kube.Key{Name: key.Name}
	if key.Namespace == "" || !l.informer.Has(meant) {
		return false
	}
	l.saidScope.Do(func() {
		l.logger.WarnContext(ctx, "a source names objects in a namespace, and their kind lives in none: the right ones are handled; set source.Owner.ClusterScoped",
			"key", key, "meant", meant, "causes", causes)
	})
	for _, cause := range causes.List() {
		l.offer(meant, &cause, workqueue.PriorityNormal, cause.Type == workqueue.CauseListed)
	}
	return true
}

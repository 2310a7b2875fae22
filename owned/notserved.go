package owned

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// notServedFor is the time until Apply checks again whether the cluster serves a kind that it did not serve. The
// objects of a kind are deleted with it, so a kind that is served again has no earlier children.
const notServedFor = 10 * time.Minute

// notServed stores kinds that the cluster does not serve. With it, programs can name kinds that only some clusters
// have, without a request in each run.
type notServed struct {
	mu    sync.Mutex
	since map[schema.GroupKind]time.Time // guarded by mu
}

func (n *notServed) add(kind schema.GroupKind) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.since == nil {
		n.since = map[schema.GroupKind]time.Time{}
	}
	n.since[kind] = time.Now()
}

// remove is called when the kind is served: from now on it may have children.
func (n *notServed) remove(kind schema.GroupKind) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.since, kind)
}

func (n *notServed) has(kind schema.GroupKind) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	since, known := n.since[kind]
	return known && time.Since(since) < notServedFor
}

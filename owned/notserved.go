package owned

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// notServedFor is the time until Apply checks again whether the cluster serves a kind that it did not serve. The
// objects of a kind are deleted with it, so a kind that is served again has no earlier children. With it, programs can
// name kinds that only some clusters have, without a request in each run.
const notServedFor = 10 * time.Minute

// isServed reports whether a kind may have children.
func (s *Set) isServed(kind schema.GroupKind) bool {
	since := s.notServed.Get(kind)
	return since.IsZero() || time.Since(since) >= notServedFor
}

// setServed records whether the cluster serves a kind.
func (s *Set) setServed(kind schema.GroupKind, served bool) {
	if served && s.isServed(kind) {
		return
	}
	s.notServed.Do(kind, func(since *time.Time) {
		if *since = time.Now(); served {
			*since = time.Time{}
		}
	})
}

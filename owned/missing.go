package owned

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// missingFor is how long it is believed that the cluster does not serve a kind. The objects of a
// kind go with it, so that one which comes back has no children that are left from before.
const missingFor = 10 * time.Minute

// missing remembers which kinds the cluster did not serve: programs name kinds that not every
// cluster has, and would ask for them in every run.
type missing struct {
	mu    sync.Mutex
	since map[schema.GroupKind]time.Time // guarded by mu
}

func (m *missing) note(kind schema.GroupKind) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.since == nil {
		m.since = map[schema.GroupKind]time.Time{}
	}
	m.since[kind] = time.Now()
}

// served forgets that a kind was missing: from now on there may be children of it.
func (m *missing) served(kind schema.GroupKind) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.since, kind)
}

func (m *missing) has(kind schema.GroupKind) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	since, noted := m.since[kind]
	return noted && time.Since(since) < missingFor
}

package client

import (
	"time"
	"unique"
)

// recentWriteAge is the minimum time for which a write counts as recent; the maximum is twice as long. It
// exceeds the delay of an informer that works.
const recentWriteAge = time.Minute

// recentWrites contains the objects that this client has written recently. Informers may still show their state before
// the write.
type recentWrites struct {
	recent, old writeSet
	since       time.Time // of recent
}

// writeSet contains written objects, each with the applier that made the write (zero: another write), and
// collections.
type writeSet struct {
	objects     map[digest]unique.Handle[applier]
	collections map[unique.Handle[collection]]bool
}

// current returns the set to which new writes are added, and drops expired ones.
func (w *recentWrites) current() writeSet {
	if elapsed := time.Since(w.since); w.recent.objects == nil || elapsed > recentWriteAge {
		if w.old = w.recent; elapsed > 2*recentWriteAge {
			w.old = writeSet{}
		}
		w.recent = writeSet{
			objects:     map[digest]unique.Handle[applier]{},
			collections: map[unique.Handle[collection]]bool{},
		}
		w.since = time.Now()
	}
	return w.recent
}

// has reports whether the object of id has a recent write other than by its applier.
func (w *recentWrites) has(id appliedID) bool {
	w.current()
	return w.recent.has(id) || w.old.has(id)
}

func (s writeSet) has(id appliedID) bool {
	by, exists := s.objects[id.object]
	return exists && by != id.applier || s.collections[id.collection]
}

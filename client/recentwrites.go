package client

import (
	"time"
	"unique"
)

// recentWriteAge is the minimum time for which a write counts as recent; the maximum is twice as long. It
// exceeds the delay of an informer that works.
const recentWriteAge = time.Minute

// recentWrites contains the objects and collections that this client has written recently, each with the applier that
// made the write (zero: another write). Informers may still show their state before the write. Unlike ownWrites, it
// needs no response, and exists without Config.ReadOwnWrites.
type recentWrites struct {
	recent, old map[digest]unique.Handle[applier]
	since       time.Time // of recent
}

// current returns the map to which new writes are added, and drops expired ones.
func (w *recentWrites) current() map[digest]unique.Handle[applier] {
	if elapsed := time.Since(w.since); w.recent == nil || elapsed > recentWriteAge {
		if w.old = w.recent; elapsed > 2*recentWriteAge {
			w.old = nil
		}
		w.recent, w.since = map[digest]unique.Handle[applier]{}, time.Now()
	}
	return w.recent
}

// has reports whether the object of id has a recent write other than by its applier.
func (w *recentWrites) has(id appliedID) bool {
	recent, all := w.current(), id.collection.Value().id()
	for _, writes := range []map[digest]unique.Handle[applier]{recent, w.old} {
		by, exists := writes[id.object]
		if _, deleted := writes[all]; deleted || exists && by != id.applier {
			return true
		}
	}
	return false
}

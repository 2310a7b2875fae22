package informer

import (
	"time"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/store"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// listing is the current list of a part's contents, or the last one. It decides which items may be stored at once, and
// keeps the others until the list has ended. core.events must be held for all fields and methods.
//
// Invariant: only a consistent list contradicts states that a watch or another list has delivered.
type listing struct {
	// consistent is true if the current list is a consistent read of etcd, which may contradict earlier states.
	consistent bool
	// streamed is true if the list arrives through a watch.
	streamed bool
	// open is true until the list has ended. began is the time at which it started.
	open  bool
	began time.Time
	// ahead is the newest version of the cached objects that are newer than a list that is not consistent, and that the
	// list does not contain, or contains in an older state. A failed list may have stored them before etcd was
	// restored.
	ahead string
	// unconfirmed are the objects of the list that contradict earlier states. They are kept until the list has ended.
	//
	// If the list is not consistent, these are the objects that were not cached, although everything up to their
	// resource version has arrived. If the list turns out to be older than that, they have been deleted since.
	//
	// If the list is streamed, these are also the objects that are older than the cached state. KEP-3157 lets a server
	// start with the content of its cache, which may be stale, and end the list when the cache is up to date. Newer
	// states follow in the same stream, and replace these objects. Those that remain at the end of a consistent list
	// are valid.
	unconfirmed map[kube.Key]*wire.Object
}

// supersede discards an unconfirmed object, because another state of it has arrived.
func (l *listing) supersede(key kube.Key) { delete(l.unconfirmed, key) }

// deleted discards an unconfirmed object that o, the state of a delete event, is not older than.
func (l *listing) deleted(o *wire.Object) {
	if item, found := l.unconfirmed[o.Key]; found && !apiobject.OlderVersion(o.ResourceVersion, item.ResourceVersion) {
		delete(l.unconfirmed, o.Key)
	}
}

// lacks records that the cache has an object in a newer version than the list.
func (l *listing) lacks(version string) {
	if l.ahead == "" || apiobject.OlderVersion(l.ahead, version) {
		l.ahead = version
	}
}

// postpones reports whether an item is unconfirmed, and keeps it until the list has ended. cached is true if the cache
// has the object, isOlder if it has a newer state. Everything up to newest has arrived.
func (l *listing) postpones(o *wire.Object, cached, isOlder bool, newest string) bool {
	maybeDeleted := !cached && (l.streamed || !l.consistent) && apiobject.VersionNotAfter(o.ResourceVersion, newest)
	if !maybeDeleted && (!isOlder || !l.streamed) {
		return false
	}
	if l.unconfirmed == nil {
		l.unconfirmed = map[kube.Key]*wire.Object{}
	}
	l.unconfirmed[o.Key] = o.Clone()
	return true
}

// currentAt returns the time at which the whole list was current.
func (l *listing) currentAt() time.Time {
	if l.streamed {
		return time.Now()
	}
	return l.began // the list lacks changes that were made while its pages arrived
}

// confirms reports whether an unconfirmed object replaces the cached state when the list has ended.
func (l *listing) confirms(o *wire.Object, kept *store.Ref) bool {
	return !kept.Exists() || l.consistent || apiobject.OlderVersion(kept.ResourceVersion(), o.ResourceVersion)
}

// showsDeletion reports whether a cached object that the list does not contain was deleted. A list that is older than
// the object does not show whether the object exists.
func (l *listing) showsDeletion(resourceVersion string, kept *store.Ref) bool {
	if l.consistent || !apiobject.OlderVersion(resourceVersion, kept.ResourceVersion()) {
		return true
	}
	l.lacks(kept.ResourceVersion())
	return false
}

// newestAhead returns ahead if it is newer than the list, which has ended at resourceVersion.
func (l *listing) newestAhead(resourceVersion string) string {
	if apiobject.OlderVersion(resourceVersion, l.ahead) {
		return l.ahead
	}
	return ""
}

package informer

import (
	"sync/atomic"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/store"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// contents are the objects of a part. It stores what lists and watches deliver, announces the changes to the
// subscribers, and then calls the waiters for writes.
//
// Invariants: an older state never replaces a newer one, except that of a consistent list. A change is stored before it
// is announced, and announced before its waiters are called. core.events is held meanwhile, so changes are announced in
// the order in which they are stored.
type contents struct {
	// Immutable after newPart.
	core     *core
	progress *progress
	ending   cache.Ending // of an object that a watch or a list removes

	kept atomic.Pointer[store.Store] // of the current session; the store itself is safe for concurrent use

	list        listing   // guarded by core.events
	awaits      awaits    // guarded by core.events
	unindexedAt time.Time // guarded by core.events; the last warning about a failing index
}

// begin resets c for a session.
func (c *contents) begin() { c.kept.Store(store.New(store.Config{Indexes: *c.core.indexes.Load()})) }

func (c *contents) objects() *store.Store { return c.kept.Load() }

// arrived stores an object of a list or an event and announces the change, unless the cached state is the same or
// newer. A consistent list also replaces newer states. An object that was not cached is announced as typeForNew.
//
// For items of lists, two states of the same version are the same only if their content is. An API server that was
// restored from a backup reuses versions, and one that converts objects differently than before keeps their versions.
func (c *contents) arrived(o *wire.Object, typeForNew ChangeType, from origin) {
	c.core.events.Lock()
	defer c.core.events.Unlock()
	objects, listed, newest := c.objects(), from == fromList, c.progress.advance(o.ResourceVersion, from)
	c.list.supersede(o.Key)
	c.store(o, typeForNew, from, func(kept store.Ref) bool {
		isOlder := kept.Exists() && apiobject.OlderVersion(o.ResourceVersion, kept.ResourceVersion())
		isSame := kept.Same(o) && (!listed || !c.core.states.hasOtherContent(kept, o))
		if isSame || isOlder && (!listed || !c.list.consistent) {
			objects.Mark(o.Key)
			if listed && isOlder {
				c.list.lacks(kept.ResourceVersion())
			}
			return false
		}
		return !listed || !c.list.postpones(o, kept.Exists(), isOlder, newest)
	})
	c.awaits.shown(objects, o.Key)
}

// store stores and announces o, if accept returns true: as t, or as Updated if it was cached. core.events must be held.
func (c *contents) store(o *wire.Object, t ChangeType, from origin, accept func(kept store.Ref) bool) {
	old, current, err := c.objects().PutIf(o, accept)
	if !current.Exists() {
		return
	}
	if err != nil {
		c.unindexed(o.Key, err)
	}
	c.core.states.arrived(old, current, o, from)
	if old.Exists() {
		t = Updated
	}
	c.core.announce(c, t, o.Key)
}

// unindexed logs that an index fails to find an object. It logs at most one warning an hour, because an index may fail
// for each state of each object. core.events must be held.
func (c *contents) unindexed(key kube.Key, err error) {
	log := c.core.logger.Debug
	if now := time.Now(); c.unindexedAt.IsZero() || now.Sub(c.unindexedAt) >= manyReasonsEvery {
		log, c.unindexedAt = c.core.logger.Warn, now
	}
	log("informer keeps an object without an index", "informer", c.core.name, "key", key.String(), "error",
		usercode.Error(err))
}

// deleted removes an object after its delete event.
func (c *contents) deleted(o *wire.Object, from origin) {
	c.core.events.Lock()
	defer c.core.events.Unlock()
	objects := c.objects()
	defer c.awaits.shown(objects, o.Key)
	c.progress.advance(o.ResourceVersion, from)
	c.list.deleted(o)
	kept, found := objects.Get(o.Key)
	if !found {
		return
	}
	if kept.UID() != o.UID && (apiobject.OlderVersion(o.ResourceVersion, kept.ResourceVersion()) ||
		c.progress.now().perObject) {
		return // the event deleted an earlier object of this name
	}
	c.remove(o.Key, from == unbroken && kept.UID() == o.UID, from, c.ending)
}

// remove removes the object under key and announces it. last is true if the cached state is the object's last one.
// core.events must be held.
func (c *contents) remove(key kube.Key, last bool, from origin, ending cache.Ending) {
	if old, found := c.objects().Delete(key); found {
		c.core.states.gone(old, last, from, ending)
		c.core.announce(c, Deleted, key)
	}
}

// removeAll removes all objects, because the part was dropped, or because the kind was removed with its objects. If the
// kind is installed again, its versions are not related to the earlier ones.
func (c *contents) removeAll() {
	c.core.events.Lock()
	defer c.core.events.Unlock()
	c.list.unconfirmed = nil
	c.progress.forgetVersion()
	for key := range c.objects().Keys() {
		c.remove(key, false, fromList, cache.Left)
	}
	c.awaits.release(c.awaits.all())
}

// bookmarked records that all changes up to resourceVersion have arrived.
func (c *contents) bookmarked(resourceVersion string, from origin) {
	c.core.events.Lock()
	defer c.core.events.Unlock()
	c.progress.advance(resourceVersion, from)
	if from.inOrder() {
		c.awaits.shownAll(c.objects())
	}
}

// beginList discards the state of an earlier list. The pages of that list may be from another time.
func (c *contents) beginList(consistent, streamed bool) {
	c.core.events.Lock()
	defer c.core.events.Unlock()
	c.list = listing{consistent: consistent, streamed: streamed, open: true, began: time.Now()}
	c.objects().BeginList()
}

// listEnd is the result of a list.
type listEnd struct {
	streamed bool
	// ahead is true if the cache has objects that are newer than the list, which only a restore of etcd explains, or a
	// list from an old cache of the server.
	ahead bool
	// verified is true if the list has shown which of the awaited writes are lost.
	verified bool
}

// endList ends the list at resourceVersion, and removes the objects that the list did not contain. Objects that were
// not cached are announced as typeForNew. ok is false if the list has already ended. core.events must be held.
func (c *contents) endList(resourceVersion string, typeForNew ChangeType) (end listEnd, ok bool) {
	list, objects := &c.list, c.objects()
	if !list.open {
		return listEnd{}, false
	}
	list.open = false
	if newest := c.progress.advance("", fromList); list.consistent || !apiobject.OlderVersion(resourceVersion, newest) {
		c.progress.listed(resourceVersion, list.currentAt())
		for _, o := range list.unconfirmed {
			c.store(o, typeForNew, fromList, func(kept store.Ref) bool { return list.confirms(o, &kept) })
		}
	}
	list.unconfirmed = nil
	for key := range objects.Unmarked() {
		if kept, found := objects.Get(key); found && list.showsDeletion(resourceVersion, &kept) {
			c.remove(key, false, fromList, c.ending)
		}
	}
	objects.EndList()
	ahead := list.newestAhead(resourceVersion)
	c.progress.setAhead(ahead)
	return listEnd{streamed: list.streamed, ahead: ahead != "", verified: list.consistent || c.awaits.empty()}, true
}

// showList calls the waiters for writes that the ended list shows. core.events must be held.
func (c *contents) showList() {
	c.awaits.shownAll(c.objects())
	if c.list.consistent {
		c.awaits.releaseBefore(c.list.began) // a write that the list does not show is lost
	}
}

// await adds write to the writes that the part has not shown, unless it shows the write. notSelected is true if the
// write takes the object out of the selection. core.events must be held.
func (c *contents) await(write *waiter, notSelected bool) {
	c.awaits.add(c.objects(), write, notSelected)
}

// releaseWaiters calls all waiters, because the part cannot show their writes.
func (c *contents) releaseWaiters() {
	c.core.events.Lock()
	defer c.core.events.Unlock()
	c.awaits.release(c.awaits.all())
}

// releaseLost calls the waiters for writes whose version is later than that of a consistent list. The list started at
// the time at. A restore of etcd has lost these writes.
func (c *contents) releaseLost(version string, at time.Time) {
	c.core.events.Lock()
	defer c.core.events.Unlock()
	c.awaits.releaseLater(version, at)
}

package informer

import (
	"container/heap"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/store"
	"github.com/evenkeel-go/evenkeel/kube"
)

// await implements cache.Awaiter. content returns the fields of the written object, or nil if they are not known.
func (c *core) await(w cache.Write, content func() map[string]any, seen func()) (cancel func()) {
	c.events.Lock()
	write := c.awaited(w, content)
	write.seen = seen
	waits := len(write.awaited) > 0
	write.Object, write.content = nil, nil // only the selections needed the caller's object
	c.events.Unlock()
	if !waits {
		if write.shown {
			c.counters.lag.Store(0)
		}
		seen()
		return func() {}
	}
	return func() {
		c.events.Lock()
		defer c.events.Unlock()
		write.cancel()
	}
}

// awaited returns a waiter for a write that each part which must show it awaits. events must be held.
func (c *core) awaited(w cache.Write, content func() map[string]any) *waiter {
	write := &waiter{Write: w, content: content, began: time.Now()}
	write.version, write.comparable = parseVersion(w.ResourceVersion)
	if running, parts := c.showing(); running {
		for _, p := range parts {
			p.await(write)
		}
	}
	return write
}

// cancel ends the wait without a call of seen. core.events must be held.
func (w *waiter) cancel() {
	for _, a := range w.awaited {
		a.in.remove(a)
	}
	w.awaited = nil
}

func (c *core) readyFor(w cache.Write, content func() map[string]any) error {
	running, parts := c.showing()
	if !running {
		return c.health().Ready()
	}
	var errs []error
	for _, p := range parts {
		now := p.status.condition()
		switch {
		case !now.complete, !p.readsFrom(w.Server), p.selects.has(w, content) == never:
		case now.err != nil:
			errs = append(errs, fmt.Errorf("informer %q: %w", c.name, now.err))
		}
	}
	return errors.Join(errs...)
}

// showing returns the parts that must show writes: all parts except those that SetRetriever has added and that have not
// listed.
func (c *core) showing() (running bool, parts []*part) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session != nil, slices.DeleteFunc(slices.Clone(c.parts), func(p *part) bool {
		return p.isNew && !p.status.condition().complete
	})
}

// waiter is an awaited write. core.events must be held.
type waiter struct {
	cache.Write
	content    func() map[string]any
	seen       func()
	began      time.Time
	version    uint64 // the ResourceVersion, if comparable
	comparable bool
	shown      bool       // a part showed the write when the wait began
	awaited    []*awaited // one for each part that must still show the write
}

// awaited is a write that one part has not shown yet.
type awaited struct {
	*waiter
	in          *awaits
	place       int  // index in awaits.byVersion; -1: not in it
	notSelected bool // the write takes the object out of the selection, so that it will be removed
}

// awaits are the writes that a part has not shown yet. core.events must be held for all fields and methods.
//
// Invariants: each write is in byKey until the part shows it, or until it is certain that it never will. A waiter is
// called once, after the last of its parts has removed it.
type awaits struct {
	// Immutable.
	progress *progress
	lag      *atomic.Int64 // see counters

	byKey     map[kube.Key][]*awaited
	byVersion versions // the elements of byKey with comparable versions
}

// empty reports whether no write is awaited.
func (w *awaits) empty() bool { return len(w.byKey) == 0 }

// add adds write to the awaited writes, unless objects show it. notSelected is true if the write takes the object out
// of the selection.
func (w *awaits) add(objects *store.Store, write *waiter, notSelected bool) {
	a := &awaited{waiter: write, in: w, place: -1, notSelected: notSelected}
	if w.shows(objects, a) {
		write.shown = true
		return
	}
	if w.byKey == nil {
		w.byKey = map[kube.Key][]*awaited{}
	}
	w.byKey[write.Key] = append(w.byKey[write.Key], a)
	if write.comparable {
		heap.Push(&w.byVersion, a)
	}
	write.awaited = append(write.awaited, a)
}

// shows reports whether objects show the write of a.
func (w *awaits) shows(objects *store.Store, a *awaited) bool {
	kept, found := objects.Get(a.Key)
	reached := w.progress.now()
	passed := a.comparable && reached.includes(a.ResourceVersion)
	if a.Deleted {
		gone := !found || a.UID != "" && kept.UID() != a.UID && kept.UID() != a.Earlier
		if reached.perObject {
			return gone && !w.awaitsBefore(a)
		}
		// An event that created the object may precede the deletion, and may not have arrived yet.
		later := found && apiobject.VersionNotAfter(a.ResourceVersion, kept.ResourceVersion())
		return gone && (!a.comparable || passed || later || a.notSelected && !w.awaitsBefore(a))
	}
	if found {
		version := kept.ResourceVersion()
		if version == a.ResourceVersion || apiobject.VersionNotAfter(a.ResourceVersion, version) {
			return true
		}
		// The watch has passed the write's version without delivering the write. So the server counts the writes of
		// each object, and only another object of the same name proves that the write was missed.
		return passed && (!isComparable(version) || a.UID != "" && kept.UID() != a.UID)
	}
	return passed || a.notSelected && !w.awaitsBefore(a)
}

// awaitsBefore reports whether an earlier, selected state of a's object is awaited. That state will arrive, and will be
// removed again.
func (w *awaits) awaitsBefore(a *awaited) bool {
	return slices.ContainsFunc(w.byKey[a.Key], func(other *awaited) bool {
		return !other.notSelected && other.comparable && other.version < a.version
	})
}

// shown calls the waiters for writes that objects show, after an event of the object under key.
func (w *awaits) shown(objects *store.Store, key kube.Key) {
	if w.empty() {
		return
	}
	w.callShown(objects, slices.Clone(w.byKey[key]))
	w.shownUpToNewest(objects)
}

// shownUpToNewest calls the waiters for writes up to the version that the part has reached. A waiter that the part does
// not satisfy yet is checked again after the next event of its key, for example the waiter for a deletion whose version
// is that of an earlier state.
func (w *awaits) shownUpToNewest(objects *store.Store) {
	newest, ok := parseVersion(w.progress.now().newest)
	for ok && len(w.byVersion) > 0 && w.byVersion[0].version <= newest {
		w.callShown(objects, []*awaited{heap.Pop(&w.byVersion).(*awaited)})
	}
}

// shownAll does the same as shown for all keys, after a list or a bookmark.
func (w *awaits) shownAll(objects *store.Store) { w.callShown(objects, w.all()) }

// callShown calls the waiters of those writes that objects show.
func (w *awaits) callShown(objects *store.Store, of []*awaited) {
	for _, a := range of {
		if w.shows(objects, a) && w.settle(a) {
			w.lag.Store(int64(time.Since(a.began)))
			a.seen()
		}
	}
}

// all returns all awaited writes.
func (w *awaits) all() (all []*awaited) {
	for _, waits := range w.byKey {
		all = append(all, waits...)
	}
	return all
}

// release calls the waiters for writes that the part will not show.
func (w *awaits) release(lost []*awaited) {
	for _, a := range lost {
		if w.settle(a) {
			a.seen()
		}
	}
}

// releaseBefore does the same as release, for waiters that started before a time.
func (w *awaits) releaseBefore(at time.Time) {
	w.release(slices.DeleteFunc(w.all(), func(a *awaited) bool { return !a.began.Before(at) }))
}

// releaseLater does the same as releaseBefore, for writes with a later version than the given one.
func (w *awaits) releaseLater(version string, at time.Time) {
	if w.progress.now().perObject {
		return
	}
	w.release(slices.DeleteFunc(slices.Clone(w.byVersion), func(a *awaited) bool {
		return !a.began.Before(at) || !apiobject.OlderVersion(version, a.ResourceVersion)
	}))
}

// settle removes a, and reports whether it was the last one of its waiter.
func (w *awaits) settle(a *awaited) (last bool) {
	w.remove(a)
	a.waiter.awaited = slices.DeleteFunc(a.waiter.awaited, func(other *awaited) bool { return other == a })
	return len(a.waiter.awaited) == 0
}

// remove removes a without a call of its waiter.
func (w *awaits) remove(a *awaited) {
	waits := slices.DeleteFunc(w.byKey[a.Key], func(other *awaited) bool { return other == a })
	if len(waits) == 0 {
		delete(w.byKey, a.Key)
	} else {
		w.byKey[a.Key] = waits
	}
	if a.place >= 0 {
		heap.Remove(&w.byVersion, a.place)
	}
}

// versions is a heap of awaited writes. The lowest version is first.
type versions []*awaited

// Len implements heap.Interface.
func (v versions) Len() int { return len(v) }

// Less implements heap.Interface.
func (v versions) Less(i, j int) bool { return v[i].version < v[j].version }

// Swap implements heap.Interface.
func (v versions) Swap(i, j int) {
	v[i], v[j] = v[j], v[i]
	v[i].place, v[j].place = i, j
}

// Push implements heap.Interface.
func (v *versions) Push(x any) {
	a := x.(*awaited)
	a.place = len(*v)
	*v = append(*v, a)
}

// Pop implements heap.Interface.
func (v *versions) Pop() any {
	last := len(*v) - 1
	a := (*v)[last]
	(*v)[last] = nil
	*v = (*v)[:last]
	a.place = -1
	return a
}

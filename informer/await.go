package informer

import (
	"container/heap"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/versionorder"
	"github.com/evenkeel-go/evenkeel/kube"
)

func (c *core) await(w cache.Write, seen func()) (cancel func()) {
	write := &waiter{Write: w, seen: seen, began: time.Now()}
	write.version, write.comparable = parseVersion(w.ResourceVersion)
	c.events.Lock()
	running, parts := c.showing()
	if running {
		for _, p := range parts {
			p.await(write)
		}
	}
	waits := len(write.awaited) > 0
	write.Object = nil // only the selections needed the caller's object
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
		for _, a := range write.awaited {
			a.part.forgetAwaited(a)
		}
		write.awaited = nil
	}
}

func (c *core) readyFor(w cache.Write) error {
	running, parts := c.showing()
	if !running {
		return c.health().Ready()
	}
	var errs []error
	for _, p := range parts {
		if p.selects.has(w) == never || p.isDegraded() {
			continue
		}
		p.mu.Lock()
		err, synced := p.err, p.synced
		p.mu.Unlock()
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("informer %q: %w", c.name, err))
		case !synced:
			errs = append(errs, fmt.Errorf("informer %q of %s: the first list is under way", c.name, p.describes))
		}
	}
	return errors.Join(errs...)
}

// showing returns the parts that must show writes: all parts except those that SetRetriever has added and that have not
// listed.
func (c *core) showing() (running bool, parts []*part) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session != nil, slices.DeleteFunc(slices.Clone(c.parts), func(p *part) bool { return p.isNew && !p.isComplete() })
}

// releaseAll calls all waiters, because the informer will not show more writes.
func (c *core) releaseAll() {
	c.events.Lock()
	defer c.events.Unlock()
	for _, p := range c.allParts() {
		p.release()
	}
}

// waiter is an awaited write. core.events must be held.
type waiter struct {
	cache.Write
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
	part        *part
	place       int  // index in awaits.byVersion; -1: not in it
	notSelected bool // the write takes the object out of the selection, so that it will be removed
}

// awaits are the writes that a part has not shown yet. core.events must be held.
type awaits struct {
	byKey     map[kube.Key][]*awaited
	byVersion versions // the elements of byKey with comparable versions
}

// await adds write to the writes that p has not shown, unless p shows it or never will. core.events must be held.
func (p *part) await(write *waiter) {
	if p.isDegraded() {
		return // the part watches nothing
	}
	may := p.selects.has(write.Write)
	if may == never {
		return
	}
	a := &awaited{waiter: write, part: p, place: -1, notSelected: may == notNow}
	if p.shows(a) {
		write.shown = true
		return
	}
	if p.byKey == nil {
		p.byKey = map[kube.Key][]*awaited{}
	}
	p.byKey[write.Key] = append(p.byKey[write.Key], a)
	if write.comparable {
		heap.Push(&p.byVersion, a)
	}
	write.awaited = append(write.awaited, a)
}

// shows reports whether p shows the write of a. core.events must be held.
func (p *part) shows(a *awaited) bool {
	kept, found := p.objects().Get(a.Key)
	perObject := p.isPerObject()
	passed := !perObject && a.comparable && versionorder.NotAfter(a.ResourceVersion, p.resourceVersion())
	if a.Deleted {
		gone := !found || a.UID != "" && kept.UID() != a.UID
		if perObject {
			return gone && !p.awaitsBefore(a)
		}
		// An event that created the object may precede the deletion, and may not have arrived yet.
		later := found && versionorder.NotAfter(a.ResourceVersion, kept.ResourceVersion())
		return gone && (!a.comparable || passed || later || a.notSelected && !p.awaitsBefore(a))
	}
	if found {
		version := kept.ResourceVersion()
		if version == a.ResourceVersion || versionorder.NotAfter(a.ResourceVersion, version) {
			return true
		}
		// The watch has passed the write's version without delivering the write. So the server counts the writes of
		// each object, and only another object of the same name proves that the write was missed.
		return passed && (!isComparable(version) || a.UID != "" && kept.UID() != a.UID)
	}
	return passed || a.notSelected && !p.awaitsBefore(a)
}

// awaitsBefore reports whether an earlier, selected state of a's object is awaited. That state will arrive, and will be
// removed again.
func (p *part) awaitsBefore(a *awaited) bool {
	return slices.ContainsFunc(p.byKey[a.Key], func(other *awaited) bool {
		return !other.notSelected && other.comparable && other.version < a.version
	})
}

// shown calls the waiters for writes that p shows, after an event of the object under key. core.events must be held.
func (p *part) shown(key kube.Key) {
	if len(p.byKey) == 0 {
		return
	}
	for _, a := range slices.Clone(p.byKey[key]) {
		if p.shows(a) {
			p.sawAwaited(a)
		}
	}
	p.shownUpToNewest()
}

// shownUpToNewest calls the waiters for writes up to the version that p has reached. A waiter that p does not satisfy
// yet is checked again after the next event of its key, for example the waiter for a deletion whose version is that of
// an earlier state. core.events must be held.
func (p *part) shownUpToNewest() {
	newest, ok := parseVersion(p.resourceVersion())
	for ok && len(p.byVersion) > 0 && p.byVersion[0].version <= newest {
		a := heap.Pop(&p.byVersion).(*awaited)
		if p.shows(a) {
			p.sawAwaited(a)
		}
	}
}

// shownAll does the same as shown for all keys, after a list or a bookmark.
func (p *part) shownAll() {
	if len(p.byKey) == 0 {
		return
	}
	var all []*awaited
	for _, of := range p.byKey {
		all = append(all, of...)
	}
	for _, a := range all {
		if p.shows(a) {
			p.sawAwaited(a)
		}
	}
}

// sawAwaited records that p shows the write of a.
func (p *part) sawAwaited(a *awaited) {
	if p.settleAwaited(a) {
		p.core.counters.lag.Store(int64(time.Since(a.began)))
		a.seen()
	}
}

// release calls all waiters of p, because p will not show their writes. core.events must be held.
func (p *part) release() {
	for _, of := range p.byKey {
		for _, a := range slices.Clone(of) {
			if p.settleAwaited(a) {
				a.seen()
			}
		}
	}
}

// releaseBefore does the same as release, for waiters that started before a time.
func (p *part) releaseBefore(at time.Time) {
	for _, of := range p.byKey {
		for _, a := range slices.Clone(of) {
			if a.waiter.began.Before(at) && p.settleAwaited(a) {
				a.seen()
			}
		}
	}
}

// releaseLost does the same as releaseBefore, for writes whose version is later than that of a consistent list. The
// list started at the time at. A restore of etcd has lost these writes.
func (p *part) releaseLost(version string, at time.Time) {
	p.core.events.Lock()
	defer p.core.events.Unlock()
	for _, a := range slices.Clone(p.byVersion) {
		if a.waiter.began.Before(at) && versionorder.Older(version, a.ResourceVersion) && !p.isPerObject() && p.settleAwaited(a) {
			a.seen()
		}
	}
}

// settleAwaited removes a, and reports whether it was the last one of its waiter.
func (p *part) settleAwaited(a *awaited) (last bool) {
	p.forgetAwaited(a)
	a.waiter.awaited = slices.DeleteFunc(a.waiter.awaited, func(other *awaited) bool { return other == a })
	return len(a.waiter.awaited) == 0
}

func (p *part) forgetAwaited(a *awaited) {
	of := slices.DeleteFunc(p.byKey[a.Key], func(other *awaited) bool { return other == a })
	if len(of) == 0 {
		delete(p.byKey, a.Key)
	} else {
		p.byKey[a.Key] = of
	}
	if a.place >= 0 {
		heap.Remove(&p.byVersion, a.place)
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

package informer

import (
	"time"

	"github.com/evenkeel-go/evenkeel/internal/store"
	"github.com/evenkeel-go/evenkeel/internal/versionorder"
)

// saw records the arrival of resourceVersion. It returns the store, and the newest resource version up to which
// everything has arrived.
func (p *part) saw(resourceVersion string, from origin) (objects *store.Store, newest string) {
	now := time.Now()
	if from.inOrder() {
		p.isCurrent(now)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastEvent = now
	switch {
	case !from.inOrder():
	case versionorder.Older(resourceVersion, p.newest):
		p.perObject = true // otherwise events arrive in the order of versions
	default:
		p.newest = resourceVersion
	}
	return p.kept, p.newest
}

// isCurrent records that the cache was current at a time.
func (p *part) isCurrent(at time.Time) { p.current.Store(int64(at.Sub(p.core.made)) + 1) }

// staleness returns the maximum age of the cached state. Zero: the part has not listed.
func (p *part) staleness() time.Duration {
	since := p.current.Load()
	if since == 0 {
		return 0
	}
	return time.Since(p.core.made) - time.Duration(since-1)
}

// bookmarked records that all changes up to resourceVersion have arrived.
func (p *part) bookmarked(resourceVersion string, from origin) {
	p.core.events.Lock()
	defer p.core.events.Unlock()
	p.saw(resourceVersion, from)
	if from.inOrder() {
		p.shownAll()
	}
}

// newestSeen returns the newest resource version that the API server has sent: the one up to which everything has
// arrived, or that of a cached object that is newer than the latest list.
func (p *part) newestSeen() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if versionorder.Older(p.newest, p.newestKept) {
		return p.newestKept
	}
	return p.newest
}

func (p *part) resourceVersion() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.newest
}

package informer

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
)

// progress records up to which resource version, and at which times, the objects of a part are current.
//
// Invariants: reached.newest moves back only at the end of a list, and is never newer than what has arrived. After two
// events of a watch with decreasing versions, the versions of different objects are never compared again in the
// session.
type progress struct {
	createdAt time.Time // the time base of current; immutable

	// current is the latest time at which the cache was known to be current, in nanoseconds since made plus one. Zero:
	// the part has not listed.
	current atomic.Int64

	mu      sync.Mutex
	reached reached // guarded by mu
	// guarded by mu; the newest version of a cached object that is newer than the latest list, or ""
	ahead     string
	verified  time.Time // guarded by mu; the last comparison of a list with the cache
	bookmarks bool      // guarded by mu; the Retriever's watches have delivered bookmarks
}

// reached is what has arrived at one time.
type reached struct {
	newest      string    // everything up to this version has arrived
	perObject   bool      // versions of different objects cannot be compared
	lastArrival time.Time // the time of the last list, event or bookmark
}

// includes reports whether everything up to version has certainly arrived.
func (r *reached) includes(version string) bool {
	return !r.perObject && apiobject.VersionNotAfter(version, r.newest)
}

// begin resets p for a session.
func (p *progress) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reached, p.ahead, p.verified = reached{}, "", time.Time{}
	p.current.Store(0)
}

// now returns what has arrived.
func (p *progress) now() reached {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reached
}

// advance records the arrival of resourceVersion. It returns the newest version up to which everything has arrived.
func (p *progress) advance(resourceVersion string, from origin) (newest string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reached.lastArrival = time.Now()
	if from.inOrder() {
		p.currentAt(p.reached.lastArrival)
		if apiobject.OlderVersion(resourceVersion, p.reached.newest) {
			p.reached.perObject = true // otherwise events arrive in the order of versions
		} else {
			p.reached.newest = resourceVersion
		}
	}
	return p.reached.newest
}

// listed records that everything up to resourceVersion was listed. The list was current at a time.
func (p *progress) listed(resourceVersion string, at time.Time) {
	p.currentAt(at)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reached.newest = resourceVersion
}

// setAhead records the newest version of a cached object that is newer than the latest list. Empty: there is none.
func (p *progress) setAhead(version string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ahead = version
}

// forgetVersion forgets the newest version, because later versions are not related to it.
func (p *progress) forgetVersion() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reached.newest = ""
}

// currentAt records that the cache was current at a time.
func (p *progress) currentAt(at time.Time) { p.current.Store(int64(at.Sub(p.createdAt)) + 1) }

// staleness returns the maximum age of the cached state. Zero: the part has not listed.
func (p *progress) staleness() time.Duration {
	since := p.current.Load()
	if since == 0 {
		return 0
	}
	return time.Since(p.createdAt) - time.Duration(since-1)
}

// newestSent returns the newest resource version that the API server has sent: the one up to which everything has
// arrived, or that of a cached object that is newer than the latest list.
func (p *progress) newestSent() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if apiobject.OlderVersion(p.reached.newest, p.ahead) {
		return p.ahead
	}
	return p.reached.newest
}

// foundPerObject records that versions of different objects cannot be compared. It reports whether this was unknown.
func (p *progress) foundPerObject() (isNew bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	isNew = !p.reached.perObject
	p.reached.perObject = true
	return isNew
}

// sawBookmark records that a watch has delivered a periodic bookmark.
func (p *progress) sawBookmark() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bookmarks = true
}

// verifiedAt records that a list was compared with the cache, or that it failed.
func (p *progress) verifiedAt(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.verified = at
}

// quietUntil returns the time until which a watch may deliver nothing. opened is the time at which it was opened.
// wasSilent is true if the watch before it was silent.
func (p *progress) quietUntil(opened time.Time, wasSilent bool) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	limit := silentWithoutBookmarks
	if p.bookmarks || wasSilent {
		limit = silentWatch
	}
	last := p.reached.lastArrival
	if p.verified.After(last) {
		last = p.verified
	}
	// The start of a new watch does not extend the time, because it shows no events.
	due := last.Add(limit)
	if first := opened.Add(inFlight); due.Before(first) {
		return first
	}
	return due
}

package informer

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/store"
)

// part is one list and watch of an informer: that of its only Retriever, or of one of the joined Retrievers.
//
// Lists and watches do not pass their objects to client-go's Reflector. They store the objects as they arrive, and
// report their progress to the Reflector. So a list is never in memory in addition to the store.
type part struct {
	// Immutable after newPart.
	core      *core
	feed      feed
	describes string
	watchList bool
	identity  any       // the Retriever, to detect whether another one is the same
	selects   selection // the selection, as far as it is known

	// Set by begin, for one session; guarded by core.mu.
	stop    context.CancelFunc
	ended   chan struct{} // closed when the watch has ended
	settled chan struct{} // closed when callers need not wait for the first list anymore
	isNew   bool          // guarded by core.mu; only SetRetriever waits for its first list

	mu        sync.Mutex
	kept      *store.Store    // guarded by mu; the store itself is safe for concurrent use
	first     ChangeType      // guarded by mu; the type of changes that the first list announces
	synced    bool            // guarded by mu
	degraded  bool            // guarded by mu; optional, and not served or forbidden
	complete  bool            // guarded by mu; a list has ended since begin, and since the part was last degraded
	lastEvent time.Time       // guarded by mu
	err       error           // guarded by mu; why the list or watch fails now
	errSince  time.Time       // guarded by mu
	broken    bool            // guarded by mu; err is the error of a watch that had been opened
	logged    map[string]bool // guarded by mu; reasons that were logged since the part last worked, at most maxReasons
	loggedAt  time.Time       // guarded by mu; the time of the last logged reason
	// Guarded by mu. The part lists in pages until pagedUntil, for the duration paged, because a streamed list did not
	// end.
	pagedUntil time.Time
	paged      time.Duration
	gone410    int       // guarded by mu; consecutive requests that failed because history was gone
	newest     string    // guarded by mu; the newest resource version of a list, an event or a bookmark
	bookmarks  bool      // guarded by mu; the Retriever's watches have delivered bookmarks
	silent     bool      // guarded by mu; err is ErrSilentWatch
	suspect    bool      // guarded by mu; the next list must not come from the server's cache
	perObject  bool      // guarded by mu; versions of different objects cannot be compared
	checked    time.Time // guarded by mu; the last comparison of a list with the cache
	// Guarded by mu. Requests have failed, and no list has shown since then that versions did not go back and that no
	// awaited write is lost.
	unverified bool
	newestKept string // guarded by mu; see listing.ahead; empty: no object is newer than the latest list

	// current is the latest time at which the cache was known to be current, in nanoseconds since core.made plus one.
	// Zero: the part has not listed.
	current atomic.Int64

	listing               // guarded by core.events
	awaits                // guarded by core.events
	unindexedAt time.Time // guarded by core.events; the last warning about a failing index
}

func (p *part) objects() *store.Store {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kept
}

// begin resets the part for a session. stop ends it. Objects of its first list are announced as first. core.mu must be
// held.
func (p *part) begin(stop context.CancelFunc, first ChangeType) {
	p.stop, p.ended, p.settled = stop, make(chan struct{}), make(chan struct{})
	p.mu.Lock()
	p.kept, p.first = p.core.newStore(), first
	p.synced, p.complete, p.degraded, p.err, p.errSince, p.broken = false, false, false, nil, time.Time{}, false
	p.lastEvent, p.newest, p.gone410 = time.Time{}, "", 0
	p.silent, p.suspect, p.checked, p.perObject = false, false, time.Time{}, false
	p.unverified, p.newestKept = false, ""
	p.mu.Unlock()
	p.current.Store(0)
}

// isSettled reports whether settled is closed. core.mu must be held.
func (p *part) isSettled() bool {
	select {
	case <-p.settled:
		return true
	default:
		return false
	}
}

// isComplete reports whether p has all the objects that it selects, up to the progress of its watch.
func (p *part) isComplete() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.complete
}

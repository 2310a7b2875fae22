package informer

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/store"
)

// part is one list and watch of an informer: of its only Retriever, or of one of the joined ones.
//
// Lists and watches do not pass their objects to client-go's Reflector. They store them as they arrive, and report
// their progress to the Reflector. So a list is never in memory in addition to the store.
type part struct {
	// Immutable after newPart.
	core      *core
	feed      feed
	describes string
	watchList bool
	identity  any       // the Retriever, to find out whether another is the same
	selects   selection // what it retrieves, as far as it is known

	// Set by begin, for one session; guarded by core.mu.
	stop    context.CancelFunc
	ended   chan struct{} // closed when the watch has ended
	settled chan struct{} // closed when nobody needs to wait for the first list (any more)
	isNew   bool          // guarded by core.mu; SetRetriever waits for its list, nobody else does

	mu        sync.Mutex
	kept      *store.Store    // guarded by mu; the store itself is safe to use outside
	first     ChangeType      // guarded by mu; what objects of the first list are announced as
	synced    bool            // guarded by mu
	degraded  bool            // guarded by mu; optional, and cannot be read now
	complete  bool            // guarded by mu; a list has ended since begin, and since the part was last degraded
	lastEvent time.Time       // guarded by mu
	err       error           // guarded by mu; why list or watch fail now
	errSince  time.Time       // guarded by mu
	broken    bool            // guarded by mu; err is about a watch that had been opened
	logged    map[string]bool // guarded by mu; reasons that were logged since it last worked, at most maxReasons
	loggedAt  time.Time       // guarded by mu; when one was logged last
	// Guarded by mu; until when lists are in pages, because a streamed one did not end, and for how
	// long that was.
	pagedUntil time.Time
	paged      time.Duration
	gone410    int       // guarded by mu; how often in a row history was gone, since it last worked
	newest     string    // guarded by mu; the newest resource version that a list, an event or a bookmark had
	bookmarks  bool      // guarded by mu; the Retriever's watches have brought bookmarks
	silent     bool      // guarded by mu; err is that a watch was silent
	suspect    bool      // guarded by mu; the next list must not come from the server's cache
	perObject  bool      // guarded by mu; versions of different objects cannot be compared
	checked    time.Time // guarded by mu; when a list was last compared, because the watch was quiet
	// Guarded by mu; requests have failed since a list last showed that versions did not go back and
	// that no awaited write is lost.
	unverified bool
	newestKept string // guarded by mu; see listing.ahead; empty: no object is newer than the latest list

	// current is since when something may be newer than what is kept: one more than the
	// nanoseconds since core.made. Zero: there has been no list.
	current atomic.Int64

	listing               // guarded by core.events
	awaits                // guarded by core.events
	unindexedAt time.Time // guarded by core.events; when a failing index was logged as a warning
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

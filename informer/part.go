package informer

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel-go/evenkeel/internal/store"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// part is one list and watch of an informer: the whole of it, or one of a joined
// Retriever's.
//
// Lists and watches do not hand their objects to client-go's Reflector, but put them into
// the store as they come, and tell the Reflector how far they have come. So a list is never
// in memory beside the store.
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

// listing is what is remembered of the list that is coming.
type listing struct {
	// consistent is true when what is being listed is a consistent read of etcd, which
	// may contradict what was seen before.
	consistent bool
	// streamed is true when what is being listed comes by a watch.
	streamed bool
	// open is true until the list has ended, which began at a moment.
	open  bool
	began time.Time
	// ahead is the newest version of the kept objects that the list does not have, or in an older
	// state, and that are newer than the list, if it is not consistent. A list that failed may have
	// brought them before etcd was restored.
	ahead string
	// doubtful are objects of a list that contradict what was seen, until the list has ended.
	//
	// Of a list that is not consistent: those that were not kept, although everything up to
	// their resource version has been seen. If the list turns out to be older than that, they
	// have been deleted since.
	//
	// Of a streamed list also those that are older than the kept state. KEP-3157 lets a server
	// begin it with what its cache has, which may lag behind, and end it when the cache has
	// caught up: what is newer comes in the same stream, and takes them out again. What is left
	// at the end of a consistent one is believed.
	doubtful map[kube.Key]*wire.Object
}

func (p *part) objects() *store.Store {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kept
}

// begin makes the part new for a session. stop will end it; first is what the objects of
// its first list are announced as. It is called with core.mu held.
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

// isSettled reports whether settled is closed. It is called with core.mu held.
func (p *part) isSettled() bool {
	select {
	case <-p.settled:
		return true
	default:
		return false
	}
}

// isComplete reports whether p shows all that it selects, as far as its watch has come.
func (p *part) isComplete() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.complete
}

// list is what the Reflector lists with: it stores the items and returns an empty list
// that says how far they go.
func (p *part) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if opts.Continue == "" {
		opts = p.distrust(opts)
		p.beginList(opts.ResourceVersion == "", false)
	}
	as := p.asNew()
	var versions versionCheck
	request, answer := p.patience(ctx, "list")
	defer answer.end()
	about, err := p.feed.list(request, opts, func(o *wire.Object) error {
		if err := request.Err(); err != nil {
			return err
		}
		answer.pause() // subscribers may take long
		defer answer.resume()
		if o.Key.Name == "" {
			return errNoName
		}
		versions.item(o.ResourceVersion)
		p.arrived(o, as, fromList)
		return nil
	})
	err = answer.explain(request, err)
	switch {
	case err == nil && versions.perObject(about.ResourceVersion):
		p.foundPerObject()
	case err == nil:
	case ctx.Err() != nil:
		return nil, err
	case !isHistoryGone(err), asksForNoHistory(opts):
		p.failed(err)
		p.versionRefused(opts, err)
		return nil, err
	default:
		p.historyGone(err)
		return nil, err
	}
	return &metav1.PartialObjectMetadataList{ListMeta: about}, nil
}

// beginList forgets what an earlier list has said: its pages may have come from another
// moment.
func (p *part) beginList(consistent, streamed bool) {
	p.core.events.Lock()
	defer p.core.events.Unlock()
	p.listing = listing{consistent: consistent, streamed: streamed, open: true, began: time.Now()}
	p.objects().BeginList()
}

func (p *part) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	streamsList := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	if streamsList {
		if p.refusesStreams() {
			return nil, errNoStreamedLists
		}
		opts = p.distrust(opts)
		p.beginList(opts.ResourceVersion == "", true)
	}
	request, answer := p.patience(ctx, "watch")
	events, err := p.feed.watch(request, opts)
	answer.pause()
	if err = answer.explain(request, err); err != nil {
		answer.end()
	}
	switch {
	case err == nil:
		if !streamsList {
			p.opened()
		}
		return newStream(request, p, events, opts, answer.end), nil
	case streamsList && isHistoryGone(err) && !asksForNoHistory(opts):
		return nil, err
	case streamsList:
		// The Reflector falls back to a list, whose error is the one to report. It would
		// sleep without regard to ctx for errors it deems transient, and not sleep at all for
		// a history that is gone; behind errors.New it does not see that this is one.
		return nil, errors.New(err.Error())
	case ctx.Err() != nil:
	case isHistoryGone(err):
		p.historyGone(err)
	default:
		p.failed(err)
	}
	return nil, err
}

func (p *part) refusesStreams() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Before(p.pagedUntil)
}

// asNew is what an object is announced as that was not kept.
func (p *part) asNew() ChangeType {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.synced {
		return Added
	}
	return p.first
}

// arrived stores an object that a list or an event has brought, and announces the change,
// unless the kept state is the same or, except where the list is to be believed, newer. An
// object that was not kept is announced as asNew says.
//
// The content of a list's item decides whether a state of the same version is the same: an API
// server that was restored from a backup uses versions again, and one that converts objects
// otherwise than before keeps their versions.
func (p *part) arrived(o *wire.Object, asNew ChangeType, from origin) {
	p.core.events.Lock()
	defer p.core.events.Unlock()
	objects, newest := p.saw(o.ResourceVersion, from)
	listed := from == fromList
	believed := listed && p.consistent
	delete(p.doubtful, o.Key)
	p.store(objects, o, asNew, from, func(kept store.Ref, found bool) bool {
		isOlder := found && older(o.ResourceVersion, kept.ResourceVersion())
		switch {
		case found && kept.Same(o) && (!listed || !p.core.states.hasOtherContent(kept, o)), isOlder && !believed:
			objects.Mark(o.Key)
			if listed && isOlder {
				p.isAhead(kept.ResourceVersion())
			}
		case isOlder && p.streamed,
			!found && listed && (p.streamed || !believed) && notAfter(o.ResourceVersion, newest):
			p.doubt(o)
		default:
			return true
		}
		return false
	})
	p.shown(o.Key)
}

// doubt puts o off until the list has ended. It is called with events held.
func (p *part) doubt(o *wire.Object) {
	if p.doubtful == nil {
		p.doubtful = map[kube.Key]*wire.Object{}
	}
	p.doubtful[o.Key] = o.Clone()
}

// store keeps o, if accept says so, and announces it. It is called with events held.
func (p *part) store(objects *store.Store, o *wire.Object, asNew ChangeType, from origin, accept func(kept store.Ref, found bool) bool) {
	old, replaced, put, err := objects.PutIf(o, accept)
	if !put {
		return
	}
	if err != nil {
		p.unindexed(o.Key, err)
	}
	p.core.states.arrived(p, old, replaced, o, from)
	as := asNew
	if replaced {
		as = Updated
	}
	p.core.announce(p, as, o.Key)
}

// unindexed logs that an index does not find an object: as a warning once an hour, because an index
// may fail for each state of each object. It is called with events held.
func (p *part) unindexed(key kube.Key, err error) {
	log := p.core.logger.Debug
	if now := time.Now(); p.unindexedAt.IsZero() || now.Sub(p.unindexedAt) >= manyReasonsEvery {
		log, p.unindexedAt = p.core.logger.Warn, now
	}
	log("informer keeps an object without an index", "informer", p.core.name, "key", key.String(), "error", usercode.Error(err))
}

// gone forgets an object whose deletion an event has brought.
func (p *part) gone(o *wire.Object, from origin) {
	p.core.events.Lock()
	defer p.core.events.Unlock()
	defer p.shown(o.Key)
	objects, _ := p.saw(o.ResourceVersion, from)
	if listed, doubted := p.doubtful[o.Key]; doubted && !older(o.ResourceVersion, listed.ResourceVersion) {
		delete(p.doubtful, o.Key)
	}
	kept, found := objects.Get(o.Key)
	if !found {
		return
	}
	if kept.UID() != o.UID && (older(o.ResourceVersion, kept.ResourceVersion()) || p.isPerObject()) {
		return // an earlier incarnation's end
	}
	p.forget(objects, o.Key, from == unbroken && kept.UID() == o.UID, from)
}

// forget drops what is kept under key and announces it; last says that it is the object's last
// state. It is called with events held.
func (p *part) forget(objects *store.Store, key kube.Key, last bool, from origin) {
	if old, found := objects.Delete(key); found {
		p.core.states.gone(old, last, from)
		p.core.announce(p, Deleted, key)
	}
}

// listed ends a list at resourceVersion: what it did not have is gone. It must be called
// before an event that follows the list is stored, and does nothing when called again.
func (p *part) listed(resourceVersion string) {
	as := p.asNew()
	p.core.events.Lock()
	defer p.core.events.Unlock()
	if !p.open {
		return
	}
	p.open = false
	objects, newest := p.saw("", fromList)
	if stale := !p.consistent && older(resourceVersion, newest); !stale {
		p.mu.Lock()
		p.newest = resourceVersion
		p.mu.Unlock()
		if p.streamed {
			p.isCurrent(time.Now())
		} else {
			p.isCurrent(p.began) // what came while its pages did is not in it
		}
		for _, o := range p.doubtful {
			p.store(objects, o, as, fromList, func(kept store.Ref, found bool) bool {
				return !found || p.consistent || older(kept.ResourceVersion(), o.ResourceVersion)
			})
		}
	}
	p.doubtful = nil
	for key := range objects.Unmarked() {
		kept, found := objects.Get(key)
		if !found {
			continue
		}
		if !p.consistent && older(resourceVersion, kept.ResourceVersion()) {
			p.isAhead(kept.ResourceVersion())
			continue // the list is older than this object: it says nothing about it
		}
		p.forget(objects, key, false, fromList)
	}
	objects.EndList()
	p.mu.Lock()
	p.newestKept = ""
	if older(resourceVersion, p.ahead) {
		p.newestKept = p.ahead
	}
	p.synced, p.complete, p.suspect = true, true, false
	// A list that is not consistent does not show which of the awaited writes are lost.
	p.unverified = p.newestKept != "" || p.unverified && !p.consistent && len(p.byKey) > 0
	if p.streamed {
		p.paged = 0
	}
	p.mu.Unlock()
	p.shownAll()
	if p.consistent {
		p.releaseBefore(p.began) // what the list does not show of them is lost
	}
	// A list in pages is followed by a watch, which has yet to stand; a streamed one is the
	// beginning of it.
	if p.streamed {
		p.opened()
	}
}

// isAhead notes that an object is kept in a version that is newer than what the list has of it. It
// is called with events held.
func (p *part) isAhead(version string) {
	if p.ahead == "" || older(p.ahead, version) {
		p.ahead = version
	}
}

// forgetAll drops everything: the informer has the part no more, or the kind is gone, and its
// objects with it. What was seen says nothing about what comes when it is back.
func (p *part) forgetAll() {
	p.core.events.Lock()
	defer p.core.events.Unlock()
	p.doubtful = nil
	p.mu.Lock()
	p.newest = ""
	p.mu.Unlock()
	objects := p.objects()
	for key := range objects.Keys() {
		p.forget(objects, key, false, fromList)
	}
	p.release()
}

// saw notes that something at resourceVersion has come. It returns the store, and the newest
// resource version that everything has been seen up to.
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
	case older(resourceVersion, p.newest):
		p.perObject = true // events come in the order of versions where those count all writes
	default:
		p.newest = resourceVersion
	}
	return p.kept, p.newest
}

// isCurrent notes that at a moment nothing was newer than what the part keeps.
func (p *part) isCurrent(at time.Time) { p.current.Store(int64(at.Sub(p.core.made)) + 1) }

// staleness returns for how long something may have been newer than what the part keeps; zero
// when it has not listed.
func (p *part) staleness() time.Duration {
	since := p.current.Load()
	if since == 0 {
		return 0
	}
	return time.Since(p.core.made) - time.Duration(since-1)
}

// bookmarked notes that everything up to resourceVersion has come.
func (p *part) bookmarked(resourceVersion string, from origin) {
	p.core.events.Lock()
	defer p.core.events.Unlock()
	p.saw(resourceVersion, from)
	if from.inOrder() {
		p.shownAll()
	}
}

// newestSeen returns the newest resource version that the API server has given: that up to which
// everything has been seen, or that of a kept object which is newer than the latest list.
func (p *part) newestSeen() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if older(p.newest, p.newestKept) {
		return p.newestKept
	}
	return p.newest
}

func (p *part) resourceVersion() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.newest
}

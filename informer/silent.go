package informer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel-go/evenkeel/internal/versionorder"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// ErrSilentWatch is in the error of an informer's Health if a watch is open but delivers nothing, while a list shows
// that objects have changed.
var ErrSilentWatch = errors.New("the watch is silent while objects change")

const (
	// silentWatch is the time without events after which the informer lists to verify a watch, if its watches have
	// delivered bookmarks before. An API server sends a bookmark about every minute, so at least two are missing then.
	silentWatch = 150 * time.Second
	// silentWithoutBookmarks is the same for watches without bookmarks, for which the absence of events is normal. It
	// is a compromise between the cost of the lists and the time to detect a silent watch.
	silentWithoutBookmarks = 10 * time.Minute
	// inFlight is the time that events have to arrive after a list has shown their changes. A new watch has the same
	// time to deliver earlier changes.
	inFlight = 5 * time.Second
	// verifyPage is the page size of that list. verifyPatience is the timeout of each page.
	verifyPage     = 500
	verifyPatience = time.Minute
	// maxVersionPause is the longest pause between two requests for the present resource version after an interruption.
	maxVersionPause = time.Minute
	// maxDifferences is the maximum number of differences that are stored and compared again.
	maxDifferences = 100
)

// guard detects a silent watch. If nothing has arrived for a long time, it lists, and compares the versions of the
// objects with the cached versions. If an object has changed and its event does not arrive, the guard ends the watch.
type guard struct {
	part   *part
	stop   func() // ends the watch
	opened time.Time
	runs   sync.WaitGroup
	busy   atomic.Bool // an event is being processed
	silent atomic.Bool // the guard has ended the watch
}

// begin starts to guard the watch until ctx ends. If the watch streams a list, the list must have ended.
func (g *guard) begin(ctx context.Context) {
	g.runs.Go(func() { g.run(ctx) }) // waited for by stream.pump
}

func (g *guard) run(ctx context.Context) {
	if g.part.isUnverified() && g.part.selects.known {
		if err := g.part.checkVersion(ctx); err != nil && ctx.Err() == nil {
			g.end(err)
			return
		}
	}
	for ctx.Err() == nil {
		if left := time.Until(g.part.quietUntil(g.opened)); left > 0 {
			// The sleep is limited, because the first bookmark reduces the time to silentWatch.
			if !sleep(ctx, min(left, silentWatch)) {
				return
			}
			continue
		}
		if g.busy.Load() {
			// A subscriber is slow. Unread events from the server must be processed first.
			g.part.reportBlocked(ctx)
			if !sleep(ctx, inFlight) {
				return
			}
			continue
		}
		if err := g.verify(ctx); err != nil && ctx.Err() == nil {
			g.end(err)
			return
		}
	}
}

// end ends the watch, because of err.
func (g *guard) end(err error) {
	g.part.forceQuorumList(err)
	g.silent.Store(true)
	g.stop()
}

// verify lists. It returns an error if the list shows changes that the watch has not delivered, or that versions went
// back.
func (g *guard) verify(ctx context.Context) error {
	p, began := g.part, time.Now()
	differences, reset, err := p.compare(ctx)
	switch {
	case ctx.Err() != nil:
		return nil //nolint:nilerr // the watch has ended; the next one is asked about
	case err != nil:
		// The watch may still work. If the server is unreachable, the watch will end.
		p.core.logger.Debug("informer cannot find out whether a quiet watch misses something",
			"informer", p.core.name, "retrieves", p.describes, "error", err)
		p.checkedAt(time.Now())
		return nil
	}
	if reset != nil {
		return reset
	}
	if len(differences) > 0 && !sleep(ctx, inFlight) {
		return nil
	}
	if g.busy.Load() || p.heardSince(began) {
		return nil // an event has arrived or is being processed
	}
	for _, d := range differences {
		if !p.has(d) {
			return p.silence(d, len(differences), began)
		}
	}
	p.isCurrent(began)
	p.checkedAt(time.Now())
	p.agrees()
	return nil
}

// difference is an object of a list that is not cached in that state, or a cached object that is not in the list.
type difference struct {
	key     kube.Key
	uid     types.UID
	version string
	gone    bool
}

// compare lists. It returns the differences that are newer than the cached states, or an error if versions went back
// (reset). err is the error of the list.
func (p *part) compare(ctx context.Context) (differences []difference, reset, err error) {
	seen := p.newestSeen()
	var versions versionCheck
	objects := p.objects()
	objects.BeginList() // no other list runs while a watch is open
	defer objects.EndList()
	note := func(d difference) {
		if len(differences) < maxDifferences && !p.has(d) {
			differences = append(differences, d)
		}
	}
	// A consistent read does not use the server's cache, which may be stale too.
	opts := metav1.ListOptions{Limit: verifyPage}
	for {
		about, err := p.page(ctx, opts, func(o *wire.Object) {
			objects.Mark(o.Key)
			versions.item(o.ResourceVersion)
			note(difference{key: o.Key, uid: o.UID, version: o.ResourceVersion})
		})
		if err != nil {
			return nil, nil, err
		}
		if versions.perObject(about.ResourceVersion) {
			p.foundPerObject()
		}
		if reset = p.wentBack(seen, about.ResourceVersion); reset != nil {
			return nil, reset, nil
		}
		if about.Continue == "" {
			break
		}
		opts.Continue = about.Continue
	}
	for key := range objects.Unmarked() {
		if kept, found := objects.Get(key); found {
			note(difference{key: key, uid: kept.UID(), version: kept.ResourceVersion(), gone: true})
		}
	}
	return differences, nil, nil
}

// page lists one page with the timeout verifyPatience.
func (p *part) page(ctx context.Context, opts metav1.ListOptions, each func(*wire.Object)) (metav1.ListMeta, error) {
	ctx, cancel := context.WithTimeout(ctx, verifyPatience)
	defer cancel()
	return p.feed.list(ctx, opts, func(o *wire.Object) error {
		each(o)
		return ctx.Err()
	})
}

// has reports whether the cached state is at least as new as d.
func (p *part) has(d difference) bool {
	kept, found := p.objects().Get(d.key)
	if d.gone {
		return !found || kept.UID() != d.uid || kept.ResourceVersion() != d.version
	}
	if !found {
		// The object may have been deleted since.
		return !p.isPerObject() && versionorder.NotAfter(d.version, p.resourceVersion())
	}
	version := kept.ResourceVersion()
	return version == d.version && kept.UID() == d.uid || versionorder.Older(d.version, version)
}

// silence returns the error that describes d, which is one of several differences.
func (p *part) silence(d difference, of int, at time.Time) error {
	shows := fmt.Sprintf("%s at resource version %s", d.key, d.version)
	if d.gone {
		shows = fmt.Sprintf("that %s is gone", d.key)
	}
	if of > 1 {
		shows = fmt.Sprintf("%s (one of at least %d differences)", shows, of)
	}
	return fmt.Errorf("watch %s: %w: nothing has come for %s, but a list shows %s: listing anew",
		p.describes, ErrSilentWatch, at.Sub(p.lastNews()).Round(time.Second), shows)
}

// silenced returns the event that makes the Reflector list after a silent watch.
func silenced() watch.Event {
	return watch.Event{Type: watch.Error, Object: &apierrors.NewResourceExpired(ErrSilentWatch.Error()).ErrStatus}
}

// forceQuorumList records that a watch was silent, or that versions went back. The next list must be a consistent read,
// because the cache of a server whose watches deliver nothing may be stale too.
func (p *part) forceQuorumList(err error) {
	if errors.Is(err, errHistoryReset) {
		p.failed(err) // a list corrects the cached state
	} else {
		p.broke(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.suspect = true
}

// listOptions makes opts request a consistent read if the server's cache may be stale, or if versions do not show how
// old a response is.
func (p *part) listOptions(opts metav1.ListOptions) metav1.ListOptions {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.suspect || p.perObject {
		opts.ResourceVersion = ""
	}
	return opts
}

// heardBookmark records that a watch has delivered a periodic bookmark.
func (p *part) heardBookmark() {
	p.mu.Lock()
	p.bookmarks = true
	p.mu.Unlock()
	p.agrees()
}

// agrees records that the watch is not silent, and clears the error of a silent watch.
func (p *part) agrees() {
	p.mu.Lock()
	silent := p.silent
	p.mu.Unlock()
	if silent {
		p.works()
	}
}

func (p *part) checkedAt(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.checked = at
}

// quietUntil returns the time until which a watch may deliver nothing. opened is the time at which it was opened.
func (p *part) quietUntil(opened time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	patience := silentWithoutBookmarks
	if p.bookmarks || p.silent {
		patience = silentWatch
	}
	news := p.lastEvent
	if p.checked.After(news) {
		news = p.checked
	}
	// The start of a new watch does not extend the time, because it shows no events.
	due := news.Add(patience)
	if first := opened.Add(inFlight); due.Before(first) {
		return first
	}
	return due
}

// heardSince reports whether a list, an event or a bookmark has arrived since a time.
func (p *part) heardSince(at time.Time) bool { return p.lastNews().After(at) }

func (p *part) lastNews() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lastEvent
}

// sleep waits for d. It returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

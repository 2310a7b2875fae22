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

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/retryrules"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// errHistoryReset is the reason for a new list after the versions of the API server went back.
var errHistoryReset = errors.New("the API server's resource versions went back, as after a restore of etcd")

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
	// verifyPage is the page size of that list. verifyTimeout is the timeout of each page.
	verifyPage    = 500
	verifyTimeout = time.Minute
	// maxVersionPause is the longest pause between two requests for the present resource version after an interruption.
	maxVersionPause = time.Minute
	// maxDifferences is the maximum number of differences that are stored and compared again.
	maxDifferences = 100
)

// watchGuard detects that a watch is silent, or that versions went back. If nothing has arrived for a long time, it
// lists, and compares the versions of the objects with the cached versions. If an object has changed and its event does
// not arrive, the guard ends the watch, and the next list is a consistent read.
//
// Invariants: it does not end a watch while one of its events is processed, nor after an event that arrived during the
// comparison. It changes no object: only the list after the watch does.
type watchGuard struct {
	part   *part
	stop   func() // ends the watch
	opened time.Time
	runs   sync.WaitGroup
	busy   atomic.Bool // an event is being processed
	ended  atomic.Bool // the guard has ended the watch
}

// begin starts to guard the watch until ctx ends. If the watch streams a list, the list must have ended.
func (g *watchGuard) begin(ctx context.Context) {
	g.runs.Go(func() { g.run(ctx) }) // waited for by stream.pump
}

// wait waits until the context of begin has ended, and the guard with it.
func (g *watchGuard) wait() { g.runs.Wait() }

// setBusy sets whether an event is being processed.
func (g *watchGuard) setBusy(busy bool) { g.busy.Store(busy) }

// hasEnded reports whether the guard has ended the watch.
func (g *watchGuard) hasEnded() bool { return g.ended.Load() }

func (g *watchGuard) run(ctx context.Context) {
	p := g.part
	if p.status.condition().unverified && p.selects.known {
		if err := g.checkVersion(ctx); err != nil && ctx.Err() == nil {
			g.end(err)
			return
		}
	}
	for ctx.Err() == nil {
		if left := time.Until(p.progress.quietUntil(g.opened, p.status.condition().silent)); left > 0 {
			// The sleep is limited, because the first bookmark reduces the time to silentWatch.
			if !retryrules.Wait(ctx, min(left, silentWatch)) {
				return
			}
			continue
		}
		if g.busy.Load() {
			// A subscriber is slow. Unread events from the server must be processed first.
			g.reportBlocked(ctx)
			if !retryrules.Wait(ctx, inFlight) {
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

// end ends the watch, because it was silent, or because versions went back. The next list must be a consistent read,
// because the cache of a server whose watches deliver nothing may be stale too.
func (g *watchGuard) end(err error) {
	// If versions went back, a list corrects the cached state.
	g.part.failed(err, !errors.Is(err, errHistoryReset))
	g.part.requests.forceConsistent()
	g.ended.Store(true)
	g.stop()
}

// reportBlocked logs, once per call, that the subscribers have not returned.
func (g *watchGuard) reportBlocked(ctx context.Context) {
	c := g.part.core
	if blocked := c.calling.newlyBlockedFor(time.Since(c.createdAt)); blocked > 0 {
		g.part.logger.WarnContext(ctx, "informer takes no changes: a predicate or a function of a source has "+
			"not returned",
			"for", blocked.Round(time.Second))
	}
}

// verify lists. It returns an error if the list shows changes that the watch has not delivered, or that versions went
// back.
func (g *watchGuard) verify(ctx context.Context) error {
	p, began := g.part, time.Now()
	differences, reset, err := g.compare(ctx)
	switch {
	case ctx.Err() != nil:
		return nil //nolint:nilerr // the watch has ended; the next one is asked about
	case err != nil:
		// The watch may still work. If the server is unreachable, the watch will end.
		p.logger.Debug("informer cannot find out whether a quiet watch misses something", "error", err)
		p.progress.verifiedAt(time.Now())
		return nil
	}
	if reset != nil {
		return reset
	}
	if len(differences) > 0 && !retryrules.Wait(ctx, inFlight) {
		return nil
	}
	if g.busy.Load() || p.progress.now().lastArrival.After(began) {
		return nil // an event has arrived or is being processed
	}
	for _, d := range differences {
		if !g.has(d) {
			return g.silentError(d, len(differences), began)
		}
	}
	p.progress.currentAt(began)
	p.progress.verifiedAt(time.Now())
	p.status.notSilent()
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
func (g *watchGuard) compare(ctx context.Context) (differences []difference, reset, err error) {
	p := g.part
	sent := p.progress.newestSent()
	var versions versionCheck
	objects := p.objects()
	objects.BeginList() // no other list runs while a watch is open
	defer objects.EndList()
	note := func(d difference) {
		if len(differences) < maxDifferences && !g.has(d) {
			differences = append(differences, d)
		}
	}
	// A consistent read does not use the server's cache, which may be stale too.
	opts := metav1.ListOptions{Limit: verifyPage}
	for {
		about, err := g.page(ctx, opts, func(o *wire.Object) {
			objects.Mark(o.Key)
			versions.item(o.ResourceVersion)
			note(difference{key: o.Key, uid: o.UID, version: o.ResourceVersion})
		})
		if err != nil {
			return nil, nil, err
		}
		p.checkVersions(&versions, about.ResourceVersion)
		if reset = g.wentBack(sent, about.ResourceVersion); reset != nil {
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

// page lists one page with the timeout verifyTimeout.
func (g *watchGuard) page(
	ctx context.Context, opts metav1.ListOptions, each func(*wire.Object),
) (metav1.ListMeta, error) {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	return g.part.feed.list(ctx, opts, func(o *wire.Object) error {
		each(o)
		return ctx.Err()
	})
}

// has reports whether the cached state is at least as new as d.
func (g *watchGuard) has(d difference) bool {
	kept, found := g.part.objects().Get(d.key)
	if d.gone {
		return !found || kept.UID() != d.uid || kept.ResourceVersion() != d.version
	}
	if !found {
		// The object may have been deleted since.
		reached := g.part.progress.now()
		return reached.includes(d.version)
	}
	version := kept.ResourceVersion()
	return version == d.version && kept.UID() == d.uid || apiobject.OlderVersion(d.version, version)
}

// silentError returns the error that describes d, which is one of several differences.
func (g *watchGuard) silentError(d difference, of int, at time.Time) error {
	shows := fmt.Sprintf("%s at resource version %s", d.key, d.version)
	if d.gone {
		shows = fmt.Sprintf("that %s is gone", d.key)
	}
	if of > 1 {
		shows = fmt.Sprintf("%s (one of at least %d differences)", shows, of)
	}
	quiet := at.Sub(g.part.progress.now().lastArrival).Round(time.Second)
	return fmt.Errorf("watch %s: %w: nothing has come for %s, but a list shows %s: listing anew",
		g.part.describes, cache.ErrSilentWatch, quiet, shows)
}

// silentWatchEvent returns the event that makes the Reflector list after a silent watch.
func silentWatchEvent() watch.Event {
	return watch.Event{Type: watch.Error, Object: &apierrors.NewResourceExpired(cache.ErrSilentWatch.Error()).ErrStatus}
}

// checkVersion requests the present resource version, and returns an error if it is older than the versions that were
// sent before. The server accepts a watch from such an earlier version, but sends nothing until its versions have
// caught up. checkVersion repeats the request until it succeeds or ctx ends.
func (g *watchGuard) checkVersion(ctx context.Context) (reset error) {
	p := g.part
	for pause := inFlight; ; pause = min(2*pause, maxVersionPause) {
		sent, began := p.progress.newestSent(), time.Now()
		var versions versionCheck
		about, err := g.page(ctx, metav1.ListOptions{Limit: 1}, func(o *wire.Object) {
			versions.item(o.ResourceVersion)
		})
		switch {
		case err != nil && retryrules.Wait(ctx, max(pause, retryrules.ServerDelay(err))):
			continue
		case err != nil:
			return nil //nolint:nilerr // the watch has ended; the next one asks
		}
		p.status.verified()
		if p.checkVersions(&versions, about.ResourceVersion) {
			return nil
		}
		p.contents.releaseLost(about.ResourceVersion, began)
		return g.wentBack(sent, about.ResourceVersion)
	}
}

// wentBack returns an error if a list is older than a version that was sent before. The list must be consistent, and
// must have started after everything up to that version had arrived.
func (g *watchGuard) wentBack(sent, list string) error {
	if g.part.progress.now().perObject || !apiobject.OlderVersion(list, sent) {
		return nil
	}
	return fmt.Errorf("watch %s: %w: a list is at resource version %s, but version %s was seen before: listing anew",
		g.part.describes, errHistoryReset, list, sent)
}

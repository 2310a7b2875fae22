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

	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// ErrSilentWatch is in the error of an informer's Health when a watch is open but brings
// nothing, while a list shows that there is something to bring.
var ErrSilentWatch = errors.New("the watch is silent while objects change")

const (
	// silentWatch is how long a watch may bring nothing until a list is asked whether there was
	// nothing to bring, where watches have brought bookmarks before: an API server sends one
	// about every minute, so that two in a row have been missed.
	silentWatch = 150 * time.Second
	// silentWithoutBookmarks is the same where no bookmark has ever come, so that quiet is no
	// sign of anything: it is what the lists cost against how long nobody would notice.
	silentWithoutBookmarks = 10 * time.Minute
	// inFlight is how long events have to arrive for what a list has shown, and how long a
	// watch that was just opened has for what had happened before.
	inFlight = 5 * time.Second
	// verifyPage is the size of the pages of that list, verifyPatience the time for each.
	verifyPage     = 500
	verifyPatience = time.Minute
	// maxVersionPause is the longest pause between two requests for the present resource version
	// after an interruption.
	maxVersionPause = time.Minute
	// maxDifferences is how many differences of a list are remembered, to look at them again.
	maxDifferences = 100
)

// guard finds out when a watch has become silent: when nothing has come for long, it lists,
// and compares the versions of the objects with those that are kept. An object that has
// changed and does not come is what it looks for; then it ends the watch.
type guard struct {
	part   *part
	stop   func() // ends the watch
	opened time.Time
	runs   sync.WaitGroup
	busy   atomic.Bool // what has come is being taken
	silent atomic.Bool // the guard has ended the watch
}

// begin begins to guard the watch, which has ended its list, if it had one, until ctx ends.
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
			// No longer than that, because the first bookmark makes it impatient.
			if !sleep(ctx, min(left, silentWatch)) {
				return
			}
			continue
		}
		if g.busy.Load() {
			// Subscribers take long. What the server has sent meanwhile has yet to be read.
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
	g.part.distrusts(err)
	g.silent.Store(true)
	g.stop()
}

// verify lists. It returns an error when the list shows what the watch should have brought.
func (g *guard) verify(ctx context.Context) error {
	p, began := g.part, time.Now()
	differences, reset, err := p.compare(ctx)
	switch {
	case ctx.Err() != nil:
		return nil //nolint:nilerr // the watch has ended; the next one is asked about
	case err != nil:
		// The watch may be well all the same. If the server cannot be reached, it will end.
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
		return nil // it is not silent
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

// difference is an object of a list that is not kept in that state, or one that is kept and
// not listed.
type difference struct {
	key     kube.Key
	uid     types.UID
	version string
	gone    bool
}

// compare lists, and returns where that shows something newer than what is kept, or that versions
// went back (reset). err is that of the list.
func (p *part) compare(ctx context.Context) (differences []difference, reset, err error) {
	seen := p.newestSeen()
	var versions versionCheck
	objects := p.objects()
	objects.BeginList() // no other list is under way while a watch stands
	defer objects.EndList()
	note := func(d difference) {
		if len(differences) < maxDifferences && !p.has(d) {
			differences = append(differences, d)
		}
	}
	// A list of what there is now does not come from a cache that may have stopped as well.
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

// page lists one page within verifyPatience.
func (p *part) page(ctx context.Context, opts metav1.ListOptions, each func(*wire.Object)) (metav1.ListMeta, error) {
	ctx, cancel := context.WithTimeout(ctx, verifyPatience)
	defer cancel()
	return p.feed.list(ctx, opts, func(o *wire.Object) error {
		each(o)
		return ctx.Err()
	})
}

// has reports whether what is kept has come as far as d.
func (p *part) has(d difference) bool {
	kept, found := p.objects().Get(d.key)
	if d.gone {
		return !found || kept.UID() != d.uid || kept.ResourceVersion() != d.version
	}
	if !found {
		// It may have come and gone since.
		return !p.isPerObject() && notAfter(d.version, p.resourceVersion())
	}
	version := kept.ResourceVersion()
	return version == d.version && kept.UID() == d.uid || older(d.version, version)
}

// silence returns the error that names d, which is one of a number of differences.
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

// silenced is what the Reflector is told of a silent watch: something that makes it list.
func silenced() watch.Event {
	return watch.Event{Type: watch.Error, Object: &apierrors.NewResourceExpired(ErrSilentWatch.Error()).ErrStatus}
}

// distrusts notes that a watch was silent, or that versions went back. The next list has to be of what there is now: a
// server whose watches bring nothing may have a cache that shows nothing either.
func (p *part) distrusts(err error) {
	if errors.Is(err, errHistoryReset) {
		p.failed(err) // a list mends that
	} else {
		p.broke(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.suspect = true
}

// distrust makes opts ask for what there is now, when the server's cache is not to be relied on, or
// when versions do not tell how old its answer is.
func (p *part) distrust(opts metav1.ListOptions) metav1.ListOptions {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.suspect || p.perObject {
		opts.ResourceVersion = ""
	}
	return opts
}

// heardBookmark notes that a watch has brought a bookmark of its own accord.
func (p *part) heardBookmark() {
	p.mu.Lock()
	p.bookmarks = true
	p.mu.Unlock()
	p.agrees()
}

// agrees notes that the watch is not silent.
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

// quietUntil returns until when a watch that was opened at a moment may bring nothing.
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
	// That a watch has ended and another was opened is no news of the objects.
	due := news.Add(patience)
	if first := opened.Add(inFlight); due.Before(first) {
		return first
	}
	return due
}

// heardSince reports whether something has come since a moment.
func (p *part) heardSince(at time.Time) bool { return p.lastNews().After(at) }

func (p *part) lastNews() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lastEvent
}

// sleep waits for d. It returns false when ctx has ended.
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

package informer

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/store"
)

// part is one list and watch of an informer: the whole of it, or one of a joined
// Retriever's.
type part[T kube.Object] struct {
	// Immutable after newPart.
	informer    *Informer[T]
	retriever   Retriever[T]
	description string

	mu        sync.Mutex
	kept      store.Store[T]  // guarded by mu; the store itself is safe to use outside
	synced    bool            // guarded by mu
	lastEvent time.Time       // guarded by mu
	err       error           // guarded by mu; why list or watch fail now
	errSince  time.Time       // guarded by mu
	broken    bool            // guarded by mu; err is about a watch that had been opened
	logged    map[string]bool // guarded by mu; reasons that were logged since it last worked
	noStreams bool            // guarded by mu; streamed lists do not come

	// consistent is true when what is being listed is a consistent read of etcd, which
	// may contradict what was seen before. Used by the Reflector's goroutines only,
	// which run one after the other.
	consistent bool
	// newest is the newest resource version that a list, an event or a bookmark had. Used
	// as consistent is.
	newest string
	// streamed is true when what is being listed comes by a watch. Used as consistent is.
	streamed bool
}

func newPart[T kube.Object](i *Informer[T], r Retriever[T]) *part[T] {
	return &part[T]{informer: i, retriever: r, description: r.Describe().String(), kept: newStore[T]()}
}

func (p *part[T]) objects() store.Store[T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kept
}

// reset makes the part new for a session.
func (p *part[T]) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = newStore[T]()
	p.synced, p.err, p.errSince, p.broken, p.lastEvent = false, nil, time.Time{}, false, time.Time{}
	p.newest = ""
}

func (p *part[T]) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	p.streamed = false
	if opts.Continue == "" {
		p.consistent = opts.ResourceVersion == ""
	}
	list, err := p.retriever.List(ctx, opts)
	if err != nil && ctx.Err() == nil && !isHistoryGone(err) {
		p.failed(err)
	}
	return list, err
}

func (p *part[T]) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	streamsList := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	if streamsList {
		if p.refusesStreams() {
			return nil, errNoStreamedLists
		}
		p.streamed, p.consistent = true, opts.ResourceVersion == ""
	}
	inner, err := p.retriever.Watch(ctx, opts)
	switch {
	case err == nil:
		if !streamsList {
			p.opened()
		}
		return newStream(ctx, p, inner, streamsList), nil
	case streamsList && isHistoryGone(err):
		return nil, err
	case streamsList:
		// The Reflector falls back to a list, whose error is the one to report. It would
		// sleep without regard to ctx for errors it deems transient; behind errors.New it
		// does not see that this is one.
		return nil, errors.New(err.Error())
	}
	if ctx.Err() == nil && !isHistoryGone(err) {
		p.failed(err)
	}
	return nil, err
}

func (p *part[T]) refusesStreams() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.noStreams
}

// isHistoryGone says that the server no longer has, or does not have yet, the resource
// version that was asked for. That is answered by a relist and is nobody's failure.
func isHistoryGone(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// failed notes why the part cannot list or watch, and logs it once per reason.
func (p *part[T]) failed(err error) { p.trouble(err, false) }

// broke is failed for a watch that had been opened: that one can be opened again does not
// mean that it works.
func (p *part[T]) broke(err error) { p.trouble(err, true) }

func (p *part[T]) trouble(err error, broken bool) {
	reason := reasonOf(err)
	p.mu.Lock()
	if p.err == nil {
		p.errSince, p.logged = time.Now(), map[string]bool{}
	}
	known := p.logged[reason]
	p.logged[reason] = true
	p.err = err
	p.broken = p.broken || broken
	p.mu.Unlock()
	if !known {
		p.informer.logger.Warn("informer cannot retrieve, will try again",
			"informer", p.informer.name, "retrieves", p.description, "error", err)
	}
}

// reasonOf returns the error's text in a form that does not change from one attempt to
// the next: without numbers, such as ports.
func reasonOf(err error) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, err.Error())
}

// opened notes that a watch was opened.
func (p *part[T]) opened() {
	p.mu.Lock()
	broken := p.broken
	p.mu.Unlock()
	if !broken {
		p.works()
	}
}

// works notes that what was listed has come, or that a watch stands.
func (p *part[T]) works() {
	p.mu.Lock()
	was, since := p.err, p.errSince
	p.err, p.errSince, p.broken = nil, time.Time{}, false
	p.mu.Unlock()
	if was != nil {
		p.informer.logger.Info("informer retrieves again",
			"informer", p.informer.name, "retrieves", p.description, "after", time.Since(since).Round(time.Millisecond))
	}
}

// put stores obj and announces the change, unless the kept state is the same or, except
// where the list is to be believed, newer. An object that was not kept is announced as
// asNew says. It is called with the informer's events held.
func (p *part[T]) put(objects store.Store[T], obj T, asNew ChangeType, believe bool) {
	key := kube.KeyOf(obj)
	as := asNew
	version, found := objects.Version(key)
	if found {
		as = Updated
		if obj.GetUID() == version.UID && obj.GetResourceVersion() == version.ResourceVersion && version.ResourceVersion != "" {
			return
		}
		if !believe && older(obj.GetResourceVersion(), version.ResourceVersion) {
			return
		}
	}
	objects.Put(obj)
	p.informer.announce(Change{Type: as, Key: key})
}

// older reports whether resource version a is before b. Versions that cannot be
// compared, as those of some test doubles, are never older.
func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

func (p *part[T]) sawEvent() store.Store[T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastEvent = time.Now()
	return p.kept
}

// replace brings the store to the listed state.
func (p *part[T]) replace(objects store.Store[T], items []T, resourceVersion string, as ChangeType) {
	p.informer.events.Lock()
	defer p.informer.events.Unlock()
	listed := make(map[kube.Key]struct{}, len(items))
	stale := !p.consistent && older(resourceVersion, p.newest)
	if !stale {
		p.newest = resourceVersion
	}
	for _, obj := range items {
		key := kube.KeyOf(obj)
		listed[key] = struct{}{}
		if _, kept := objects.Version(key); stale && !kept {
			continue // it may have been deleted since; if not, the watch from here on tells
		}
		p.put(objects, obj, as, p.consistent)
	}
	for key := range objects.Keys() {
		if _, ok := listed[key]; ok {
			continue
		}
		version, found := objects.Version(key)
		if !found || (!p.consistent && older(resourceVersion, version.ResourceVersion)) {
			continue // the list is older than this object: it says nothing about it
		}
		objects.Delete(key)
		p.informer.announce(Change{Type: Deleted, Key: key})
	}
}

// report notes an object that could not be taken. The Reflector would only log it.
func (p *part[T]) report(err error) error {
	p.failed(err)
	return err
}

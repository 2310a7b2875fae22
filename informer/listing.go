package informer

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel-go/evenkeel/internal/store"
	"github.com/evenkeel-go/evenkeel/internal/versionorder"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// listing is the state of the current list.
type listing struct {
	// consistent is true if the current list is a consistent read of etcd, which may contradict earlier states.
	consistent bool
	// streamed is true if the list arrives through a watch.
	streamed bool
	// open is true until the list has ended. began is the time at which it started.
	open  bool
	began time.Time
	// ahead is the newest version of the cached objects that are newer than a list that is not consistent, and that the
	// list does not contain, or contains in an older state. A failed list may have stored them before etcd was
	// restored.
	ahead string
	// unconfirmed are the objects of the list that contradict earlier states. They are kept until the list has ended.
	//
	// If the list is not consistent, these are the objects that were not cached, although everything up to their
	// resource version has arrived. If the list turns out to be older than that, they have been deleted since.
	//
	// If the list is streamed, these are also the objects that are older than the cached state. KEP-3157 lets a server
	// start with the content of its cache, which may be stale, and end the list when the cache is up to date. Newer
	// states follow in the same stream, and replace these objects. Those that remain at the end of a consistent list
	// are valid.
	unconfirmed map[kube.Key]*wire.Object
}

// list is the Reflector's list function. It stores the items and returns an empty list with their resource version.
func (p *part) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if opts.Continue == "" {
		opts = p.listOptions(opts)
		p.beginList(opts.ResourceVersion == "", false)
	}
	as := p.typeForNew()
	var versions versionCheck
	request, answer := p.patience(ctx, "list")
	defer answer.end()
	about, err := p.feed.list(request, opts, func(o *wire.Object) error {
		if err := request.Err(); err != nil {
			return err
		}
		answer.pause() // a slow subscriber is not a slow response
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

// beginList discards the state of an earlier list. The pages of that list may be from another time.
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
		opts = p.listOptions(opts)
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
		// The Reflector falls back to a list, and the error of that list is reported. The Reflector must not recognize
		// the type of this error: for errors that it considers transient, it sleeps and ignores ctx, and for an expired
		// history it retries without a pause. errors.New hides the type.
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

// postpone stores o in unconfirmed until the list has ended. core.events must be held.
func (p *part) postpone(o *wire.Object) {
	if p.unconfirmed == nil {
		p.unconfirmed = map[kube.Key]*wire.Object{}
	}
	p.unconfirmed[o.Key] = o.Clone()
}

// listed ends a list at resourceVersion, and removes the objects that the list did not contain. It must be called
// before an event that follows the list is stored. A second call does nothing.
func (p *part) listed(resourceVersion string) {
	as := p.typeForNew()
	p.core.events.Lock()
	defer p.core.events.Unlock()
	if !p.open {
		return
	}
	p.open = false
	objects, newest := p.saw("", fromList)
	if stale := !p.consistent && versionorder.Older(resourceVersion, newest); !stale {
		p.mu.Lock()
		p.newest = resourceVersion
		p.mu.Unlock()
		if p.streamed {
			p.isCurrent(time.Now())
		} else {
			p.isCurrent(p.began) // the list lacks changes that were made while its pages arrived
		}
		for _, o := range p.unconfirmed {
			p.store(objects, o, as, fromList, func(kept store.Ref) bool {
				return !kept.Exists() || p.consistent || versionorder.Older(kept.ResourceVersion(), o.ResourceVersion)
			})
		}
	}
	p.unconfirmed = nil
	for key := range objects.Unmarked() {
		kept, found := objects.Get(key)
		if !found {
			continue
		}
		if !p.consistent && versionorder.Older(resourceVersion, kept.ResourceVersion()) {
			p.isAhead(kept.ResourceVersion())
			continue // the list is older than this object, so it does not show whether the object exists
		}
		p.forget(objects, key, false, fromList)
	}
	objects.EndList()
	p.mu.Lock()
	p.newestKept = ""
	if versionorder.Older(resourceVersion, p.ahead) {
		p.newestKept = p.ahead
	}
	p.synced, p.complete, p.suspect = true, true, false
	// Only a consistent list shows which of the awaited writes are lost.
	p.unverified = p.newestKept != "" || p.unverified && !p.consistent && len(p.byKey) > 0
	if p.streamed {
		p.paged = 0
	}
	p.mu.Unlock()
	p.shownAll()
	if p.consistent {
		p.releaseBefore(p.began) // a write that the list does not show is lost
	}
	// A list in pages is followed by a watch, which is not open yet. A streamed list is the start of the watch.
	if p.streamed {
		p.opened()
	}
}

// isAhead records that the cache has an object in a newer version than the list. core.events must be held.
func (p *part) isAhead(version string) {
	if p.ahead == "" || versionorder.Older(p.ahead, version) {
		p.ahead = version
	}
}

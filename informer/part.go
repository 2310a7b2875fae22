package informer

import (
	"context"
	"errors"
	"log/slog"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel-go/evenkeel/internal/retryrules"
	"github.com/evenkeel-go/evenkeel/internal/store"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// part is one list and watch of an informer: that of its only Retriever, or of one of the combined Retrievers.
//
// Lists and watches do not pass their objects to client-go's Reflector. They store the objects as they arrive, and
// report their progress to the Reflector. So a list is never in memory in addition to the store.
//
// A part connects types that own their state: contents has the objects, progress knows how current they are, status
// reports failures, and listRequests decides how to list. A stream reads one watch, and a watchGuard verifies it.
// Other types of this package call the methods of these types, but do not use their fields.
//
// Locks are acquired in this order: core.events, core.mu, the lock of progress, status or listRequests. The last three
// are never held during a call of another type.
type part struct {
	// Immutable after newPart.
	core      *core
	feed      feed
	describes string
	server    string       // URL of the API server; empty: not known
	logger    *slog.Logger // names the informer and the part
	watchList bool
	identity  any           // the Retriever, to detect whether another one is the same
	selects   selection     // the selection, as far as it is known
	reporting chan struct{} // capacity 1; has a token while OnError is called

	// Requests outside of the selection; nil: the Retriever of a program cannot make them.
	isRemoved func(context.Context) (bool, error)
	exists    func(context.Context, kube.Key, types.UID) (bool, error)
	// rescope replaces the parts for the default namespaces of a Cluster by those for the scope of the kind, and
	// reports whether this has begun. Nil: the namespaces were chosen for the informer.
	rescope func() bool

	// The state of core about the part, guarded by core.mu. All but isNew are set by begin, for one session.
	stop    context.CancelFunc
	ended   chan struct{} // closed when the watch has ended
	settled chan struct{} // closed when callers need not wait for the first list anymore
	isNew   bool          // only SetRetriever waits for its first list
	leaves  bool          // SetRetriever is going to drop it

	contents contents
	progress progress
	status   status
	requests listRequests
}

// connect makes the types of a new part, whose immutable fields are set.
func (p *part) connect() {
	c := p.core
	p.logger = c.logger.With("informer", c.name, "retrieves", p.describes)
	p.progress.createdAt = c.createdAt
	p.status.logger, p.status.optional = p.logger, c.optional
	p.contents.core, p.contents.progress = c, &p.progress
	p.contents.awaits = awaits{progress: &p.progress, lag: &c.counters.lag}
	p.reporting = make(chan struct{}, 1)
	p.contents.begin()
}

// begin resets the part for a session. stop ends it. Objects of its first list are announced as first. core.mu must be
// held.
func (p *part) begin(stop context.CancelFunc, first ChangeType) {
	p.stop, p.ended, p.settled = stop, make(chan struct{}), make(chan struct{})
	p.contents.begin()
	p.status.begin(first)
	p.progress.begin()
	p.requests.begin()
}

func (p *part) objects() *store.Store { return p.contents.objects() }

// await adds write to the writes that p has not shown, unless p shows it or never will. core.events must be held.
func (p *part) await(write *waiter) {
	if now := p.status.condition(); !now.complete && now.err != nil || !p.readsFrom(write.Server) {
		return // the part cannot list, or reads from another API server
	}
	if selected := p.selects.has(write.Write, write.content); selected != never {
		p.contents.await(write, selected == notNow)
	}
}

// readsFrom reports whether the part reads from the API server with this URL, as far as it is known.
func (p *part) readsFrom(server string) bool {
	return p.server == "" || server == "" || p.server == server
}

// list is the Reflector's list function. It stores the items and returns an empty list with their resource version.
func (p *part) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	p.requests.wait(ctx)
	if opts.Continue == "" {
		opts = p.beginList(opts, false)
	}
	as := p.status.typeForNew()
	var versions versionCheck
	request, timer := p.responseTimer(ctx, "list")
	defer timer.end()
	about, err := p.feed.list(request, opts, func(o *wire.Object) error {
		if err := request.Err(); err != nil {
			return err
		}
		timer.pause() // a slow subscriber is not a slow response
		defer timer.resume()
		if o.Key.Name == "" {
			return errNoName
		}
		versions.item(o.ResourceVersion)
		p.contents.arrived(o, as, fromList)
		return nil
	})
	timer.pause()
	err = timer.explain(request, err)
	switch {
	case err == nil:
		p.checkVersions(&versions, about.ResourceVersion)
		return &metav1.PartialObjectMetadataList{ListMeta: about}, nil
	case ctx.Err() != nil:
	case !isHistoryGone(err), asksForNoHistory(opts):
		p.listFailed(ctx, err)
		p.requests.refused(opts, err)
	default:
		p.historyGone(err)
	}
	return nil, err
}

// beginList begins a list, and returns the options of its request.
func (p *part) beginList(opts metav1.ListOptions, streamed bool) metav1.ListOptions {
	opts = p.requests.options(opts, p.progress.now().perObject)
	p.contents.beginList(opts.ResourceVersion == "", streamed)
	return opts
}

// listed ends a list at resourceVersion, and removes the objects that the list did not contain. It must be called
// before an event that follows the list is stored. A second call does nothing.
func (p *part) listed(resourceVersion string) {
	as := p.status.typeForNew()
	p.core.events.Lock()
	defer p.core.events.Unlock()
	end, ok := p.contents.endList(resourceVersion, as)
	if !ok {
		return
	}
	p.status.listed(end)
	p.requests.listed(end.streamed)
	p.contents.showList()
	// A list in pages is followed by a watch, which is not open yet. A streamed list is the start of the watch.
	if end.streamed {
		p.status.opened()
	}
}

// checkVersions evaluates the versions of the items of a list.
func (p *part) checkVersions(items *versionCheck, list string) (perObject bool) {
	if perObject = items.perObject(list); perObject && p.progress.foundPerObject() {
		p.logger.Info("resource versions of different objects cannot be compared: every list is a consistent read " +
			"from now on")
	}
	return perObject
}

// watch is the Reflector's watch function.
func (p *part) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	p.requests.wait(ctx)
	streamsList := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	if streamsList {
		if p.requests.avoidsStreams() {
			return nil, errNoStreamedLists
		}
		opts = p.beginList(opts, true)
	}
	request, timer := p.responseTimer(ctx, "watch")
	events, err := p.feed.watch(request, opts)
	timer.pause()
	if err = timer.explain(request, err); err != nil {
		timer.end()
	}
	switch {
	case err == nil:
		if !streamsList {
			p.status.opened()
		}
		return newStream(request, p, events, opts, timer.end), nil
	case streamsList && isHistoryGone(err) && !asksForNoHistory(opts):
		return nil, err
	case streamsList:
		// The Reflector falls back to a list, and the error of that list is reported: too late, if the API server asked
		// for a delay. The Reflector must not recognize the type of this error: for errors that it considers transient,
		// it sleeps and ignores ctx, and for an expired history it retries without a pause. errors.New hides the type.
		if retryrules.ServerDelay(err) > 0 {
			p.failed(err, false)
		}
		return nil, errors.New(err.Error())
	case ctx.Err() != nil:
	case isHistoryGone(err):
		p.historyGone(err)
	default:
		p.failed(err, false)
	}
	return nil, err
}

// failed records why the part cannot list or watch. broken is true if the watch had been opened.
func (p *part) failed(err error, broken bool) {
	if p.rescope != nil && (errors.Is(err, errClusterScoped) || errors.Is(err, errNamespaced)) && p.rescope() {
		return
	}
	p.requests.postpone(err)
	p.status.failed(err, broken)
	p.report(err)
	now := p.status.condition()
	if now.degraded && !now.complete {
		p.contents.releaseWaiters()
	}
	p.core.settle()
}

// report calls OnError, for one error at a time: the timer of a request and the watchGuard report errors too.
func (p *part) report(err error) {
	onError := p.core.onError
	if onError == nil {
		return
	}
	p.reporting <- struct{}{}
	defer func() { <-p.reporting }()
	_ = p.core.guard.Call("OnError", func() { onError(err) }, nil) // the guard logs a panic
}

// historyGone records that history is gone. After manyGone consecutive calls this is an error.
func (p *part) historyGone(err error) {
	if p.status.historyGone() {
		p.failed(err, true)
	}
}

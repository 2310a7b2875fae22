package informer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Retriever lists and watches objects of type T.
//
// Retrieve returns one for any kind of a cluster, FromListerWatcher returns one for a client-go ListerWatcher, and
// Combine combines several. To change the behavior of a Retriever, embed it in your own struct and override a method.
// An informer reads the bytes of the API server directly only from a Retriever that Retrieve returns. It encodes the
// objects of other Retrievers, which takes CPU time.
type Retriever[T kube.Object] interface {
	// List returns a list object with items of type T, in one page or, if opts.Limit is set, with a continue token. It
	// must show the changes that Watch has delivered, at the same resource versions. After minutes without events the
	// informer compares the cache with a list, and the list replaces the cached states.
	List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error)
	// Watch streams the changes of objects of type T from opts.ResourceVersion on. It must deliver each state, in
	// order, because controllers use this to detect their own writes. It must end when ctx ends. After Stop it must
	// close its channel, as watch.Interface requires. The informer waits for that for at most 5 s.
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
	// Describe returns a description of the retrieved objects. It makes no request.
	Describe() Description[T]
}

// Description describes a Retriever. The zero value is valid: a Retriever of objects of type T without optional
// features.
type Description[T kube.Object] struct {
	// GroupVersionKind is the kind of the objects. Objects that are read as unstructured or as metadata get it.
	// Default: they have no kind, and messages name the Go type.
	GroupVersionKind schema.GroupVersionKind
	// Selection describes the selected objects of the kind, for messages. Default: all objects that the Retriever
	// lists.
	Selection string
	// WatchList is true if Watch supports SendInitialEvents (KEP-3157), or returns an error for it. If it is false, the
	// informer lists and then watches. It must be false for a Watch that ignores SendInitialEvents. Otherwise the
	// informer waits for the list for 10 s to 5 min, logs a warning, and lists in pages for 10 min or longer.
	WatchList bool
	// Problem is a mistake in the configuration of the Retriever, such as a type that is not registered or an invalid
	// selector. New of Informer and of Controller return it.
	Problem error

	server  string        // URL of the API server; empty: not known
	cluster *kube.Cluster // nil: not known
	// namespace is that of the objects; empty: all. scoped is true if it is not the default of the cluster.
	namespace string
	scoped    bool
}

// namespaces returns those of the objects; nil: they are not known.
func (d Description[T]) namespaces() []string {
	switch {
	case d.cluster == nil:
		return nil
	case d.scoped || d.namespace != "":
		return []string{cmp.Or(d.namespace, kube.AllNamespaces)}
	case len(d.cluster.Namespaces()) > 0:
		return d.cluster.Namespaces()
	}
	return []string{kube.AllNamespaces}
}

// text returns the kind and the selection, for messages.
func (d Description[T]) text() string {
	if d.Selection == "" {
		return d.kind()
	}
	return d.kind() + " (" + d.Selection + ")"
}

func (d Description[T]) kind() string {
	var zero T
	return cmp.Or(d.GroupVersionKind.Kind, strings.TrimLeft(fmt.Sprintf("%T", zero), "*"))
}

// FromListerWatcher returns a Retriever that uses a client-go ListerWatcher, such as a *cache.ListWatch. Its objects
// must be of type T.
//
// It passes the context on if lw accepts one (cache.ListerWatcherWithContext). It does not stream the lists of a plain
// *cache.ListWatch, whose client may not support it, as client-go's fake ones. Those of others, such as the result of
// cache.ToListWatcherWithWatchListSemantics, are streamed unless lw reports that it does not support it.
func FromListerWatcher[T kube.Object](lw cache.ListerWatcher) Retriever[T] {
	d := Description[T]{}
	if usercode.IsNil(lw) {
		d.Problem = errors.New("make a retriever: the ListerWatcher is nil")
		return listerWatcher[T]{description: d}
	}
	_, plain := lw.(*cache.ListWatch)
	d.WatchList = !plain && !watchlist.DoesClientNotSupportWatchListSemantics(lw)
	return listerWatcher[T]{lw: cache.ToListerWatcherWithContext(lw), description: d}
}

type listerWatcher[T kube.Object] struct {
	lw          cache.ListerWatcherWithContext
	description Description[T]
}

func (r listerWatcher[T]) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	return r.lw.ListWithContext(ctx, opts)
}

func (r listerWatcher[T]) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return r.lw.WatchWithContext(ctx, opts)
}

func (r listerWatcher[T]) Describe() Description[T] { return r.description }

// Combine combines several Retrievers of the same type, such as one for each namespace that a service account may read.
// An object should be in only one of them. If it is in several, readers get any of the copies.
//
// An Informer lists and watches each Retriever separately, because the resource versions of one stream are not related
// to those of another. Therefore a combined Retriever can be passed to an Informer or a Controller, but must not be
// wrapped: wrap its parts, then combine them.
func Combine[T kube.Object](retrievers ...Retriever[T]) Retriever[T] {
	var parts combined[T]
	for _, r := range retrievers {
		if inner, ok := r.(combined[T]); ok {
			parts = append(parts, inner...)
			continue
		}
		parts = append(parts, r)
	}
	return parts
}

type combined[T kube.Object] []Retriever[T]

var errCombinedWrapped = errors.New("a combined Retriever was wrapped: wrap its parts, then combine them")

func (c combined[T]) List(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return nil, errCombinedWrapped
}

func (c combined[T]) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return nil, errCombinedWrapped
}

func (c combined[T]) Describe() Description[T] {
	var d Description[T]
	if len(c) == 0 {
		d.Problem = errors.New("combine Retrievers: there is none")
		return d
	}
	var selections []string
	var problems []error
	for i, r := range c {
		if r == nil {
			problems = append(problems, fmt.Errorf("combine Retrievers: number %d is nil", i))
			continue
		}
		part := r.Describe()
		d.GroupVersionKind = part.GroupVersionKind
		problems = append(problems, part.Problem)
		if part.Selection != "" {
			selections = append(selections, part.Selection)
		}
	}
	d.Selection = strings.Join(selections, "; ")
	d.Problem = errors.Join(problems...)
	return d
}

// partsOf returns the Retrievers that are listed and watched separately.
func partsOf[T kube.Object](r Retriever[T]) []Retriever[T] {
	if several, ok := r.(combined[T]); ok {
		return several
	}
	return []Retriever[T]{r}
}

// clusterOf returns the Cluster that a Retriever, or the first part of it that has one, reads from; nil: not known.
func clusterOf[T kube.Object](r Retriever[T]) *kube.Cluster {
	for _, part := range partsOf(r) {
		if cluster := part.Describe().cluster; cluster != nil {
			return cluster
		}
	}
	return nil
}

package informer

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Back-off between attempts to list and watch. client-go's own default goes up to a
// minute, in which a granted permission or an installed CustomResourceDefinition would
// not be noticed; this one asks at most every 10 to 15 s and no less often.
const (
	backoffFirst  = 800 * time.Millisecond
	backoffMax    = 10 * time.Second
	backoffJitter = 0.5
	backoffReset  = 2 * time.Minute // of quiet, after which the next trouble begins at backoffFirst
)

// run lists and watches until ctx ends, and returns when no call of the Retriever is
// under way any more.
func (p *part[T]) run(ctx context.Context) {
	logger := logr.FromSlogHandler(debugOnly{p.informer.logger.Handler()}).WithName("reflector")
	// The Reflector abandons a List when its context ends; the gate waits for it.
	var calls gate
	lw := &listWatch{
		ListWatch: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
				if !calls.enter() {
					return nil, context.Canceled
				}
				defer calls.leave()
				return p.list(ctx, opts)
			},
			WatchFuncWithContext: p.watch,
		},
		noWatchList: !p.retriever.Describe().WatchList,
	}
	backoff := wait.Backoff{Duration: backoffFirst, Cap: backoffMax, Steps: 100, Factor: 2, Jitter: backoffJitter}
	reflector := cache.NewReflectorWithOptions(lw, nil, (*reflectorStore[T])(p), cache.ReflectorOptions{
		Logger:          &logger,
		Name:            p.informer.name,
		TypeDescription: p.description,
		Backoff:         &backoff,
	})
	// Not Reflector.RunWithContext: it hands every error to apimachinery's global error
	// handlers, which sleep. The error of an attempt has been noted where it arose, so none
	// is handed to Until, which goes on until ctx ends.
	again := backoff.DelayWithReset(clock.RealClock{}, backoffReset)
	_ = again.Until(klog.NewContext(ctx, logger), true, true, func(ctx context.Context) (bool, error) {
		if err := reflector.ListAndWatchWithContext(ctx); err != nil {
			logger.Error(err, "list and watch ended")
		}
		return false, nil
	})
	calls.close()
}

// reflectorStore is the part as the Reflector sees it (cache.ReflectorStore).
type reflectorStore[T kube.Object] part[T]

// Add implements cache.ReflectorStore.
func (s *reflectorStore[T]) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore. Whether the object is new is for the store to
// say: a watch may send either for an object that is kept, or is not.
func (s *reflectorStore[T]) Update(obj any) error {
	p := (*part[T])(s)
	typed, err := typedObject[T](obj)
	if err != nil {
		return p.report(err)
	}
	objects := p.sawEvent()
	p.informer.events.Lock()
	defer p.informer.events.Unlock()
	p.put(objects, typed, Added, false)
	return nil
}

// Delete implements cache.ReflectorStore.
func (s *reflectorStore[T]) Delete(obj any) error {
	p := (*part[T])(s)
	typed, err := typedObject[T](obj)
	if err != nil {
		return p.report(err)
	}
	objects := p.sawEvent()
	key := kube.KeyOf(typed)
	p.informer.events.Lock()
	defer p.informer.events.Unlock()
	version, found := objects.Version(key)
	if !found {
		return nil
	}
	if version.UID != typed.GetUID() && older(typed.GetResourceVersion(), version.ResourceVersion) {
		return nil // an earlier incarnation's end
	}
	objects.Delete(key)
	p.informer.announce(Change{Type: Deleted, Key: key})
	return nil
}

// Replace implements cache.ReflectorStore: the result of a list at resourceVersion.
func (s *reflectorStore[T]) Replace(items []any, resourceVersion string) error {
	p := (*part[T])(s)
	typed := make([]T, len(items))
	for i, item := range items {
		var err error
		if typed[i], err = typedObject[T](item); err != nil {
			return p.report(err)
		}
	}
	objects := p.sawEvent()
	p.mu.Lock()
	first := !p.synced
	p.mu.Unlock()
	as := Added
	if first {
		as = Listed
	}
	p.replace(objects, typed, resourceVersion, as)
	// A list in pages is followed by a watch, which has yet to stand; a streamed one is the
	// beginning of it.
	if p.streamed {
		p.opened()
	}
	if first {
		p.mu.Lock()
		p.synced = true
		p.mu.Unlock()
		p.informer.partSynced()
	}
	return nil
}

// Resync implements cache.ReflectorStore. Resyncs are the controllers' business.
func (s *reflectorStore[T]) Resync() error { return nil }

// UpdateResourceVersion implements cache.ResourceVersionUpdater.
func (s *reflectorStore[T]) UpdateResourceVersion(resourceVersion string) {
	if !older(resourceVersion, s.newest) {
		s.newest = resourceVersion
	}
}

// Bookmark implements cache.ReflectorBookmarkStore: the watch is alive.
func (s *reflectorStore[T]) Bookmark(string) error {
	(*part[T])(s).sawEvent()
	return nil
}

func typedObject[T kube.Object](obj any) (T, error) {
	typed, ok := obj.(T)
	if !ok {
		var want T
		return typed, fmt.Errorf("the retriever returned a %T where a %T was expected", obj, want)
	}
	return typed, nil
}

// listWatch tells the Reflector whether it may stream lists.
type listWatch struct {
	*cache.ListWatch
	noWatchList bool
}

// IsWatchListSemanticsUnSupported is the name by which client-go asks.
func (l *listWatch) IsWatchListSemanticsUnSupported() bool { return l.noWatchList }

// debugOnly makes every record of the Reflector a debug record: what matters is logged
// by the part itself, once.
type debugOnly struct{ slog.Handler }

// Enabled implements slog.Handler.
func (h debugOnly) Enabled(ctx context.Context, _ slog.Level) bool {
	return h.Handler.Enabled(ctx, slog.LevelDebug)
}

// Handle implements slog.Handler.
func (h debugOnly) Handle(ctx context.Context, r slog.Record) error {
	if !h.Enabled(ctx, r.Level) {
		return nil // logr does not ask before it logs an error
	}
	r.Level = slog.LevelDebug
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h debugOnly) WithAttrs(attrs []slog.Attr) slog.Handler {
	return debugOnly{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h debugOnly) WithGroup(name string) slog.Handler { return debugOnly{h.Handler.WithGroup(name)} }

// gate counts calls that are under way, and refuses new ones once closed. A WaitGroup
// would not do: calls may begin while close waits.
type gate struct {
	mu     sync.Mutex
	calls  int
	closed bool
	empty  chan struct{} // made by close when calls are under way
}

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.calls++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls--
	if g.calls == 0 && g.empty != nil {
		close(g.empty)
	}
}

// close refuses new calls and waits for those under way.
func (g *gate) close() {
	g.mu.Lock()
	g.closed = true
	if g.calls > 0 {
		g.empty = make(chan struct{})
	}
	empty := g.empty
	g.mu.Unlock()
	if empty != nil {
		<-empty
	}
}

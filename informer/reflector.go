package informer

import (
	"context"
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

// run lists and watches until ctx ends, and returns when all calls of the Retriever have returned.
func (p *part) run(ctx context.Context) {
	logger := logr.FromSlogHandler(debugOnly{p.core.logger.Handler()}).WithName("reflector")
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
		noWatchList: !p.watchList,
	}
	backoff := wait.Backoff{Duration: backoffFirst, Cap: backoffMax, Steps: 100, Factor: 2, Jitter: backoffJitter}
	reflector := cache.NewReflectorWithOptions(lw, nil, (*reflectorStore)(p), cache.ReflectorOptions{
		Logger:          &logger,
		Name:            p.core.name,
		TypeDescription: p.describes,
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

// reflectorStore is the part as a cache.ReflectorStore, which is notified of lists. Objects and events other than
// bookmarks do not pass through it.
type reflectorStore part

// Add implements cache.ReflectorStore. It is never called: see stream.
func (s *reflectorStore) Add(any) error { return nil }

// Update implements cache.ReflectorStore. It is never called: see stream.
func (s *reflectorStore) Update(any) error { return nil }

// Delete implements cache.ReflectorStore. It is never called: see stream.
func (s *reflectorStore) Delete(any) error { return nil }

// Replace implements cache.ReflectorStore: a list at resourceVersion has come. Its items
// are in the store already, and a streamed one has been ended by its bookmark.
func (s *reflectorStore) Replace(_ []any, resourceVersion string) error {
	p := (*part)(s)
	p.listed(resourceVersion)
	p.core.settle(p)
	return nil
}

// Resync implements cache.ReflectorStore. Resyncs are the controllers' business.
func (s *reflectorStore) Resync() error { return nil }

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

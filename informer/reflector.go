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

// Backoff between attempts to list and watch. client-go's default grows to a minute, which would delay the detection of
// a granted permission or an installed CustomResourceDefinition. This backoff grows to 10 to 15 s.
const (
	backoffFirst  = 800 * time.Millisecond
	backoffMax    = 10 * time.Second
	backoffJitter = 0.5
	backoffReset  = 2 * time.Minute // after this time without an error, the backoff starts at backoffFirst again
)

// run lists and watches until ctx ends, and returns when all calls of the Retriever have returned.
func (p *part) run(ctx context.Context) {
	logger := logr.FromSlogHandler(debugOnly{p.core.logger.Handler()}).WithName("reflector")
	// The Reflector abandons a List when its context ends. The gate waits for the List.
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
	// Reflector.RunWithContext is not used, because it passes every error to apimachinery's global error handlers,
	// which sleep. The part records the error of an attempt when it occurs. So no error is passed to Until, which
	// continues until ctx ends.
	retries := backoff.DelayWithReset(clock.RealClock{}, backoffReset)
	_ = retries.Until(klog.NewContext(ctx, logger), true, true, func(ctx context.Context) (bool, error) {
		if err := reflector.ListAndWatchWithContext(ctx); err != nil {
			logger.Error(err, "list and watch ended")
		}
		return false, nil
	})
	calls.close()
}

// reflectorStore is the part as a cache.ReflectorStore, which is notified of lists. Objects, and events other than
// bookmarks, do not pass through it.
type reflectorStore part

// Add implements cache.ReflectorStore. It is never called: see stream.
func (s *reflectorStore) Add(any) error { return nil }

// Update implements cache.ReflectorStore. It is never called: see stream.
func (s *reflectorStore) Update(any) error { return nil }

// Delete implements cache.ReflectorStore. It is never called: see stream.
func (s *reflectorStore) Delete(any) error { return nil }

// Replace implements cache.ReflectorStore. It is called after a list at resourceVersion. The items are already in the
// store. A streamed list was already ended by its bookmark.
func (s *reflectorStore) Replace(_ []any, resourceVersion string) error {
	p := (*part)(s)
	p.listed(resourceVersion)
	p.core.settle(p)
	return nil
}

// Resync implements cache.ReflectorStore. It does nothing, because controllers implement resyncs.
func (s *reflectorStore) Resync() error { return nil }

// listWatch specifies whether the Reflector may stream lists.
type listWatch struct {
	*cache.ListWatch
	noWatchList bool
}

// IsWatchListSemanticsUnSupported implements the interface by which client-go checks the support for streamed lists.
func (l *listWatch) IsWatchListSemanticsUnSupported() bool { return l.noWatchList }

// debugOnly logs every record of the Reflector at debug level, because the part logs important events itself, once.
type debugOnly struct{ slog.Handler }

// Enabled implements slog.Handler.
func (h debugOnly) Enabled(ctx context.Context, _ slog.Level) bool {
	return h.Handler.Enabled(ctx, slog.LevelDebug)
}

// Handle implements slog.Handler.
func (h debugOnly) Handle(ctx context.Context, r slog.Record) error {
	if !h.Enabled(ctx, r.Level) {
		return nil // logr does not call Enabled before it logs an error
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

// gate counts running calls, and refuses new calls after it is closed. A WaitGroup is not sufficient, because calls may
// begin while close waits.
type gate struct {
	mu     sync.Mutex
	calls  int
	closed bool
	empty  chan struct{} // created by close if calls are running
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

// close refuses new calls and waits for the running ones.
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

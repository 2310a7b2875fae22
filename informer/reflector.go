package informer

import (
	"context"
	"log/slog"
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
	// The Reflector abandons a List when its context ends. listing is held during a List, so that run waits for it, and
	// no List begins after that.
	listing, ended := make(chan struct{}, 1), make(chan struct{})
	lw := &listWatch{
		ListWatch: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
				select {
				case listing <- struct{}{}:
					defer func() { <-listing }()
					return p.list(ctx, opts)
				case <-ended:
					return nil, context.Canceled
				}
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
	close(ended)
	listing <- struct{}{}
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
	p.core.settle()
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

package controllerruntime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/evenkeel-go/evenkeel/informer"
)

// sharedInformer implements toolscache.SharedIndexInformer with an informer of the engine. controller-runtime makes it,
// calls SetWatchErrorHandlerWithContext and SetTransform, and then the other methods.
type sharedInformer struct {
	// make makes the source with the settings. SetTransform calls it.
	make     func(settings) (engineInformer, error)
	settings settings
	model    runtime.Object
	resync   time.Duration
	logger   *slog.Logger

	// Immutable after SetTransform.
	engine  engineInformer
	indexer *indexer

	synced  chan struct{} // closed when all objects were listed
	ended   chan struct{} // closed when Run ends
	current []*event      // of the present change; used only by subscribers of engine

	mu         sync.Mutex     // held to close ended
	started    bool           // guarded by mu
	handlers   []*handler     // that were not removed; guarded by mu
	delivering sync.WaitGroup // the handlers that run; Add is called with mu held, before ended is closed
}

// newInformer is the NewInformer of cache.Options. The only indexer that controller-runtime passes is that of
// namespaces, which the engine has.
func (f *informerFactory) newInformer(
	lw toolscache.ListerWatcher, model runtime.Object, resync time.Duration, _ toolscache.Indexers,
) toolscache.SharedIndexInformer {
	s := &sharedInformer{
		model: model, resync: resync, logger: f.preferred.Logger(),
		synced: make(chan struct{}), ended: make(chan struct{}),
		make: func(set settings) (engineInformer, error) {
			selection, err := f.selectionOf(lw, model)
			if err != nil {
				return nil, err
			}
			return f.newEngineInformer(selection, model, set)
		},
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.made = append(slices.DeleteFunc(f.made, (*sharedInformer).IsStopped), s)
	return s
}

// SetWatchErrorHandler sets a function that is called for each list or watch that fails.
func (s *sharedInformer) SetWatchErrorHandler(handle toolscache.WatchErrorHandler) error {
	return s.SetWatchErrorHandlerWithContext(
		func(_ context.Context, r *toolscache.Reflector, err error) { handle(r, err) })
}

// SetWatchErrorHandlerWithContext sets a function that is called for each list or watch that fails. The Reflector that
// it gets does not run.
func (s *sharedInformer) SetWatchErrorHandlerWithContext(handle toolscache.WatchErrorHandlerWithContext) error {
	if s.engine != nil {
		return errors.New("set the watch error handler: the informer was made already")
	}
	reflector := toolscache.NewReflectorWithOptions(&toolscache.ListWatch{}, s.model,
		toolscache.NewStore(toolscache.MetaNamespaceKeyFunc), toolscache.ReflectorOptions{})
	s.settings.onError = func(err error) { handle(context.Background(), reflector, err) }
	return nil
}

// SetTransform sets the transform, which may be nil, and makes the informer.
func (s *sharedInformer) SetTransform(transform toolscache.TransformFunc) (err error) {
	if s.engine != nil {
		return errors.New("set the transform: the informer was made already")
	}
	s.settings.transform = transform
	if s.engine, err = s.make(s.settings); err != nil {
		return err
	}
	s.indexer = newIndexer(s.engine)
	s.engine.Subscribe(s.changed) // before the handlers
	return nil
}

// Run is RunWithContext with a channel.
func (s *sharedInformer) Run(stop <-chan struct{}) { s.RunWithContext(wait.ContextForChannel(stop)) }

// RunWithContext lists, watches and calls the handlers until ctx ends. It can be called once.
func (s *sharedInformer) RunWithContext(ctx context.Context) {
	s.mu.Lock()
	if s.started {
		s.mu.Unlock()
		s.logger.Warn("informer has run before", "informer", s.Name())
		return
	}
	s.started = true
	for _, h := range s.handlers {
		s.begin(h)
	}
	s.mu.Unlock()

	defer s.engine.Join(ctx)()
	if s.engine.WaitSynced(ctx) == nil {
		close(s.synced)
	}
	<-ctx.Done()
	s.mu.Lock()
	close(s.ended)
	for _, h := range s.handlers {
		h.end()
	}
	s.mu.Unlock()
	s.delivering.Wait()
}

// changed makes the events of a change, which the handlers share.
func (s *sharedInformer) changed(c informer.Change) { s.current = eventsOf(c) }

// begin starts a handler, which gets all later changes. mu must be held.
func (s *sharedInformer) begin(h *handler) {
	unsubscribe := s.engine.Subscribe(h.changed)
	s.delivering.Go(func() { // waited for by RunWithContext
		defer unsubscribe()
		h.deliver()
	})
}

// AddEventHandler adds a handler with the resync period of the informer.
func (s *sharedInformer) AddEventHandler(
	to toolscache.ResourceEventHandler,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandlerWithResyncPeriod(to, s.resync)
}

// AddEventHandlerWithOptions adds a handler.
func (s *sharedInformer) AddEventHandlerWithOptions(
	to toolscache.ResourceEventHandler, options toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	resync := s.resync
	if options.ResyncPeriod != nil {
		resync = *options.ResyncPeriod
	}
	return s.AddEventHandlerWithResyncPeriod(to, resync)
}

// AddEventHandlerWithResyncPeriod adds a handler that gets an update of each object in this period; 0: none.
func (s *sharedInformer) AddEventHandlerWithResyncPeriod(
	to toolscache.ResourceEventHandler, resync time.Duration,
) (toolscache.ResourceEventHandlerRegistration, error) {
	h := &handler{
		informer: s, to: to, resync: resync,
		filled: make(chan struct{}, 1), ended: make(chan struct{}), initial: make(chan struct{}),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.IsStopped() {
		return nil, fmt.Errorf("handler of type %T was not added to the informer because it has stopped already", to)
	}
	s.handlers = append(s.handlers, h)
	if s.started {
		s.begin(h)
	}
	return h, nil
}

// RemoveEventHandler ends the calls of a handler, except for one that is running.
func (s *sharedInformer) RemoveEventHandler(registration toolscache.ResourceEventHandlerRegistration) error {
	h, ok := registration.(*handler)
	if !ok || h.informer != s {
		return fmt.Errorf("remove an event handler: %T is not a registration of this informer", registration)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers = slices.DeleteFunc(s.handlers, func(other *handler) bool { return other == h })
	h.end()
	return nil
}

// GetStore returns the objects.
func (s *sharedInformer) GetStore() toolscache.Store { return s.indexer }

// GetIndexer returns the objects.
func (s *sharedInformer) GetIndexer() toolscache.Indexer { return s.indexer }

// AddIndexers adds indexes. The informer may run.
func (s *sharedInformer) AddIndexers(added toolscache.Indexers) error {
	if s.IsStopped() {
		return errors.New("add indexers: the informer has stopped")
	}
	return s.indexer.AddIndexers(added)
}

// GetController returns the informer.
func (s *sharedInformer) GetController() toolscache.Controller { return s }

// HasSynced reports whether all objects were listed.
func (s *sharedInformer) HasSynced() bool { return isClosed(s.synced) }

// HasSyncedChecker returns the informer.
func (s *sharedInformer) HasSyncedChecker() toolscache.DoneChecker { return s }

// Name implements toolscache.DoneChecker.
func (s *sharedInformer) Name() string { return s.engine.Name() }

// Done implements toolscache.DoneChecker.
func (s *sharedInformer) Done() <-chan struct{} { return s.synced }

// LastSyncResourceVersion returns the version up to which all changes have arrived.
func (s *sharedInformer) LastSyncResourceVersion() string {
	return s.indexer.LastStoreSyncResourceVersion()
}

// IsStopped reports whether the informer has run and ended.
func (s *sharedInformer) IsStopped() bool { return isClosed(s.ended) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

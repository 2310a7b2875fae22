package subscription

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Config configures a Subscription.
type Config[T kube.Object] struct {
	// Name is used in logs and readiness. Default: the Informer's name.
	Name string
	// Informer has the objects. It may be shared with controllers or other subscriptions: the Subscription runs it too,
	// while it runs itself. Required.
	Informer *informer.Informer[T]
	// Predicate selects the changes to deliver. It is called while the informer announces a change, so it must be fast.
	// Package predicate has common predicates. Events does not call it for the end of a delivered object, because that
	// end must be delivered. Default: all changes.
	Predicate informer.Predicate
}

// Subscription delivers changes of objects through channels. It is safe for concurrent use.
//
// Flow: Run lists and watches the objects with an informer. Each requested channel has a queue with the keys of changed
// objects, each once, in the order of their first undelivered change. The receiver gets the newest state of the first
// of them.
//
// Guarantees:
//   - Every object that exists when Run begins is delivered, and every change or a later change of the same object,
//     also after errors and broken watches. A reconnect alone delivers nothing.
//   - A slow receiver blocks neither the informer nor the other channels. Its queue has at most one entry per object.
//   - Objects are freshly decoded and belong to the receiver.
//   - When Run has returned, every channel is closed, and all goroutines have ended.
//
// The caller must call Run. A requested channel need not be received from: it then only costs its queue.
type Subscription[T kube.Object] struct {
	// Immutable after New.
	name      string
	informer  *informer.Informer[T]
	predicate informer.Predicate
	logger    *slog.Logger

	serving sync.WaitGroup // the running receivers; Run waits for them

	mu      sync.Mutex
	signals *signals         // guarded by mu; nil until requested
	objects *objects[T]      // guarded by mu; nil until requested
	events  *events[T]       // guarded by mu; nil until requested
	waiting []receiver       // guarded by mu; requested, but not served by Run yet
	serve   func(r receiver) // guarded by mu; starts a receiver; nil while Run does not run
	ran     bool             // guarded by mu; Run was called
	ended   bool             // guarded by mu; Run has ended
}

// receiver connects the informer's changes to one channel.
type receiver interface {
	// notify is called while the informer announces a change.
	notify(c informer.Change)
	// synced is called once, after all initial objects were announced.
	synced()
	// deliver sends to the channel until ctx ends.
	deliver(ctx context.Context)
	// end closes the channel. No other method is called concurrently or later.
	end()
}

// New returns a Subscription. It starts nothing.
func New[T kube.Object](config Config[T]) (*Subscription[T], error) {
	objects := config.Informer
	if objects == nil {
		return nil, fmt.Errorf("new subscription %q: an Informer is required: informer.New makes one", config.Name)
	}
	logger := cache.Of(objects).Logger()
	return &Subscription[T]{
		name: cmp.Or(config.Name, objects.Name()), informer: objects, predicate: guarded(config.Predicate, logger),
		logger: logger,
	}, nil
}

// Name returns the subscription's name.
func (s *Subscription[T]) Name() string { return s.name }

// Signals returns a channel that signals changes. All changes since the last received signal are one signal. The first
// signal is sent when all objects have been read, even if there are none. Every call returns the same channel.
//
//	for range s.Signals() { // the first one is sent when all objects have been read
//		fmt.Println("there are", objects.Len())
func (s *Subscription[T]) Signals() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.signals == nil {
		s.signals = newSignals(s.predicate)
		s.add(s.signals)
	}
	return s.signals.out
}

// Objects returns a channel of the objects that were added or changed, each in its newest state. (The object that a
// slow receiver gets next may have changed since; it is then sent again.) Deletions are not delivered. Every call
// returns the same channel.
func (s *Subscription[T]) Objects() <-chan T {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects == nil {
		s.objects = newObjects(s)
		s.add(s.objects)
	}
	return s.objects.out
}

// Events returns a channel of changes: see Event. Every call returns the same channel.
//
// Applying the events in order keeps a copy of all objects in sync. Between two events of an object it may have changed
// several times. If an object was deleted and created again, it has another uid, and both Events are sent.
// An object that was created and deleted before the receiver was ready is not sent at all.
func (s *Subscription[T]) Events() <-chan Event[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.events == nil {
		s.events = newEvents(s)
		s.add(s.events)
	}
	return s.events.out
}

// add starts r now, or registers it for Run. mu must be held.
func (s *Subscription[T]) add(r receiver) {
	switch {
	case s.serve != nil:
		s.serve(r)
	case s.ended:
		r.end()
	default:
		s.waiting = append(s.waiting, r)
	}
}

// Run lists, watches and delivers until ctx ends, and then returns nil. A channel that is requested later begins with
// the objects that exist at that time. Undelivered changes are dropped when ctx ends.
//
// Run may be called once, because it closes the channels. A second call returns an error.
func (s *Subscription[T]) Run(ctx context.Context) error {
	s.mu.Lock()
	if s.ran {
		s.mu.Unlock()
		return fmt.Errorf("run subscription %q: it has run before, and its channels are closed: create a new one",
			s.name)
	}
	s.ran = true
	s.mu.Unlock()

	leave := s.informer.Join(ctx)
	s.mu.Lock()
	s.serve = func(r receiver) {
		s.serving.Go(func() { s.runReceiver(ctx, r) }) // waited for below
	}
	for _, r := range s.waiting {
		s.serve(r)
	}
	s.waiting = nil
	s.mu.Unlock()

	<-ctx.Done()
	s.mu.Lock()
	s.serve, s.ended = nil, true
	s.mu.Unlock()
	s.serving.Wait()
	leave()
	return nil
}

// runReceiver runs r until ctx ends.
func (s *Subscription[T]) runReceiver(ctx context.Context, r receiver) {
	defer r.end()
	unsubscribe := cache.Of(s.informer).Subscribe(func(c informer.Change) {
		if ctx.Err() == nil { // a large initial list must not delay the end
			r.notify(c)
		}
	})
	defer unsubscribe() // waits for a change that is being announced
	var syncing sync.WaitGroup
	syncing.Go(func() { // waited for before the end
		if s.informer.WaitSynced(ctx) == nil {
			r.synced()
		}
	})
	defer syncing.Wait()
	r.deliver(ctx)
}

// guarded returns a predicate that returns true if the user's predicate panics, or is nil.
func guarded(predicate informer.Predicate, logger *slog.Logger) informer.Predicate {
	if predicate == nil {
		return func(informer.Change) bool { return true }
	}
	guard := usercode.NewGuard(logger)
	return func(c informer.Change) bool {
		return usercode.Value(guard, "Config.Predicate", true, func() bool { return predicate(c) })
	}
}

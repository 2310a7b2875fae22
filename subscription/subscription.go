package subscription

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Config says what a Subscription tells of.
type Config[T kube.Object] struct {
	// Name is used in logs and readiness. Default: the Informer's or, of a Retriever, its kind.
	Name string
	// Retriever lists and watches the objects; the Subscription has a cache of its own then.
	// Required, if there is no Informer.
	Retriever informer.Retriever[T]
	// Informer is one that is shared with controllers or other subscriptions: the Subscription
	// runs it too while it runs itself. Required, if there is no Retriever.
	Informer *informer.Informer[T]
	// Predicate says which changes are told. It is called while the informer announces a change,
	// so it must be quick; package predicate has the usual ones. Events does not ask it about the
	// end of an object: the receiver must hear of it, if it knows the object. Default: all.
	Predicate informer.Predicate
	// Logger receives what a Retriever's informer has to say, and which objects cannot be read
	// as a T. Default: slog.Default() at the time of New.
	Logger *slog.Logger
}

// Subscription tells what happens to objects. Its methods may be called by any goroutine.
//
// Flow: Run lists the objects and watches them, by an informer. What it shows is put in a queue
// for each channel that was asked for: the objects' keys, each once, in the order in which they
// had something to tell first. The receiver gets the newest state of the first of them.
//
// Guarantees:
//   - Every object that there is when Run begins is told, and every change is, or a later one of
//     the same object, whatever breaks in between. A reconnect alone tells nothing.
//   - A slow receiver holds up nobody, neither the informer nor the other channels. What waits
//     for it is one entry for each object, whatever happens to it meanwhile.
//   - Objects are freshly decoded and belong to the receiver.
//   - When Run has returned, every channel is closed, and no goroutine is left.
//
// The caller must run it, and receive from the channels that it has asked for, or leave them: a
// channel that nobody reads any more costs its queue, and nothing else.
type Subscription[T kube.Object] struct {
	// Immutable after New.
	name      string
	informer  *informer.Informer[T]
	predicate informer.Predicate
	logger    *slog.Logger

	serving sync.WaitGroup // the receivers that are served; Run waits for it

	mu      sync.Mutex
	signals *signals         // guarded by mu; nil until it is asked for; the same for the others
	objects *objects[T]      // guarded by mu
	events  *events[T]       // guarded by mu
	waiting []receiver       // guarded by mu; asked for before Run serves them
	serve   func(r receiver) // guarded by mu; starts to serve a receiver; nil while Run does not run
	ran     bool             // guarded by mu; Run has been called
	ended   bool             // guarded by mu; nothing is served any more
}

// receiver is the way from the informer's changes to one channel.
type receiver interface {
	// notify is called while the informer announces a change.
	notify(c informer.Change)
	// synced is called once, when everything that was there has been announced.
	synced()
	// deliver hands over what there is to tell, until ctx ends.
	deliver(ctx context.Context)
	// end closes the channel. Nothing else is called at the same time, or later.
	end()
}

// New makes a Subscription. It starts nothing. The error names every mistake in config.
func New[T kube.Object](config Config[T]) (*Subscription[T], error) {
	var errs []error
	logger := cmp.Or(config.Logger, slog.Default())
	objects := config.Informer
	switch {
	case objects != nil && config.Retriever != nil:
		errs = append(errs, errors.New("there is a Retriever and an Informer: one of them is enough"))
	case objects == nil && config.Retriever == nil:
		errs = append(errs, errors.New("a Retriever or an Informer is required: informer.Retrieve makes a Retriever"))
	case objects == nil:
		var err error
		objects, err = informer.New(informer.Config[T]{Name: config.Name, Retriever: config.Retriever, Logger: logger})
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("new subscription %q: %w", config.Name, err)
	}
	return &Subscription[T]{
		name: cmp.Or(config.Name, objects.Name()), informer: objects, predicate: config.Predicate, logger: logger,
	}, nil
}

// Name returns the subscription's name.
func (s *Subscription[T]) Name() string { return s.name }

// Informer returns the informer that the subscription reads: to look at other objects than the
// one that was told of, and at its Health.
func (s *Subscription[T]) Informer() *informer.Informer[T] { return s.informer }

// Signals returns a channel that says that something has changed: any number of changes since
// the last signal was received are one. The first signal comes when everything that there is has
// been read, also when that is nothing. It is the same channel at every call.
//
//	for range s.Signals() { // the first one comes when everything has been read
//		fmt.Println("there are", s.Informer().Len())
func (s *Subscription[T]) Signals() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.signals == nil {
		s.signals = newSignals(s.predicate)
		s.add(s.signals)
	}
	return s.signals.out
}

// Objects returns a channel of the objects that came or changed, each in its newest state (the
// one that is next in line for a slow receiver may have changed since: then it comes again).
// Objects that went are not told. It is the same channel at every call.
func (s *Subscription[T]) Objects() <-chan T {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects == nil {
		s.objects = newObjects(s)
		s.add(s.objects)
	}
	return s.objects.out
}

// Events returns a channel of what happened to objects: see Event. It is the same channel at
// every call.
//
// Who does to a copy what the events say has a copy of what there is: between two events of one
// object, it changes, or it goes. An object that was deleted and created again in between has
// another uid, and gives a Deleted and an Applied; one that came and went before the receiver
// heard of it gives nothing.
func (s *Subscription[T]) Events() <-chan Event[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.events == nil {
		s.events = newEvents(s)
		s.add(s.events)
	}
	return s.events.out
}

// add has r served, now or by Run. It is called with mu held.
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

// Run lists, watches and tells until ctx ends, and then returns nil. A channel that is asked for
// while it runs begins with what there is at that moment. What has not been received when ctx
// ends is not told.
//
// It runs once: the channels are closed when it returns. The error says that it has run before.
func (s *Subscription[T]) Run(ctx context.Context) error {
	s.mu.Lock()
	if s.ran {
		s.mu.Unlock()
		return fmt.Errorf("run subscription %q: it has run before, and its channels have an end: make another one", s.name)
	}
	s.ran = true
	s.mu.Unlock()

	leave := s.informer.Join(ctx)
	s.mu.Lock()
	s.serve = func(r receiver) {
		s.serving.Go(func() { s.attend(ctx, r) }) // waited for below
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

// attend serves r until ctx ends.
func (s *Subscription[T]) attend(ctx context.Context, r receiver) {
	defer r.end()
	unsubscribe := s.informer.Subscribe(func(c informer.Change) {
		if ctx.Err() == nil { // the end must not wait for all objects of a large list
			r.notify(c)
		}
	})
	defer unsubscribe() // it waits for a change that is being announced
	var syncing sync.WaitGroup
	syncing.Go(func() { // waited for before the end
		if s.informer.WaitSynced(ctx) == nil {
			r.synced()
		}
	})
	defer syncing.Wait()
	r.deliver(ctx)
}

// passes reports whether a change is to be told, whatever was told before.
func passes(predicate informer.Predicate, c informer.Change) bool {
	return predicate == nil || predicate(c)
}

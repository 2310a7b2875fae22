package informer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"

	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/store"
)

// Config says what an Informer keeps.
type Config[T kube.Object] struct {
	// Name is used in logs, metrics and readiness. Default: the kind that is retrieved, so
	// name informers of one kind that retrieve different objects of it.
	Name string
	// Retriever lists and watches the objects. Required.
	Retriever Retriever[T]
	// Metrics receives measurements. Default nil: none.
	Metrics Recorder
	// Logger receives what an operator of the program should know: that the informer
	// cannot list or watch, and that it can again; and what client-go's Reflector says,
	// at debug level. Default: slog.Default() at the time of New.
	Logger *slog.Logger
}

// ChangeType says what happened to an object.
type ChangeType int

// The types of changes.
const (
	// Listed: the object was there when the informer, or the subscription, began.
	Listed ChangeType = iota
	// Added: the object was created, or came into the selection.
	Added
	// Updated: the object changed, or was deleted and created again in between.
	Updated
	// Deleted: the object is gone, or left the selection.
	Deleted
)

// Change is one step of one object.
type Change struct {
	Type ChangeType
	Key  kube.Key
}

// Informer is a view of what one Retriever has seen: cached, always moving forward,
// shared by whoever is given it.
//
// Flow: Run lists the objects into a store and watches from there (client-go's
// Reflector does both: WatchList where the server has it, bookmarks, 410, back-off).
// Each arriving object is compared with the kept one; when it is newer, the store gets
// it, and then the subscribers get the Change.
//
// Guarantees:
//   - When a subscriber learns of a change, Get returns that state or a later one.
//   - Per object, the view moves forward only: an older resourceVersion never replaces
//     a newer one of the same object. The one exception is an API server whose history
//     itself went back (etcd restored from a backup): its consistent list is believed.
//   - A reconnect or a relist alone changes nothing: subscribers learn of real changes.
//   - What cannot be listed or watched is named by Health, Ready and the log at once,
//     and tried again for ever, with back-off up to about 15 s.
//
// An Informer may be shared: Run may be called by several at the same time.
type Informer[T kube.Object] struct {
	// Immutable after New.
	name        string
	description Description[T]
	parts       []*part[T]
	metrics     Recorder
	logger      *slog.Logger

	// events orders changes with subscriptions: it is held while a change is stored and
	// announced, and while a subscriber is added and told what is there.
	events      sync.Mutex
	subscribers map[*subscriber]struct{} // guarded by events

	mu      sync.Mutex
	session *session      // guarded by mu; nil when nobody runs the informer
	ending  *session      // guarded by mu; a session whose watches are ending
	synced  chan struct{} // guarded by mu; closed when the current session is synced
}

type subscriber struct{ notify func(Change) }

// session is the time from the first Run to the return of the last.
type session struct {
	users  int // guarded by Informer.mu
	cancel context.CancelFunc
	ended  chan struct{} // closed when all watches have ended
}

// New makes an Informer. It starts nothing. The error names every mistake in config.
func New[T kube.Object](config Config[T]) (*Informer[T], error) {
	if config.Retriever == nil {
		return nil, fmt.Errorf("new informer %q: Retriever is required: informer.Retrieve makes one", config.Name)
	}
	description := config.Retriever.Describe()
	if description.Problem != nil {
		return nil, fmt.Errorf("new informer %q: %w", config.Name, description.Problem)
	}
	i := &Informer[T]{
		name:        cmp.Or(config.Name, description.kind()),
		description: description,
		metrics:     config.Metrics,
		logger:      cmp.Or(config.Logger, slog.Default()),
		subscribers: map[*subscriber]struct{}{},
		synced:      make(chan struct{}),
	}
	for _, r := range partsOf(config.Retriever) {
		i.parts = append(i.parts, newPart(i, r))
	}
	return i, nil
}

// Name returns the informer's name.
func (i *Informer[T]) Name() string { return i.name }

// Run lists and watches until ctx ends, and then returns nil.
//
// Several may run one Informer at the same time: the first Run starts the watch, the
// last one to end stops it, and returns after every goroutine of it has ended. What was
// kept stays readable until the informer is run again, which begins with an empty view.
func (i *Informer[T]) Run(ctx context.Context) error {
	leave := i.Join(ctx)
	<-ctx.Done()
	leave()
	return nil
}

// Join is Run in two halves: it starts the watch, or joins the one that runs, and returns
// at once. The caller must call leave once, which does what the end of Run's context
// does. ctx lends its values; its end means nothing.
//
// Whoever subscribes or waits for the sync after Join does so in the session that it has
// joined, whatever the informer's other users do.
func (i *Informer[T]) Join(ctx context.Context) (leave func()) {
	s := i.join(ctx)
	return func() { i.leave(s) }
}

func (i *Informer[T]) leave(s *session) {
	i.mu.Lock()
	s.users--
	last := s.users == 0
	if last {
		i.session, i.ending = nil, s
		// Whoever waits for the next session's sync must not see this one's.
		select {
		case <-i.synced:
			i.synced = make(chan struct{})
		default:
		}
	}
	i.mu.Unlock()
	if !last {
		return
	}
	s.cancel()
	<-s.ended
	i.mu.Lock()
	if i.ending == s {
		i.ending = nil
	}
	i.mu.Unlock()
}

// join returns the running session with one more user, or starts one.
func (i *Informer[T]) join(ctx context.Context) *session {
	for {
		i.mu.Lock()
		if ending := i.ending; ending != nil {
			// Two sessions must not feed the same parts.
			i.mu.Unlock()
			<-ending.ended
			i.mu.Lock()
			if i.ending == ending {
				i.ending = nil
			}
			i.mu.Unlock()
			continue
		}
		if i.session == nil {
			i.session = i.start(ctx)
		}
		s := i.session
		s.users++
		i.mu.Unlock()
		return s
	}
}

// start begins a session. It holds i.mu.
func (i *Informer[T]) start(ctx context.Context) *session {
	// The session outlives the Run that started it when others have joined.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &session{cancel: cancel, ended: make(chan struct{})}
	var running sync.WaitGroup
	for _, p := range i.parts {
		p.reset()
		running.Go(func() { p.run(ctx) }) // waited for by the goroutine below
	}
	go func() { // waited for by the last Run, through s.ended
		stopMetrics := func() {}
		if i.metrics != nil {
			stopMetrics = i.metrics.ObserveInformer(i.name, i.Health)
		}
		running.Wait()
		stopMetrics()
		close(s.ended)
	}()
	return s
}

// Get returns a fresh copy of the object under key, which belongs to the caller.
func (i *Informer[T]) Get(key kube.Key) (obj T, found bool, err error) {
	for _, p := range i.parts {
		if obj, found, err = p.objects().Get(key); found || err != nil {
			return obj, found, err
		}
	}
	return obj, false, nil
}

// Has reports whether there is an object under key, without reading it.
func (i *Informer[T]) Has(key kube.Key) bool {
	for _, p := range i.parts {
		if _, found := p.objects().Version(key); found {
			return true
		}
	}
	return false
}

// All iterates over fresh copies of all objects, in no order. Objects that come or go
// during the iteration may or may not be in it.
func (i *Informer[T]) All() iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, p := range i.parts {
			objects := p.objects()
			for key := range objects.Keys() {
				obj, found, err := objects.Get(key)
				if !found && err == nil {
					continue
				}
				if !yield(obj, err) {
					return
				}
			}
		}
	}
}

// Len is the number of objects kept.
func (i *Informer[T]) Len() int {
	n := 0
	for _, p := range i.parts {
		n += p.objects().Len()
	}
	return n
}

// WaitSynced waits until everything has been listed once since the informer was
// started. It returns ctx's error when that ends first, together with what stands in
// the way.
func (i *Informer[T]) WaitSynced(ctx context.Context) error {
	i.mu.Lock()
	synced := i.synced
	i.mu.Unlock()
	select {
	case <-synced:
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("wait for informer %q: %w", i.name, ctx.Err()), i.Ready())
	}
}

// Subscribe calls notify for every change from now on, beginning with a Listed for each
// object that is kept already. What vanished while nobody ran the informer is not
// announced: each session begins with Listed for what there is.
//
// Calls come one at a time, and no object changes meanwhile. notify must return quickly
// and must not call Subscribe or unsubscribe; it may read the informer. It belongs to
// code that puts keys into queues.
func (i *Informer[T]) Subscribe(notify func(Change)) (unsubscribe func()) {
	s := &subscriber{notify: notify}
	i.events.Lock()
	defer i.events.Unlock()
	i.subscribers[s] = struct{}{}
	i.mu.Lock()
	running := i.session != nil
	i.mu.Unlock()
	// What an ended session left is no news: the next one lists it again.
	if running {
		for _, p := range i.parts {
			for key := range p.objects().Keys() {
				notify(Change{Type: Listed, Key: key})
			}
		}
	}
	return func() {
		i.events.Lock()
		defer i.events.Unlock()
		delete(i.subscribers, s)
	}
}

// announce tells the subscribers. It is called with events held.
func (i *Informer[T]) announce(c Change) {
	for s := range i.subscribers {
		s.notify(c)
	}
}

// partSynced is called by a part when its first list is in the store.
func (i *Informer[T]) partSynced() {
	for _, p := range i.parts {
		p.mu.Lock()
		synced := p.synced
		p.mu.Unlock()
		if !synced {
			return
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.session == nil {
		return // a list that came after the last Run had ended
	}
	select {
	case <-i.synced:
	default:
		close(i.synced)
	}
}

// newStore is the one place that chooses how objects are kept.
func newStore[T kube.Object]() store.Store[T] { return store.NewMemory[T]() }

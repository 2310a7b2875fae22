package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Shared is Mapped for a SharedInformer (or SharedIndexInformer) of client-go, for programs that share it with other
// libraries. T is the type of its objects. name names the source in causes and metrics: keep its cardinality low.
//
// The program runs the informer: the controller neither starts nor stops it. The controller calls no handler, and is
// not ready, before the informer has synced and has announced all of its objects to the source. The source adds its
// event handler at the start of each term of the controller, and removes it at the end.
//
// keys must not change the object, which other users of the informer share. It is called with the state before and the
// state after an update. For a deleted object that the informer missed, it is called with the last known state. The
// rest of Mapped's documentation applies to keys and predicates.
//
// client-go's resyncs (cache.SharedInformer's resync period) enqueue nothing: the controller has resyncs of its own.
// The objects are Go structs, so each change is encoded for the predicates. An informer of this module needs less
// memory.
//
// The controller does not wait until the informer shows the writes of a run, as it does for its own informers (contract
// 7), and such a write may run its key once more (contract 13).
//
// The run ends with an error if the informer stops before the controller, because no changes would arrive.
func Shared[T kube.Object](
	name string, objects cache.SharedInformer, keys func(obj T) []kube.Key, predicates ...informer.Predicate,
) controller.Source {
	s := &shared[T]{name: name, objects: objects, keys: keys, predicates: slices.Clone(predicates)}
	var errs []error
	if usercode.IsNil(objects) {
		errs = append(errs, errors.New("the informer is required"))
	}
	if keys == nil {
		errs = append(errs, errors.New("the function is required"))
	}
	s.problem = errors.Join(append(errs, checkPredicates(predicates))...)
	return s
}

// sharedPoll is the interval at which a source checks whether the informer has synced or stopped: client-go has no
// event for the latter.
const sharedPoll = 100 * time.Millisecond

// shared is the source of Shared.
type shared[T kube.Object] struct {
	name       string
	objects    cache.SharedInformer
	keys       func(T) []kube.Key
	predicates []informer.Predicate
	problem    error

	// Set by Prepare, on a copy for each controller.
	logger *slog.Logger
	guard  *usercode.Guard
}

// Prepare implements controller.Source.
func (s *shared[T]) Prepare(target controller.Target) (controller.PreparedSource, error) {
	if s.problem != nil {
		return controller.PreparedSource{}, fmt.Errorf("source %s: %w", s.name, s.problem)
	}
	own := *s
	own.logger = target.Logger.With("source", s.name)
	own.guard = usercode.NewGuard(own.logger)
	return controller.PreparedSource{Name: s.name, Start: own.start, Keys: own.all, Ready: own.ready}, nil
}

func (s *shared[T]) ready() error {
	switch {
	case s.objects.IsStopped():
		return fmt.Errorf("source %s: the SharedInformer has stopped", s.name)
	case !s.objects.HasSynced():
		return fmt.Errorf("source %s: the SharedInformer has not synced", s.name)
	}
	return nil
}

// start adds an event handler, and returns when it has received all objects.
func (s *shared[T]) start(ctx context.Context, enqueue controller.Enqueue) (run func() error, err error) {
	registration, err := s.objects.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			as := informer.Added
			if initial {
				as = informer.Listed
			}
			s.changed(ctx, as, nil, obj, enqueue)
		},
		UpdateFunc: func(before, after any) { s.changed(ctx, informer.Updated, before, after, enqueue) },
		DeleteFunc: func(obj any) { s.changed(ctx, informer.Deleted, obj, nil, enqueue) },
	})
	if err != nil {
		return nil, fmt.Errorf("source %s: %w", s.name, err)
	}
	ticker := time.NewTicker(sharedPoll)
	for ctx.Err() == nil && !registration.HasSynced() && !s.objects.IsStopped() {
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	run = func() (err error) {
		defer ticker.Stop()
		defer func() { // waits for a call of the handler: nothing is enqueued after the end of run
			if remove := cache.ShutDownEventHandler(s.objects, registration); remove != nil {
				err = errors.Join(err, fmt.Errorf("source %s: remove the event handler: %w", s.name, remove))
			}
		}()
		for {
			if s.objects.IsStopped() && ctx.Err() == nil {
				return fmt.Errorf("source %s: the SharedInformer has stopped", s.name)
			}
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C:
			}
		}
	}
	if s.objects.IsStopped() {
		return nil, run()
	}
	return run, nil
}

// changed enqueues the keys of a change. old and current are nil if there is no such state.
func (s *shared[T]) changed(ctx context.Context, as informer.ChangeType, old, current any, enqueue controller.Enqueue) {
	if ctx.Err() != nil {
		return // shutdown must not wait for all objects of a large list
	}
	tombstone, uncertain := old.(cache.DeletedFinalStateUnknown)
	if uncertain {
		old = tombstone.Obj
	}
	before, errBefore := s.typed(old)
	after, errAfter := s.typed(current)
	if before == nil && after == nil && errors.Join(errBefore, errAfter) == nil {
		errBefore = fmt.Errorf("the SharedInformer has lost the object %s", tombstone.Key)
	}
	if before != nil && after != nil && (*before).GetUID() == (*after).GetUID() &&
		(*before).GetResourceVersion() == (*after).GetResourceVersion() && (*after).GetResourceVersion() != "" {
		return // a resync of client-go
	}
	change, errChange := newSharedChange(as, before, after, uncertain)
	if errChange == nil && !passes(change, s.predicates, s.guard) {
		return
	}
	keysAfter, errKeysAfter := s.keysOf(after)
	keysBefore, errKeysBefore := s.keysOf(before)
	if err := errors.Join(errBefore, errAfter, errChange, errKeysBefore, errKeysAfter); err != nil {
		s.logger.WarnContext(ctx, "source failed to read a changed object; some keys may not be enqueued",
			"key", change.Key.String(), "change", string(as), "error", err)
	}
	enqueueAll(keysBefore, keysAfter, enqueue, controller.Trigger{Change: change, FromList: as == informer.Listed})
}

// all iterates over the keys of the objects that no predicate drops.
func (s *shared[T]) all(yield func(kube.Key) bool) {
	for _, obj := range s.objects.GetStore().List() {
		state, err := s.typed(obj)
		if err != nil {
			continue // logged when the object changed
		}
		if len(s.predicates) > 0 {
			change, err := newSharedChange(informer.Listed, nil, state, false)
			if err == nil && !passes(change, s.predicates, s.guard) {
				continue
			}
		}
		keys, _ := s.keysOf(state) // the guard logs a panic
		for _, key := range keys {
			if !yield(key) {
				return
			}
		}
	}
}

// typed returns an object of the informer as a T, or nil if there is none.
func (s *shared[T]) typed(obj any) (*T, error) {
	if usercode.IsNil(obj) {
		return nil, nil
	}
	typed, ok := obj.(T)
	if !ok {
		return nil, fmt.Errorf("the SharedInformer has a %T, not a %T", obj, typed)
	}
	return &typed, nil
}

// keysOf returns the keys of a state, which may be nil.
func (s *shared[T]) keysOf(state *T) (found []kube.Key, err error) {
	if state == nil {
		return nil, nil
	}
	err = s.guard.Try("the function", func() error { found = s.keys(*state); return nil })
	return found, err
}

// newSharedChange returns a change of the informer. uncertain is true if before may not be the last state.
func newSharedChange[T kube.Object](as informer.ChangeType, before, after *T, uncertain bool) (informer.Change, error) {
	var kind schema.GroupVersionKind
	state := func(of *T) (kube.Object, error) {
		if of == nil {
			return nil, nil
		}
		if kind = (*of).GetObjectKind().GroupVersionKind(); kind.Empty() {
			kind, _ = apiobject.BuiltinKind(*of) // client-go removes the kind from typed objects
		}
		encoded, err := wire.FromObject(*of, nil)
		if err != nil {
			return nil, err
		}
		return &wire.EncodedObject{Encoded: encoded, Uncertain: uncertain}, nil
	}
	old, errOld := state(before)
	current, errNew := state(after)
	if err := errors.Join(errOld, errNew); err != nil {
		return informer.Change{Type: as}, err
	}
	return informer.NewChange(as, kind, old, current)
}

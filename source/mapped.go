package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Mapped is a source that enqueues the keys that keys returns for each object that is listed, added, updated or
// deleted. For an updated object, keys is called with the state before and the state after the change, so that keys
// that the object no longer refers to are enqueued too. A change that one of predicates drops enqueues nothing, and is
// not decoded.
//
// For a controller of controller.NoObject, keys is also called with each object once in each resync interval, at the
// same time as other calls, to find the keys of the resync.
//
// keys is called while the informer announces the change, one call at a time for each informer, and the informer's next
// change waits for it: it must be fast. It may read informers, including the one that announces the change (Get,
// Health, Ready; List fails during the first list), and gets the announced state or a later one. It must not make
// requests, must not wait (as WaitSynced does), and must neither subscribe nor remove a source: that could deadlock. If
// it panics, the panic is logged, with the stack once, and the keys of the state that it was called with are not
// enqueued. If a predicate panics, the change passes. keys may modify the object.
//
// If metadata is enough, use an informer of informer.RetrieveMetadata: each change decodes the object twice. A state
// that cannot be decoded as a T is logged to the controller's logger and enqueues nothing; the other state of the
// change is still used.
func Mapped[T kube.Object](
	objects *informer.Informer[T], keys func(obj T) []kube.Key, predicates ...informer.Predicate,
) controller.Source {
	var problem error
	if keys == nil {
		problem = errors.New("the function is required")
	}
	return newMapped("mapped", existing(objects), predicates, problem,
		keysOfStates(func(o *wire.Object) ([]kube.Key, error) {
			obj, err := cache.Decode[T](cache.Of(objects), o)
			if err != nil {
				return nil, err
			}
			return keys(obj), nil
		}))
}

// keysOf returns the keys of the states before and after a change. If one state cannot be decoded, it returns an error
// and the keys of the other state: an object that became undecodable, or decodable again, still affects the keys of its
// other state.
type keysOf func(informer.Change) (before, after []kube.Key, err error)

// keysOfStates returns a keysOf that calls keys with each state of a change.
func keysOfStates(keys func(*wire.Object) ([]kube.Key, error)) keysOf {
	ask := func(state *wire.Object, err error) (found []kube.Key, _ error) {
		if state == nil || err != nil {
			return nil, err
		}
		// An error is only about this state: the keys of the other state are enqueued.
		err = (*usercode.Guard)(nil).Try("the function", func() error { found, err = keys(state); return err })
		return found, err
	}
	return func(c informer.Change) (before, after []kube.Key, err error) {
		before, oldErr := ask(cache.Of(c).Old())
		after, newErr := ask(cache.Of(c).New())
		return before, after, errors.Join(oldErr, newErr)
	}
}

// openInformer returns the informer of a source for a controller.
type openInformer func(controller.Target) (informer.Any, error)

// existing opens an informer that the user has created.
func existing(objects informer.Any) openInformer {
	return func(controller.Target) (informer.Any, error) {
		if usercode.IsNil(objects) {
			return nil, errors.New("the informer is required")
		}
		return objects, nil
	}
}

// mapped enqueues keys for the changes of an informer.
type mapped struct {
	what       string
	open       openInformer
	predicates []informer.Predicate
	owner      *Owner // nil: keys is set
	problem    error

	// Set by Prepare, on a copy for each controller.
	keys    keysOf // from owner, if that is set
	objects informer.Any
	logger  *slog.Logger
	guard   *usercode.Guard
}

func newMapped(what string, open openInformer, predicates []informer.Predicate, problem error, keys keysOf) *mapped {
	return &mapped{
		what: what, open: open, predicates: slices.Clone(predicates), keys: keys,
		problem: errors.Join(problem, checkPredicates(predicates)),
	}
}

func checkPredicates(predicates []informer.Predicate) error {
	var mistakes usercode.Mistakes
	for i, p := range predicates {
		if p == nil {
			mistakes.Addf("predicate %d is nil", i)
		}
	}
	return mistakes.Err()
}

// Prepare implements controller.Source.
func (s *mapped) Prepare(target controller.Target) (controller.PreparedSource, error) {
	own := *s
	var errOpen, errOwner error
	own.objects, errOpen = s.open(target)
	if s.owner != nil {
		var owner Owner
		owner, errOwner = s.owner.forController(target.Kind.GroupKind())
		own.keys = keysOfStates(owner.keys)
	}
	if err := errors.Join(s.problem, errOpen, errOwner); err != nil {
		return controller.PreparedSource{}, fmt.Errorf("source %s: %w", s.what, err)
	}
	own.logger = target.Logger
	own.guard = usercode.NewGuard(own.logger.With("source", s.what))
	return controller.PreparedSource{
		Name:  s.what + " " + own.objects.Name(), // such as "owned Pod"
		Reads: []informer.Any{own.objects},
		Start: own.start,
		Keys:  own.all,
	}, nil
}

// start subscribes to the informer. After run has returned, nothing more is enqueued: stop waits for a change that is
// being announced.
func (s *mapped) start(ctx context.Context, enqueue controller.Enqueue) (run func() error, err error) {
	stop := s.objects.Subscribe(func(c informer.Change) { s.changed(ctx, c, enqueue) })
	return func() error {
		<-ctx.Done()
		stop()
		return nil
	}, nil
}

// all iterates over the keys of all objects.
func (s *mapped) all(yield func(kube.Key) bool) {
	for c := range s.objects.Walk(0, 1) {
		if !passes(c, s.predicates, s.guard) {
			continue
		}
		_, keys, err := s.keys(c)
		s.guard.Report(err) // an object that cannot be decoded was logged when it changed
		for _, key := range keys {
			if !yield(key) {
				return
			}
		}
	}
}

// passes reports whether no predicate drops c. A predicate that panics lets the change pass: a change must not be lost.
func passes(c informer.Change, predicates []informer.Predicate, guard *usercode.Guard) bool {
	return !slices.ContainsFunc(predicates, func(matters informer.Predicate) bool {
		return !usercode.Value(guard, "a predicate", true, func() bool { return matters(c) })
	})
}

func (s *mapped) changed(ctx context.Context, c informer.Change, enqueue controller.Enqueue) {
	if ctx.Err() != nil {
		return // shutdown must not wait for all objects of a large list
	}
	if !passes(c, s.predicates, s.guard) {
		return
	}
	before, after, err := s.keys(c)
	if err != nil {
		s.guard.Report(err)
		s.logger.WarnContext(ctx, "source failed to decode a changed object; some keys may not be enqueued",
			"source", s.what, "informer", s.objects.Name(), "key", c.Key.String(), "change", string(c.Type),
			"error", err)
	}
	enqueueAll(before, after, enqueue, controller.Trigger{Change: c})
}

// enqueueAll enqueues the keys of the states before and after a change, each once.
func enqueueAll(before, after []kube.Key, enqueue controller.Enqueue, why controller.Trigger) {
	for _, key := range after {
		enqueue(key, why)
	}
	if slices.Equal(before, after) { // as in most changes
		return
	}
	enqueued := make(map[kube.Key]bool, len(after))
	for _, key := range after {
		enqueued[key] = true
	}
	for _, key := range before {
		if !enqueued[key] {
			enqueue(key, why)
		}
	}
}

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

// Mapped is a source that enqueues the keys that keys returns for each object that comes,
// changes or goes. For an object that changed, keys is asked about the state before and the
// state after, so that what it no longer points to is enqueued as well. A change that one of
// predicates drops enqueues nothing, and costs no decoding.
//
// keys is called while the informer announces the change, one call at a time for each
// informer, and the informer's next change waits for it: it must be quick. It may read
// informers, also the one that announces (Get, List, Health, Ready), and gets the state that
// is announced, or a later one. It must make no request, wait for nothing (such as
// WaitSynced), and neither subscribe nor remove a source: that could wait for itself.
// A panic in it is logged, its stack once; the keys for the state that it was asked about are not
// enqueued. A predicate that panics lets the change pass. The object belongs to keys.
//
// Where metadata is enough, give it an informer of informer.RetrieveMetadata: each change
// costs decoding the object twice. A state that cannot be decoded as a T is logged to
// the controller's logger and enqueues nothing; the other one does.
func Mapped[T kube.Object](objects *informer.Informer[T], keys func(obj T) []kube.Key, predicates ...informer.Predicate) controller.Source {
	var problem error
	if keys == nil {
		problem = errors.New("the function is required")
	}
	return newMapped("mapped", objects, predicates, problem, keysOfStates(func(o *wire.Object) ([]kube.Key, error) {
		obj, err := cache.Decode[T](objects.Untyped(), o)
		if err != nil {
			return nil, err
		}
		return keys(obj), nil
	}))
}

// keysOf returns the keys that the states before and after a change lead to. Where one of
// them cannot be read, there is an error, and the keys of the other: that it cannot be read
// any more, or can be read again, is news for whom it concerned, or concerns.
type keysOf func(informer.Change) (before, after []kube.Key, err error)

// keysOfStates asks keys about each state of a change.
func keysOfStates(keys func(*wire.Object) ([]kube.Key, error)) keysOf {
	ask := func(state *wire.Object, err error) (found []kube.Key, _ error) {
		if state == nil || err != nil {
			return nil, err
		}
		if panicked := (*usercode.Guard)(nil).Call("the function", func() { found, err = keys(state) }, nil); panicked != nil {
			return nil, panicked // one state's: the keys of the other one are enqueued
		}
		return found, err
	}
	return func(c informer.Change) (before, after []kube.Key, err error) {
		before, oldErr := ask(c.States().Old())
		after, newErr := ask(c.States().New())
		return before, after, errors.Join(oldErr, newErr)
	}
}

// mapped enqueues keys for the changes of an informer.
type mapped struct {
	what       string
	objects    informer.Any
	predicates []informer.Predicate
	keys       keysOf
	problem    error

	// Set by Prepare, on a copy for each controller.
	logger *slog.Logger
	guard  *usercode.Guard
}

func newMapped(what string, objects informer.Any, predicates []informer.Predicate, problem error, keys keysOf) *mapped {
	s := &mapped{what: what, objects: objects, predicates: slices.Clone(predicates), keys: keys}
	errs := []error{problem}
	if usercode.IsNil(objects) {
		errs = append(errs, errors.New("the informer is required"))
	}
	for i, p := range predicates {
		if p == nil {
			errs = append(errs, fmt.Errorf("predicate %d is nil", i))
		}
	}
	s.problem = errors.Join(errs...)
	return s
}

// Prepare implements controller.Source.
func (s *mapped) Prepare(target controller.Target) (controller.PreparedSource, error) {
	if s.problem != nil {
		return controller.PreparedSource{}, fmt.Errorf("source %s: %w", s.what, s.problem)
	}
	own := *s
	own.logger = target.Logger
	own.guard = usercode.NewGuard(own.logger.With("source", s.what))
	return controller.PreparedSource{
		Name:  s.what + " " + s.objects.Name(), // such as "owned Pod"
		Reads: []informer.Any{s.objects},
		Start: own.start,
	}, nil
}

// start subscribes. When run has returned, nothing more is enqueued: the end of the subscription waits for a change that
// is being announced.
func (s *mapped) start(ctx context.Context, enqueue controller.Enqueue) (run func() error) {
	stop := s.objects.Subscribe(func(c informer.Change) { s.changed(ctx, c, enqueue) })
	return func() error {
		<-ctx.Done()
		stop()
		return nil
	}
}

func (s *mapped) changed(ctx context.Context, c informer.Change, enqueue controller.Enqueue) {
	if ctx.Err() != nil {
		return // the end must not wait for all objects of a large list
	}
	for _, matters := range s.predicates {
		// A predicate that panics lets the change pass: a wake-up must not be lost.
		if !usercode.Value(s.guard, "a predicate", true, func() bool { return matters(c) }) {
			return
		}
	}
	before, after, err := s.keys(c)
	if err != nil {
		s.guard.Report(err)
		s.logger.WarnContext(ctx, "a source cannot read a changed object, and does not know all whom it concerns",
			"source", s.what, "informer", s.objects.Name(), "key", c.Key.String(), "change", c.Type.String(), "error", err)
	}
	if len(before)+len(after) == 0 {
		return
	}
	why := controller.Trigger{Change: c}
	for _, key := range after {
		enqueue(key, why)
	}
	for _, key := range missingFrom(after, before) {
		enqueue(key, why)
	}
}

// missingFrom returns those of before that are not among after: most changes lead to the same
// keys.
func missingFrom(after, before []kube.Key) []kube.Key {
	if slices.Equal(before, after) {
		return nil
	}
	there := make(map[kube.Key]bool, len(after))
	for _, key := range after {
		there[key] = true
	}
	var missing []kube.Key
	for _, key := range before {
		if !there[key] {
			missing = append(missing, key)
		}
	}
	return missing
}

package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Controller runs a Handler for the objects of a Retriever. See Handler for what it
// promises, Config for what can be set.
type Controller[T kube.Object] struct {
	// Immutable after New.
	config   Config[T]
	informer *informer.Informer[T]

	mu    sync.Mutex
	phase Phase    // guarded by mu
	loop  *loop[T] // guarded by mu; nil unless the controller works
}

// New makes a Controller. It starts nothing and makes no request. The error names every
// mistake in config at once.
func New[T kube.Object](config Config[T]) (*Controller[T], error) {
	config = config.withDefaults()
	err := config.validate()
	inf := config.Informer
	if config.Retriever != nil {
		var informerErr error
		inf, informerErr = informer.New(informer.Config[T]{
			Name: config.Name, Retriever: config.Retriever, Metrics: config.Metrics, Logger: config.Logger,
		})
		err = errors.Join(err, informerErr)
	}
	if err != nil {
		return nil, fmt.Errorf("new controller %q: %w", config.Name, err)
	}
	return &Controller[T]{config: config, informer: inf}, nil
}

// Name returns the controller's name.
func (c *Controller[T]) Name() string { return c.config.Name }

// Informer returns the controller's cache: the one it was given, or its own.
func (c *Controller[T]) Informer() *informer.Informer[T] { return c.informer }

// Run works until ctx ends.
//
// Flow:
//  1. With a LeaderElector, it waits until it leads.
//  2. It runs the informer and waits until everything has been listed. What stands in
//     the way (a permission, a missing CustomResourceDefinition, a network) is logged,
//     shown by Ready and in metrics, and waited for.
//  3. Workers handle every listed object once, and from then on what changes.
//  4. When ctx ends, no further key is begun; handlers may finish for the drain time,
//     and then their contexts are cancelled. When leadership is lost, they are cancelled
//     at once, and Run goes back to step 1.
//  5. It returns when every worker, source and watch has ended: a handler that heeds its
//     context bounds how long that takes.
//
// It returns nil when ctx ended; otherwise the error of a source or of the elector, or
// that the controller runs already. It may be called again after it has returned.
func (c *Controller[T]) Run(ctx context.Context) error {
	if !c.enter(PhaseStopped, PhaseStandby) {
		return fmt.Errorf("run controller %q: it is running already", c.config.Name)
	}
	defer c.set(PhaseStopped, nil)
	if c.config.Metrics != nil {
		defer c.config.Metrics.ObserveController(c.config.Name, c.Stats)()
	}
	if c.config.LeaderElector == nil {
		return c.work(ctx)
	}
	return c.config.LeaderElector.Run(ctx, func(ctx context.Context) error {
		defer c.set(PhaseStandby, nil)
		return c.work(ctx)
	})
}

// work is one term: from being allowed to work to the end of ctx.
func (c *Controller[T]) work(ctx context.Context) error {
	l := newLoop(c.config, c.informer)
	c.set(PhaseSyncing, l)
	defer l.logger.DebugContext(ctx, "controller stopped")
	return l.run(ctx, func(p Phase) { c.set(p, l) })
}

func (c *Controller[T]) enter(from, to Phase) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase != from {
		return false
	}
	c.phase = to
	return true
}

func (c *Controller[T]) set(p Phase, l *loop[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.phase, c.loop = p, l
}

package controller

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/compat/kooper/controller/leaderelection"
	engine "github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// engineConfig returns the Config of the engine that makes it behave like Kooper.
func engineConfig(
	c Config, cache *informer.Informer[*metav1.PartialObjectMetadata], objects *objects, logger *slog.Logger,
) engine.Config[*metav1.PartialObjectMetadata] {
	config := engine.Config[*metav1.PartialObjectMetadata]{
		Name: c.Name, Informer: cache, Metrics: recorder{c.MetricsRecorder}, Logger: logger,
		Handler: handle(c, objects),
		Workers: c.ConcurrentWorkers, ResyncInterval: -1, // resync is a Source
		Retry: retry.Config{Every: retry.Policy{
			Base: 5 * time.Millisecond, Max: 1000 * time.Second, Factor: 2, Jitter: -1, // as client-go's default
			MaxRetries: cmp.Or(c.ProcessingJobRetries, -1), // -1: none
		}},
		Queue: engine.QueueConfig{EndBackoffIf: func(engine.Cause) bool { return true }},
		Runs:  engine.RunsConfig{StuckAfter: -1}, // no further workers
	}
	if c.ResyncInterval > 0 {
		config.Sources = []engine.Source{resync(c.ResyncInterval)}
	}
	if c.LeaderElector != nil { // a Runner may be a nil pointer
		config.LeaderElector = elector{c.LeaderElector}
	}
	return config
}

// handle returns the handler of the engine. Its errors limit the rate of the retries of all objects together, as
// client-go's DefaultTypedControllerRateLimiter does in Kooper.
func handle(c Config, objects *objects) engine.Handler[*metav1.PartialObjectMetadata] {
	bucket := rate.NewLimiter(10, 100)
	return func(ctx context.Context, about *metav1.PartialObjectMetadata) error {
		run, _ := engine.RunFrom(ctx)
		// A MetricsRecorder measures the time in the queue until the call.
		c.MetricsRecorder.ObserveResourceInQueueDuration(ctx, c.Name, time.Now().Add(-run.Wait))
		obj := objects.copyOf(about)
		if obj == nil {
			return nil // just deleted
		}
		err := c.Handler.Handle(ctx, obj)
		if err == nil {
			return nil
		}
		failed := failedError{text: err.Error()}
		if run.Attempt < c.ProcessingJobRetries {
			failed.after = bucket.Reserve().Delay()
		}
		return failed
	}
}

// failedError is the error of a handler. It does not wrap the error, because the engine retries some errors later or
// not at all, such as a 429, and Kooper does not.
type failedError struct {
	text  string
	after time.Duration
}

// Error implements error.
func (e failedError) Error() string { return e.text }

// RetryAfter returns the earliest time of the retry: see usercode.RetryAfter.
func (e failedError) RetryAfter() time.Duration { return e.after }

// resync is a Source that enqueues every object once per interval, also those in backoff. (A resync of the engine
// leaves those out, and does not follow a recent success.)
type resync time.Duration

// Prepare implements the engine's Source.
func (r resync) Prepare(engine.Target) (engine.PreparedSource, error) {
	return engine.PreparedSource{Name: "resync", Run: r.run}, nil
}

func (r resync) run(ctx context.Context, enqueue engine.Enqueue) error {
	ticker := time.NewTicker(time.Duration(r))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			enqueue(kube.Key{}, engine.Trigger{All: true, Type: engine.CauseResync})
		}
	}
}

// elector runs the controller under a Kooper Runner.
type elector struct{ runner leaderelection.Runner }

// Ready implements the engine's LeaderElector.
func (e elector) Ready() error { return nil }

// Run calls work once, when the Runner leads. A Runner of package leaderelection has RunContext, which ends with ctx.
// Another Runner, such as one that wraps it, gets no context: leadership is lost when its Run returns. If ctx ends
// while it waits for leadership, its goroutine waits on; a loss after the end of ctx does not end the drain.
func (e elector) Run(ctx context.Context, work func(context.Context) error) error {
	if own, ok := e.runner.(interface {
		RunContext(ctx context.Context, work func(context.Context) error) error
	}); ok {
		return own.RunContext(ctx, work)
	}
	leading, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	var called atomic.Bool       // work is called, or must not be called anymore
	ended := make(chan struct{}) // closed when work has returned
	returned := make(chan error, 1)
	go func() { // waited for below, unless it waits for leadership when ctx ends
		returned <- e.runner.Run(func() error {
			if !called.CompareAndSwap(false, true) {
				return errors.New("the controller was stopped, or it has led before")
			}
			defer close(ended)
			return work(leading)
		})
	}()
	select {
	case err := <-returned:
		lose(kube.ErrLeadershipLost)
		if !called.CompareAndSwap(false, true) {
			<-ended
		}
		return err
	case <-ctx.Done():
		if called.CompareAndSwap(false, true) {
			return nil // it has not led
		}
		<-ended
		return <-returned
	}
}

// Package controller has the API of Kooper v2's package controller on the engine of Even Keel: a program changes its
// import path and nothing else. Every handler gets an object of the type that its Retriever lists, as a runtime.Object.
//
// These defects of Kooper are repaired:
//   - A success resets the number of retries of an object. In Kooper they are counted as long as the process runs.
//   - A failed run that is retried is not recorded as a success.
//   - Run waits until the handlers have returned, for up to 25 s; then their contexts end.
//   - A panic of a handler is an error of its object, and does not end the process.
//   - When the lease is lost, the contexts of the handlers end, and Run returns after them.
//
// A program that wants more (typed objects, own writes, causes, problems, Events, several controllers with one cache)
// uses package controller of Even Keel: docs/migrating/kooper.md has each name.
package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/compat/kooper/controller/leaderelection"
	"github.com/evenkeel-go/evenkeel/compat/kooper/log"
	engine "github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/retry"
)

// ErrControllerNotValid is wrapped by the errors of New about a Config.
var ErrControllerNotValid = errors.New("controller not valid")

// Controller handles the objects of a Retriever.
type Controller interface {
	// Run handles objects until ctx ends, and then returns nil. It returns an error if the Controller runs already, or
	// when leadership is lost.
	Run(ctx context.Context) error
}

// Config configures a Controller. Name, Handler and Retriever are required.
type Config struct {
	// Handler is called with each object.
	Handler Handler
	// Retriever lists and watches the objects.
	Retriever Retriever
	// LeaderElector runs the controller while this process leads. Default: none.
	LeaderElector leaderelection.Runner
	// MetricsRecorder records the metrics. Default: DummyMetricsRecorder.
	MetricsRecorder MetricsRecorder
	// Logger is what the controller logs to. Default: log.NewStd(false).
	Logger log.Logger

	// Name identifies the controller in logs and metrics.
	Name string
	// ConcurrentWorkers is the maximum number of objects that are handled at the same time. Default 3.
	ConcurrentWorkers int
	// ResyncInterval is the time after which every object is handled again. Default 3 min.
	ResyncInterval time.Duration
	// ProcessingJobRetries is the number of retries of an object whose Handler returns an error. Default 0: it is handled
	// again when it changes, and at the next resync.
	ProcessingJobRetries int
	// DisableResync disables the resync.
	DisableResync bool
}

// The delays between retries in Kooper: those of client-go's DefaultTypedControllerRateLimiter.
const (
	baseDelay = 5 * time.Millisecond
	maxDelay  = 1000 * time.Second
)

// New returns a Controller. It does not change cfg. Errors: ErrControllerNotValid; that of
// MetricsRecorder.RegisterResourceQueueLengthFunc.
func New(cfg *Config) (Controller, error) {
	if cfg == nil {
		return nil, fmt.Errorf("create a controller: %w: the Config is nil", ErrControllerNotValid)
	}
	c := *cfg
	var mistakes usercode.Mistakes
	mistakes.AddIf(c.Name == "", "a controller name is required")
	mistakes.AddIf(usercode.IsNil(c.Handler), "a handler is required")
	mistakes.AddIf(usercode.IsNil(c.Retriever), "a retriever is required")
	if err := mistakes.Err(); err != nil {
		return nil, fmt.Errorf("create a controller: %w: %w", ErrControllerNotValid, err)
	}
	if usercode.IsNil(c.Logger) {
		c.Logger = log.NewStd(false)
	}
	c.Logger = c.Logger.WithKV(log.KV{"service": "kooper.controller", "controller-id": c.Name})
	if usercode.IsNil(c.MetricsRecorder) {
		c.MetricsRecorder = DummyMetricsRecorder
	}
	return newGeneric(c)
}

// generic is a controller of the engine with the API of Kooper.
type generic struct {
	*engine.Controller[*unstructured.Unstructured]
}

func newGeneric(c Config) (Controller, error) {
	objects, logger := &objects{from: c.Retriever}, slog.New(logHandler{c.Logger})
	cache, err := informer.New(informer.Config[*unstructured.Unstructured]{
		Name: c.Name, Retriever: objects, KeepManagedFields: true, Logger: logger, // handlers get whole objects
	})
	if err != nil {
		return nil, fmt.Errorf("create a controller: %w: %w", ErrControllerNotValid, err)
	}
	config := engine.Config[*unstructured.Unstructured]{
		Name: c.Name, Informer: cache,
		Handler: func(ctx context.Context, obj *unstructured.Unstructured) error {
			original, err := objects.restore(obj)
			if err != nil {
				return engine.Terminal(err)
			}
			return c.Handler.Handle(ctx, original)
		},
		Workers: max(c.ConcurrentWorkers, 0), ResyncInterval: max(c.ResyncInterval, 0),
		Retry:   retry.Config{Every: retry.Policy{Base: baseDelay, Max: maxDelay, MaxRetries: c.ProcessingJobRetries}},
		Metrics: recorder{c.MetricsRecorder},
		Logger:  logger,
	}
	if c.DisableResync {
		config.ResyncInterval = -1
	}
	if c.ProcessingJobRetries <= 0 {
		config.Retry.Every.MaxRetries = -1
	}
	if !usercode.IsNil(c.LeaderElector) {
		config.LeaderElector = elector{c.LeaderElector}
	}
	made, err := engine.New(config)
	if err != nil {
		return nil, fmt.Errorf("create a controller: %w: %w", ErrControllerNotValid, err)
	}
	length := func(context.Context) int { return made.Stats().Ready }
	if err := c.MetricsRecorder.RegisterResourceQueueLengthFunc(c.Name, length); err != nil {
		return nil, fmt.Errorf("create controller %q: register the length of its queue: %w", c.Name, err)
	}
	return generic{made}, nil
}

// Package controller has the API of Kooper v2's package controller on the engine of Even Keel: a program changes its
// import path and nothing else.
//
// docs/migrating/kooper.md lists the visible differences: the defects of Kooper that are repaired. A program that wants
// more (typed objects, own writes, causes, problems, Events, several controllers with one cache) uses package
// controller of Even Keel; the page has the counterpart of each name.
package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evenkeel-go/evenkeel/compat/kooper/controller/leaderelection"
	"github.com/evenkeel-go/evenkeel/compat/kooper/log"
	engine "github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// ErrControllerNotValid is wrapped by the errors of New about a Config.
var ErrControllerNotValid = errors.New("controller not valid")

// Controller handles the objects of a Retriever.
type Controller interface {
	// Run handles objects until ctx ends, waits for the handlers, and returns nil. It returns an error if the
	// Controller runs already, when leadership is lost, or if a handler does not return within 28 s.
	Run(ctx context.Context) error
}

// Handler brings one object to its desired state.
type Handler interface {
	Handle(ctx context.Context, obj runtime.Object) error
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx context.Context, obj runtime.Object) error

// Handle calls h. A nil h is an error.
func (h HandlerFunc) Handle(ctx context.Context, obj runtime.Object) error {
	if h == nil {
		return errors.New("handle func is required")
	}
	return h(ctx, obj)
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
	// ProcessingJobRetries is the number of retries of an object whose Handler returns an error. Default 0: it is
	// handled again when it changes, and at the next resync.
	ProcessingJobRetries int
	// DisableResync disables the resync.
	DisableResync bool
}

// setDefaults writes the defaults into c, as Kooper does.
func (c *Config) setDefaults() error {
	var mistakes usercode.Mistakes
	mistakes.AddIf(c.Name == "", "a controller name is required")
	mistakes.AddIf(usercode.IsNil(c.Handler), "a handler is required")
	mistakes.AddIf(usercode.IsNil(c.Retriever), "a retriever is required")
	if err := mistakes.Err(); err != nil {
		return err
	}
	if usercode.IsNil(c.Logger) {
		c.Logger = log.NewStd(false)
		c.Logger.Warningf("the Config has no Logger, logging to the standard logger")
	}
	c.Logger = c.Logger.WithKV(log.KV{"service": "kooper.controller", "controller-id": c.Name})
	if usercode.IsNil(c.MetricsRecorder) {
		c.MetricsRecorder = DummyMetricsRecorder
		c.Logger.Warningf("the Config has no MetricsRecorder, metrics are off")
	}
	if c.ConcurrentWorkers <= 0 {
		c.ConcurrentWorkers = 3
	}
	switch {
	case c.DisableResync:
		c.ResyncInterval = 0
	case c.ResyncInterval <= 0:
		c.ResyncInterval = 3 * time.Minute
	}
	c.ProcessingJobRetries = max(c.ProcessingJobRetries, 0)
	return nil
}

// New returns a Controller. It writes the defaults into cfg. Errors: ErrControllerNotValid; that of
// MetricsRecorder.RegisterResourceQueueLengthFunc.
func New(cfg *Config) (Controller, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, fmt.Errorf("create a controller: %w: %w", ErrControllerNotValid, err)
	}
	objects := &objects{from: cfg.Retriever, states: map[kube.Key][]state{}}
	logger := slog.New(logHandler{cfg.Logger})
	cache, err := informer.New(informer.Config[*metav1.PartialObjectMetadata]{
		Name: cfg.Name, Retriever: objects, Logger: logger,
	})
	if err != nil {
		return nil, fmt.Errorf("create a controller: %w: %w", ErrControllerNotValid, err)
	}
	cache.Subscribe(objects.announced) // for as long as the informer exists
	made, err := engine.New(engineConfig(*cfg, cache, objects, logger))
	if err != nil {
		return nil, fmt.Errorf("create a controller: %w: %w", ErrControllerNotValid, err)
	}
	length := func(context.Context) int { return made.Stats().Ready }
	if err := cfg.MetricsRecorder.RegisterResourceQueueLengthFunc(cfg.Name, length); err != nil {
		return nil, fmt.Errorf("create controller %q: register the length of its queue: %w", cfg.Name, err)
	}
	return generic{made, objects}, nil
}

// generic is a controller of the engine with the API of Kooper.
type generic struct {
	*engine.Controller[*metav1.PartialObjectMetadata]
	objects *objects
}

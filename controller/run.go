package controller

import (
	"context"
	"log/slog"
	"time"

	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/workqueue"
)

// Run is what a handler may know about being called.
type Run struct {
	// Controller is the controller's name.
	Controller string
	// Key is the object's key.
	Key kube.Key
	// Causes is why the handler runs.
	Causes workqueue.Causes
	// Attempt is how many runs of this key failed in a row before this one.
	Attempt int
	// Started is when the run began.
	Started time.Time

	logger *slog.Logger // carries the controller
}

// Logger returns a logger that carries the controller and the key. Outside a run it is
// slog.Default().
func (r Run) Logger() *slog.Logger {
	if r.logger == nil {
		return slog.Default()
	}
	// Made when it is asked for: few runs log anything.
	return r.logger.With("key", r.Key.String())
}

type runKey struct{}

// RunFrom returns the run that ctx, a handler's context, belongs to. Outside a handler
// ok is false.
func RunFrom(ctx context.Context) (run Run, ok bool) {
	if r, ok := ctx.Value(runKey{}).(*Run); ok {
		return *r, true
	}
	return Run{}, false
}

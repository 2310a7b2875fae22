package observers

import (
	"context"
	"fmt"
)

// RunFunc is called in the goroutine of a run, before it begins.
type RunFunc func(controller string, key, causes fmt.Stringer)

type runKey struct{}

// WithRun returns a context for the Run of a controller, which calls f before each of its runs.
func WithRun(ctx context.Context, f RunFunc) context.Context {
	return context.WithValue(ctx, runKey{}, f)
}

// RunFrom returns the function of WithRun, or nil.
func RunFrom(ctx context.Context) RunFunc {
	f, _ := ctx.Value(runKey{}).(RunFunc)
	return f
}

package observers

import "context"

// Running is the run that the context of a handler belongs to.
type Running interface {
	// SetTraceID sets the trace that the run belongs to.
	SetTraceID(id string)
}

type runningKey struct{}

// WithRunning returns the context of a handler.
func WithRunning(ctx context.Context, r Running) context.Context {
	return context.WithValue(ctx, runningKey{}, r)
}

// RunningFrom returns the run that ctx belongs to, or nil outside of a handler.
func RunningFrom(ctx context.Context) Running {
	r, _ := ctx.Value(runningKey{}).(Running)
	return r
}

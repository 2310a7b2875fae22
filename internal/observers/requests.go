// Package observers keeps observers in contexts: it finds the context outside of the observers of requests
// (kube.ObserveCalls), and passes the observer of a test environment to the runs of controllers, and lets a
// task, an informer or a controller report to the manager that others may start.
package observers

import "context"

type outsideKey struct{}

// Mark returns a context for which Outside returns ctx, unless ctx is marked already.
func Mark(ctx context.Context) context.Context {
	if ctx.Value(outsideKey{}) != nil {
		return ctx
	}
	return context.WithValue(ctx, outsideKey{}, ctx)
}

// Outside returns the context from which the first kube.ObserveCalls derived ctx, or ctx itself without ObserveCalls.
// It is for work that outlives the handler which started it: its requests do not belong to the handler, and it must not
// keep the run's values alive. The cancellation, the deadline and the values that were added after the first
// ObserveCalls are missing.
func Outside(ctx context.Context) context.Context {
	if outside, ok := ctx.Value(outsideKey{}).(context.Context); ok {
		return outside
	}
	return ctx
}

// Package runobserver lets a test environment observe the runs of the controllers that it starts.
package runobserver

import (
	"context"
	"fmt"
)

// Func is called in the goroutine of a run, before it begins.
type Func func(controller string, key, causes fmt.Stringer)

type contextKey struct{}

// With returns a context for the Run of a controller, which calls f before each of its runs.
func With(ctx context.Context, f Func) context.Context {
	return context.WithValue(ctx, contextKey{}, f)
}

// From returns the function of With, or nil.
func From(ctx context.Context) Func {
	f, _ := ctx.Value(contextKey{}).(Func)
	return f
}

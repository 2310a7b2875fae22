package observers

import "context"

type startKey struct{}

// WithStart returns a context for a task that others wait for. letStart lets them start before the task has ended.
func WithStart(ctx context.Context, letStart func(reason string)) context.Context {
	return context.WithValue(ctx, startKey{}, letStart)
}

// StartFrom returns the function of WithStart, or nil.
func StartFrom(ctx context.Context) func(reason string) {
	letStart, _ := ctx.Value(startKey{}).(func(reason string))
	return letStart
}

type startedKey struct{}

// WithStarted returns a context for the Run of an informer or a controller, which calls started with itself, and with
// what tells why others still have to wait for it: nil once they need not.
func WithStarted(ctx context.Context, started func(runner any, waits func() error)) context.Context {
	return context.WithValue(ctx, startedKey{}, started)
}

// Started calls the function of WithStarted, if any.
func Started(ctx context.Context, runner any, waits func() error) {
	if started, ok := ctx.Value(startedKey{}).(func(runner any, waits func() error)); ok {
		started(runner, waits)
	}
}

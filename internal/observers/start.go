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

// Package middleware has wrappers for Handlers, to be composed with controller.Chain.
package middleware

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Recover turns a panic of the wrapped Handler into a *controller.PanicError. A
// Controller does so too; Recover lets the middleware outside of it see the error.
func Recover[T kube.Object]() controller.Middleware[T] {
	return func(next controller.Handler[T]) controller.Handler[T] {
		return controller.HandlerFunc[T](func(ctx context.Context, obj T) (err error) {
			defer controller.RecoverPanic(&err)
			return next.Handle(ctx, obj)
		})
	}
}

// Timeout cancels the wrapped Handler's context after d; zero or less means never. When the
// Handler then returns an error, the error says so, and wraps the Handler's. It counts as
// OutcomeError; OutcomeTimeout is for controller.Config.Timeout.
func Timeout[T kube.Object](d time.Duration) controller.Middleware[T] {
	return func(next controller.Handler[T]) controller.Handler[T] {
		if d <= 0 {
			return next
		}
		return controller.HandlerFunc[T](func(ctx context.Context, obj T) error {
			limited, cancel := context.WithTimeout(ctx, d)
			defer cancel()
			err := usercode.Error(next.Handle(limited, obj))
			if err != nil && limited.Err() != nil && ctx.Err() == nil {
				return fmt.Errorf("handle %s: timed out after %s: %w", kube.KeyOf(obj), d, err)
			}
			return err
		})
	}
}

// Log logs every call of the wrapped Handler, with the object's key, the duration and the
// causes: at info level, or at warning level when it returns an error that is not a
// RequeueAfter. Default logger: the run's own (see controller.LoggerFrom), when logger is nil.
func Log[T kube.Object](logger *slog.Logger) controller.Middleware[T] {
	return func(next controller.Handler[T]) controller.Handler[T] {
		return controller.HandlerFunc[T](func(ctx context.Context, obj T) error {
			run, _ := controller.RunFrom(ctx)
			to := controller.LoggerFrom(ctx)
			if logger != nil {
				to = logger.With("controller", run.Controller, slog.Group("run", "key", kube.KeyOf(obj).String(), "id", run.ID))
			}
			start := time.Now()
			err := next.Handle(ctx, obj)
			attrs := []any{"duration", time.Since(start), "causes", run.Causes.String()}
			if err != nil && !controller.IsRequeue(err) {
				to.WarnContext(ctx, "handled", append(attrs, "error", usercode.Error(err))...)
				return err
			}
			to.InfoContext(ctx, "handled", attrs...)
			return err
		})
	}
}

// Package middleware has wrappers for Handlers and Reconcilers, to be composed with controller.Chain.
package middleware

import (
	"context"
	"log/slog"
	"runtime/debug"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Recover turns a panic of the wrapped Handler into a *usercode.HandlerPanicError. A Controller does so too; with
// Recover the middleware outside of it receives the error.
func Recover[T any]() controller.Middleware[T] {
	return func(next controller.Handler[T]) controller.Handler[T] {
		return func(ctx context.Context, obj T) (err error) {
			defer func() {
				if value := recover(); value != nil {
					err = &usercode.HandlerPanicError{Value: value, Stack: debug.Stack()}
				}
			}()
			return next(ctx, obj)
		}
	}
}

// Log logs every call of the wrapped Handler, with the key, the duration and the causes: at info level, or at warning
// level if it returns an error that is not a RequeueAfter. If logger is nil, it uses the logger of the run
// (controller.LoggerFrom).
func Log[T any](logger *slog.Logger) controller.Middleware[T] {
	return func(next controller.Handler[T]) controller.Handler[T] {
		return func(ctx context.Context, obj T) error {
			run, ok := controller.RunFrom(ctx)
			if !ok {
				run.Key = keyOf(obj)
			}
			log := controller.LoggerFrom(ctx)
			if logger != nil {
				log = logger.With("controller", run.Controller,
					slog.Group("run", "key", run.Key.String(), "id", run.ID))
			}
			start := time.Now()
			err := next(ctx, obj)
			attrs := []any{"duration", time.Since(start), "causes", run.Causes.String()}
			if controller.OutcomeOf(err).Failed() {
				log.WarnContext(ctx, "handled", append(attrs, "error", usercode.Error(err))...)
				return err
			}
			log.InfoContext(ctx, "handled", attrs...)
			return err
		}
	}
}

// keyOf returns the key of a Handler's argument, which is an object or a key. Outside of a controller, a key of another
// type has no text.
func keyOf(obj any) kube.Key {
	switch obj := obj.(type) {
	case kube.Key:
		return obj
	case metav1.Object:
		return kube.KeyOf(obj)
	default:
		return kube.Key{}
	}
}

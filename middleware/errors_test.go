package middleware_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/middleware"
)

// endlessError wraps itself: errors.Is and errors.As do not return for it.
type endlessError struct{}

func (endlessError) Error() string   { return "endless" }
func (e endlessError) Unwrap() error { return e }

// errorReader is a tracer that reads the errors passed to its spans, like the tracer of package tracing/otel.
type errorReader struct{ notebook }

func (r *errorReader) Start(ctx context.Context, run controller.RunRecord, obj kube.Object) (context.Context, middleware.Span) {
	ctx, _ = r.notebook.Start(ctx, run, obj)
	return ctx, r
}

func (r *errorReader) End(_ context.Context, err error) {
	panicked, _ := errors.AsType[*usercode.HandlerPanicError](err)
	r.note("%v %v", err.Error(), panicked)
}

// TestMiddlewareWithPanickingErrors checks errors that wrap themselves or have no text. Each middleware must return,
// and commit, log and trace the readable parts of the error.
func TestMiddlewareWithPanickingErrors(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err  error
		text string
	}{
		"wraps itself":      {endlessError{}, "middleware_test.endlessError that wraps itself"},
		"nil *StatusError":  {(*apierrors.StatusError)(nil), "a nil *errors.StatusError was returned as an error"},
		"terminal of a nil": {controller.Terminal((*apierrors.StatusError)(nil)), "nil *errors.StatusError"},
		"a long text":       {errors.New(strings.Repeat("x", 1<<20)), "(1048576 bytes in all)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, c := newServer(t)
			var logs testlog.Buffer
			tracer := &errorReader{}
			service := web(t, server, c)
			handler := controller.Chain(
				func(context.Context, *corev1.Service) error { return test.err },
				middleware.Log[*corev1.Service](slog.New(slog.NewTextHandler(&logs, nil))),
				middleware.Trace[*corev1.Service](tracer),
				middleware.Status(c, serviceOptions{OnError: middleware.FailureConditions(conditionsOf)}),
				middleware.Recover[*corev1.Service](),
			)
			if err := handler(t.Context(), service); err == nil {
				t.Error("the error was lost")
			}
			if got := logs.String(); !strings.Contains(got, test.text) || len(got) > 5000 {
				t.Errorf("logged %d B: %.500s", len(got), got)
			}
			if got := said(t, server, c); !strings.Contains(got, strings.TrimPrefix(test.text, "nil ")) || len(got) > 5000 {
				t.Errorf("the status says, in %d B: %.500s", len(got), got)
			}
		})
	}
}

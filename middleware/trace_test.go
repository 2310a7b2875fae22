package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/middleware"
)

type tracedKey struct{}

// notebook is a Tracer that records its calls. It is also the span of the only run.
type notebook struct {
	off   bool // Start returns no Span
	lines []string
	ended error
}

func (n *notebook) note(format string, args ...any) {
	n.lines = append(n.lines, fmt.Sprintf(format, args...))
}

func (n *notebook) Start(ctx context.Context, run controller.RunRecord, obj kube.Object) (context.Context, middleware.Span) {
	n.note("start %s of %q, causes %q, object %v, since %s", run.Key, run.Controller, run.Causes, obj != nil, time.Since(run.Started))
	ctx = context.WithValue(ctx, tracedKey{}, true)
	if n.off {
		return ctx, nil
	}
	return ctx, n
}

func (n *notebook) TraceID() string { return "4bf92f35" }

func (n *notebook) CallBegan(ctx context.Context, call kube.Call) context.Context {
	n.note("call of %s %s", call.Verb, call.Resource.Resource)
	return ctx
}

func (n *notebook) CallEnded(_ context.Context, call kube.Call) { n.note("response %d", call.Status) }

func (n *notebook) End(ctx context.Context, err error) {
	n.note("end, the context of Start: %v, error %v", ctx.Value(tracedKey{}), err)
	n.ended = err
}

func (n *notebook) expect(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(n.lines, want) {
		t.Errorf("the tracer was told\n\t%s\nwant\n\t%s", strings.Join(n.lines, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// notFoundServer is an API server that responds to every request with status 404.
type notFoundServer struct{}

func (notFoundServer) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody, Request: req}, nil
}

// get makes a request with ctx, through a Cluster.
func get(ctx context.Context, t *testing.T) {
	t.Helper()
	cluster, err := kube.Connect(&rest.Config{Host: "http://server", Transport: notFoundServer{}})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server/api/v1/namespaces/default/pods/web", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := cluster.HTTPClient().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
}

const started = `start default/web of "", causes "", object true, since 0s`

func TestTraceHasHandlerAndCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, result := range []error{nil, errBroken} {
			var n notebook
			err := handle(t.Context(), middleware.Trace[*corev1.Pod](&n), func(ctx context.Context, _ *corev1.Pod) error {
				if ctx.Value(tracedKey{}) == nil {
					t.Error("the handler's context is not made of the tracer's")
				}
				get(ctx, t)
				return result
			})
			if err != result { //nolint:errorlint // the identical value
				t.Errorf("the result became %v", err)
			}
			n.expect(t, started, "call of get pods", "response 404", fmt.Sprintf("end, the context of Start: true, error %v", result))
		}
	})
}

func TestDisabledTraceDoesNotWrapHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		handler := controller.Handler[*corev1.Pod](func(context.Context, *corev1.Pod) error { return nil })
		if got := middleware.Trace[*corev1.Pod](nil)(handler); !sameFunction(got, handler) {
			t.Error("without a tracer the handler is wrapped")
		}
		reconciler := controller.Reconciler(func(context.Context, kube.Key) error { return nil })
		if got := middleware.Trace[kube.Key](nil)(reconciler); !sameFunction(got, reconciler) {
			t.Error("without a tracer the reconciler is wrapped")
		}
		// A program without tracing may pass a nil pointer of its tracer's type.
		var off *notebook
		if got := middleware.Trace[*corev1.Pod](off)(handler); !sameFunction(got, handler) {
			t.Error("with a nil pointer as the tracer the handler is wrapped")
		}
		if got := middleware.Trace[kube.Key](off)(reconciler); !sameFunction(got, reconciler) {
			t.Error("with a nil pointer as the tracer the reconciler is wrapped")
		}
		n := notebook{off: true}
		err := handle(t.Context(), middleware.Trace[*corev1.Pod](&n), func(ctx context.Context, _ *corev1.Pod) error {
			if ctx.Value(tracedKey{}) == nil {
				t.Error("the handler's context is not made of the tracer's: its own spans would be sampled")
			}
			get(ctx, t)
			return errBroken
		})
		if !errors.Is(err, errBroken) {
			t.Errorf("the result became %v", err)
		}
		n.expect(t, started)
	})
}

// sameFunction reports whether two Handlers have the same code. A wrapped Handler has other code.
func sameFunction(a, b any) bool { return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() }

func explode() { panic(errBroken) }

// A panic ends the span and continues, and its stack still shows where it began.
func TestTraceEndsWithPanic(t *testing.T) {
	t.Parallel()
	var n notebook
	err := controller.Chain(func(context.Context, *corev1.Pod) error {
		explode()
		return nil
	}, middleware.Recover[*corev1.Pod](), middleware.Trace[*corev1.Pod](&n))(t.Context(), pod())
	for who, err := range map[string]error{"the span": n.ended, "the middleware outside": err} {
		var panicked *usercode.HandlerPanicError
		if !errors.As(err, &panicked) || panicked.Value != any(errBroken) || !strings.Contains(string(panicked.Stack), "middleware_test.explode") {
			t.Errorf("%s was told %v, want a panic with its stack", who, err)
		}
	}
}

func TestTraceEndsWithGoexit(t *testing.T) {
	t.Parallel()
	var n notebook
	ended := make(chan struct{})
	go func() { // waited for below
		defer close(ended)
		_ = handle(t.Context(), middleware.Trace[*corev1.Pod](&n), func(context.Context, *corev1.Pod) error {
			runtime.Goexit()
			return nil
		})
	}()
	<-ended
	if n.ended == nil || !strings.Contains(n.ended.Error(), "Goexit") {
		t.Errorf("the span was told %v, want that the goroutine has ended", n.ended)
	}
}

// In a controller, the tracer receives the run, and the run gets the trace's ID.
func TestTraceInController(t *testing.T) {
	t.Parallel()
	for name, reconciles := range map[string]bool{"a handler": false, "a reconciler": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var n notebook
				seen := ""
				see := func(ctx context.Context) error {
					run, _ := controller.RunFrom(ctx)
					seen = run.TraceID
					return errBroken
				}
				config := controller.Config[*corev1.Pod]{Name: "pods", Retriever: onePod(), ResyncInterval: -1, Logger: slog.New(slog.DiscardHandler)}
				if reconciles {
					config.Reconciler = middleware.Trace[kube.Key](&n)(func(ctx context.Context, _ kube.Key) error { return see(ctx) })
				} else {
					config.Handler = middleware.Trace[*corev1.Pod](&n)(func(ctx context.Context, _ *corev1.Pod) error { return see(ctx) })
				}
				ctrl, err := controller.New(config)
				if err != nil {
					t.Fatal(err)
				}
				stop := testrun.Start(t, ctrl.Run)
				synctest.Wait()
				stop()
				n.expect(t, fmt.Sprintf(`start default/web of "pods", causes "listed", object %v, since 0s`, !reconciles),
					"end, the context of Start: true, error broken")
				if run := ctrl.RecentRuns()[0]; seen != "4bf92f35" || run.TraceID != seen {
					t.Errorf("the handler sees the trace %q, and the record of the run has %q", seen, run.TraceID)
				}
			})
		})
	}
}

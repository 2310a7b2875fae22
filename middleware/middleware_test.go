package middleware_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/middleware"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBroken = errors.New("broken")

func pod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
}

// handle calls f, wrapped by m, with a Pod.
func handle(ctx context.Context, m controller.Middleware[*corev1.Pod], f func(ctx context.Context, pod *corev1.Pod) error) error {
	return controller.Chain(controller.Handler[*corev1.Pod](f), m)(ctx, pod())
}

func TestRecoverReturnsPanicAsError(t *testing.T) {
	t.Parallel()
	err := handle(t.Context(), middleware.Recover[*corev1.Pod](), func(context.Context, *corev1.Pod) error {
		panic(errBroken)
	})
	var panicked *usercode.HandlerPanicError
	if !errors.As(err, &panicked) {
		t.Fatalf("the error is %v, want a *usercode.HandlerPanicError", err)
	}
	if panicked.Value != any(errBroken) || !errors.Is(err, errBroken) {
		t.Errorf("the panic's value is %v, want %v", panicked.Value, errBroken)
	}
	if !strings.Contains(string(panicked.Stack), "TestRecoverReturnsPanicAsError") {
		t.Errorf("the stack does not show where it panicked:\n%s", panicked.Stack)
	}
}

func TestRecoverKeepsResults(t *testing.T) {
	t.Parallel()
	for _, want := range []error{nil, errBroken} {
		got := handle(t.Context(), middleware.Recover[*corev1.Pod](), func(context.Context, *corev1.Pod) error { return want })
		if got != want { //nolint:errorlint // the identical value
			t.Errorf("the result is %v, want %v", got, want)
		}
	}
}

// Recover lets a middleware outside of it receive a panic as an error.
func TestRecoverReturnsErrorToOuterMiddleware(t *testing.T) {
	t.Parallel()
	var seen error
	watch := func(next controller.Handler[*corev1.Pod]) controller.Handler[*corev1.Pod] {
		return func(ctx context.Context, obj *corev1.Pod) error {
			seen = next(ctx, obj)
			return seen
		}
	}
	handler := func(context.Context, *corev1.Pod) error { panic("oh") }
	err := controller.Chain(handler, watch, middleware.Recover[*corev1.Pod]())(t.Context(), pod())
	if seen == nil || err == nil || err.Error() != "handler panicked: oh" {
		t.Errorf("outside it was %v, and the result %v; want the panic in both", seen, err)
	}
}

type runOf struct{ Key string }

// record is the log record of a call, decoded from JSON.
type record struct {
	Level, Msg, Controller, Causes, Error string
	Run                                   runOf
	Duration                              time.Duration
}

func records(t *testing.T, log *testlog.Buffer) []record {
	t.Helper()
	var all []record
	for decoder := json.NewDecoder(strings.NewReader(log.String())); ; {
		var r record
		err := decoder.Decode(&r)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
}

func TestLogResultOfCalls(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		result error
		want   record
	}{
		"success":         {nil, record{Level: "INFO"}},
		"requeue":         {controller.RequeueAfter(time.Minute), record{Level: "INFO"}},
		"failure":         {errBroken, record{Level: "WARN", Error: "broken"}},
		"terminal":        {controller.Terminal(errBroken), record{Level: "WARN", Error: "terminal: broken"}},
		"requeue and err": {errors.Join(controller.RequeueAfter(time.Minute), errBroken), record{Level: "WARN", Error: "requeue after 1m0s\nbroken"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log testlog.Buffer
				logger := slog.New(slog.NewJSONHandler(&log, nil))
				got := handle(t.Context(), middleware.Log[*corev1.Pod](logger), func(context.Context, *corev1.Pod) error {
					time.Sleep(3 * time.Second)
					return tc.result
				})
				if got != tc.result { //nolint:errorlint // the identical value
					t.Errorf("the result became %v", got)
				}
				tc.want.Msg, tc.want.Run.Key, tc.want.Duration = "handled", "default/web", 3*time.Second
				if diff := cmp.Diff([]record{tc.want}, records(t, &log)); diff != "" {
					t.Errorf("log (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// Middleware of a Reconciler names the key.
func TestMiddlewareOfReconcilerNamesKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log testlog.Buffer
		reconcile := controller.Chain(
			func(context.Context, kube.Key) error { return errBroken },
			middleware.Log[kube.Key](slog.New(slog.NewTextHandler(&log, nil))),
			middleware.Recover[kube.Key](),
		)
		err := reconcile(t.Context(), kube.Key{Namespace: "shop", Name: "web"})
		if !errors.Is(err, errBroken) {
			t.Errorf("the error is %v", err)
		}
		if !strings.Contains(log.String(), "run.key=shop/web") {
			t.Errorf("logged: %s", log.String())
		}
	})
}

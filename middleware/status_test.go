package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/errtest"
	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/middleware"
	"github.com/evenkeel-go/evenkeel/retry"
	"github.com/evenkeel-go/evenkeel/status"
)

type serviceOptions = middleware.StatusOptions[*corev1.Service]

// statusRun makes one run of a Handler that is wrapped with Status.
func statusRun(
	ctx context.Context, t *testing.T, server *apitest.Server, c *client.Client, options serviceOptions,
	handle func(ctx context.Context, service *corev1.Service) error,
) error {
	t.Helper()
	handler := controller.Chain(handle,
		middleware.Recover[*corev1.Service](), middleware.Status(c, options))
	service := web(t, server, c) //nolint:contextcheck // as an informer has it
	return handler(ctx, service)
}

// said formats the conditions of the Service in the cluster.
func said(t *testing.T, server *apitest.Server, c *client.Client) string {
	t.Helper()
	var lines []string
	for _, c := range web(t, server, c).Status.Conditions {
		lines = append(lines, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	return strings.Join(lines, "; ")
}

func conditionsOf(service *corev1.Service) *[]metav1.Condition { return &service.Status.Conditions }

func setReady(service *corev1.Service) {
	status.SetReady(&service.Status.Conditions, 1, "Deployed", "")
}

// The changes of the Handler to the status are written once, whatever it returns, and its result is returned unchanged.
func TestContract34_StatusIsCommittedWithAnyResult(t *testing.T) {
	t.Parallel()
	for _, result := range []error{
		nil, errBroken, controller.RequeueAfter(time.Minute, "wait"), controller.Terminal(errBroken),
		fmt.Errorf("wrapped: %w", controller.RequeueAfter(time.Minute)),
	} {
		t.Run(fmt.Sprint(result), func(t *testing.T) {
			t.Parallel()
			server, c := newServer(t)
			for i := range 2 {
				got := statusRun(t.Context(), t, server, c, serviceOptions{}, func(_ context.Context, service *corev1.Service) error {
					service.Spec.ClusterIP = "changed in memory"
					setReady(service)
					return result
				})
				if got != result { //nolint:errorlint // the identical value
					t.Errorf("the result is %v, want %v", got, result)
				}
				want := []string{statusWeb}
				if i > 0 {
					want = nil // the live object already has this condition
				}
				if requests := server.Requests(); !slices.Equal(requests, want) {
					t.Errorf("run %d made requests %q, want %q", i+1, requests, want)
				}
			}
			if got := said(t, server, c); got != "Ready=True Deployed: " {
				t.Errorf("the status says %q", got)
			}
		})
	}
}

func TestStatusCommitsAfterPanic(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	err := statusRun(t.Context(), t, server, c, serviceOptions{OnError: middleware.FailureConditions(conditionsOf)},
		func(_ context.Context, service *corev1.Service) error {
			status.Set(&service.Status.Conditions, status.True("Synced", 1, "Synced", ""))
			panicking()
			return nil
		})
	var panicked *usercode.HandlerPanicError
	if !errors.As(err, &panicked) || !errors.Is(err, errBroken) || !strings.Contains(string(panicked.Stack), "panicking") {
		t.Errorf("the result is %v, want the panic with its stack", err)
	}
	want := "Synced=True Synced: ; Ready=False Panic: handler panicked: broken; Reconciling=True Panic: handler panicked: broken"
	if got := said(t, server, c); got != want {
		t.Errorf("the status says %q, want %q", got, want)
	}
}

func panicking() { panic(errBroken) }

// nameTakenError is a persistent error: it stays until a person changes something.
type nameTakenError struct{}

func (nameTakenError) Error() string    { return "the name is taken" }
func (nameTakenError) Persistent() bool { return true }

// The error of a commit after a panic has nowhere to go but the log.
//
//nolint:paralleltest // it sets the process's logger
func TestStatusLogsFailedCommitAfterPanic(t *testing.T) {
	server, c := newServer(t)
	server.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
		if req.Method == http.MethodPatch {
			return nil, errors.New("cut off")
		}
		return do(), nil
	})
	var log testlog.Buffer
	before := slog.Default() // outside of a controller, it is the logger of the run
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	err := statusRun(t.Context(), t, server, c, serviceOptions{}, func(_ context.Context, service *corev1.Service) error {
		setReady(service)
		panic("at the disco")
	})
	var panicked *usercode.HandlerPanicError
	if !errors.As(err, &panicked) || panicked.Value != "at the disco" {
		t.Errorf("the result is %v, want the panic", err)
	}
	if !strings.Contains(log.String(), "cut off") {
		t.Errorf("the log does not say that the commit failed:\n%s", log.String())
	}
}

func TestStatusCommitsAfterGoexit(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	ended := make(chan struct{})
	handler := middleware.Status(c, serviceOptions{})(func(_ context.Context, service *corev1.Service) error {
		setReady(service)
		runtime.Goexit()
		return nil
	})
	service := web(t, server, c)
	go func() { // waited for through ended
		defer close(ended)
		_ = handler(t.Context(), service) // it does not return
	}()
	<-ended
	if got := said(t, server, c); got != "Ready=True Deployed: " {
		t.Errorf("the status says %q", got)
	}
}

func TestStatusSetsFailureOfHandler(t *testing.T) {
	t.Parallel()
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "services"}, "web", errBroken)
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "web", nil)
	ending, other := errtest.NamespaceTerminating("shop"), errtest.NamespaceTerminating("other")
	for name, test := range map[string]struct {
		result error
		want   string
	}{
		"success":      {nil, "Ready=True Deployed: "},
		"requeue":      {controller.RequeueAfter(time.Minute), "Ready=True Deployed: "},
		"error":        {errBroken, "Ready=False Error: broken; Reconciling=True Error: broken"},
		"conflict":     {conflict, "Ready=False Conflict: " + conflict.Error() + "; Reconciling=True Conflict: " + conflict.Error()},
		"terminal":     {controller.Terminal(errBroken), "Ready=False Terminal: broken; Stalled=True Terminal: broken"},
		"not accepted": {invalid, "Ready=False Invalid: " + invalid.Error() + "; Stalled=True Invalid: " + invalid.Error()},
		"namespace is being deleted": {
			ending, "Ready=False NamespaceTerminating: " + ending.Error() + "; Stalled=True NamespaceTerminating: " + ending.Error(),
		},
		"another namespace is being deleted": {
			other, "Ready=False NamespaceTerminating: " + other.Error() + "; Reconciling=True NamespaceTerminating: " + other.Error(),
		},
		"taken": {nameTakenError{}, "Ready=False Failed: the name is taken; Stalled=True Failed: the name is taken"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, c := newServer(t)
			err := statusRun(t.Context(), t, server, c, serviceOptions{OnError: middleware.FailureConditions(conditionsOf)},
				func(_ context.Context, service *corev1.Service) error {
					setReady(service)
					return test.result
				})
			if err != test.result { //nolint:errorlint // the identical value
				t.Errorf("the result is %v", err)
			}
			if got := said(t, server, c); got != test.want {
				t.Errorf("the status says %q, want %q", got, test.want)
			}
		})
	}
}

// If a failed run has not set a status, observedGeneration must stay, because it would claim that the status is
// current.
func TestStatusSetsObservedGeneration(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	note := func(*corev1.Service, error) {}
	for name, test := range map[string]struct {
		result  error
		onError func(*corev1.Service, error)
		want    int64
	}{
		"success": {want: 1}, "requeue": {result: controller.RequeueAfter(1), want: 1},
		"error": {result: errBroken}, "error that is noted": {result: errBroken, onError: note, want: 1},
	} {
		var got int64
		_ = statusRun(t.Context(), t, server, c, serviceOptions{
			SetObservedGeneration: func(_ *corev1.Service, generation int64) { got = generation }, OnError: test.onError,
		}, func(context.Context, *corev1.Service) error { return test.result }) // the Handler's result is returned unchanged
		if got != test.want {
			t.Errorf("%s: generation %d was set, want %d", name, got, test.want)
		}
	}
}

// The status is written even if the run's time limit has passed or the process is shutting down.
func TestStatusCommitsAfterContextOfRun(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	err := statusRun(ctx, t, server, c, serviceOptions{}, func(ctx context.Context, service *corev1.Service) error {
		setReady(service)
		cancel()
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the result is %v", err)
	}
	if got := said(t, server, c); got != "Ready=True Deployed: " {
		t.Errorf("the status says %q", got)
	}
}

func TestStatusTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, c := newServer(t)
		server.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
			if req.Method == http.MethodPatch {
				<-req.Context().Done()
				return nil, req.Context().Err()
			}
			return do(), nil
		})
		for options, want := range map[*serviceOptions]time.Duration{{}: 5 * time.Second, {Timeout: time.Minute}: time.Minute} {
			began := time.Now()
			err := statusRun(t.Context(), t, server, c, *options, func(_ context.Context, service *corev1.Service) error {
				setReady(service)
				return controller.RequeueAfter(time.Hour)
			})
			if took := time.Since(began); took != want {
				t.Errorf("it took %s, want %s", took, want)
			}
			if !errors.Is(err, context.DeadlineExceeded) || controller.OutcomeOf(err) != controller.OutcomeError {
				t.Errorf("the result is %v (%s), want a failure", err, controller.OutcomeOf(err))
			}
		}
	})
}

// Nothing is written after leadership is lost, whether the loss has cancelled the run or the run had been cancelled
// before.
func TestStatusDoesNotCommitAfterLossOfLeadership(t *testing.T) {
	t.Parallel()
	for name, cause := range map[string]error{"cancelled for it": kube.ErrLeadershipLost, "cancelled before": errBroken, "not cancelled": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, c := newServer(t)
			held := leadership.New(nil, time.Hour)
			leading, end := leadership.With(t.Context(), held)
			defer end()
			ctx, cancel := context.WithCancelCause(leading)
			defer cancel(nil)
			err := statusRun(ctx, t, server, c, serviceOptions{}, func(_ context.Context, service *corev1.Service) error {
				setReady(service)
				if cause != nil {
					cancel(cause)
				}
				held.Lose(errBroken)
				return nil
			})
			if err == nil || len(server.Requests()) > 0 || said(t, server, c) != "" {
				t.Errorf("the result is %v, the status says %q", err, said(t, server, c))
			}
		})
	}
}

// A loss of leadership cancels a commit that waits for a response.
func TestStatusEndsWhenLeadershipIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, c := newServer(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		server.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
			if req.Method == http.MethodPatch {
				cancel(kube.ErrLeadershipLost)
				<-req.Context().Done()
				return nil, req.Context().Err()
			}
			return do(), nil
		})
		began := time.Now()
		err := statusRun(ctx, t, server, c, serviceOptions{}, func(_ context.Context, service *corev1.Service) error {
			setReady(service)
			return nil
		})
		if err == nil || time.Since(began) != 0 {
			t.Errorf("the result is %v, after %s", err, time.Since(began))
		}
	})
}

// If the commit fails, the run fails with the class of the commit's error. The error of the Handler is kept too.
func TestStatusReturnsErrorOfCommit(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		result  error
		outcome controller.Outcome
	}{
		"success":  {nil, controller.OutcomeError},
		"requeue":  {controller.RequeueAfter(time.Minute), controller.OutcomeError},
		"error":    {errBroken, controller.OutcomeError},
		"terminal": {controller.Terminal(errBroken), controller.OutcomeError}, // the status must be written by a retry
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, c := newServer(t)
			server.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
				if req.Method == http.MethodPatch {
					return apitest.Failure(apierrors.NewConflict(schema.GroupResource{Resource: "services"}, "web", errBroken)), nil
				}
				return do(), nil
			})
			err := statusRun(t.Context(), t, server, c, serviceOptions{}, func(_ context.Context, service *corev1.Service) error {
				setReady(service)
				return test.result
			})
			if !apierrors.IsConflict(err) || controller.OutcomeOf(err) != test.outcome || errors.Is(err, errBroken) != errors.Is(test.result, errBroken) {
				t.Errorf("the result is %v (%s), want a conflict", err, controller.OutcomeOf(err))
			}
			if test.result == nil && retry.Classify(err) != retry.Conflict {
				t.Errorf("the class is %s, want conflict", retry.Classify(err))
			}
		})
	}
}

func TestStatusOfMissingObject(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	err := statusRun(t.Context(), t, server, c, serviceOptions{}, func(_ context.Context, service *corev1.Service) error {
		setReady(service)
		server.Edit("services", webKey(), "others", func(map[string]any) bool { return false })
		return nil
	})
	if err != nil {
		t.Errorf("the result is %v", err)
	}
}

func TestStatusPanicsOnInvalidArguments(t *testing.T) {
	t.Parallel()
	_, c := newServer(t)
	for name, make := range map[string]func(){
		"no client":     func() { middleware.Status(nil, serviceOptions{}) },
		"no time":       func() { middleware.Status(c, serviceOptions{Timeout: -1}) },
		"metadata only": func() { middleware.Status(c, middleware.StatusOptions[*metav1.PartialObjectMetadata]{}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: it did not panic", name)
				}
			}()
			make()
		}()
	}
}

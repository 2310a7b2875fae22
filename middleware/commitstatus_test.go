package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/middleware"
	"github.com/evenkeel-go/evenkeel/status"
)

// A run that has removed the last finalizer of a deleted object must not write a status, because the object is gone. If
// the removal failed, the object still exists, and its status is written.
func TestStatusOfReleasedObject(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		result   error
		grace    *int64
		requests []string
	}{
		"let go":            {requests: nil},
		"at once":           {grace: new(int64(0)), requests: nil},
		"not let go":        {result: errBroken, requests: []string{statusWeb}},
		"in a grace period": {grace: new(int64(30)), requests: []string{statusWeb}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, c := newServer(t)
			err := statusRun(t.Context(), t, server, c, serviceOptions{}, func(_ context.Context, service *corev1.Service) error {
				setReady(service)
				service.DeletionTimestamp, service.DeletionGracePeriodSeconds = new(metav1.Now()), test.grace
				return test.result
			})
			if got := server.Requests(); !errors.Is(err, test.result) || !slices.Equal(got, test.requests) {
				t.Errorf("the result is %v, the requests are %q, want %q", err, got, test.requests)
			}
		})
	}
}

// A shutdown of the process is not a failure of the object: otherwise each upgrade would write a failure to the status.
func TestStatusIgnoresInterruption(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		cancel func(context.Context) (context.Context, context.CancelFunc)
		noted  bool
	}{
		"interrupted": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx, cancel
		}, false},
		"its time is over": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithDeadline(ctx, time.Unix(0, 0))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, c := newServer(t)
			ctx, cancel := test.cancel(t.Context())
			defer cancel()
			noted := false
			err := statusRun(ctx, t, server, c, serviceOptions{
				OnError:               func(*corev1.Service, error) { noted = true },
				SetObservedGeneration: func(*corev1.Service, int64) { noted = true },
			}, func(ctx context.Context, service *corev1.Service) error {
				status.Set(&service.Status.Conditions, status.True("Synced", 1, "Synced", ""))
				return ctx.Err()
			})
			if !errors.Is(err, ctx.Err()) || noted != test.noted {
				t.Errorf("the result is %v; it was noted: %v", err, noted)
			}
			if got := said(t, server, c); got != "Synced=True Synced: " {
				t.Errorf("the status says %q", got)
			}
		})
	}
}

// The Handler takes over a later generation from the API server. No run has handled that generation yet.
func TestStatusObservesGenerationOfRun(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	var got int64
	err := statusRun(t.Context(), t, server, c, serviceOptions{
		SetObservedGeneration: func(_ *corev1.Service, generation int64) { got = generation },
	}, func(ctx context.Context, service *corev1.Service) error {
		edit(server, func(obj map[string]any) { obj["spec"] = map[string]any{"clusterIP": "None"} }) // during the run
		result, _, err := client.EditMetadata(ctx, c, service, func(labels, _ map[string]string) { labels["a"] = "b" })
		if err == nil {
			*service = *result
		}
		return err
	})
	if err != nil || got != 1 {
		t.Errorf("the error is %v, generation %d was set, want 1", err, got)
	}
}

// CommitStatus writes the status before the run continues, and the end of the run does not write it again.
func TestCommitStatus(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	err := statusRun(t.Context(), t, server, c, serviceOptions{}, func(ctx context.Context, service *corev1.Service) error {
		service.Spec.ClusterIP = "changed in memory"
		if err := middleware.CommitStatus(ctx, service); err != nil || len(server.Requests()) > 0 {
			t.Errorf("nothing has changed, and the error is %v", err)
		}
		for _, step := range []string{"One", "Two"} {
			status.Set(&service.Status.Conditions, status.True(step, 1, "Noted", ""))
			if err := middleware.CommitStatus(ctx, service); err != nil {
				return err
			}
			if got := server.Requests(); !slices.Equal(got, []string{statusWeb}) {
				t.Errorf("the requests are %q", got)
			}
			live := said(t, server, c) //nolint:contextcheck // as somebody else sees it
			if !strings.Contains(live, step+"=True") {
				t.Errorf("the cluster's status is %q", live)
			}
		}
		if service.Spec.ClusterIP != "changed in memory" {
			t.Error("what the handler has changed beside the status is lost")
		}
		return nil
	})
	if got := server.Requests(); err != nil || len(got) > 0 {
		t.Errorf("the error is %v; at the end there were requests %q", err, got)
	}

	// The commit at the end of the run writes only the later changes, also if other clients write in between.
	err = statusRun(t.Context(), t, server, c, serviceOptions{}, func(ctx context.Context, service *corev1.Service) error {
		status.Set(&service.Status.Conditions, status.False("One", 1, "Noted", ""))
		if err := middleware.CommitStatus(ctx, service); err != nil {
			return err
		}
		edit(server, func(obj map[string]any) {
			entry := obj["status"].(map[string]any)["conditions"].([]any)[0].(map[string]any)
			entry["status"] = "Unknown" // set by another client; the run has not changed it since
		})
		status.Set(&service.Status.Conditions, status.False("Two", 1, "Noted", ""))
		return nil
	})
	if got := server.Requests(); err != nil || !slices.Equal(got, []string{statusWeb, statusWeb}) {
		t.Errorf("the error is %v; the requests are %q", err, got)
	}
	if got := said(t, server, c); got != "One=Unknown Noted: ; Two=False Noted: " {
		t.Errorf("the status says %q", got)
	}
}

// CommitStatus must not write from a stale copy, nor may the end of the run, and the run ends as a conflict, whatever
// error the Handler returns.
func TestCommitStatusRejectsStaleCopy(t *testing.T) {
	t.Parallel()
	for name, result := range map[string]func(error) error{
		"returned": func(err error) error { return fmt.Errorf("note it: %w", err) },
		"ignored":  func(error) error { return nil },
		"waited":   func(error) error { return controller.RequeueAfter(time.Minute) },
		"panicked": func(err error) error { panic(err) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, c := newServer(t)
			err := statusRun(t.Context(), t, server, c, serviceOptions{OnError: middleware.FailureConditions(conditionsOf)}, func(ctx context.Context, service *corev1.Service) error {
				edit(server, func(obj map[string]any) { obj["metadata"].(map[string]any)["labels"] = map[string]any{"a": "b"} })
				version := service.ResourceVersion
				setReady(service)
				err := middleware.CommitStatus(ctx, service)
				if service.ResourceVersion != version {
					t.Error("the stale copy was called fresh")
				}
				return result(err)
			})
			if !errors.Is(err, client.ErrChanged) || controller.OutcomeOf(err) == controller.OutcomeRequeue || strings.Count(err.Error(), client.ErrChanged.Error()) != 1 {
				t.Errorf("the result is %v, want a conflict", err)
			}
			if got := server.Requests(); !slices.Equal(got, []string{statusWeb}) || said(t, server, c) != "" {
				t.Errorf("the requests are %q, and the status says %q", got, said(t, server, c))
			}
		})
	}
}

// After a failed CommitStatus, a second one may succeed: then the end of the run commits as usual.
func TestCommitStatusRetry(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	down := true
	server.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
		if req.Method == http.MethodPatch && down {
			down = false
			return nil, errors.New("cut off")
		}
		return do(), nil
	})
	err := statusRun(t.Context(), t, server, c, serviceOptions{}, func(ctx context.Context, service *corev1.Service) error {
		status.Set(&service.Status.Conditions, status.True("Noted", 1, "Noted", ""))
		if err := middleware.CommitStatus(ctx, service); err == nil {
			t.Error("the first try was cut off, and no error came of it")
		}
		if err := middleware.CommitStatus(ctx, service); err != nil {
			return err
		}
		setReady(service)
		return nil
	})
	if got := said(t, server, c); err != nil || got != "Noted=True Noted: ; Ready=True Deployed: " {
		t.Errorf("the result is %v, the status says %q", err, got)
	}
}

func TestCommitStatusValidatesArguments(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	service := web(t, server, c)
	if err := middleware.CommitStatus(t.Context(), service); err == nil || !strings.Contains(err.Error(), "middleware.Status[*v1.Service]") {
		t.Errorf("without the middleware the error is %v", err)
	}
	_ = statusRun(t.Context(), t, server, c, serviceOptions{}, func(ctx context.Context, service *corev1.Service) error {
		server.Requests()
		copied := service.DeepCopy()
		setReady(copied)
		if err := middleware.CommitStatus(ctx, copied); err == nil || !strings.Contains(err.Error(), "copy") {
			t.Errorf("of a copy the error is %v", err)
		}
		if err := middleware.CommitStatus[kube.Object](ctx, service); err == nil {
			t.Error("of another type there is no error")
		}
		return nil
	})
	if got := server.Requests(); len(got) > 0 {
		t.Errorf("there were requests: %q", got)
	}
}

// The test has both commits of a run: CommitStatus before something outside of the cluster is created, and the commit
// at the end.
func TestCommitStatusWithinFinalizer(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	handler := controller.Chain(func(ctx context.Context, service *corev1.Service) error {
		status.Set(&service.Status.Conditions, status.True("Noted", 1, "Noted", ""))
		if err := middleware.CommitStatus(ctx, service); err != nil {
			return err
		}
		setReady(service)
		return nil
	}, middleware.Status(c, serviceOptions{}), middleware.Finalizer(newCleaning(t).finalizer(t, c), middleware.FinalizerOptions[*corev1.Service]{}))
	for _, want := range [][]string{{patchWeb, statusWeb, statusWeb}, nil} {
		service := web(t, server, c)
		if err := handler(t.Context(), service); err != nil {
			t.Error(err)
		}
		if got := server.Requests(); !slices.Equal(got, want) {
			t.Errorf("the requests are %q, want %q", got, want)
		}
	}
}

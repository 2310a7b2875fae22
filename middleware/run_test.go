package middleware_test

import (
	"bytes"
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/middleware"
)

// onePod is a Retriever of a single Pod that never changes.
type onePod struct{}

func (onePod) List(context.Context, metav1.ListOptions) (runtime.Object, error) {
	listed := *pod()
	listed.ResourceVersion = "1"
	return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "10"}, Items: []corev1.Pod{listed}}, nil
}

func (onePod) Watch(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
	stream := watch.NewFake()
	context.AfterFunc(ctx, stream.Stop)
	return stream, nil
}

func (onePod) Describe() informer.Description[*corev1.Pod] {
	return informer.Description[*corev1.Pod]{Kind: "Pod"}
}

// In a controller, Log logs the causes of the run, and uses the run's logger if it was created without one.
func TestLogInController(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]bool{"the run's logger": false, "a logger of its own": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log, other bytes.Buffer
				mine := slog.New(slog.NewJSONHandler(&log, nil))
				ofController, given := mine, (*slog.Logger)(nil)
				if own {
					ofController, given = slog.New(slog.NewJSONHandler(&other, nil)), mine
				}
				var runs atomic.Int32
				ctrl, err := controller.New(controller.Config[*corev1.Pod]{
					Name:      "pods",
					Retriever: onePod{},
					Handler: controller.Chain(func(context.Context, *corev1.Pod) error {
						if runs.Add(1) == 1 {
							return &controller.RequeueError{After: time.Minute, Reason: "look again"}
						}
						return nil
					}, middleware.Log[*corev1.Pod](given)),
					ResyncInterval: -1,
					Logger:         ofController,
				})
				if err != nil {
					t.Fatal(err)
				}
				stop := testrun.Start(t, ctrl.Run)
				time.Sleep(time.Hour)
				stop()
				var got []record
				for _, r := range records(t, &log) {
					if r.Msg == "handled" {
						got = append(got, r)
					}
				}
				want := []record{
					{Level: "INFO", Msg: "handled", Controller: "pods", Run: runOf{"default/web"}, Causes: "listed"},
					{Level: "INFO", Msg: "handled", Controller: "pods", Run: runOf{"default/web"}, Causes: "requeue (look again)"},
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("log (-want +got):\n%s", diff)
				}
			})
		})
	}
}

package middleware_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/middleware"
)

// onePod returns an API server with a single Pod.
func onePod() informer.Retriever[*corev1.Pod] {
	server := kindserver.New[*corev1.Pod](apitest.Pods(), true)
	server.Put(pod())
	return server
}

// In a controller, Log logs the causes of the run, and uses the run's logger if it was created without one.
func TestLogInController(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]bool{"the run's logger": false, "a logger of its own": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log, other testlog.Buffer
				mine := slog.New(slog.NewJSONHandler(&log, nil))
				ofController, given := mine, (*slog.Logger)(nil)
				if own {
					ofController, given = slog.New(slog.NewJSONHandler(&other, nil)), mine
				}
				var runs atomic.Int32
				ctrl, err := controller.New(controller.Config[*corev1.Pod]{
					Name:      "pods",
					Retriever: onePod(),
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

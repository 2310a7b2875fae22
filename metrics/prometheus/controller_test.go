package prometheus_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
)

// pods returns an API server with n Pods, each with its own name and namespace.
func pods(n int) informer.Retriever[*corev1.Pod] {
	server := kindserver.New[*corev1.Pod](apitest.Pods(), true)
	for i := range n {
		name := metav1.ObjectMeta{Namespace: fmt.Sprint("namespace-", i), Name: fmt.Sprint("pod-", i)}
		server.Put(&corev1.Pod{ObjectMeta: name})
	}
	return server
}

// A failed run must count as a failure (contract 4), also if its retry is successful.
func TestControllerRunsAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		recorder, registry := newRecorder(t)
		failures := 2
		ctrl, err := controller.New(controller.Config[*corev1.Pod]{
			Name:      "pods",
			Retriever: pods(1),
			Handler: func(context.Context, *corev1.Pod) error {
				if failures > 0 {
					failures--
					return errors.New("not yet")
				}
				return nil
			},
			ResyncInterval: -1,
			Metrics:        recorder,
			Logger:         slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		stop := testrun.Start(t, ctrl.Run)
		synctest.Wait()
		expectValues(t, registry, map[string]float64{
			"evenkeel_controller_queue_backoff{controller=pods}":                   1,
			"evenkeel_controller_queue_delayed{controller=pods}":                   0,
			"evenkeel_controller_failing_keys{controller=pods}":                    1,
			"evenkeel_controller_failing_since_timestamp_seconds{controller=pods}": float64(time.Now().Unix()),
		})
		time.Sleep(time.Minute)

		expectValues(t, registry, map[string]float64{
			"evenkeel_controller_triggers_total{controller=pods,source=self,type=listed}": 1,
			"evenkeel_controller_triggers_total{controller=pods,source=loop,type=retry}":  2,
			"evenkeel_controller_retries_total{controller=pods}":                          2,
			"evenkeel_controller_failures_total{class=error,controller=pods}":             2,
			"evenkeel_controller_failing_keys{controller=pods}":                           0,
			"evenkeel_controller_queue_backoff{controller=pods}":                          0,
			"evenkeel_controller_workers{controller=pods}":                                3,
			"evenkeel_controller_phase{controller=pods,phase=running}":                    1,
			"evenkeel_informer_objects{informer=pods}":                                    1,
			"evenkeel_informer_synced{informer=pods}":                                     1,
			"evenkeel_informer_failing{informer=pods,reason=Other}":                       0,
		})
		if since, found := gather(t, registry)["evenkeel_controller_failing_since_timestamp_seconds{controller=pods}"]; found {
			t.Errorf("no key fails, but failing_since is %v", since)
		}
		want := map[string]uint64{
			"{controller=pods,outcome=error}":   2,
			"{controller=pods,outcome=success}": 1,
		}
		if diff := cmp.Diff(want, histogramCounts(t, registry, "evenkeel_controller_handle_seconds")); diff != "" {
			t.Errorf("runs by outcome (-want +got):\n%s", diff)
		}

		stop()
		for series := range gather(t, registry) {
			if !strings.Contains(series, "_total{") {
				t.Errorf("the controller has stopped, but %s still exists", series)
			}
		}
	})
}

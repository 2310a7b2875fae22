package toolkit

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/finalizer"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/simulation"
	"github.com/evenkeel-go/evenkeel/status"
)

// TestContract13_ToolkitWritesDoNotEnqueueKeys checks that each change by another client causes exactly one run,
// although the run writes to its own object.
func TestContract13_ToolkitWritesDoNotEnqueueKeys(t *testing.T) {
	cluster := clustertest.Connect(t, anyCluster.RESTConfig(t, simulation.Config{WithoutControllers: true}))
	c := clustertest.Client(t, cluster)
	for name, write := range map[string]func(ctx context.Context, pod *corev1.Pod, value string) error{
		"status.Commit": func(ctx context.Context, pod *corev1.Pod, value string) error {
			after := pod.DeepCopy()
			after.Status.Message = value
			_, err := status.Commit(ctx, c, pod, after)
			return err
		},
		"finalizer.Add": func(ctx context.Context, pod *corev1.Pod, value string) error {
			_, err := finalizer.Add(ctx, c, pod, "echo.example.com/"+value)
			return err
		},
		"finalizer.Add and Remove": func(ctx context.Context, pod *corev1.Pod, value string) error {
			if _, err := finalizer.Add(ctx, c, pod, "echo.example.com/"+value); err != nil {
				return err
			}
			_, err := finalizer.Remove(ctx, c, pod, "echo.example.com/"+value)
			return err
		},
		"client.EditMetadata": func(ctx context.Context, pod *corev1.Pod, value string) error {
			_, _, err := client.EditMetadata(ctx, c, pod, func(labels, _ map[string]string) { labels["seen"] = value })
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := clustertest.Namespace(t, c)
			pod, err := client.Create(t.Context(), c, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", Annotations: map[string]string{"value": "0"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			ctrl, stop := clustertest.Run(t, controller.Config[*corev1.Pod]{
				Name: "echo", Retriever: informer.RetrieveSelected[*corev1.Pod](cluster, kube.Selection{Namespaces: []string{namespace}}), ResyncInterval: -1,
				Handler: func(ctx context.Context, pod *corev1.Pod) error {
					return write(ctx, pod, pod.Annotations["value"])
				},
			})
			for i := 1; i <= 3; i++ {
				handled(t, ctrl, i)
				patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{"value":"%d"}}}`, i))
				if _, err := client.Patch(t.Context(), c, pod, patch); err != nil {
					t.Fatal(err)
				}
			}
			handled(t, ctrl, 4)
			stop() // pending events have been handled
			if runs := ctrl.RecentRuns(); len(runs) != 4 {
				t.Errorf("%d runs of one listed object and three changes, want 4: %v", len(runs), runs)
			}
		})
	}
}

// handled waits for the end of a run, and until the informer shows its writes.
func handled(t *testing.T, ctrl *controller.Controller[*corev1.Pod], runs int) {
	t.Helper()
	clustertest.Eventually(t, func() string {
		all := ctrl.RecentRuns()
		if stats := ctrl.Stats(); len(all) < runs || stats.Processing+stats.Ready+stats.Held > 0 {
			return fmt.Sprintf("%d runs of %d, %+v", len(all), runs, stats)
		}
		if all[0].Writes > 0 {
			writes := clustertest.Writes(t, ctrl, all[0].Key)
			last := writes[len(writes)-1]
			if kept, _, err := ctrl.Informer().Get(last.Key); err != nil || kept == nil || kept.ResourceVersion != last.Version {
				return fmt.Sprintf("the informer does not show %+v: %v", last, err)
			}
		}
		return ""
	})
}

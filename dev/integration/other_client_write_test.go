package integration

import (
	"context"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
)

// A handler with a stale cache reads the live object and writes it back unchanged. An earlier change by another client
// must not be treated as the handler's own write.
func TestContract13_ForeignChangeBeforeNoOpWriteRunsHandler(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(ctx context.Context, own corev1client.ConfigMapInterface, live *corev1.ConfigMap) error{
		"update": func(ctx context.Context, own corev1client.ConfigMapInterface, live *corev1.ConfigMap) error {
			_, err := own.Update(ctx, live, metav1.UpdateOptions{})
			return err
		},
		"patch": func(ctx context.Context, own corev1client.ConfigMapInterface, live *corev1.ConfigMap) error {
			patch := `{"metadata":{"resourceVersion":"` + live.ResourceVersion + `"},"data":{"value":"2"}}`
			_, err := own.Patch(ctx, live.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			e.putConfigMap("a", "1")
			config := local.RESTConfig()
			watches := &heldWatches{resource: "/configmaps"}
			config.Wrap(watches.wrap)
			cluster := connect(t, config)
			own := must(kubernetes.NewForConfig(cluster.RESTConfig()))(t).CoreV1().ConfigMaps(e.namespace)
			var wrote atomic.Bool
			var seen seen
			ctrl, _ := run(t, controller.Config[*corev1.ConfigMap]{
				Name: "writer", ResyncInterval: -1,
				Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster, kube.Selection{Namespaces: []string{e.namespace}}),
				Handler: func(ctx context.Context, m *corev1.ConfigMap) error {
					if m.Name != "a" {
						return nil
					}
					seen.add("a", m.Data["value"])
					if wrote.Swap(true) {
						return nil
					}
					watches.hold() // the cache does not know of the change when the handler writes
					defer watches.breakHeld()
					maps := e.clients.CoreV1().ConfigMaps(e.namespace)
					if _, err := maps.Patch(ctx, "a", types.MergePatchType, []byte(`{"data":{"value":"2"}}`), metav1.PatchOptions{}); err != nil {
						return err
					}
					live, err := own.Get(ctx, "a", metav1.GetOptions{})
					if err != nil {
						return err
					}
					return write(ctx, own, live)
				},
			})
			eventually(t, func() string {
				if missing := seen.lacks(map[string]string{"a": "2"}); missing != "" {
					return missing + "\n" + ctrl.Explain(e.key("a"))
				}
				return ""
			})
		})
	}
}

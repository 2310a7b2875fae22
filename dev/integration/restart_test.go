package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/kube"
)

// waiters is the number of waiting keys of each sort.
const waiters = 10

// Keys wait for objects that they created and deleted, while the watch delivers nothing, and the API server is killed.
// After its restart each key runs, and sees its own writes.
func TestContract07_WaitingKeysRunAfterServerRestart(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t)
	e := newEnvOn(t, cluster)
	config := cluster.RESTConfig()
	watches := &heldWatches{resource: "/secrets"}
	config.Wrap(watches.wrap)
	connected := connect(t, config)
	own := must(kubernetes.NewForConfig(connected.RESTConfig()))(t).CoreV1().Secrets(e.namespace)
	for i := range waiters {
		e.putConfigMap(fmt.Sprint("create-", i), "0")
		name := fmt.Sprint("delete-", i)
		e.putConfigMap(name, "0")
		must(e.clients.CoreV1().Secrets(e.namespace).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(t)
	}
	selection := kube.Selection{Namespaces: []string{e.namespace}}
	children := must(informer.New(informer.Config[*corev1.Secret]{
		Name: "children", Retriever: informer.RetrieveSelected[*corev1.Secret](connected, selection),
	}))(t)
	selection.LabelSelector = "value"
	var saw seen
	ctrl, _ := run(t, controller.Config[*corev1.ConfigMap]{
		Name: "parents", ResyncInterval: -1, Reads: []informer.Any{children},
		Retriever: informer.RetrieveSelected[*corev1.ConfigMap](connected, selection),
		Handler: func(ctx context.Context, m *corev1.ConfigMap) error {
			saw.add(m.Name, fmt.Sprint(m.Data["value"], " ", cache.Of(children).Has(e.key(m.Name))))
			switch {
			case m.Data["value"] != "1":
				return nil
			case strings.HasPrefix(m.Name, "delete-"):
				return own.Delete(ctx, m.Name, metav1.DeleteOptions{})
			}
			_, err := own.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: m.Name}}, metav1.CreateOptions{})
			return err
		},
	})
	eventually(t, func() string { return saw.lacks(sights("0", false)) })
	watches.hold()
	e.putSteps("1")
	eventually(t, func() string { return saw.lacks(sights("1", false)) })
	e.putSteps("2")
	eventually(t, func() string {
		if stats := ctrl.Stats(); stats.Held != 2*waiters {
			return fmt.Sprintf("not all keys are held: %+v", stats)
		}
		return ""
	})
	if err := cluster.Kill(); err != nil {
		t.Error(err)
	}
	watches.breakHeld()
	if err := cluster.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string { return saw.lacks(sights("2", true)) })
}

// sights records what handlers read of the step and of their child, before and after their writes.
func sights(step string, wrote bool) map[string]string {
	all := map[string]string{}
	for i := range waiters {
		all[fmt.Sprint("create-", i)] = fmt.Sprint(step, " ", wrote)
		all[fmt.Sprint("delete-", i)] = fmt.Sprint(step, " ", !wrote)
	}
	return all
}

// putSteps tells all keys to do a step.
func (e env) putSteps(step string) {
	e.Helper()
	for name := range sights(step, false) {
		patch := []byte(`{"data":{"value":"` + step + `"}}`)
		must(e.clients.CoreV1().ConfigMaps(e.namespace).Patch(e.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}))(e.T)
	}
}

package controllerruntime

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apiserver/builtin"
)

// namespace exists in each server.
const namespace = "shop"

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	// The last of these handlers waits until a millisecond after the latest error of the process, which can be an error of a
	// bubble whose time is hours later.
	utilruntime.ErrorHandlers = nil
	goleak.VerifyTestMain(m)
}

// newServer returns a server with the kinds that managers need. Namespaces exist.
func newServer(t *testing.T) *apiserver.Server {
	t.Helper()
	kinds := []*apiserver.Kind{apiserver.ConfigMaps(), apiserver.Secrets(), apiserver.Namespaces(), apiserver.Leases()}
	s, err := apiserver.New(apiserver.Config{Seed: 1, NamespacesExist: true, Kinds: append(kinds, builtin.Events()...)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newClient returns a typed client of client-go.
func newClient(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// createConfigMaps creates the ConfigMaps cm-000, cm-001 and so on, one a second.
func createConfigMaps(ctx context.Context, t *testing.T, c kubernetes.Interface, n int) {
	t.Helper()
	for i := range n {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("cm-%03d", i)}}
		if _, err := c.CoreV1().ConfigMaps(namespace).Create(ctx, cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
	}
}

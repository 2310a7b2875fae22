// Package wait tests waiting on a real Kubernetes: with authorization, restarts and DaemonSets. The tests of
// dev/integration/wait need only what a cluster in memory has.
package wait

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/localcluster"
)

var local *localcluster.Cluster

func TestMain(m *testing.M) {
	clustertest.Main(m, localcluster.Config{Nodes: 1}, func(c *localcluster.Cluster) { local = c })
}

// env is a test's part of the cluster: its own namespace, and a client.
type env struct {
	*testing.T
	client    *client.Client
	namespace string
}

func newEnv(t *testing.T) env {
	t.Helper()
	c := clustertest.Client(t, clustertest.Connect(t, local.RESTConfig()))
	return env{T: t, client: c, namespace: clustertest.Namespace(t, c)}
}

func (e env) key(name string) kube.Key { return kube.Key{Namespace: e.namespace, Name: name} }

func (e env) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: e.namespace, Name: name}
}

// must fails the test if err is not nil.
func must[V any](value V, err error) func(env) V {
	return func(e env) V {
		e.Helper()
		if err != nil {
			e.Fatal(err)
		}
		return value
	}
}

// template returns a Pod template for the simulated node.
func template(labels map[string]string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
	}
}

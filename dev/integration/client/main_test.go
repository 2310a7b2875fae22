// Package client tests package client on an API server in memory and on a real one.
package client

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/dev/integration/internal/anycluster"
	"github.com/evenkeel-go/evenkeel/dev/integration/internal/fixture"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/localcluster"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// anyCluster has no controllers that change objects.
var anyCluster anycluster.Cluster

func TestMain(m *testing.M) { anyCluster.Main(m, localcluster.Config{}) }

// newClient returns a client and a namespace.
func newClient(t *testing.T) (*client.Client, string) {
	t.Helper()
	_, c, namespace := setUp(t)
	return c, namespace
}

// setUp is newClient for tests with further connections to the cluster.
func setUp(t *testing.T) (*rest.Config, *client.Client, string) {
	t.Helper()
	config := anyCluster.RESTConfig(t, simulation.Config{WithoutControllers: true})
	c := clustertest.Client(t, clustertest.Connect(t, config))
	return config, c, clustertest.Namespace(t, c)
}

func with(t *testing.T, c *client.Client, change func(*client.Config)) *client.Client {
	t.Helper()
	other, err := c.With(change)
	if err != nil {
		t.Fatal(err)
	}
	return other
}

func must[T any](value T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func configMap(namespace, name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data}
}

func pod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
	}
}

// observe returns a context, and the requests made with it: "verb resource namespace/name/subresource".
func observe(t *testing.T) (context.Context, *fixture.Calls) {
	t.Helper()
	c := &fixture.Calls{Text: func(call kube.Call) string {
		return strings.Replace(fixture.Verb(call), call.Verb, call.Verb+" "+call.Resource.Resource+" "+call.Key.String(), 1)
	}}
	return kube.ObserveCalls(t.Context(), c), c
}

// define creates a namespaced or cluster-scoped custom kind with subresources, waits until it is served, and removes it
// at the end of the test.
func define(t *testing.T, c *client.Client, kind, plural string, namespaced bool, subresources string) schema.GroupVersionKind {
	t.Helper()
	gvk := schema.GroupVersionKind{Group: "client.example.com", Version: "v1", Kind: kind}
	crd := fixture.Kind{
		GroupVersionKind: gvk, Plural: plural, ClusterScoped: !namespaced, Subresources: subresources, Schema: `
type: object
properties:
  spec: {type: object, properties: {size: {type: integer, minimum: 0}, note: {type: string}}}
  status: {type: object, properties: {phase: {type: string}}}
`,
	}.Definition()
	created := must(client.Create(t.Context(), c, crd))(t)
	t.Cleanup(func() {
		if err := client.Delete(context.WithoutCancel(t.Context()), c, created); err != nil {
			t.Error(err)
		}
	})
	clustertest.Eventually(t, func() string {
		if _, err := client.All[*unstructured.Unstructured](t.Context(), c, kube.Selection{Kind: gvk}); err != nil {
			return err.Error()
		}
		return ""
	})
	return gvk
}

func object(kind schema.GroupVersionKind, namespace, name string, size int64) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": size}}}
	u.SetGroupVersionKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

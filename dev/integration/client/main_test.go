// Package client tests package client on an API server in memory and on a real one.
package client

import (
	"context"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/dev/integration/internal/anycluster"
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

// calls records the requests with its context as kube.Calls.
type calls struct {
	mu   sync.Mutex
	made []string // guarded by mu; "verb resource namespace/name subresource", of what names a resource
}

func (c *calls) CallBegan(ctx context.Context, _ kube.Call) context.Context { return ctx }

func (c *calls) CallEnded(_ context.Context, call kube.Call) {
	if call.Verb == "" {
		return // which kinds there are
	}
	request := call.Verb + " " + call.Resource.Resource + " " + call.Key.String()
	if call.Subresource != "" {
		request += "/" + call.Subresource
	}
	if call.DryRun {
		request += " (dry run)"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made = append(c.made, request)
}

// take returns and removes the recorded calls.
func (c *calls) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	requests := c.made
	c.made = nil
	return requests
}

func observe(t *testing.T) (context.Context, *calls) {
	t.Helper()
	c := &calls{}
	return kube.ObserveCalls(t.Context(), c), c
}

// define creates a namespaced or cluster-scoped custom kind with subresources, waits until it is served, and removes it
// at the end of the test.
func define(t *testing.T, c *client.Client, kind, plural string, namespaced bool, subresources map[string]any) schema.GroupVersionKind {
	t.Helper()
	gvk := schema.GroupVersionKind{Group: "client.example.com", Version: "v1", Kind: kind}
	scope := "Cluster"
	if namespaced {
		scope = "Namespaced"
	}
	version := map[string]any{
		"name": "v1", "served": true, "storage": true,
		"schema": map[string]any{"openAPIV3Schema": map[string]any{
			"type": "object",
			"properties": map[string]any{
				"spec": map[string]any{"type": "object", "properties": map[string]any{
					"size": map[string]any{"type": "integer", "minimum": int64(0)}, "note": map[string]any{"type": "string"},
				}},
				"status": map[string]any{"type": "object", "properties": map[string]any{"phase": map[string]any{"type": "string"}}},
			},
		}},
	}
	if subresources != nil {
		version["subresources"] = subresources
	}
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + "." + gvk.Group},
		"spec": map[string]any{
			"group": gvk.Group, "scope": scope, "versions": []any{version},
			"names": map[string]any{"kind": kind, "listKind": kind + "List", "plural": plural, "singular": plural[:len(plural)-1]},
		},
	}}
	created := must(client.Create(t.Context(), c, crd))(t)
	t.Cleanup(func() {
		if err := client.Delete(context.WithoutCancel(t.Context()), c, created); err != nil {
			t.Error(err)
		}
	})
	clustertest.Eventually(t, func() string {
		if _, err := client.All[*unstructured.Unstructured](t.Context(), c, client.OfKind(gvk)); err != nil {
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

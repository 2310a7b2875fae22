package client_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
)

// TestOfKindForTypeOfSeveralKinds: option OfKind selects one of the kinds that a type is registered for, and no other
// kind.
func TestOfKindForTypeOfSeveralKinds(t *testing.T) {
	t.Parallel()
	first, second := widgetKind(), schema.GroupVersionKind{Group: "shop.example.com", Version: "v2", Kind: "Widget"}
	server := apitest.New(apiserver.Custom(first, "widgets"), apiserver.Custom(second, "widgets"),
		apitest.Pods())
	cluster, err := kube.Connect(server.Config("tests"), func(scheme *runtime.Scheme) error {
		scheme.AddKnownTypeWithName(first, &corev1.ConfigMap{})
		scheme.AddKnownTypeWithName(second, &corev1.ConfigMap{})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{Cluster: cluster})
	if err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[schema.GroupVersionKind]string{
		first: "", second: "", corev1.SchemeGroupVersion.WithKind("Pod"): "the given kind is /v1, Kind=Pod, and a *v1.ConfigMap is a",
	} {
		_, err := client.All[*corev1.ConfigMap](t.Context(), c, kube.Selection{Kind: kind})
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want %q", kind, err, want)
		}
	}
}

// TestNamespaceOfAnotherClientNeedsNoDiscovery: an error about the client's namespace does not depend on the scope of the
// kind, so the kind is not requested again.
func TestNamespaceOfAnotherClientNeedsNoDiscovery(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	only, err := c.With(func(config *client.Config) { config.Namespace = "shop" })
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_, err := client.Get[*corev1.Pod](t.Context(), only, kube.Key{Namespace: "bank", Name: "a"})
		if err == nil || !strings.Contains(err.Error(), "is not in namespace shop") {
			t.Errorf("the error is %v", err)
		}
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	if server.asked != 1 {
		t.Errorf("%d discovery requests, want 1", server.asked)
	}
}

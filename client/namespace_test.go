package client_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestEnsureNamespace(t *testing.T) {
	t.Parallel()
	server := apitest.New(apitest.ClusterScoped(apiserver.Custom(corev1.SchemeGroupVersion.WithKind("Namespace"), "namespaces")))
	cluster, err := kube.Connect(server.Config("tests"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{Cluster: cluster})
	if err != nil {
		t.Fatal(err)
	}
	const get, create, patch = "GET /api/v1/namespaces/shop", "POST /api/v1/namespaces", "PATCH /api/v1/namespaces/shop"
	for _, step := range []struct {
		labels   map[string]string
		want     client.ObjectOutcome
		requests []string
	}{
		{map[string]string{"team": "shop"}, client.Created, []string{get, create}},
		{map[string]string{"team": "shop"}, client.Unchanged, []string{get}},
		{map[string]string{"tier": "front"}, client.Updated, []string{get, patch}},
		{nil, client.Unchanged, []string{get}},
	} {
		outcome, err := client.EnsureNamespace(t.Context(), c, "shop", step.labels)
		if diff := cmp.Diff(step.requests, server.Requests()); diff != "" || err != nil || outcome != step.want {
			t.Errorf("%v: %s, %v, want %s; requests (-want +got):\n%s", step.labels, outcome, err, step.want, diff)
		}
	}
	key := kube.Key{Name: "shop"}
	if diff := cmp.Diff(map[string]string{"team": "shop", "tier": "front"}, server.Object("namespaces", key).GetLabels()); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	server.Edit("namespaces", key, "other", func(obj map[string]any) bool {
		(&unstructured.Unstructured{Object: obj}).SetFinalizers([]string{"example.com/content"})
		return true
	})
	server.Edit("namespaces", key, "other", func(map[string]any) bool { return false })
	if _, err := client.EnsureNamespace(t.Context(), c, "shop", nil); !errors.Is(err, client.ErrTerminating) {
		t.Errorf("of a namespace that is being deleted: %v", err)
	}
}

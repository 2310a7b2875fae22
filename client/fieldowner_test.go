package client_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Without a FieldOwner all writes have the same field manager: the one that the API server takes from the user agent.
func TestFieldOwnerDefaultsToProgram(t *testing.T) {
	t.Parallel()
	program, _, _ := strings.Cut(rest.DefaultKubernetesUserAgent(), "/")
	for agent, want := range map[string]string{
		"": program, "shop-operator/v2 (linux/amd64) kubernetes/abc": "shop-operator", "manager": "manager",
	} {
		cluster, err := kube.Connect(apitest.New(apiserver.ConfigMaps()).Config(agent))
		if err != nil {
			t.Fatal(err)
		}
		c, err := client.New(client.Config{Cluster: cluster})
		if err != nil {
			t.Fatal(err)
		}
		config := func(name string) *corev1.ConfigMap {
			return &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Data: map[string]string{"a": "b"},
			}
		}
		applied, err := client.Apply(t.Context(), c, config("applied"))
		if err != nil {
			t.Fatal(err)
		}
		created, err := client.Create(t.Context(), c, config("created"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.TakeOver(t.Context(), c, created, []string{"former"}); err != nil {
			t.Error(err)
		}
		for _, obj := range []*corev1.ConfigMap{applied.Object, created} {
			if managers := obj.ManagedFields; len(managers) != 1 || managers[0].Manager != want {
				t.Errorf("user agent %q: the managers of %s are %v, want %q", agent, obj.Name, managers, want)
			}
		}
		if owner := c.Config().FieldOwner; owner != want {
			t.Errorf("user agent %q: the field owner is %q, want %q", agent, owner, want)
		}
	}
}

// New rejects a client whose applies would fail.
func TestNewRequiresFieldOwnerIfUserAgentHasNone(t *testing.T) {
	t.Parallel()
	cluster, err := kube.Connect(&rest.Config{Host: "http://nowhere.example.com", UserAgent: "/v1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.New(client.Config{Cluster: cluster}); err == nil ||
		!strings.Contains(err.Error(), `FieldOwner is required: the Cluster's UserAgent "/v1" names no program`) {
		t.Errorf("the error is %v", err)
	}
	if _, err := client.New(client.Config{Cluster: cluster, FieldOwner: "shop-operator"}); err != nil {
		t.Error(err)
	}
}

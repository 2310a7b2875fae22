package client_test

import (
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
)

// The body of a subresource is no object: the error names the functions, and no CustomResourceDefinition.
func TestBodyOfSubresourceIsNoObject(t *testing.T) {
	t.Parallel()
	cluster, err := kube.Connect(apitest.New(apiserver.ConfigMaps()).Config("tests"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{Cluster: cluster, FieldOwner: "tests"})
	if err != nil {
		t.Fatal(err)
	}
	for kind, obj := range map[string]kube.Object{"Scale": &autoscalingv1.Scale{}, "Eviction": &policyv1.Eviction{}} {
		obj.SetNamespace("shop")
		obj.SetName("web")
		_, errApply := client.Apply(t.Context(), c, obj)
		_, errUpdate := client.Update(t.Context(), c, obj)
		for what, err := range map[string]error{"apply": errApply, "update": errUpdate} {
			if err == nil || strings.Contains(err.Error(), "CustomResourceDefinition") || !strings.Contains(err.Error(), "SubresourceOf") {
				t.Errorf("%s of a %s: %v", what, kind, err)
			}
		}
	}
}

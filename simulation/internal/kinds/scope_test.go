package kinds

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/manifests"
)

// The resources and scopes that printed RBAC assumes are those of the built-in kinds.
func TestScopesOfManifests(t *testing.T) {
	t.Parallel()
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range all {
		plural, _ := meta.UnsafeGuessKindToResource(kind.GroupVersionKind)
		resource := schema.GroupResource{Group: kind.Group, Resource: kind.Resource}
		if plural.GroupResource() != resource {
			t.Errorf("the plural of %s is %s, want %s", kind.GroupVersionKind, plural.Resource, kind.Resource)
		}
		if !manifests.IsBuiltIn(kind.Group) {
			t.Errorf("%s is not a group of Kubernetes", kind.Group)
		}
		if manifests.IsClusterScoped(resource) != kind.ClusterScoped {
			t.Errorf("%s: cluster-scoped is %t", resource, kind.ClusterScoped)
		}
	}
}

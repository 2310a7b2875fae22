package crd_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/evenkeel-go/evenkeel/crd"
	"github.com/evenkeel-go/evenkeel/kube"
)

// A program that is limited to namespaces looks for objects in all: otherwise it would delete those of others with their
// definition, and take a version back in which others are stored.
func TestObjectsOutsideOfLimitAreFound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, c, _ := newTransport(t)
		install(t, c, nil)
		key := kube.Key{Namespace: "other", Name: "w"}
		server.Apply("websites", key, "test", `{"apiVersion":"shop.example.com/v1","kind":"Website","metadata":{"namespace":"other","name":"w"}}`)
		if err := c.Cluster().SetNamespaces("shop", "sea"); err != nil {
			t.Fatal(err)
		}
		if err := crd.Remove(t.Context(), c, website); !errors.Is(err, crd.ErrHasObjects) {
			t.Error(err)
		}
		server.Edit("customresourcedefinitions", kube.Key{Name: website}, "test", func(obj map[string]any) bool {
			status, _ := obj["status"].(map[string]any)
			status["storedVersions"] = []any{"v1alpha1", "v1"}
			return true
		})
		m, err := crd.Migrate(t.Context(), c, website)
		if err != nil || m.Done != 1 || m.Total != 1 {
			t.Errorf("%v, %v", m, err)
		}
	})
}

package main

import (
	"context"
	"io"
	"strings"
	"testing"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/examples/internal/exampletest"
	"github.com/evenkeel-go/evenkeel/examples/objectstore/s3/s3test"
	"github.com/evenkeel-go/evenkeel/simulation"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestConfigMapsFollowObjects: objects of several pages are added, changed and removed.
func TestConfigMapsFollowObjects(t *testing.T) {
	exampletest.InMemory(t, simulation.Config{})
	namespace := exampletest.Namespace(t)
	exampletest.CreateConfigMap(t, namespace, "web", map[string]string{"example": "objectstore"})
	exampletest.CreateConfigMap(t, namespace, "other", nil)
	store := s3test.New(t, "settings", 2)
	for _, name := range []string{"configs/" + namespace + "/other", "configs/a", "configs/b", "configs/zoo/z", "secret"} {
		store.Put(name, "unused")
	}
	store.Put("configs/large", strings.Repeat("x", 2<<20)) // of no ConfigMap
	content := func(want string) {
		t.Helper()
		exampletest.Eventually(t, "content "+want, func(ctx context.Context) (bool, string) {
			obj, err := exampletest.Core(t).ConfigMaps(namespace).Get(ctx, "web", metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			found := obj.Data["content"] + string(obj.BinaryData["content"])
			return found == want, found
		})
	}
	store.Put("configs/"+namespace+"/web", "v1")
	_, stop := exampletest.Go(t, func(ctx context.Context, _ io.Writer) error {
		return run(ctx, []string{"--bucket", store.URL(), "--interval", "20ms"})
	})
	defer stop()
	content("v1")
	store.Put("configs/"+namespace+"/web", "v2")
	content("v2")
	store.Put("configs/"+namespace+"/web", "\xff")
	content("\xff")
	store.Remove("configs/" + namespace + "/web")
	content("")
	other, err := exampletest.Core(t).ConfigMaps(namespace).Get(t.Context(), "other", metav1.GetOptions{})
	if err != nil || len(other.Data) > 0 {
		t.Errorf("a ConfigMap without the label was changed: %v, %v", other.Data, err)
	}
}

package source_test

import (
	"strings"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/source"
)

// dynamicServer serves ConfigMaps that are not validated.
func dynamicServer() *kindserver.Server[*unstructured.Unstructured] {
	kind := apiserver.Custom(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, "configmaps")
	return kindserver.New[*unstructured.Unstructured](kind, true)
}

func dynamicConfigMap(name string, data any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"namespace": "ns", "name": name}, "data": data,
	}}
}

func TestUndecodableStateIsLoggedAndOtherOneUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := dynamicServer()
		server.Put(dynamicConfigMap("c", "no map"))
		view, err := informer.As[configMap](newInformer(t, server))
		if err != nil {
			t.Fatal(err)
		}
		logs := &logBuffer{}
		q, stop := start(t, source.WithLogger(source.Mapped(view, targets), logs.logger()))
		defer stop()
		logged := func(want string) {
			t.Helper()
			got := logs.String()
			if want == "" && got != "" || !strings.Contains(got, want) {
				t.Errorf("logged %q, want %q in it", got, want)
			}
			logs.Reset()
		}
		q.expect(t)
		logged("source=mapped informer=children key=ns/c change=listed error=")
		server.Put(dynamicConfigMap("c", map[string]any{"to": "a"}))
		q.expect(t, "ns/a: ns/c updated") // the key of the state after the change
		logged("change=updated")
		server.Put(dynamicConfigMap("c", map[string]any{"to": "b"}))
		q.expect(t, "ns/a: ns/c updated", "ns/b: ns/c updated")
		logged("")
		server.Put(dynamicConfigMap("c", "broken"))
		q.expect(t, "ns/b: ns/c updated") // the key of the state before the change
		logged("change=updated")
		server.Delete(key("c"))
		q.expect(t)
		logged("change=deleted")
		server.Put(dynamicConfigMap("d", map[string]any{"to": "a"}))
		q.expect(t, "ns/a: ns/d added") // other objects are not affected
		logged("")
	})
}

func TestMappedOverUnstructuredObjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := dynamicServer()
		server.Put(dynamicConfigMap("c", map[string]any{"to": "a"}))
		q, stop := start(t, source.Mapped(newInformer(t, server), func(obj *unstructured.Unstructured) []kube.Key {
			to, _, _ := unstructured.NestedString(obj.Object, "data", "to")
			return []kube.Key{key(to)}
		}))
		defer stop()
		q.expect(t, "ns/a: ns/c listed")
	})
}

func TestMappedOverMetadata(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer(labeled("c", map[string]string{"to": "a"}))
		view, err := informer.As[*metav1.PartialObjectMetadata](newInformer(t, server))
		if err != nil {
			t.Fatal(err)
		}
		q, stop := start(t, source.Mapped(view, func(obj *metav1.PartialObjectMetadata) []kube.Key {
			return []kube.Key{key(obj.Labels["to"])}
		}))
		defer stop()
		q.expect(t, "ns/a: ns/c listed")
	})
}

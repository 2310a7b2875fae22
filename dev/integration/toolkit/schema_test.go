package toolkit

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/dev/integration/internal/fixture"
	"github.com/evenkeel-go/evenkeel/internal/apitest/requestlog"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/owned/watched"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// shelves is a kind with lists and maps that are either merged or atomic.
const shelves = `
type: object
properties:
  spec:
    type: object
    properties:
      items:
        type: array
        LIST
        items:
          type: object
          required: [name]
          properties: {name: {type: string}, port: {type: integer, default: 0}, weight: {type: integer}}
      sizes:
        type: object
        MAP
        additionalProperties: {type: integer}
`

// The schema of a child's kind changes, with the program running or stopped. Later changes by another client are
// detected, and without them no request is made.
func TestDriftIsDetectedAfterSchemaChange(t *testing.T) {
	t.Parallel()
	config := anyCluster.RESTConfig(t, simulation.Config{WithoutControllers: true})
	plain := clustertest.Client(t, clustertest.Connect(t, config))
	for name, change := range map[string][2][]string{
		"Joining":   {{"name"}, nil},
		"Splitting": {nil, {"name"}},
		"Rekeying":  {{"name"}, {"name", "port"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind := schema.GroupVersionKind{Group: "schema.example.com", Version: "v1", Kind: name}
			namespace := clustertest.Namespace(t, plain)
			define(t, plain, kind, namespace, change[0])
			owner, err := client.Create(t.Context(), plain, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "owner"}})
			if err != nil {
				t.Fatal(err)
			}
			child := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
				"items": []any{map[string]any{"name": "a", "weight": int64(1)}, map[string]any{"name": "b", "weight": int64(2)}},
				"sizes": map[string]any{"small": int64(1), "large": int64(2)},
			}}}
			child.SetGroupVersionKind(kind)
			child.SetName("child")
			start := func() (*owned.Set, *requestlog.Recording) {
				return startSet(t, config, "schema", func(cluster *kube.Cluster) []watched.Kind {
					return []watched.Kind{objectsOf(cluster, kind, "schema")}
				})
			}
			running, runningRequests := start()
			apply := func(what string, set *owned.Set, want owned.ChildOutcome) {
				t.Helper()
				report, err := set.Apply(t.Context(), owner, owned.Of(child)...)
				if err != nil || report.Results[0].Outcome != want {
					t.Errorf("%s: %s, %v, want %s", what, report.Results[0].Outcome, err, want)
				}
			}
			apply("at first", running, owned.Created)
			define(t, plain, kind, namespace, change[1])
			runningRequests.Reset()
			restarted, requests := start()
			apply("after the change", restarted, owned.Unchanged)
			if all := requests.Requests(); len(all) > 0 {
				t.Errorf("a restart makes requests: %v", all)
			}
			for _, patch := range []string{
				`[{"op":"replace","path":"/spec/items/0/weight","value":9}]`, `[{"op":"replace","path":"/spec/sizes/small","value":9}]`,
				`[{"op":"remove","path":"/spec/items/1"}]`, `[{"op":"remove","path":"/spec/sizes/large"}]`,
			} {
				live, err := client.Get[*unstructured.Unstructured](t.Context(), plain, kube.Key{Namespace: namespace, Name: "child"}, client.OfKind(kind))
				if err == nil {
					live, err = client.Patch(t.Context(), plain, live, client.RawPatch(types.JSONPatchType, []byte(patch)), client.FieldOwner("user"))
				}
				if err != nil {
					t.Fatal(err)
				}
				restarted, _ = start()
				apply("after "+patch, restarted, owned.Updated)
				restarted, _ = start()
				apply("again after "+patch, restarted, owned.Unchanged)
				now, err := client.Get[*unstructured.Unstructured](t.Context(), plain, kube.KeyOf(live), client.OfKind(kind))
				if got := strings.ReplaceAll(fmt.Sprint(now.Object["spec"]), " port:0", ""); err != nil || got != fmt.Sprint(child.Object["spec"]) {
					t.Errorf("after %s: %s, %v", patch, got, err)
				}
			}
		})
	}
}

// define installs a kind, and waits until the API server identifies the elements of its list by keys. Without keys, the
// list and the map are atomic.
func define(t *testing.T, c *client.Client, kind schema.GroupVersionKind, namespace string, keys []string) {
	t.Helper()
	list, mapType := "x-kubernetes-list-type: atomic", "x-kubernetes-map-type: atomic"
	if len(keys) > 0 {
		list = "x-kubernetes-list-type: map\n        x-kubernetes-list-map-keys: [" + strings.Join(keys, ", ") + "]"
		mapType = "x-kubernetes-map-type: granular"
	}
	text := strings.NewReplacer("LIST", list, "MAP", mapType).Replace(shelves)
	definition := fixture.Kind{GroupVersionKind: kind, Schema: text}.Definition()
	if _, err := client.Apply(t.Context(), c, definition); err != nil {
		t.Fatal(err)
	}
	twice := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"items": []any{map[string]any{"name": "a", "port": int64(1)}, map[string]any{"name": "a", "port": int64(2)}},
	}}}
	twice.SetGroupVersionKind(kind)
	twice.SetNamespace(namespace)
	twice.SetName("twice")
	clustertest.Eventually(t, func() string {
		if _, err := client.All[*unstructured.Unstructured](t.Context(), c, kube.Selection{Kind: kind}); err != nil {
			return err.Error()
		}
		_, err := client.Create(t.Context(), c, twice, client.DryRun())
		if refused := err != nil; refused != (len(keys) == 1) {
			return fmt.Sprint("the schema is not in force yet: ", err)
		}
		return ""
	})
}

package simulation_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// A zero value that the Go type of a child omits from JSON is not applied: Paused: false does not undo a pause. An
// unstructured child has all of its fields, and does.
func TestZeroValueOfTypedChildIsNotApplied(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		c.Apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: owner}}`)
		operator, err := client.New(client.Config{Cluster: c.Connect("operator"), FieldOwner: "operator"})
		if err != nil {
			t.Fatal(err)
		}
		kind := appsv1.SchemeGroupVersion.WithKind("Deployment")
		set, err := owned.New(owned.Config{Client: operator, Name: "web", Kinds: []schema.GroupVersionKind{kind}})
		if err != nil {
			t.Fatal(err)
		}
		owner := simulation.Get[*corev1.ConfigMap](c, "default/owner")
		apply := func(child kube.Object) (owned.ChildOutcome, bool) {
			t.Helper()
			report, err := set.Apply(t.Context(), owner, owned.Of(child)...)
			if err != nil {
				t.Fatal(err)
			}
			return report.Results[0].Outcome, simulation.Get[*appsv1.Deployment](c, "default/web").Spec.Paused
		}
		typed := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec: appsv1.DeploymentSpec{
				Replicas: new(int32(0)), Paused: false,
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
				},
			},
		}
		if outcome, paused := apply(typed); outcome != owned.Created || paused {
			t.Fatalf("%s, paused %t", outcome, paused)
		}
		user, err := client.New(client.Config{Cluster: c.Connect("kubectl"), FieldOwner: "kubectl"})
		if err != nil {
			t.Fatal(err)
		}
		pause := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"paused":true}}`))
		if _, err := client.Patch(t.Context(), user, simulation.Get[*appsv1.Deployment](c, "default/web"), pause); err != nil {
			t.Fatal(err)
		}
		if outcome, paused := apply(typed); outcome != owned.Unchanged || !paused {
			t.Errorf("the typed child: %s, paused %t, want unchanged and paused", outcome, paused)
		}
		untyped := &unstructured.Unstructured{Object: map[string]any{
			"spec": map[string]any{
				"replicas": int64(0), "paused": false,
				"selector": map[string]any{"matchLabels": map[string]any{"app": "web"}},
				"template": map[string]any{
					"metadata": map[string]any{"labels": map[string]any{"app": "web"}},
					"spec":     map[string]any{"containers": []any{map[string]any{"name": "web", "image": "web"}}},
				},
			},
		}}
		untyped.SetGroupVersionKind(kind)
		untyped.SetNamespace("default")
		untyped.SetName("web")
		if outcome, paused := apply(untyped); outcome != owned.Updated || paused {
			t.Errorf("the unstructured child: %s, paused %t, want updated and not paused", outcome, paused)
		}
	})
}

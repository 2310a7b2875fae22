package client

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
)

// TestDeleteMatching: objects of two namespaces are deleted by label and function, in the state that the function has
// accepted, and finalizers stay.
func TestDeleteMatching(t *testing.T) {
	t.Parallel()
	c, first := newClient(t)
	second := clustertest.Namespace(t, c)
	label := map[string]string{"copy-of": first}
	for _, namespace := range []string{first, second} {
		for _, name := range []string{"a", "b", "held"} {
			obj := configMap(namespace, name, nil)
			obj.Labels = label
			if name == "held" {
				obj.Finalizers = []string{"client.example.com/hold"}
			}
			must(client.Create(t.Context(), c, obj))(t)
		}
		must(client.Create(t.Context(), c, configMap(namespace, "other", nil)))(t)
	}
	t.Cleanup(func() {
		for _, namespace := range []string{first, second} {
			held := configMap(namespace, "held", nil)
			if _, err := client.Patch(context.WithoutCancel(t.Context()), c, held, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
				t.Error(err)
			}
		}
	})
	changed := false
	match := func(live *corev1.ConfigMap) (bool, error) {
		if live.Name == "a" && live.Namespace == second && !changed { // another client needs it again
			changed = true
			if _, _, err := client.SetAnnotations(t.Context(), c, live, map[string]string{"needed": "yes"}); err != nil {
				return false, err
			}
		}
		return live.Annotations["needed"] == "" && live.Name != "b", nil
	}
	selected := client.WithLabels(label)
	run := func(options ...client.DeleteAllOfOption) (keys []string) {
		t.Helper()
		for _, obj := range must(client.DeleteMatching(t.Context(), c, match, append(options, selected)...))(t) {
			keys = append(keys, kube.KeyOf(obj).String())
		}
		return keys
	}
	if diff := cmp.Diff([]string{first + "/a", first + "/held"}, run(client.DryRun(), client.InNamespace(first))); diff != "" {
		t.Errorf("a dry run (-want +got):\n%s", diff)
	}
	want := []string{first + "/a", first + "/held", second + "/held"}
	if first > second {
		want = []string{second + "/held", first + "/a", first + "/held"}
	}
	if diff := cmp.Diff(want, run(client.AllNamespaces())); diff != "" {
		t.Errorf("deleted (-want +got):\n%s", diff)
	}
	if repeated := run(client.AllNamespaces()); repeated != nil {
		t.Errorf("deleted again: %q", repeated)
	}
	for _, namespace := range []string{first, second} {
		held := must(client.Get[*corev1.ConfigMap](t.Context(), c, kube.Key{Namespace: namespace, Name: "held"}))(t)
		if held.DeletionTimestamp == nil || len(held.Finalizers) != 1 {
			t.Errorf("%s: it is %+v", namespace, held.ObjectMeta)
		}
	}
	left := must(client.Keys[*corev1.ConfigMap](t.Context(), c, client.InNamespace(second), selected))(t)
	if len(left) != 3 {
		t.Errorf("in the second namespace are left: %v", left)
	}
}

package client

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

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
			if _, _, err := client.EditMetadata(t.Context(), c, live, func(_, annotations map[string]string) { annotations["needed"] = "yes" }); err != nil {
				return false, err
			}
		}
		return live.Annotations["needed"] == "" && live.Name != "b", nil
	}
	selector := labels.Set(label).String()
	run := func(namespace string, options ...client.DeleteOption) (keys []string) {
		t.Helper()
		selection := kube.Selection{Namespaces: []string{namespace}, LabelSelector: selector}
		for _, obj := range must(client.DeleteMatching(t.Context(), c, selection, match, options...))(t) {
			keys = append(keys, kube.KeyOf(obj).String())
		}
		return keys
	}
	if diff := cmp.Diff([]string{first + "/a", first + "/held"}, run(first, client.DryRun())); diff != "" {
		t.Errorf("a dry run (-want +got):\n%s", diff)
	}
	want := []string{first + "/a", first + "/held", second + "/held"}
	if first > second {
		want = []string{second + "/held", first + "/a", first + "/held"}
	}
	if diff := cmp.Diff(want, run(kube.AllNamespaces)); diff != "" {
		t.Errorf("deleted (-want +got):\n%s", diff)
	}
	if repeated := run(kube.AllNamespaces); repeated != nil {
		t.Errorf("deleted again: %q", repeated)
	}
	for _, namespace := range []string{first, second} {
		held := must(client.Get[*corev1.ConfigMap](t.Context(), c, kube.Key{Namespace: namespace, Name: "held"}))(t)
		if held.DeletionTimestamp == nil || len(held.Finalizers) != 1 {
			t.Errorf("%s: it is %+v", namespace, held.ObjectMeta)
		}
	}
	left := must(client.Keys[*corev1.ConfigMap](t.Context(), c, kube.Selection{Namespaces: []string{second}, LabelSelector: selector}))(t)
	if len(left) != 3 {
		t.Errorf("in the second namespace are left: %v", left)
	}
}

package client

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Secret that was written by kubectl apply contains the data twice, once in an annotation. LeftFields must show
// neither, whether or not other managers own neighbouring fields.
func TestLeftFieldsOfSecretHideLastAppliedConfiguration(t *testing.T) {
	t.Parallel()
	for name, entries := range map[string]string{
		"nothing":     `{}`,
		"labels":      `{"f:metadata":{"f:labels":{"f:a":{}}}}`,
		"annotations": `{"f:metadata":{"f:annotations":{"f:a":{}}}}`,
		"data":        `{"f:data":{"f:b":{}}}`,
	} {
		const annotation = "kubectl.kubernetes.io/last-applied-configuration"
		fields := contentFromJSON(t, `{"f:metadata":{"f:annotations":{".":{},"f:`+annotation+`":{}}},"f:data":{".":{},"f:a":{}}}`)
		content := contentFromJSON(t, `{"metadata":{"name":"keys","annotations":{"`+annotation+`":"{\"data\":{\"a\":\"c2VzYW1l\"}}"}},"data":{"a":"c2VzYW1l"}}`)
		d := stripper{differ: differ{hides: hides(nil, &corev1.Secret{})}}
		stripped := d.strip(nil, fields, []map[string]any{contentFromJSON(t, entries)}, content)
		if metadata, _ := stripped.(map[string]any)["metadata"].(map[string]any); metadata["name"] != "keys" {
			t.Errorf("another manager has %s: the rest of the metadata is gone: %v", name, stripped)
		}
		encoded, err := json.Marshal(d.changes)
		if err != nil || len(d.changes) != 2 || strings.Contains(string(encoded), "c2VzYW1l") {
			t.Errorf("another manager has %s: %s, %v", name, encoded, err)
		}
	}
}

// The paths of left fields have the notation of Diff, with the names and indexes of the whole lists.
func TestLeftFieldsHavePathsOfWholeObject(t *testing.T) {
	t.Parallel()
	const object = `{"spec":{"containers":[{"name":"log"},{"name":"web","args":["a","b"]}],"ports":[{"port":1},{"port":2},{"port":3}]}}`
	fields := contentFromJSON(t, `{"f:spec":{"f:containers":{"k:{\"name\":\"log\"}":{".":{}},"k:{\"name\":\"web\"}":{"f:args":{}}},
		"f:ports":{"k:{\"port\":1}":{".":{}},"k:{\"port\":3}":{".":{}}}}}`)
	d := stripper{differ{hides: func(string) bool { return false }}, contentFromJSON(t, object)}
	d.strip(nil, fields, nil, contentFromJSON(t, object))
	var got []string
	for _, change := range d.sorted() {
		got = append(got, change.Path)
	}
	want := []string{"spec.containers[log]", "spec.containers[web].args", "spec.ports[0]", "spec.ports[2]"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TakeOver takes the fields of one version of the kind: that of the field owner's own applies, otherwise that of the
// object, otherwise the latest version that a former manager has written.
func TestTakeOverChoosesOneVersion(t *testing.T) {
	t.Parallel()
	entry := func(manager, version, subresource string, operation metav1.ManagedFieldsOperationType) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, APIVersion: version, Subresource: subresource, Operation: operation}
	}
	const update, apply = metav1.ManagedFieldsOperationUpdate, metav1.ManagedFieldsOperationApply
	for name, test := range map[string]struct {
		entries []metav1.ManagedFieldsEntry // the oldest first
		want    int                         // index of the new applier's entry; -1: none
	}{
		"the only one":               {[]metav1.ManagedFieldsEntry{entry("old", "v1", "", update)}, 0},
		"the object's version first": {[]metav1.ManagedFieldsEntry{entry("old", "v2", "", update), entry("old", "v1", "", update)}, 0},
		"the object's version last":  {[]metav1.ManagedFieldsEntry{entry("old", "v1", "", update), entry("older", "v2", "", update)}, 1},
		"two of the object's version": {
			[]metav1.ManagedFieldsEntry{entry("old", "v2", "", update), entry("older", "v2", "", update), entry("old", "v1", "", update)}, 1,
		},
		"other versions only": {[]metav1.ManagedFieldsEntry{entry("old", "v0", "", update), entry("older", "v1", "", update)}, 1},
		"after another manager, the status and an apply": {[]metav1.ManagedFieldsEntry{
			entry("kubectl", "v2", "", update), entry("old", "v2", "status", update), entry("old", "v2", "", apply), entry("old", "v1", "", update),
		}, 3},
		"the field owner applies the status": {[]metav1.ManagedFieldsEntry{entry("me", "v2", "status", apply), entry("old", "v1", "", update)}, 1},
		"the field owner applies":            {[]metav1.ManagedFieldsEntry{entry("old", "v2", "", update), entry("me", "v1", "", apply)}, -1},
		"no former manager":                  {[]metav1.ManagedFieldsEntry{entry("kubectl", "v2", "", update)}, -1},
	} {
		want := slices.Clone(test.entries)
		if test.want >= 0 {
			want[test.want].Manager, want[test.want].Operation = "me", apply
		}
		makeApplier(test.entries, []string{"old", "older"}, "me", "v2")
		if diff := cmp.Diff(want, test.entries); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

package applyschema

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

func TestTypes(t *testing.T) {
	t.Parallel()
	parser := typed.Parser{Schema: smd.Schema{Types: Types("core.v1.Pod", "events.v1.Event", "example.v1.Widget")}}
	pod := parser.Type(Name(corev1.SchemeGroupVersion.WithKind("Pod")))
	_, err := pod.FromYAML("{metadata: {name: web}, spec: {containers: [{name: a}, {name: b}]}}")
	if err != nil {
		t.Errorf("a Pod: %v", err)
	}
	if _, err := pod.FromYAML("{spec: {containers: [{name: a}, {name: a}]}}"); err == nil || !strings.Contains(err.Error(), "duplicate entries") {
		t.Errorf("a Pod with two containers of one name: %v, expected an error", err)
	}
	if event := parser.Type(Name(eventsv1.SchemeGroupVersion.WithKind("Event"))); !event.IsValid() {
		t.Error("no type of the kind Event in events.k8s.io")
	}
	if other := parser.Type(Name(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"})); other.IsValid() {
		t.Error("a custom resource has a type")
	}
}

func TestTypesContainsReferencedTypes(t *testing.T) {
	t.Parallel()
	types := Types("core.v1.ConfigMap")
	names := make([]string, 0, len(types))
	for _, t := range types {
		names = append(names, t.Name)
	}
	const expected = "core.v1.ConfigMap meta.v1.ObjectMeta meta.v1.Time meta.v1.ManagedFieldsEntry meta.v1.FieldsV1 atomic deduced meta.v1.OwnerReference"
	if got := strings.Join(names, " "); got != expected {
		t.Errorf("types:\n%s\nexpected\n%s", got, expected)
	}
}

func BenchmarkTypes(b *testing.B) {
	for name, types := range map[string][]string{
		"ConfigMap": {"core.v1.ConfigMap"},
		"all": {
			"core.v1.Pod", "apps.v1.Deployment", "apps.v1.ReplicaSet", "apps.v1.StatefulSet", "apps.v1.DaemonSet", "batch.v1.Job", "core.v1.Service",
			"core.v1.Event", "events.v1.Event", "core.v1.ConfigMap", "core.v1.Secret", "core.v1.Namespace", "coordination.v1.Lease",
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Types(types...)
			}
		})
	}
}

package difference

import (
	"encoding/json"
	"reflect"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// TestContentExcept compares ContentExcept with Content, from which the same fields are removed.
func TestContentExcept(t *testing.T) {
	t.Parallel()
	typed := &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: "web", UID: types.UID("1"), ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "me"}}},
		Spec: appsv1.DeploymentSpec{Replicas: new(int32(3)), Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a\"\u00e9", Image: "b"}}},
		}},
		Status: appsv1.DeploymentStatus{Replicas: 2},
	}
	text := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "web"}, "spec": "text", "status": nil, "data": []any{1.5, int64(9007199254740993)}}}
	for name, leftOut := range map[string]func(field, inner string) bool{
		"nothing":        func(_, _ string) bool { return false },
		"managedFields":  func(field, inner string) bool { return field == "metadata" && inner == "managedFields" },
		"all but status": func(field, inner string) bool { return field != "status" || inner != "" },
		"template and metadata": func(field, inner string) bool {
			return field == "metadata" && inner == "" || field == "spec" && inner == "template"
		},
	} {
		for _, obj := range []any{typed, text, &corev1.ConfigMap{}, &unstructured.Unstructured{}} {
			want, err := Content(obj)
			if err != nil {
				t.Fatal(err)
			}
			for field, value := range want {
				if leftOut(field, "") {
					delete(want, field)
					continue
				}
				if inner, ok := value.(map[string]any); ok && (field == "metadata" || field == "spec") {
					for name := range inner { // of other fields none is left out
						if leftOut(field, name) {
							delete(inner, name)
						}
					}
				}
			}
			got, err := ContentExcept(obj, leftOut)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s of a %T: %v, %v; want %v", name, obj, got, err, want)
			}
		}
	}
	if got, err := ContentExcept((*corev1.ConfigMap)(nil), func(_, _ string) bool { return false }); got != nil || err != nil {
		t.Errorf("null: %v, %v", got, err)
	}
	for _, encoded := range []string{`[]`, `{"a":tru}`, `{"spec":{"a":1e999}}`, `{"spec":{"a":1}`, `{"a":1e999,"b":1}`, `{"metadata":{"a":1e999,"b":1},"b":1}`} {
		if got, err := ContentExcept(json.RawMessage(encoded), func(_, _ string) bool { return false }); err == nil {
			t.Errorf("%s: %v", encoded, got)
		}
	}
}

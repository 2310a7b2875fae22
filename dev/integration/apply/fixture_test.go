package apply

import (
	"encoding/json"
	"iter"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/kube"
)

// frozen is an informer of ConfigMaps that shows nothing, or the one object that the test has set.
type frozen struct {
	cache.Informer
	object        *corev1.ConfigMap
	showsManagers bool
}

func (*frozen) ReadsFrom(string) bool { return true }
func (f *frozen) Name() string        { return "frozen" }

func (f *frozen) Kind() schema.GroupVersionKind {
	return corev1.SchemeGroupVersion.WithKind("ConfigMap")
}

func (f *frozen) NewObject() (kube.Object, bool) { return &corev1.ConfigMap{}, true }

func (f *frozen) Covers(string, labels.Selector) bool { return true }

func (f *frozen) Metadata() cache.Reader { return f }

func (f *frozen) Object(kube.Key) (kube.Object, *metav1.ManagedFieldsEntry, bool, error) {
	if f.object == nil {
		return nil, nil, false, nil
	}
	shown := f.object.DeepCopy()
	if !f.showsManagers {
		shown.ManagedFields = nil
	}
	return shown, nil, true, nil
}

func (f *frozen) Objects(string, labels.Selector) iter.Seq2[kube.Object, error] {
	return func(func(kube.Object, error) bool) {}
}

func toUnstructured(t *testing.T, obj kube.Object) *unstructured.Unstructured {
	t.Helper()
	encoded := must(json.Marshal(obj))(t)
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(encoded, &u.Object); err != nil {
		t.Fatal(err)
	}
	unstructured.RemoveNestedField(u.Object, "spec", "strategy") // {}, which would be applied as an empty field
	u.SetAPIVersion("apps/v1")
	u.SetKind("Deployment")
	return u
}

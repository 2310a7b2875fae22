package status_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/status"
)

// notedShop is a Shop with an unexported field.
type notedShop struct {
	Shop `json:",inline"`
	seen metav1.Time
}

// DeepCopyObject implements runtime.Object.
func (s *notedShop) DeepCopyObject() runtime.Object {
	return &notedShop{Shop: *s.copy(), seen: s.seen}
}

// TestUnexportedFieldsInStatus checks that unexported fields are not part of the object, whatever methods their types
// have.
func TestUnexportedFieldsInStatus(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before, err := client.Get[*notedShop](t.Context(), w.client, shopKey(), client.OfKind(shopVersion().WithKind("Shop")))
	if err != nil {
		t.Fatal(err)
	}
	before.seen = metav1.Now()
	after := before.DeepCopyObject().(*notedShop)
	after.Status.Replicas = 3
	if changed, err := status.Commit(t.Context(), w.client, before, after); err != nil || !changed {
		t.Errorf("changed: %t, %v", changed, err)
	}
	after.SetResourceVersion("")
	live, err := client.GetLive(t.Context(), w.client, after)
	if err != nil || live.Status.Replicas != 3 {
		t.Errorf("the status is %+v, %v", live, err)
	}
}

package wire

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// An encoded object passes through a Decoder and an Encoder unchanged, and is decoded as its own type later.
func TestEncodedObjectIsDecodedLater(t *testing.T) {
	t.Parallel()
	kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "a", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}},
		Data:       map[string]string{"color": "red"},
	}
	cut, err := NewCut(reflect.TypeFor[*EncodedObject](), ManagedFields)
	if err != nil {
		t.Fatal(err)
	}
	o, err := FromObject(cm, cut)
	if err != nil {
		t.Fatal(err)
	}
	decoder, err := NewDecoder[*EncodedObject](kind)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := decoder.Decode(o)
	if err != nil {
		t.Fatal(err)
	}
	clear(o.Bytes) // the buffer is reused
	again, err := NewEncoder[*EncodedObject](nil).Encode(encoded)
	if err != nil {
		t.Fatal(err)
	}
	obj, err := NewDecoderInto(kind, &corev1.ConfigMap{}).Decode(again)
	if err != nil {
		t.Fatal(err)
	}
	decoded, ok := obj.(*corev1.ConfigMap)
	if !ok || again.Format != Protobuf || decoded.Name != "a" || decoded.Data["color"] != "red" || decoded.ManagedFields != nil {
		t.Errorf("decoded %v from %s", obj, again.Format)
	}
}

// Protobuf has no names of fields, so only the metadata of encoded objects can be cut.
func TestCutOfEncodedObject(t *testing.T) {
	t.Parallel()
	cut, err := NewCut(reflect.TypeFor[*EncodedObject](), "data.color")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := FromObject(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, cut); err == nil {
		t.Error("no error for a cut of a field of protobuf")
	}
}

package wire

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Database is a typical custom resource, without protobuf.
type Database struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              map[string]any `json:"spec,omitempty"`
}

func (d *Database) DeepCopyObject() runtime.Object { c := *d; return &c }

// promotedMeta inherits Marshal and Unmarshal of its ObjectMeta, which do not encode the whole object.
type promotedMeta struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              string `json:"spec,omitempty"`
}

func (*promotedMeta) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }
func (p *promotedMeta) DeepCopyObject() runtime.Object { c := *p; return &c }

// promotedPod inherits those of a Pod.
type promotedPod struct {
	corev1.Pod `json:",inline"`
	Extra      string `json:"extra,omitempty"`
}

// promotedPointer inherits those of a Pod that may be nil.
type promotedPointer struct {
	*metav1.PartialObjectMetadata
	Extra string
}

func decodeAs[T kube.Object](t *testing.T, kind schema.GroupVersionKind, o *Object) T {
	t.Helper()
	d, err := NewDecoder[T](kind)
	if err != nil {
		t.Fatal(err)
	}
	obj, err := d.Decode(o)
	if err != nil {
		t.Fatal(err)
	}
	scribble(o.Bytes)
	return obj
}

func TestDecodeTyped(t *testing.T) {
	t.Parallel()
	for name, data := range map[string][]byte{"protobuf": asProto(t, realSecret(), secretKind), "JSON": asJSON(t, realSecret(), secretKind)} {
		got := decodeAs[*corev1.Secret](t, secretKind, mustParse(t, data, nil))
		if want := realSecret(); !equality.Semantic.DeepEqual(want, got) {
			t.Errorf("%s (-want +got):\n%s", name, cmp.Diff(want, got))
		}
	}
	db := decodeAs[*Database](t, crKind, mustParse(t, realCRJSON(), nil))
	if db.Name != "orders" || db.Kind != "" || db.Spec["replicas"] != int64(3) || db.Spec["ratio"] != 0.75 {
		t.Errorf("a custom resource is %+v", db)
	}
}

func TestDecodeUnstructured(t *testing.T) {
	t.Parallel()
	want := realCR(t)
	got := decodeAs[*unstructured.Unstructured](t, crKind, mustParse(t, realCRJSON(), nil))
	if diff := cmp.Diff(want.Object, got.Object); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	item := decodeAs[*unstructured.Unstructured](t, crKind, mustParse(t, []byte(`{"metadata":{"name":"a"}}`), nil))
	if item.GroupVersionKind() != crKind {
		t.Errorf("an item without a kind is a %s", item.GroupVersionKind())
	}
}

func TestDecodeUnstructuredFromProtobuf(t *testing.T) {
	t.Parallel()
	pod := realPod()
	o := mustParse(t, asProto(t, pod, podKind), nil)
	d, err := NewDecoder[*unstructured.Unstructured](podKind)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Decode(o); err == nil || !strings.Contains(err.Error(), "NewDecoderVia") {
		t.Errorf("without a twin: %v", err)
	}
	d, err = NewDecoderVia[*unstructured.Unstructured](podKind, func() kube.Object { return &corev1.Pod{} })
	if err != nil {
		t.Fatal(err)
	}
	got, err := d.Decode(o)
	if err != nil {
		t.Fatal(err)
	}
	want := decodeAs[*unstructured.Unstructured](t, podKind, mustParse(t, asJSON(t, pod, podKind), nil))
	if diff := cmp.Diff(want.Object, got.Object); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	d, err = NewDecoderVia[*unstructured.Unstructured](podKind, func() kube.Object { return &Database{} })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Decode(o); err == nil {
		t.Error("a twin without protobuf decodes protobuf")
	}
}

func TestDecodeOnlyMetadata(t *testing.T) {
	t.Parallel()
	want := &metav1.PartialObjectMetadata{ObjectMeta: realPod().ObjectMeta}
	want.SetGroupVersionKind(podKind)
	for name, data := range map[string][]byte{"protobuf": asProto(t, realPod(), podKind), "JSON": asJSON(t, realPod(), podKind)} {
		got := decodeAs[*metav1.PartialObjectMetadata](t, podKind, mustParse(t, data, nil))
		if !equality.Semantic.DeepEqual(want, got) {
			t.Errorf("%s (-want +got):\n%s", name, cmp.Diff(want, got))
		}
	}
}

// With an empty kind, the TypeMeta of objects is not changed.
func TestDecodeWithoutKind(t *testing.T) {
	t.Parallel()
	var none schema.GroupVersionKind
	data := `{"metadata":{"name":"a"}}`
	if got := decodeAs[*unstructured.Unstructured](t, none, mustParse(t, []byte(data), nil)); len(got.Object) != 1 {
		t.Errorf("unstructured: %v", got.Object)
	}
	if got := decodeAs[*unstructured.Unstructured](t, none, mustParse(t, realCRJSON(), nil)); got.GroupVersionKind() != crKind {
		t.Errorf("unstructured: %v", got.GroupVersionKind())
	}
	if got := decodeAs[*metav1.PartialObjectMetadata](t, none, mustParse(t, realCRJSON(), nil)); got.GroupVersionKind() != crKind {
		t.Errorf("only metadata: %v", got.GroupVersionKind())
	}
	d, err := NewDecoderVia[*unstructured.Unstructured](none, func() kube.Object { return &corev1.Pod{} })
	if err != nil {
		t.Fatal(err)
	}
	got, err := d.Decode(mustParse(t, asProto(t, realPod(), podKind), nil))
	if err != nil || !got.GroupVersionKind().Empty() || got.GetName() != realPod().Name {
		t.Errorf("by way of a Pod: %v, %v", got, err)
	}
}

func TestDecodeErrors(t *testing.T) {
	t.Parallel()
	if _, err := NewDecoder[*corev1.Pod](schema.GroupVersionKind{Kind: "Pod"}); err == nil {
		t.Error("NewDecoder accepted a kind without a version")
	}
	if _, err := NewDecoder[kube.Object](podKind); err == nil {
		t.Error("NewDecoder accepted an interface")
	}
	pods, err := NewDecoder[*corev1.Pod](podKind)
	if err != nil {
		t.Fatal(err)
	}
	databases, err := NewDecoder[*Database](crKind)
	if err != nil {
		t.Fatal(err)
	}
	loose, err := NewDecoder[*unstructured.Unstructured](crKind)
	if err != nil {
		t.Fatal(err)
	}
	meta, err := NewDecoder[*metav1.PartialObjectMetadata](crKind)
	if err != nil {
		t.Fatal(err)
	}
	bad := &Object{Format: JSON, Bytes: []byte(`{"metadata":{"labels":5},"n":1e999}`), Key: kube.Key{Namespace: "a", Name: "b"}}
	for name, err := range map[string]error{
		"decode a/b from JSON as *v1.Pod":       second(pods.Decode(bad)),
		"decode a/b from JSON as *unstructured": second(loose.Decode(bad)),
		"labels":                                second(meta.Decode(bad)),
		"unknown format":                        second(pods.Decode(&Object{})),
		"has no protobuf encoding":              second(databases.Decode(&Object{Format: Protobuf})),
		"from protobuf as *v1.Pod: unexpec":     second(pods.Decode(&Object{Format: Protobuf, Bytes: []byte{0x0a}})),
	} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v, want %s", err, name)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestSupportsProtobuf(t *testing.T) {
	t.Parallel()
	got := map[string]bool{
		"pod":              SupportsProtobuf[*corev1.Pod](),
		"metadata":         SupportsProtobuf[*metav1.PartialObjectMetadata](),
		"unstructured":     SupportsProtobuf[*unstructured.Unstructured](),
		"custom":           SupportsProtobuf[*Database](),
		"promoted meta":    SupportsProtobuf[*promotedMeta](),
		"promoted pod":     SupportsProtobuf[*promotedPod](),
		"promoted pointer": SupportsProtobuf[*promotedPointer](),
		"interface":        SupportsProtobuf[kube.Object](),
	}
	want := map[string]bool{
		"pod": true, "metadata": true, "unstructured": false, "custom": false, "promoted meta": false, "promoted pod": false,
		"promoted pointer": false, "interface": false,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestFromObject(t *testing.T) {
	t.Parallel()
	cut := mustCut(t, reflect.TypeFor[*corev1.Pod](), ManagedFields)
	pod := realPod()
	o, err := FromObject(pod, cut)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(realPod(), pod); diff != "" {
		t.Errorf("the argument has changed:\n%s", diff)
	}
	pod.ManagedFields = nil
	if got := decodeAs[*corev1.Pod](t, podKind, o); o.Format != Protobuf || !equality.Semantic.DeepEqual(pod, got) {
		t.Errorf("%s (-want +got):\n%s", o.Format, cmp.Diff(pod, got))
	}
	meta := &metav1.PartialObjectMetadata{ObjectMeta: pod.ObjectMeta}
	if o, err := FromObject(meta, nil); err != nil || o.Format != Protobuf || o.Key != kube.KeyOf(pod) {
		t.Errorf("only metadata: %+v, %v", o, err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "a"}, "x": int64(1)}}
	if o, err := FromObject(u, nil); err != nil || string(o.Bytes) != `{"metadata":{"name":"a"},"x":1}` {
		t.Errorf("unstructured without a kind: %+v, %v", o, err)
	}
	if o, err := FromObject(&unstructured.Unstructured{}, nil); err != nil || string(o.Bytes) != `{}` {
		t.Errorf("unstructured with nothing: %+v, %v", o, err)
	}
	db := &Database{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: map[string]any{"x": "y"}}
	if o, err := FromObject(db, nil); err != nil || o.Format != JSON || decodeAs[*Database](t, crKind, o).Spec["x"] != "y" {
		t.Errorf("a custom resource: %+v, %v", o, err)
	}
	db.Spec["x"] = func() {}
	u.Object["x"] = func() {}
	for _, obj := range []kube.Object{db, u, nil} {
		if _, err := FromObject(obj, nil); err == nil || !strings.Contains(err.Error(), "encode a ") {
			t.Errorf("object without encoding: %v", err)
		}
	}
}

// panicking is a type whose methods panic.
type panicking struct{ Database }

func (p *panicking) DeepCopyObject() runtime.Object { return p }

func (p *panicking) UnmarshalJSON([]byte) error { panic("cannot be decoded") }

func (p *panicking) MarshalJSON() ([]byte, error) { panic("cannot be encoded") }

func TestTypeWhoseMethodsPanic(t *testing.T) {
	t.Parallel()
	d, err := NewDecoder[*panicking](crKind)
	if err != nil {
		t.Fatal(err)
	}
	o := &Object{Format: JSON, Bytes: []byte(`{}`), Key: kube.Key{Namespace: "a", Name: "b"}}
	if _, err := d.Decode(o); err == nil || !strings.Contains(err.Error(), "decode a/b") || !strings.Contains(err.Error(), "cannot be decoded") {
		t.Errorf("decode: %v", err)
	}
	if _, err := FromObject(&panicking{}, nil); err == nil || !strings.Contains(err.Error(), "cannot be encoded") {
		t.Errorf("encode: %v", err)
	}
}

package wire

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/kube"
)

func appliedEntry(manager string, operation metav1.ManagedFieldsOperationType, subresource string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: operation, APIVersion: "v1", Time: new(fixtureTime),
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:of-` + manager + string(operation) + subresource + `":{}}}`), Subresource: subresource,
	}
}

func TestCutKeepsAppliedEntry(t *testing.T) {
	t.Parallel()
	const me = "me"
	apply, update := metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate
	own := appliedEntry(me, apply, "")
	for name, test := range map[string]struct {
		entries []metav1.ManagedFieldsEntry
		want    *metav1.ManagedFieldsEntry
	}{
		"no entries":        {},
		"the only entry":    {[]metav1.ManagedFieldsEntry{own}, &own},
		"the first entry":   {[]metav1.ManagedFieldsEntry{own, appliedEntry("other", apply, "")}, &own},
		"the last entry":    {[]metav1.ManagedFieldsEntry{appliedEntry("other", apply, ""), own}, &own},
		"between others":    {[]metav1.ManagedFieldsEntry{appliedEntry(me, update, ""), own, appliedEntry(me, apply, "status")}, &own},
		"another manager":   {[]metav1.ManagedFieldsEntry{appliedEntry("other", apply, "")}, nil},
		"another operation": {[]metav1.ManagedFieldsEntry{appliedEntry(me, update, "")}, nil},
		"of a subresource":  {[]metav1.ManagedFieldsEntry{appliedEntry(me, apply, "status")}, nil},
	} {
		pod := realPod()
		pod.ManagedFields = test.entries
		without := pod.DeepCopy()
		without.ManagedFields = nil
		check := func(data []byte, cut *Cut) {
			t.Helper()
			o := mustParse(t, data, cut)
			entry, found := o.AppliedFields()
			if found != (test.want != nil) || found && !equality.Semantic.DeepEqual(*test.want, entry) {
				t.Errorf("%s, %s: the entry is %v (found: %t), want %v", name, o.Format, entry, found, test.want)
			}
			if bytes.Contains(o.Bytes, []byte("of-other")) || bytes.Contains(o.Bytes, []byte("status\":{}}")) {
				t.Errorf("%s, %s: entries of other managers are kept", name, o.Format)
			}
			if len(o.Bytes) > len(data) {
				t.Errorf("%s, %s: %d bytes have become %d", name, o.Format, len(data), len(o.Bytes))
			}
			if o.Format == JSON && !json.Valid(o.Bytes) {
				t.Errorf("%s: invalid JSON: %s", name, o.Bytes)
			}
			checkMetadata(t, &without.ObjectMeta, o)
		}
		typed := mustCutExceptApplied(t, reflect.TypeFor[*corev1.Pod](), me)
		checkDecodes := func(data []byte) {
			t.Helper()
			check(data, typed)
			checkDecode(t, without, mustParse(t, data, typed))
		}
		checkDecodes(asProto(t, pod, podKind))
		checkDecodes(asJSON(t, pod, podKind))
		loose := mustCutExceptApplied(t, reflect.TypeFor[*unstructured.Unstructured](), me)
		data := asJSON(t, pod, podKind)
		check(data, loose)
		decoder, err := NewDecoder[*unstructured.Unstructured](podKind)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decoder.Decode(mustParse(t, data, loose))
		want := &unstructured.Unstructured{}
		if err := want.UnmarshalJSON(asJSON(t, without, podKind)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: the decoded object contains the entry (-want +got): %v\n%s", name, err, diff)
		}
		metadata, err := NewDecoder[*metav1.PartialObjectMetadata](podKind)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := metadata.Decode(mustParse(t, data, typed)); err != nil || len(got.ManagedFields) > 0 {
			t.Errorf("%s: decoded metadata has managedFields %v (%v)", name, got.ManagedFields, err)
		}
	}
}

// The kept entry replaces managedFields, between, before and after other members, some of which are cut.
func TestCutExceptAppliedLeavesValidJSON(t *testing.T) {
	t.Parallel()
	cut, err := NewCutExceptApplied(reflect.TypeFor[*unstructured.Unstructured](), "me", ManagedFields, "metadata.labels", "metadata.annotations")
	if err != nil {
		t.Fatal(err)
	}
	const own = `{"manager":"me","operation":"Apply"}`
	for data, want := range map[string]string{
		`{"metadata":{"managedFields":[` + own + `]}}`:                                  `{"metadata":{"-applied":` + own + `}}`,
		`{"metadata":{"x":1,"managedFields":[` + own + `]}}`:                            `{"metadata":{"x":1,"-applied":` + own + `}}`,
		`{"metadata":{"managedFields":[` + own + `],"x":1}}`:                            `{"metadata":{"-applied":` + own + `,"x":1}}`,
		`{"metadata":{"labels":1,"managedFields":[7, ` + own + ` ],"annotations":1}}`:   `{"metadata":{"-applied":` + own + `}}`,
		`{"metadata":{"labels":1,"managedFields":[` + own + `,null],"x":1}}`:            `{"metadata":{"-applied":` + own + `,"x":1}}`,
		`{"metadata":{"labels":1,"annotations":2, "managedFields":[],"x":1}}`:           `{"metadata":{"x":1}}`,
		`{"metadata":{"x":1,"labels":1,"managedFields":[` + own + `],"annotations":1}}`: `{"metadata":{"x":1,"-applied":` + own + `}}`,
		`{"metadata":{"managedFields":{"manager":"me"},"x":1}}`:                         `{"metadata":{"x":1}}`,
	} {
		o := mustParse(t, []byte(data), cut)
		if string(o.Bytes) != want || !json.Valid(o.Bytes) {
			t.Errorf("%s was cut to %s, want %s", data, o.Bytes, want)
		}
	}
}

// A change of the kept entry alone is not a change of the object.
func TestCompareIgnoresAppliedFields(t *testing.T) {
	t.Parallel()
	cut := mustCutExceptApplied(t, reflect.TypeFor[*corev1.Pod](), "me")
	a, b := realPod(), realPod()
	a.ManagedFields = []metav1.ManagedFieldsEntry{appliedEntry("me", metav1.ManagedFieldsOperationApply, "")}
	for _, format := range []func(*corev1.Pod) []byte{
		func(p *corev1.Pod) []byte { return asProto(t, p, podKind) }, func(p *corev1.Pod) []byte { return asJSON(t, p, podKind) },
	} {
		before, after := mustParse(t, format(a), cut), mustParse(t, format(b), cut)
		if changed := NewComparer(reflect.TypeFor[*corev1.Pod]()).Compare(before, after, metadataParts|contentParts|kube.ChangedGeneration); changed != 0 {
			t.Errorf("%s: %v", before.Format, changed)
		}
	}
}

func mustCutExceptApplied(t *testing.T, typ reflect.Type, manager string) *Cut {
	t.Helper()
	cut, err := NewCutExceptApplied(typ, manager, ManagedFields)
	if err != nil {
		t.Fatal(err)
	}
	return cut
}

package wire

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

func TestLastWriter(t *testing.T) {
	t.Parallel()
	at := func(seconds int) *metav1.Time {
		return new(metav1.NewTime(fixtureTime.Add(time.Duration(seconds) * time.Second)))
	}
	entry := func(manager, subresource string, time *metav1.Time) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: time,
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:time":{},"f:manager":{}}}`), Subresource: subresource,
		}
	}
	tests := map[string]struct {
		entries []metav1.ManagedFieldsEntry
		want    string
		tied    string
	}{
		"none":               {},
		"one":                {[]metav1.ManagedFieldsEntry{entry("a", "", at(0))}, "a", ""},
		"the last":           {[]metav1.ManagedFieldsEntry{entry("a", "", at(0)), entry("b", "", at(1))}, "b", ""},
		"the first":          {[]metav1.ManagedFieldsEntry{entry("a", "", at(2)), entry("b", "", at(1)), entry("c", "", at(0))}, "a", ""},
		"a subresource":      {[]metav1.ManagedFieldsEntry{entry("a", "", at(0)), entry("b", "status", at(3)), entry("c", "", at(1))}, "b", ""},
		"equal times":        {[]metav1.ManagedFieldsEntry{entry("a", "", at(0)), entry("b", "", at(0))}, "b", "a"},
		"three equal times":  {[]metav1.ManagedFieldsEntry{entry("a", "", at(0)), entry("b", "", at(0)), entry("c", "", at(0))}, "c", "b"},
		"equal before later": {[]metav1.ManagedFieldsEntry{entry("a", "", at(0)), entry("b", "", at(0)), entry("c", "", at(1))}, "c", ""},
		"one manager twice":  {[]metav1.ManagedFieldsEntry{entry("a", "", at(0)), entry("a", "status", at(0))}, "a", ""},
		"two, one twice":     {[]metav1.ManagedFieldsEntry{entry("b", "", at(0)), entry("a", "", at(0)), entry("a", "status", at(0))}, "a", "b"},
		"end of a month":     {[]metav1.ManagedFieldsEntry{entry("a", "", at(11*24*3600)), entry("b", "", at(10*24*3600))}, "a", ""},
		"no time":            {[]metav1.ManagedFieldsEntry{entry("a", "", nil)}, "a", ""},
		"one without a time": {[]metav1.ManagedFieldsEntry{entry("a", "", at(0)), entry("b", "", nil)}, "a", ""},
		"no name":            {[]metav1.ManagedFieldsEntry{entry("a", "", at(0)), entry("", "", at(1))}, "", ""},
		"unusual name":       {[]metav1.ManagedFieldsEntry{entry("caf\u00e9 \"x\"", "", at(0))}, "caf\u00e9 \"x\"", ""},
		"time before 1970":   {[]metav1.ManagedFieldsEntry{entry("a", "", at(0)), entry("b", "", new(metav1.NewTime(time.Unix(-1000, 0))))}, "a", ""},
	}
	cut := mustCut(t, reflect.TypeFor[*corev1.Pod](), ManagedFields)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := realPod()
			pod.ManagedFields = test.entries
			for format, data := range map[string][]byte{"protobuf": asProto(t, pod, podKind), "JSON": asJSON(t, pod, podKind)} {
				for kept, cut := range map[string]*Cut{"kept": nil, "cut": cut} {
					o := mustParse(t, data, cut)
					if o.Manager != test.want || o.TiedManager != test.tied {
						t.Errorf("%s, %s: the last writers are %q and %q, want %q and %q", format, kept, o.Manager, o.TiedManager, test.want, test.tied)
					}
					if has := bytes.Contains(o.Bytes, []byte("f:spec")); has != (cut == nil && len(test.entries) > 0) {
						t.Errorf("%s, %s: managedFields are in the bytes: %v", format, kept, has)
					}
				}
			}
			u := &unstructured.Unstructured{}
			if err := u.UnmarshalJSON(asJSON(t, pod, podKind)); err != nil {
				t.Fatal(err)
			}
			fromPod, err := FromObject(pod, cut)
			fromLoose, err2 := FromObject(u, cut)
			if err != nil || err2 != nil || fromPod.Manager != test.want || fromLoose.Manager != test.want || fromPod.TiedManager != test.tied || fromLoose.TiedManager != test.tied {
				t.Errorf("decoded objects: %q and %q, want %q (%v, %v)", fromPod.Manager, fromLoose.Manager, test.want, err, err2)
			}
		})
	}
}

// JSON of other encoders than API servers has other time formats and orders.
func TestLastWriterInUnusualJSON(t *testing.T) {
	t.Parallel()
	for fields, want := range map[string]string{
		`[{"time":"2026-11-20T09:00:00+01:00","manager":"a"},{"manager":"b","time":"2026-11-20T08:30:00.5Z"}]`: "b",
		`[{"time":"2026-11-20T09:00:00-01:00","manager":"a"},{"manager":"b","time":"2026-11-20T08:30:00Z"}]`:   "a",
		`[{"time":"yesterday","manager":"a"},{"manager":"b","time":null}]`:                                     "b",
		`[{"\u006danager":"a"},7,{"manager":{"manager":"b"}}]`:                                                 "",
		`null`: "", `{"manager":"a"}`: "", `[]`: "",
	} {
		data := []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x","managedFields":` + fields + `}}`)
		for _, cut := range []*Cut{nil, mustCut(t, reflect.TypeFor[*unstructured.Unstructured](), ManagedFields)} {
			p := parser{cut: cut}
			if err := p.parse(data); err != nil {
				t.Fatalf("%s: %v", fields, err)
			}
			if p.obj.Manager != want || p.obj.Key.Name != "x" {
				t.Errorf("%s: the last writer is %q, want %q", fields, p.obj.Manager, want)
			}
		}
	}
}

//nolint:paralleltest // allocations of other tests would be counted
func TestLastWriterAllocations(t *testing.T) {
	for name, data := range map[string][]byte{
		"protobuf": frame(t, watch.Modified, asProto(t, realPod(), podKind)),
		"JSON":     document(watch.Modified, realCRJSON()),
	} {
		r := NewEventReader(&endless{data: data}, mustCut(t, reflect.TypeFor[*corev1.Pod](), ManagedFields))
		next := func() {
			if e, err := r.Next(); err != nil || e.Object.Manager != "kubelet" {
				t.Fatalf("%+v, %v", e, err)
			}
		}
		next()
		// The name, the UID and the resourceVersion.
		if n := testing.AllocsPerRun(100, next); n > 3 {
			t.Errorf("%s: %v allocations per event", name, n)
		}
	}
}

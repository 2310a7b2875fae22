package wire

import (
	"bytes"
	"io"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel-go/evenkeel/kube"
)

func mustCut(tb testing.TB, typ reflect.Type, paths ...string) *Cut {
	tb.Helper()
	cut, err := NewCut(typ, paths...)
	if err != nil {
		tb.Fatal(err)
	}
	return cut
}

func BenchmarkParse(b *testing.B) {
	for name, data := range map[string][]byte{"protobuf": asProto(b, realPod(), podKind), "json": realCRJSON()} {
		b.Run(name, func(b *testing.B) {
			p := parser{cut: mustCut(b, reflect.TypeFor[*corev1.Pod](), ManagedFields), names: interner{known: map[string]string{}}}
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if err := p.parse(data); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(p.obj.Bytes)), "kept-B")
		})
	}
}

// endless is a reader that repeats data.
type endless struct {
	data []byte
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.data[e.at:])
	e.at = (e.at + n) % len(e.data)
	return n, nil
}

func BenchmarkEventReader(b *testing.B) {
	streams := map[string][]byte{
		"protobuf": frame(b, watch.Modified, asProto(b, realPod(), podKind)),
		"json":     document(watch.Modified, realCRJSON()),
	}
	for name, data := range streams {
		b.Run(name, func(b *testing.B) {
			r := NewEventReader(&endless{data: data}, mustCut(b, reflect.TypeFor[*corev1.Pod](), ManagedFields))
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Next(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkReadList(b *testing.B) {
	items := bytes.Repeat(append(realCRJSON(), ','), 99)
	list := append([]byte(`{"kind":"DatabaseList","items":[`), items...)
	list = append(append(list, realCRJSON()...), "]}"...)
	b.SetBytes(int64(len(list)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ReadList(io.LimitReader(bytes.NewReader(list), 1<<30), nil, func(*Object) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	cut := mustCut(b, reflect.TypeFor[*corev1.Pod](), ManagedFields)
	b.Run("pod", func(b *testing.B) {
		o, err := FromObject(realPod(), cut)
		benchmarkDecode[*corev1.Pod](b, podKind, o, err)
	})
	b.Run("unstructured", func(b *testing.B) {
		o, err := Parse(realCRJSON(), cut)
		benchmarkDecode[*unstructured.Unstructured](b, crKind, o, err)
	})
}

func benchmarkDecode[T kube.Object](b *testing.B, kind schema.GroupVersionKind, o *Object, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
	d, err := NewDecoder[T](kind)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Decode(o); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLabels(b *testing.B) {
	for name, data := range map[string][]byte{"protobuf": asProto(b, realPod(), podKind), "json": realCRJSON()} {
		b.Run(name, func(b *testing.B) {
			o, err := Parse(data, mustCut(b, reflect.TypeFor[*corev1.Pod](), ManagedFields))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if len(o.Labels()) == 0 {
					b.Fatal("no labels")
				}
			}
		})
	}
}

// BenchmarkCompare compares two states with different status.
func BenchmarkCompare(b *testing.B) {
	cut := mustCut(b, reflect.TypeFor[*corev1.Pod](), ManagedFields)
	changed := realPod()
	changed.ResourceVersion, changed.Status.Conditions[1].Status = "184468", corev1.ConditionFalse
	crChanged := bytes.Replace(bytes.Replace(realCRJSON(), []byte(`"5512"`), []byte(`"5513"`), 1), []byte(`"ready":true`), []byte(`"ready":false`), 1)
	for name, states := range map[string][2][]byte{
		"protobuf": {asProto(b, realPod(), podKind), asProto(b, changed, podKind)},
		"json":     {realCRJSON(), crChanged},
	} {
		b.Run(name, func(b *testing.B) {
			before, err := Parse(states[0], cut)
			after, err2 := Parse(states[1], cut)
			if err != nil || err2 != nil {
				b.Fatal(err, err2)
			}
			comparer := NewComparer(reflect.TypeFor[*corev1.Pod]())
			b.ReportAllocs()
			for b.Loop() {
				if got := comparer.Compare(before, after, kube.ChangedAnything); got != kube.ChangedResourceVersion|kube.ChangedStatus {
					b.Fatal(got)
				}
			}
		})
	}
}

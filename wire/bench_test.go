package wire

import (
	"bytes"
	"io"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
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

// endless repeats data.
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
		if err != nil {
			b.Fatal(err)
		}
		d, err := NewDecoder[*corev1.Pod](podKind)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := d.Decode(o); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("unstructured", func(b *testing.B) {
		o, err := Parse(realCRJSON(), cut)
		if err != nil {
			b.Fatal(err)
		}
		d, err := NewDecoder[*unstructured.Unstructured](crKind)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := d.Decode(o); err != nil {
				b.Fatal(err)
			}
		}
	})
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

package predicate_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/predicate"
)

func BenchmarkDroppedUpdate(b *testing.B) {
	for format, encode := range encodings() {
		c := change(informer.Updated, encode(b, newPod()), encode(b, changedPod(func(p *corev1.Pod) { p.Annotations["note"] = "z" })))
		for name, passes := range map[string]informer.Predicate{
			"generation": predicate.GenerationChanged(),
			"labels":     predicate.Changed(kube.ChangedLabels),
			"status":     predicate.StatusChanged[*corev1.Pod](),
			"func":       predicate.Func(func(before, after *corev1.Pod) bool { return before.Status.Phase != after.Status.Phase }),
		} {
			b.Run(name+"/"+format, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if passes(c) {
						b.Fatal("passed")
					}
				}
			})
		}
	}
}

package store

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

const benched = 20_000

func BenchmarkPut(b *testing.B) {
	for form, all := range map[string][]*wire.Object{
		"pods": newCluster(b, 1, 40).pods(benched), "widgets": newCluster(b, 1, 40).widgets(benched),
	} {
		b.Run(form+"/new", func(b *testing.B) {
			b.ReportAllocs()
			var s *Store
			for i := 0; b.Loop(); i++ {
				if i%benched == 0 {
					s = New(Config{})
				}
				put(b, s, all[i%benched])
			}
		})
		b.Run(form+"/update", func(b *testing.B) {
			s := New(Config{})
			put(b, s, all...)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				o := *all[i%benched]
				o.ResourceVersion = fmt.Sprint(90_000_000 + i)
				put(b, s, &o)
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	for form, all := range map[string][]*wire.Object{
		"pods": newCluster(b, 1, 40).pods(benched), "widgets": newCluster(b, 1, 40).widgets(benched),
	} {
		s := New(Config{})
		put(b, s, all...)
		b.Run(form, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r, found := s.Get(all[i%benched].Key)
				if !found {
					b.Fatal("not found")
				}
				if err := r.Read(func(*wire.Object) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkQuery(b *testing.B) {
	c := newCluster(b, 1, 40)
	s := New(Config{})
	put(b, s, c.pods(benched)...)
	selector := labels.SelectorFromSet(labels.Set{"pod-template-hash": c.workloads[3].hash})
	for name, q := range map[string]Query{
		"all":       {},
		"namespace": {Namespace: c.workloads[3].namespace},
		"label":     {Labels: selector},
		"both":      {Namespace: c.workloads[3].namespace, Labels: selector},
		"owner":     {OwnerUID: c.workloads[3].owner},
	} {
		n, err := s.Count(q)
		if err != nil || n == 0 {
			b.Fatalf("Count is %d, error %v", n, err)
		}
		b.Run("List/"+name, func(b *testing.B) {
			for b.Loop() {
				for _, err := range objectsOf(s, q) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(n), "objects")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/object")
		})
		b.Run("Count/"+name, func(b *testing.B) {
			for b.Loop() {
				if _, err := s.Count(q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkMissing(b *testing.B) {
	s := New(Config{})
	put(b, s, newCluster(b, 1, 40).pods(benched)...)
	for b.Loop() {
		s.Get(kube.Key{Namespace: "team-03", Name: "missing"})
	}
}

func BenchmarkSnapshot(b *testing.B) {
	s := New(Config{})
	put(b, s, newCluster(b, 1, 40).pods(benched)...)
	for b.Loop() {
		s.Snapshot()
	}
}

package apitest_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
)

// BenchmarkNew measures what each test pays for its server.
func BenchmarkNew(b *testing.B) {
	for name, kind := range map[string]func() *apiserver.Kind{
		"Custom": func() *apiserver.Kind {
			return apiserver.Custom(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}, "widgets")
		},
		"ConfigMap": apiserver.ConfigMaps, "Deployment": apitest.Deployments,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				apitest.New(kind())
			}
		})
	}
}

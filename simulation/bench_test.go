package simulation_test

import (
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/simulation"
)

// BenchmarkNew measures what each test after the first one costs.
func BenchmarkNew(b *testing.B) {
	config := simulation.Config{Manifests: []string{"../examples/webapp/api/v1/webapp.example.com_webapps.yaml"}}
	began := time.Now()
	simulation.New(b, config)
	first := time.Since(began)
	for b.Loop() {
		simulation.New(b, config)
	}
	b.ReportMetric(float64(first.Microseconds())/1000, "ms/first")
}

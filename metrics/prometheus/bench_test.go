package prometheus_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	metrics "github.com/evenkeel-go/evenkeel/metrics/prometheus"
	"github.com/evenkeel-go/evenkeel/workqueue"
)

// tellAll tells a Recorder one of everything, so that each metric has each of its values.
func tellAll(recorder *metrics.Recorder) {
	recorder.ObserveController("pods", func() controller.Stats { return controller.Stats{} })
	recorder.ObserveInformer("Pod", func() informer.Health { return informer.Health{LastEvent: time.Unix(1, 0)} })
	for _, cause := range workqueue.CauseTypes() {
		recorder.Queued("pods", cause)
	}
	for _, outcome := range controller.Outcomes() {
		recorder.Handled("pods", controller.Handled{Outcome: outcome, Attempt: 1})
	}
}

// BenchmarkRecorder measures what is on the way of each run, and a scrape.
func BenchmarkRecorder(b *testing.B) {
	run := controller.Handled{Outcome: controller.OutcomeSuccess, Wait: time.Millisecond, Duration: 5 * time.Millisecond}
	b.Run("Queued", func(b *testing.B) {
		recorder, _ := newRecorder(b)
		b.ReportAllocs()
		for b.Loop() {
			recorder.Queued("pods", workqueue.CauseUpdated)
		}
	})
	b.Run("Handled", func(b *testing.B) {
		recorder, _ := newRecorder(b)
		b.ReportAllocs()
		for b.Loop() {
			recorder.Handled("pods", run)
		}
	})
	b.Run("Handled in parallel", func(b *testing.B) {
		recorder, _ := newRecorder(b)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				recorder.Handled("pods", run)
			}
		})
	})
	b.Run("scrape of 10 controllers", func(b *testing.B) {
		recorder, registry := newRecorder(b)
		for i := range 10 {
			name := fmt.Sprint("controller ", i)
			recorder.ObserveController(name, func() controller.Stats { return controller.Stats{} })
			recorder.ObserveInformer(name, func() informer.Health { return informer.Health{} })
			recorder.Handled(name, run)
		}
		b.ReportAllocs()
		for b.Loop() {
			families(b, registry)
		}
	})
}

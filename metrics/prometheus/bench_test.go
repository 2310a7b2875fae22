package prometheus_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	metrics "github.com/evenkeel-go/evenkeel/metrics/prometheus"
	"github.com/evenkeel-go/evenkeel/retry"
)

// recordAll records one measurement of every type, so that each metric has all its label values.
func recordAll(recorder *metrics.Recorder) {
	recorder.ObserveController("pods", func() controller.Stats { return controller.Stats{FailingSince: time.Unix(1, 0)} })
	recorder.ObserveInformer("Pod", func() informer.Health { return informer.Health{Synced: true, LastEvent: time.Unix(1, 0)} })
	for _, cause := range metrics.CauseTypes() {
		recorder.Triggered("pods", "channel", cause)
	}
	for _, outcome := range metrics.Outcomes() {
		recorder.RunEnded("pods", controller.RunRecord{Outcome: outcome, Attempt: 1})
	}
	for _, result := range []string{"success", "rejected", "failed", "panic", "timeout", "invalid"} {
		recorder.WebhookReviewed("hosts.example.com", result, time.Millisecond)
	}
	recorder.ObserveCertificate("webhooks", func() time.Time { return time.Unix(1, 0) }, func() (all, failed uint64) { return 1, 0 })
}

// BenchmarkRecorder measures the methods that every run calls, and a scrape.
func BenchmarkRecorder(b *testing.B) {
	run := controller.RunRecord{Outcome: controller.OutcomeSuccess, Wait: time.Millisecond, Duration: 5 * time.Millisecond}
	writes, fails, traced := run, run, run
	writes.Writes, writes.Decode, writes.Held = 2, 7*time.Microsecond, time.Millisecond
	fails.Outcome, fails.Class, fails.Attempt, fails.Decode = controller.OutcomeError, retry.Conflict, 1, 7*time.Microsecond
	traced.TraceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	for _, one := range []struct {
		name string
		call func(r *metrics.Recorder)
	}{
		{"Triggered", func(r *metrics.Recorder) { r.Triggered("pods", controller.SourceSelf, controller.CauseUpdated) }},
		{"Skipped", func(r *metrics.Recorder) { r.Skipped("pods", controller.SkipPredicate) }},
		{"Handled", func(r *metrics.Recorder) { r.RunEnded("pods", run) }},
		{"Handled with writes", func(r *metrics.Recorder) { r.RunEnded("pods", writes) }},
		{"Handled with an error", func(r *metrics.Recorder) { r.RunEnded("pods", fails) }},
		{"Handled with a trace", func(r *metrics.Recorder) { r.RunEnded("pods", traced) }},
	} {
		b.Run(one.name, func(b *testing.B) {
			recorder, _ := newRecorder(b)
			b.ReportAllocs()
			for b.Loop() {
				one.call(recorder)
			}
		})
	}
	b.Run("Triggered by sources beyond the limit", func(b *testing.B) {
		recorder, _ := newRecorder(b)
		for i := range 100 {
			recorder.Triggered("pods", fmt.Sprint("source ", i), controller.CauseTriggered)
		}
		b.ReportAllocs()
		for b.Loop() {
			recorder.Triggered("pods", "source 99", controller.CauseTriggered)
		}
	})
	b.Run("Handled in parallel", func(b *testing.B) {
		recorder, _ := newRecorder(b)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				recorder.RunEnded("pods", run)
			}
		})
	})
	b.Run("scrape of 10 controllers", func(b *testing.B) {
		recorder, registry := newRecorder(b)
		for i := range 10 {
			name := fmt.Sprint("controller ", i)
			recorder.ObserveController(name, func() controller.Stats { return controller.Stats{} })
			recorder.ObserveInformer(name, func() informer.Health { return informer.Health{} })
			recorder.RunEnded(name, run)
		}
		b.ReportAllocs()
		for b.Loop() {
			families(b, registry)
		}
	})
}

package prometheus_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/evenkeel-go/evenkeel/controller"
	metrics "github.com/evenkeel-go/evenkeel/metrics/prometheus"
)

// exemplars returns the exemplars of all buckets, by metric and upper bound.
func exemplars(tb testing.TB, registry prometheus.Gatherer) map[string]string {
	tb.Helper()
	found := map[string]string{}
	for _, family := range families(tb, registry) {
		for _, m := range family.GetMetric() {
			for _, bucket := range m.GetHistogram().GetBucket() {
				e := bucket.GetExemplar()
				if e == nil {
					continue
				}
				var labels []string
				for _, label := range e.GetLabel() {
					labels = append(labels, label.GetName()+"="+label.GetValue())
				}
				name := strings.TrimPrefix(family.GetName(), "evenkeel_controller_")
				found[fmt.Sprintf("%s %g", name, bucket.GetUpperBound())] = strings.Join(labels, ",")
			}
		}
	}
	return found
}

// recordRun records a run with a trace and a wait of 0.5 s.
func recordRun(recorder *metrics.Recorder, duration time.Duration, trace string) {
	recorder.RunEnded("pods", controller.RunRecord{
		Outcome: controller.OutcomeSuccess, Wait: 500 * time.Millisecond, Duration: duration, TraceID: trace,
	})
}

func TestRunsWithTraceHaveExemplars(t *testing.T) {
	t.Parallel()
	recorder, registry := newRecorder(t)
	recordRun(recorder, time.Second, "")
	if diff := cmp.Diff(map[string]string{}, exemplars(t, registry)); diff != "" {
		t.Errorf("exemplars of a run without a trace (-want +got):\n%s", diff)
	}
	recordRun(recorder, time.Second, "4bf92f35")
	recordRun(recorder, time.Hour, "00f067aa")
	recordRun(recorder, 100*time.Millisecond, "d75597de") // an upper bound, which belongs to its bucket
	want := map[string]string{
		"handle_seconds 0.1":   "trace_id=d75597de",
		"handle_seconds 10":    "trace_id=4bf92f35",
		"handle_seconds +Inf":  "trace_id=00f067aa",
		"queue_wait_seconds 1": "trace_id=4bf92f35",
	}
	if diff := cmp.Diff(want, exemplars(t, registry)); diff != "" {
		t.Errorf("exemplars (-want +got):\n%s", diff)
	}
}

// Creating an exemplar allocates, and only the last one before a scrape is visible.
func TestBucketTakesOneExemplarPerSecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		recorder, registry := newRecorder(t)
		recordRun(recorder, time.Second, "first")
		time.Sleep(999 * time.Millisecond)
		recordRun(recorder, time.Second, "second")
		if got := exemplars(t, registry)["handle_seconds 10"]; got != "trace_id=first" {
			t.Errorf("within a second, the exemplar is %s, want that of the first run", got)
		}
		time.Sleep(time.Millisecond)
		recordRun(recorder, time.Second, "third")
		if got := exemplars(t, registry)["handle_seconds 10"]; got != "trace_id=third" {
			t.Errorf("after a second, the exemplar is %s, want that of the third run", got)
		}
		if got := histogramCounts(t, registry, "evenkeel_controller_handle_seconds")["{controller=pods,outcome=success}"]; got != 3 {
			t.Errorf("the histogram counts %d runs, want 3", got)
		}
	})
}

// The client library panics for these labels.
func TestInvalidTraceIDIsIgnored(t *testing.T) {
	t.Parallel()
	recorder, registry := newRecorder(t)
	longest := strings.Repeat("x", prometheus.ExemplarMaxRunes-len("trace_id"))
	recordRun(recorder, time.Second, longest+"x")
	recordRun(recorder, time.Second, "\xff")
	if diff := cmp.Diff(map[string]string{}, exemplars(t, registry)); diff != "" {
		t.Errorf("exemplars (-want +got):\n%s", diff)
	}
	recordRun(recorder, time.Second, longest)
	if got := exemplars(t, registry)["handle_seconds 10"]; got != "trace_id="+longest {
		t.Errorf("the exemplar is %q, want the longest that fits", got)
	}
	if got := histogramCounts(t, registry, "evenkeel_controller_handle_seconds")["{controller=pods,outcome=success}"]; got != 3 {
		t.Errorf("the histogram counts %d runs, want 3", got)
	}
}

// OpenMetrics names counters without _total, so that two names which differ only by this suffix would collide.
func TestOpenMetrics(t *testing.T) {
	t.Parallel()
	recorder, registry := newRecorder(t)
	recordAll(recorder)
	recordRun(recorder, time.Second, "4bf92f35")
	request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	request.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}).ServeHTTP(answer, request)
	if got := answer.Header().Get("Content-Type"); !strings.HasPrefix(got, "application/openmetrics-text") {
		t.Fatalf("the status is %s", got)
	}
	text := answer.Body.String()
	seen := map[string]bool{}
	for _, found := range regexp.MustCompile(`(?m)^# TYPE (\S+)`).FindAllStringSubmatch(text, -1) {
		if seen[found[1]] {
			t.Errorf("two metrics have the name %s", found[1])
		}
		seen[found[1]] = true
	}
	want := `evenkeel_controller_handle_seconds_bucket{controller="pods",outcome="success",le="10.0"} 2 # {trace_id="4bf92f35"} 1.0`
	if !strings.Contains(text, want) {
		t.Errorf("%s is missing in:\n%s", want, text)
	}
}

package prometheus_test

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evenkeel-go/evenkeel/internal/testfile"
	"github.com/evenkeel-go/evenkeel/leader"
)

const tableFile = "../../docs/reference/metrics.md"

//nolint:gochecknoglobals // a flag must be defined before the tests begin
var update = flag.Bool("update", false, "write docs/reference/metrics.md")

// exposed describes one metric of a Recorder.
type exposed struct {
	kind   string
	help   string
	labels map[string]map[string]bool // the values of each label
}

// exposedMetrics returns all metrics of a Recorder after recordAll.
func exposedMetrics(t *testing.T) map[string]exposed {
	t.Helper()
	recorder, registry := newRecorder(t)
	recordAll(recorder)
	return describe(t, registry)
}

// compatibleMetrics returns the metrics that Config.CompatibleNames adds.
func compatibleMetrics(t *testing.T) map[string]exposed {
	t.Helper()
	recorder, registry, transport := newRecorderOfCluster(t, func(req *http.Request) (*http.Response, error) {
		lookUp(req, "api")
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	})
	recordAll(recorder)
	recorder.ObserveHook("/hosts.example.com", false)
	defer recorder.ObserveLeadership(func() leader.Status { return leader.Status{Lease: "system/operator"} })()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://api/", nil)
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	all := describe(t, registry)
	maps.DeleteFunc(all, func(name string, _ exposed) bool { return strings.HasPrefix(name, "evenkeel_") })
	return all
}

// lookUp calls the trace of a request as package net does for a new connection.
func lookUp(req *http.Request, host string) {
	trace := httptrace.ContextClientTrace(req.Context())
	trace.DNSStart(httptrace.DNSStartInfo{Host: host})
	trace.DNSDone(httptrace.DNSDoneInfo{})
}

// describe returns all metrics of a registry.
func describe(t *testing.T, registry prometheus.Gatherer) map[string]exposed {
	t.Helper()
	found := map[string]exposed{}
	for _, family := range families(t, registry) {
		e := exposed{kind: strings.ToLower(family.GetType().String()), help: family.GetHelp(), labels: map[string]map[string]bool{}}
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if e.labels[label.GetName()] == nil {
					e.labels[label.GetName()] = map[string]bool{}
				}
				e.labels[label.GetName()][label.GetValue()] = true
			}
		}
		found[family.GetName()] = e
	}
	return found
}

// docs/reference/metrics.md must list the exposed metrics. Flag -update writes the page.
func TestTableOfMetrics(t *testing.T) {
	t.Parallel()
	testfile.Expect(t, tableFile, tableOf(exposedMetrics(t), compatibleMetrics(t)), *update)
}

const tableIntro = `# Metrics

The metrics of ` + "`metrics/prometheus`" + ` with the default namespace, ` + "`evenkeel`" + `. ` + "`go test ./metrics/prometheus -update`" + ` writes this
page. [Dashboard and alerts](../dashboards/README.md) use them.

| metric | type | labels | meaning |
|---|---|---|---|
`

const tableNotes = `
The labels ` + "`controller`" + `, ` + "`informer`" + ` and ` + "`webhook`" + ` are names that the program sets. ` + "`source`" + ` is ` + "`self`" + ` (the controller's own
objects), ` + "`loop`" + ` (retries, requeues, resyncs, timers) or the name of a source. The other labels have these values:

| label | metrics | values |
|---|---|---|
`

const tableEnd = `
- For each controller, the first 50 sources and the first 20 classes have their own series. Further ones count as ` + "`other`" + `.
- A trigger whose key is in the queue already is merged, so there are more triggers than runs.
- ` + "`evenkeel_controller_queue_ready`" + `, ` + "`_delayed`" + `, ` + "`_backoff`" + ` and ` + "`_held`" + ` have no key in common.
- A failed run that is retried counts as ` + "`error`" + `, ` + "`timeout`" + ` or ` + "`panic`" + `, never as ` + "`success`" + `.
- Counters and histograms of a controller remain after it has stopped. Sizes and states are read at each scrape, and
  disappear when it stops.
- Controllers or informers with the same name in one process are summed; ages and waits are those of the worst one.
- ` + "`evenkeel_informer_staleness_seconds`" + ` stays below about a minute with a healthy watch, because of its bookmarks.
  ` + "`evenkeel_informer_lag_seconds`" + ` is 0 if no write was awaited.
- ` + "`evenkeel_controller_handle_seconds`" + ` and ` + "`evenkeel_controller_queue_wait_seconds`" + ` have exemplars with a ` + "`trace_id`" + `, in the
  OpenMetrics format only: ` + "`promhttp.HandlerOpts{EnableOpenMetrics: true}`" + `.
- ` + "`reason`" + ` of an informer: ` + "`Silent`" + ` if an open watch delivers nothing although a list shows changes, ` + "`Unreachable`" + ` if the API
  server does not respond or is unavailable. The log and readiness contain the whole error.
- ` + "`result`" + ` of a webhook is ` + "`failed`" + `, ` + "`panic`" + ` or ` + "`timeout`" + ` without a decision, and ` + "`invalid`" + ` for requests that are not reviews
  or have no valid client certificate.
- ` + "`Config.NativeHistograms`" + ` adds native histograms.
`

const compatibleIntro = `
## Names of client-go and controller-runtime

` + "`Config.CompatibleNames`" + ` adds these names, with the same meaning and buckets, for existing dashboards and alerts:

| metric | type | labels |
|---|---|---|
`

const compatibleEnd = `
- The labels ` + "`name`" + ` and ` + "`controller`" + ` of a queue are both the name of the controller. ` + "`priority`" + ` is ` + "`-100`" + `, ` + "`0`" + ` or ` + "`100`" + `:
  ` + "`PriorityLow`" + `, ` + "`PriorityNormal`" + `, ` + "`PriorityHigh`" + `.
- ` + "`webhook`" + ` is the path of the hook. ` + "`certwatcher_*`" + ` are the files of webhook servers.
- Missing: ` + "`rest_client_request_retries_total`" + `, because no request is repeated: see ` + "`code`" + ` 429 of the requests.
  ` + "`rest_client_rate_limiter_duration_seconds`" + `: there is no rate limit by default.
  ` + "`controller_runtime_client_consistency_wait_duration_seconds`" + `: keys wait instead of reads, see ` + "`evenkeel_controller_hold_seconds`" + `.
- ` + "`workqueue_adds_total`" + ` also counts additions of a key that the queue contains already.
- ` + "`result`" + ` is ` + "`success`" + `, ` + "`error`" + `, ` + "`requeue_after`" + `, or ` + "`requeue`" + ` for a run that was cancelled by the shutdown.
- ` + "`rest_client_*`" + ` and ` + "`leader_election_master_status`" + ` need ` + "`Config.Cluster`" + `. Durations end with the header of the response, and
  ` + "`code`" + ` is ` + "`<error>`" + ` without a response.

[examples/metrics](../../examples/metrics/main.go) sets all of this, and registers the collectors of the Go runtime, the
process and the build.
`

func writeRow(table *strings.Builder, name string, e exposed) {
	fmt.Fprintf(table, "| `%s` | %s | %s | %s |\n", name, e.kind, labelsIn(e), e.help)
}

func labelsIn(e exposed) string {
	if len(e.labels) == 0 {
		return ""
	}
	return "`" + strings.Join(slices.Sorted(maps.Keys(e.labels)), "`, `") + "`"
}

func tableOf(all, compatible map[string]exposed) string {
	var table strings.Builder
	table.WriteString(tableIntro)
	type set struct{ label, values string }
	sets := map[set][]string{} // the metrics whose label has these values
	for _, name := range slices.Sorted(maps.Keys(all)) {
		e := all[name]
		writeRow(&table, name, e)
		for label := range e.labels {
			if slices.Contains([]string{"controller", "informer", "source", "webhook", "server"}, label) {
				continue
			}
			values := set{label, strings.Join(slices.Sorted(maps.Keys(e.labels[label])), "`, `")}
			sets[values] = append(sets[values], name)
		}
	}
	table.WriteString(tableNotes)
	byLabel := func(a, b set) int { return strings.Compare(a.label+a.values, b.label+b.values) }
	for _, s := range slices.SortedFunc(maps.Keys(sets), byLabel) {
		fmt.Fprintf(&table, "| `%s` | `%s` | `%s` |\n", s.label, strings.Join(sets[s], "`, `"), s.values)
	}
	table.WriteString(tableEnd)
	table.WriteString(compatibleIntro)
	for _, name := range slices.Sorted(maps.Keys(compatible)) {
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", name, compatible[name].kind, labelsIn(compatible[name]))
	}
	table.WriteString(compatibleEnd)
	return table.String()
}

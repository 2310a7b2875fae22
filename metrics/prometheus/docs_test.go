package prometheus_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
)

const (
	dashboardFile = "../../docs/dashboards/evenkeel.json"
	tableFile     = "../../docs/metrics.md"
)

//nolint:gochecknoglobals // a flag must be defined before the tests begin
var update = flag.Bool("update", false, "write docs/metrics.md")

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

// docs/metrics.md must list the exposed metrics. Flag -update writes the page.
func TestTableOfMetrics(t *testing.T) {
	t.Parallel()
	want := tableOf(exposedMetrics(t))
	if *update {
		if err := os.WriteFile(tableFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(tableFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/metrics.md is outdated; run go test ./metrics/prometheus -update (-want +got):\n%s", diff)
	}
}

const tableIntro = `# Metrics

These are the metrics of ` + "`metrics/prometheus`" + ` with the default namespace, ` + "`evenkeel`" + `. This page is generated:
` + "`go test ./metrics/prometheus -update`" + ` updates it.

[dashboards/evenkeel.json](dashboards/evenkeel.json) is a Grafana dashboard with all of them.

| metric | type | labels | meaning |
|---|---|---|---|
`

const tableNotes = `
The labels ` + "`controller` and `informer`" + ` are the names that the program sets. ` + "`source`" + ` is ` + "`self`" + ` (the controller's own
objects), ` + "`loop`" + ` (retries, requeues, resyncs, timers) or the name of a source. The other labels have a small fixed set
of values:

| label | metrics | values |
|---|---|---|
`

const tableEnd = `
- ` + "`source` and `class`" + ` may have values that the program defines. For each controller, the first 50 sources and the first
  20 classes have their own series. Further ones count as ` + "`other`" + `.
- A trigger whose key is in the queue already is merged with the earlier one, so there are more triggers than runs.
  Skipped changes are not counted as triggers.
- ` + "`evenkeel_controller_queue_ready`, `_delayed`, `_backoff` and `_held`" + ` have no key in common.
- A failed run that is retried counts as ` + "`error`, `timeout`" + ` or ` + "`panic`" + `, never as ` + "`success`" + `.
- Counters and histograms of a controller remain after it has stopped. Sizes, states and the counters of informers are
  read at each scrape, and disappear when the controller or informer stops.
- Controllers with the same name in one process are summed. Their oldest wait is the longest one, and their
  failing-since is the earliest one. For informers with the same name, sizes and counters are summed. They are synced if
  all are synced, and failing or degraded if one is. Staleness, lag and last event are those of the worst one.
- ` + "`evenkeel_informer_staleness_seconds`" + ` stays below about a minute with a healthy watch, because the API server sends a
  bookmark about once a minute. It is missing before the first list. ` + "`evenkeel_informer_lag_seconds`" + ` is 0 if the write
  was in the cache before its response arrived, and if no write was awaited.
- ` + "`evenkeel_controller_handle_seconds` and `evenkeel_controller_queue_wait_seconds`" + ` have exemplars with the label
  ` + "`trace_id`" + ` if runs have a trace. Only the OpenMetrics format contains them:
  ` + "`promhttp.HandlerOpts{EnableOpenMetrics: true}`" + `.
- ` + "`evenkeel_informer_received_bytes_total`" + ` counts the bytes that the informer itself reads from the API server. It is 0
  for a custom Retriever. Each reader decodes an object again: ` + "`evenkeel_informer_decode_seconds_total`" + ` is the cost.
- ` + "`reason`" + ` of an informer is ` + "`Forbidden`" + ` if a permission is missing, ` + "`Unauthorized`" + ` if the API server rejects the
  credentials, ` + "`NotServed`" + ` if the cluster does not serve the kind (usually because its CustomResourceDefinition is
  missing), ` + "`Silent`" + ` if an open watch delivers no events although a list shows changes, and ` + "`Unreachable`" + ` if the API
  server does not respond, or responds that it is unavailable. The log and readiness contain the whole error.
- ` + "`Config.NativeHistograms`" + ` adds native histograms to the classic ones.
`

func tableOf(all map[string]exposed) string {
	var table strings.Builder
	table.WriteString(tableIntro)
	type set struct{ label, values string }
	sets := map[set][]string{} // the metrics whose label has these values
	for _, name := range slices.Sorted(maps.Keys(all)) {
		e := all[name]
		labels := slices.Sorted(maps.Keys(e.labels))
		fmt.Fprintf(&table, "| `%s` | %s | `%s` | %s |\n", name, e.kind, strings.Join(labels, "`, `"), e.help)
		for label := range e.labels {
			if label == "controller" || label == "informer" || label == "source" {
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
	return table.String()
}

// dashboard contains the fields of a Grafana dashboard that the tests read.
type dashboard struct {
	SchemaVersion int
	Title         string
	Panels        []struct {
		ID                       int
		Type, Title, Description string
		Datasource               struct{ UID string }
		Targets                  []struct{ Expr, LegendFormat string }
	}
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatalf("reading the dashboard: %v", err)
	}
	return d
}

// Each query must use existing metrics and labels, and each metric must be in a query.
func TestDashboardUsesEveryMetric(t *testing.T) {
	t.Parallel()
	all := exposedMetrics(t)
	shown := map[string]bool{}
	for _, panel := range readDashboard(t).Panels {
		for _, target := range panel.Targets {
			used, problems := checkQuery(all, target.Expr, target.LegendFormat)
			for _, problem := range problems {
				t.Errorf("panel %q: %s: %s", panel.Title, problem, target.Expr)
			}
			for _, name := range used {
				shown[name] = true
			}
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(all)), slices.Sorted(maps.Keys(shown))); diff != "" {
		t.Errorf("metrics on the dashboard (-exposed +shown):\n%s", diff)
	}
}

func TestDashboardPanels(t *testing.T) {
	t.Parallel()
	d := readDashboard(t)
	variables := map[string]string{}
	for _, v := range d.Templating.List {
		variables[v.Name] = v.Type + " " + v.Definition
	}
	wantVariables := map[string]string{
		"datasource": "datasource ",
		"controller": "query label_values(evenkeel_controller_triggers_total, controller)",
		"informer":   "query label_values(evenkeel_informer_objects, informer)",
	}
	if diff := cmp.Diff(wantVariables, variables); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
	ids := map[int]bool{}
	var rows []string
	for _, panel := range d.Panels {
		if panel.ID == 0 || ids[panel.ID] {
			t.Errorf("panel %q: the id %d is zero or a duplicate", panel.Title, panel.ID)
		}
		ids[panel.ID] = true
		if panel.Type == "row" {
			rows = append(rows, panel.Title)
			continue
		}
		if panel.Title == "" || panel.Description == "" || panel.Datasource.UID != "${datasource}" || len(panel.Targets) == 0 {
			t.Errorf("panel %d (%q) lacks a title, a description, the datasource variable or a query", panel.ID, panel.Title)
		}
	}
	if diff := cmp.Diff([]string{"Problem", "Controllers", "Causes of runs", "Staleness", "Informers"}, rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// checkQuery returns the metrics that a PromQL query uses, and the mistakes in it. It supports only the syntax that
// the dashboard uses.
func checkQuery(all map[string]exposed, query, legend string) (used, problems []string) {
	fail := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for _, pair := range []string{"()", "{}", "[]"} {
		if strings.Count(query, pair[:1]) != strings.Count(query, pair[1:]) {
			fail("unbalanced %s", pair)
		}
	}
	labels := map[string]bool{}
	for _, found := range regexp.MustCompile(`(\w+)(?:\{([^}]*)\})?`).FindAllStringSubmatch(query, -1) {
		if !strings.HasPrefix(found[1], "evenkeel_") {
			continue
		}
		name, e, ok := metricOf(all, found[1])
		if !ok {
			fail("there is no metric %s", found[1])
			continue
		}
		used = append(used, name)
		for label := range e.labels {
			labels[label] = true
		}
		for _, matcher := range regexp.MustCompile(`(\w+)\s*[=!]~?\s*"([^"]*)"`).FindAllStringSubmatch(found[2], -1) {
			label, value := matcher[1], matcher[2]
			if e.labels[label] == nil {
				fail("%s has no label %s", name, label)
			}
			if value == "$"+label {
				continue
			}
			for alternative := range strings.SplitSeq(value, "|") {
				if !e.labels[label][alternative] {
					fail("the label %s of %s is never %s", label, name, alternative)
				}
			}
		}
	}
	if len(used) == 0 {
		fail("no metric in it")
	}
	for _, by := range regexp.MustCompile(`by \(([^)]*)\)`).FindAllStringSubmatch(query, -1) {
		for label := range strings.SplitSeq(by[1], ", ") {
			if !labels[label] && label != "le" {
				fail("by the label %s, which its metrics do not have", label)
			}
		}
	}
	for _, field := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(legend, -1) {
		if !regexp.MustCompile(`by \([^)]*\b` + field[1] + `\b`).MatchString(query) {
			fail("the legend has %s, which the query does not keep", field[1])
		}
	}
	return used, problems
}

// metricOf returns the metric of a series. A histogram has the series _bucket, _sum and _count.
func metricOf(all map[string]exposed, series string) (name string, e exposed, ok bool) {
	histogram := strings.ToLower(dto.MetricType_HISTOGRAM.String())
	if e, ok := all[series]; ok && e.kind != histogram {
		return series, e, true
	}
	for _, part := range []string{"_bucket", "_sum", "_count"} {
		name, isPart := strings.CutSuffix(series, part)
		if e, ok := all[name]; isPart && ok && e.kind == histogram {
			return name, e, true
		}
	}
	return "", exposed{}, false
}

// Each case violates one rule of checkQuery.
func TestCheckQuery(t *testing.T) {
	t.Parallel()
	all := exposedMetrics(t)
	for name, tc := range map[string]struct {
		query, legend string
		want          string // empty: the query is valid
	}{
		"valid":                     {`sum by (controller) (rate(evenkeel_controller_retries_total{controller=~"$controller"}[5m]))`, "{{controller}}", ""},
		"valid histogram":           {`sum by (le) (rate(evenkeel_controller_handle_seconds_bucket{outcome!~"error|panic"}[5m]))`, "", ""},
		"unknown metric":            {`evenkeel_controller_speed`, "", "there is no metric"},
		"histogram without suffix":  {`evenkeel_controller_handle_seconds`, "", "there is no metric"},
		"gauge with suffix":         {`evenkeel_controller_workers_count`, "", "there is no metric"},
		"unknown label":             {`evenkeel_informer_objects{controller=~"$controller"}`, "", "has no label"},
		"unknown value":             {`evenkeel_controller_phase{phase="asleep"}`, "", "is never asleep"},
		"grouped by unknown label":  {`sum by (reason) (evenkeel_informer_objects)`, "", "by the label reason"},
		"legend with unknown field": {`sum by (informer) (evenkeel_informer_objects)`, "{{reason}}", "the legend has reason"},
		"unbalanced":                {`sum(evenkeel_informer_objects`, "", "unbalanced ()"},
		"no metric":                 {`up`, "", "no metric in it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, problems := checkQuery(all, tc.query, tc.legend)
			got := strings.Join(problems, "; ")
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("checkQuery returned %q, want %q", got, tc.want)
			}
		})
	}
}

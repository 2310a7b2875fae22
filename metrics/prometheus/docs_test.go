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
var update = flag.Bool("update", false, "write docs/metrics.md anew")

// exposed is what a Recorder really exposes of one metric.
type exposed struct {
	kind   string
	help   string
	labels map[string]map[string]bool // the values of each label
}

// exposedMetrics returns all metrics, from a Recorder that was told one of everything.
func exposedMetrics(t *testing.T) map[string]exposed {
	t.Helper()
	recorder, registry := newRecorder(t)
	tellAll(recorder)
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

// TestTableOfMetrics holds docs/metrics.md to what is exposed. With -update it writes it.
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
		t.Errorf("docs/metrics.md is not what is exposed; go test ./metrics/prometheus -update writes it (-want +got):\n%s", diff)
	}
}

const tableIntro = `# Metrics

What ` + "`metrics/prometheus`" + ` exposes, under the default namespace, ` + "`evenkeel`" + `. This page is generated:
` + "`go test ./metrics/prometheus -update`" + ` writes it anew.

[dashboards/evenkeel.json](dashboards/evenkeel.json) is a Grafana dashboard of all of them.

| metric | type | labels | meaning |
|---|---|---|---|
`

const tableNotes = `
The labels ` + "`controller` and `informer`" + ` are the names that the program gave, and ` + "`source`" + ` is ` + "`self`" + ` (the controller's own objects),
` + "`loop`" + ` (retries, requeues, resyncs, timers) or the name of a source. The other labels have few and fixed values:

| label | of | values |
|---|---|---|
`

const tableEnd = `
- ` + "`source` and `class`" + ` may be of a program's own making: of each controller, the first 50 sources and the first 20 classes get
  series of their own, and the rest count as ` + "`other`" + `.
- A trigger that finds its key in the queue merges with what is there: there are more triggers than runs. What was skipped is
  not among the triggers.
- ` + "`evenkeel_controller_queue_length`, `_waiting`, `_backoff` and `_held`" + ` have no key in common.
- A run that failed and will be tried again counts as ` + "`error`, `timeout` or `panic`" + `, never as ` + "`success`" + `.
- Counters and histograms stay after a controller has stopped. Sizes and states, and the counters of informers, are read
  when Prometheus scrapes, and are gone when the controller or informer has stopped.
- Controllers of one name in one process are summed; of the oldest wait and the oldest failure, it is the oldest. Of informers
  of one name, sizes and counters are summed; they are synced when all are, failing or degraded when one is, and staleness, lag
  and last event are those of the one that is worst.
- ` + "`evenkeel_informer_staleness_seconds`" + ` stays below about a minute with a healthy watch, after which the API server sends a bookmark
  if nothing else. It is not there until something has been listed. ` + "`evenkeel_informer_lag_seconds`" + ` is 0 when the write was there
  before its answer, and when none was waited for.
- ` + "`evenkeel_controller_handle_seconds` and `evenkeel_controller_queue_wait_seconds`" + ` have exemplars with the label ` + "`trace_id`" + `, where
  runs have a trace. They are only exposed in OpenMetrics: ` + "`promhttp.HandlerOpts{EnableOpenMetrics: true}`" + `.
- ` + "`evenkeel_informer_received_bytes_total`" + ` is what the informer itself reads from the API server: 0 for a Retriever of your own.
  An object that many read is decoded many times: ` + "`evenkeel_informer_decode_seconds_total`" + ` says what that costs.
- ` + "`reason`" + ` of an informer is ` + "`Forbidden`" + ` when a permission is missing, ` + "`Unauthorized`" + ` when the API server does not know the user,
  ` + "`NotServed`" + ` when the cluster has no such kind (a CustomResourceDefinition is missing), ` + "`Silent`" + ` when a watch is open
  and brings nothing while a list shows changes, and ` + "`Unreachable`" + ` when the API server gave no answer, or one that says that
  it cannot serve now. The error itself is in the log and in readiness.
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

// dashboard is what the test reads of a Grafana dashboard.
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

// TestDashboardShowsWhatIsExposed: each query names only metrics and labels that exist,
// and each metric is in a query.
func TestDashboardShowsWhatIsExposed(t *testing.T) {
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

func TestDashboardIsWhole(t *testing.T) {
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
			t.Errorf("panel %q: the id %d is zero, or another panel's", panel.Title, panel.ID)
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
	if diff := cmp.Diff([]string{"What is in trouble", "Controllers", "Why did it run", "How stale", "Informers"}, rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// checkQuery returns the metrics that a PromQL query uses, and what is wrong with it. It
// knows as much of PromQL as the dashboard uses.
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

// metricOf finds the metric that a series belongs to. Histograms are queried by their parts.
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

// The check itself: each rule is broken once.
func TestCheckQuery(t *testing.T) {
	t.Parallel()
	all := exposedMetrics(t)
	for name, tc := range map[string]struct {
		query, legend string
		want          string // empty: nothing is wrong
	}{
		"right":                  {`sum by (controller) (rate(evenkeel_controller_retries_total{controller=~"$controller"}[5m]))`, "{{controller}}", ""},
		"right, of a histogram":  {`sum by (le) (rate(evenkeel_controller_handle_seconds_bucket{outcome!~"error|panic"}[5m]))`, "", ""},
		"no such metric":         {`evenkeel_controller_speed`, "", "there is no metric"},
		"a histogram as a whole": {`evenkeel_controller_handle_seconds`, "", "there is no metric"},
		"a part of a gauge":      {`evenkeel_controller_workers_count`, "", "there is no metric"},
		"no such label":          {`evenkeel_informer_objects{controller=~"$controller"}`, "", "has no label"},
		"no such value":          {`evenkeel_controller_phase{phase="asleep"}`, "", "is never asleep"},
		"by no such label":       {`sum by (reason) (evenkeel_informer_objects)`, "", "by the label reason"},
		"a legend without field": {`sum by (informer) (evenkeel_informer_objects)`, "{{reason}}", "the legend has reason"},
		"unbalanced":             {`sum(evenkeel_informer_objects`, "", "unbalanced ()"},
		"no metric":              {`up`, "", "no metric in it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, problems := checkQuery(all, tc.query, tc.legend)
			got := strings.Join(problems, "; ")
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("checkQuery says %q, want %q", got, tc.want)
			}
		})
	}
}

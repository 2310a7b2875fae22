package monitoring_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	dashboardFile = "../../docs/dashboards/evenkeel.json"
	schemaFile    = "testdata/grafana.schema.json"
	metricsFile   = "../../docs/reference/metrics.md"
)

// dashboard contains the fields of a Grafana dashboard that the tests read.
type dashboard struct {
	Title      string
	Panels     []panel
	Templating struct {
		List []struct{ Name, Definition string }
	}
}

type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               struct{ UID string }
	GridPos                  struct{ H, W, X, Y int }
	FieldConfig              struct {
		Defaults struct {
			Unit string
		}
	}
	Targets []target
}

type target struct{ Expr, LegendFormat string }

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	var d dashboard
	if err := json.Unmarshal([]byte(readFile(t, dashboardFile)), &d); err != nil {
		t.Fatalf("read the dashboard: %v", err)
	}
	return d
}

// validate checks a dashboard against Grafana's schema: see testdata/grafana.ts.
func validate(t *testing.T, text string) error {
	t.Helper()
	value := func(text string) any {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(schemaFile, value(readFile(t, schemaFile))); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	return schema.Validate(value(text))
}

func TestDashboardMatchesSchema(t *testing.T) {
	t.Parallel()
	text := readFile(t, dashboardFile)
	if err := validate(t, text); err != nil {
		t.Errorf("%s: %v", dashboardFile, err)
	}
	for name, change := range map[string][2]string{
		"field of a dashboard":  {`"editable": true`, `"editible": true`},
		"type of a panel":       {`"type": "timeseries"`, `"type": "timeserie"`},
		"field of a query":      {`"legendFormat":`, `"legend":`},
		"type of a field":       {`"w": 8`, `"w": "8"`},
		"missing query":         {`"expr":`, `"query":`},
		"value of an option":    {`"showPoints": "never"`, `"showPoints": "no"`},
		"mode of the legend":    {`"displayMode": "list"`, `"displayMode": "lists"`},
		"option of a stat":      {`"textMode": "value_and_name"`, `"textMode": "both"`},
		"type of a variable":    {`"type": "datasource"`, `"type": "data"`},
		"refresh of a variable": {`"refresh": 2`, `"refresh": 9`},
	} {
		changed := strings.Replace(text, change[0], change[1], 1)
		if changed == text {
			t.Errorf("%s: the dashboard has no %s", name, change[0])
		} else if validate(t, changed) == nil {
			t.Errorf("%s: the schema accepts %s", name, change[1])
		}
	}
}

// interpolate replaces the variables of the dashboard as Grafana does, with a scrape interval of 15 s.
func interpolate(query string) string {
	return strings.NewReplacer("$__rate_interval", "1m", "$job", "website-operator", "$controller", ".*", "$informer", ".*").Replace(query)
}

// check returns what is wrong with a query of the dashboard: each of its metrics must have samples, also each value of
// its matchers, and its result must have series with the labels in the legend.
func check(t *testing.T, samples recording, q target) (problems []string) {
	t.Helper()
	text := interpolate(q.Expr)
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		return []string{err.Error()}
	}
	for _, selector := range parser.ExtractSelectors(expr) {
		for i, m := range selector {
			for value := range strings.SplitSeq(m.Value, "|") {
				one := slices.Clone(selector)
				one[i] = labels.MustNewMatcher(labels.MatchRegexp, m.Name, value)
				if found, err := samples.query(t.Context(), fmt.Sprintf("count({%s})", join(one)), scrapeInterval); err != nil || len(found) == 0 {
					problems = append(problems, fmt.Sprintf("no samples of {%s}: %v", join(one), err))
				}
			}
		}
	}
	result, err := samples.query(t.Context(), text, scrapeInterval)
	if err != nil {
		return append(problems, err.Error())
	}
	if len(result) == 0 {
		problems = append(problems, "no result")
	}
	for _, series := range result {
		for _, label := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(q.LegendFormat, -1) {
			if !series.Metric.Has(label[1]) {
				problems = append(problems, fmt.Sprintf("the result has no label %s of the legend", label[1]))
			}
		}
	}
	return problems
}

func join(matchers []*labels.Matcher) string {
	var texts []string
	for _, m := range matchers {
		texts = append(texts, m.String())
	}
	return strings.Join(texts, ", ")
}

// Each query must have a result in a run with all kinds of trouble, and none if one of its metrics has another name.
func TestDashboardQueries(t *testing.T) {
	t.Parallel()
	samples := store(t, play(t, trouble).scrapes)
	shown := map[string]bool{}
	for _, panel := range readDashboard(t).Panels {
		for _, q := range panel.Targets {
			for _, problem := range check(t, samples, q) {
				t.Errorf("panel %q: %s: %s", panel.Title, problem, q.Expr)
			}
			for _, name := range metricName.FindAllString(q.Expr, -1) {
				shown[name] = true
				renamed := q
				renamed.Expr = strings.ReplaceAll(q.Expr, name, name+"s")
				if check(t, samples, renamed) == nil {
					t.Errorf("panel %q: the check accepts %s", panel.Title, renamed.Expr)
				}
			}
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `(evenkeel_\\w+)` \\| (\\w+) ").FindAllStringSubmatch(readFile(t, metricsFile), -1) {
		name := row[1]
		if row[2] == "histogram" {
			name += "_bucket"
		}
		if !shown[name] {
			t.Errorf("%s has %s, but no panel shows it", metricsFile, name)
		}
	}
}

var metricName = regexp.MustCompile(`\b(?:evenkeel|rest_client|leader_election|process|go)_\w+`)

func TestDashboardPanels(t *testing.T) {
	t.Parallel()
	d := readDashboard(t)
	variables := map[string]string{}
	for _, v := range d.Templating.List {
		variables[v.Name] = v.Definition
	}
	wantVariables := map[string]string{
		"datasource": "",
		"job":        "label_values(evenkeel_controller_workers, job)",
		"controller": `label_values(evenkeel_controller_workers{job=~"$job"}, controller)`,
		"informer":   `label_values(evenkeel_informer_objects{job=~"$job"}, informer)`,
	}
	if diff := cmp.Diff(wantVariables, variables); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
	taken := map[[2]int]string{}
	ids := map[int]bool{}
	for _, panel := range d.Panels {
		if panel.ID == 0 || ids[panel.ID] {
			t.Errorf("panel %q: the id %d is zero or a duplicate", panel.Title, panel.ID)
		}
		ids[panel.ID] = true
		for x := panel.GridPos.X; x < panel.GridPos.X+panel.GridPos.W; x++ {
			for y := panel.GridPos.Y; y < panel.GridPos.Y+panel.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("panel %q is over panel %q, or too wide", panel.Title, other)
				}
				taken[[2]int{x, y}] = panel.Title
			}
		}
		if panel.Type == "row" {
			continue
		}
		if panel.Title == "" || panel.Description == "" || panel.Datasource.UID != "${datasource}" || len(panel.Targets) == 0 {
			t.Errorf("panel %d (%q) lacks a title, a description, the datasource variable or a query", panel.ID, panel.Title)
		}
		for _, q := range panel.Targets {
			if strings.Count(q.Expr, "{") != strings.Count(q.Expr, `{job=~"$job"`) {
				t.Errorf("panel %q: a selector lacks the variable job: %s", panel.Title, q.Expr)
			}
		}
	}
}

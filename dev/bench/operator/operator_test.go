package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/evenkeel-go/evenkeel/dev/bench/internal/result"
	"github.com/evenkeel-go/evenkeel/dev/bench/internal/section"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestDocumentMatchesResults checks that the section of docs/reference/benchmarks.md is what the generator writes for
// results.json.
func TestDocumentMatchesResults(t *testing.T) {
	t.Parallel()
	results, err := result.Read[Results]("results.json")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "reference", "benchmarks.md"))
	if err != nil {
		t.Fatal(err)
	}
	got := section.Get(string(page), section.Operator)
	if want := section.Set(got, section.Operator, document(results)); got != want {
		t.Errorf("docs/reference/benchmarks.md is not up to date (-want +got):\n%s", cmp.Diff(want, got))
	}
}

// TestBothOperatorsInSmallSize takes both programs through all phases with a few WebApps.
func TestBothOperatorsInSmallSize(t *testing.T) { //nolint:paralleltest // it measures; another test would take processor time
	before := leftovers(t)
	dir := t.TempDir()
	docs := filepath.Join(dir, "benchmarks.md")
	if err := os.WriteFile(docs, []byte("# Benchmarks\n\nAnother part.\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, progress bytes.Buffer
	args := []string{
		"-n=20", "-churn=2s", "-rest=1s", "-outage=500ms", "-timeout=2m",
		"-repository=../../..", "-docs=" + docs, "-out=" + filepath.Join(dir, "results.json"),
	}
	if err := run(t.Context(), args, &out, io.MultiWriter(&progress, t.Output())); err != nil {
		t.Fatal(err)
	}
	results, err := result.Read[Results](filepath.Join(dir, "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range programs() {
		measured := results.Rounds[20][p.name]
		for _, phase := range phases() {
			if len(measured[phase]) != 1 {
				t.Fatalf("%s, %s: %d measurements, want one", p.name, phase, len(measured[phase]))
			}
			if m := measured[phase][0]; m.Left != "" || m.PeakRSS == 0 {
				t.Errorf("%s, %s: left %q, peak RSS %d", p.name, phase, m.Left, m.PeakRSS)
			}
		}
		// Each new WebApp has at least its finalizer, three children and a status to write.
		start := measured[phaseStart][0]
		if n := start.requestCount(); n < 5*20 || start.CPU == 0 || start.Sent == 0 || start.Received == 0 {
			t.Errorf("%s, start: %d requests, CPU %v s, %d bytes sent, %d received", p.name, n, start.CPU, start.Sent, start.Received)
		}
		if n := measured[phaseRestart][0].Handled; n < 20 {
			t.Errorf("%s, restart: %d runs of the handler, want one per WebApp at least", p.name, n)
		}
		churn := measured[phaseChurn][0]
		if churn.Changes != 40 || churn.P50 <= 0 || churn.P99 < churn.P50 {
			t.Errorf("%s, churn: %d changes, p50 %v s, p99 %v s; want 40 changes, each shown", p.name, churn.Changes, churn.P50, churn.P99)
		}
		if after := measured[phaseOutage][0]; after.Changes != 20 {
			t.Errorf("%s, outage: %d changes, want 20", p.name, after.Changes)
		}
	}
	for _, name := range []string{"restart_time", "requests_new", "churn_cpu"} {
		if !strings.Contains(out.String(), "\nRATIO "+name+" evenkeel/controller-runtime ") {
			t.Errorf("the output has no RATIO line of %s", name)
		}
	}
	text, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "Another part.") || !strings.Contains(string(text), "Even Keel, 20 WebApps") {
		t.Errorf("the document is:\n%s", text)
	}
	if after := leftovers(t); len(after) > len(before) {
		t.Errorf("temporary folders before %v, after %v", before, after)
	}
}

// leftovers returns this benchmark's folders in the temporary folder.
func leftovers(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(os.TempDir(), "bench-operator-*"))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func TestRequestName(t *testing.T) {
	t.Parallel()
	const apps = "/apis/webapp.example.com/v1/namespaces/a/webapps"
	for _, test := range []struct {
		method, url, contentType, want string
		watch                          bool
	}{
		{"GET", "/api/v1/pods", "", "list pods", false},
		{"GET", "/api/v1/pods?watch=true", "", "watch pods", true},
		{"GET", "/api/v1/namespaces/a/configmaps/b", "", "get configmaps", false},
		{"GET", "/api/v1/namespaces/a", "", "get namespaces", false},
		{"GET", "/api/v1/namespaces", "", "list namespaces", false},
		{"GET", "/apis", "", "get discovery", false},
		{"GET", "/apis/apps/v1", "", "get discovery", false},
		{"POST", apps, "", "create webapps", false},
		{"PUT", apps + "/b/status", "", "update webapps/status", false},
		{"PATCH", apps + "/b", "application/merge-patch+json", "patch webapps", false},
		{"PATCH", apps + "/b", "application/apply-patch+yaml", "apply webapps", false},
		{"DELETE", apps + "/b", "", "delete webapps", false},
		{"DELETE", apps, "", "deletecollection webapps", false},
	} {
		request := httptest.NewRequestWithContext(t.Context(), test.method, test.url, http.NoBody)
		request.Header.Set("Content-Type", test.contentType)
		if name, watch := requestName(request); name != test.want || watch != test.watch {
			t.Errorf("%s %s: %q, watch %t, want %q, %t", test.method, test.url, name, watch, test.want, test.watch)
		}
	}
}

func TestParseCPUTime(t *testing.T) {
	t.Parallel()
	const stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 150 25 0 0 20 0 1 0 9 9 9\n"
	if got, err := parseCPUTime([]byte(stat)); err != nil || got != 1750*time.Millisecond {
		t.Errorf("CPU time %v, %v, want 1.75s", got, err)
	}
	if got, err := parseCPUTime([]byte("7 (a) S 1")); err == nil {
		t.Errorf("CPU time %v of a line that is too short, want an error", got)
	}
}

func TestDelaysOfChanges(t *testing.T) {
	t.Parallel()
	v := newView(nil, "")
	begin := time.Now()
	c := child{configMapsPath, "a/b"}
	for revision := 1; revision <= 4; revision++ {
		v.await(c, revision, begin)
	}
	v.forget(c, 4)
	o := &object{Data: map[string]string{revisionKey: "2"}}
	v.take(configMapsPath, "a/b", "MODIFIED", o, begin.Add(time.Second))
	delays, unshown := v.takeDelays()
	if diff := cmp.Diff([]time.Duration{time.Second, time.Second}, delays); diff != "" || unshown != 1 {
		t.Errorf("delays %v, %d not shown; want two of a second, and one", delays, unshown)
	}
}

func TestMediansAndRatios(t *testing.T) {
	t.Parallel()
	r := &Results{}
	for _, n := range []int{7, 9, 8} {
		r.add(10, evenKeel, map[string]Measurement{phaseStart: {Requests: map[string]int{"get a": n, "apply a": 72}}})
	}
	r.add(10, controllerRuntime, map[string]Measurement{phaseStart: {Requests: map[string]int{"create a": 64}}})
	lines := r.ratioLines()
	for _, want := range []string{
		"RATIO requests_new evenkeel/controller-runtime 1.250 10\n",
		"RATIO start_conflicts evenkeel/controller-runtime 1.000 10\n", // none in both
	} {
		if !strings.Contains(lines, want) {
			t.Errorf("the lines are:\n%swant %s", lines, want)
		}
	}
	if strings.Contains(lines, "churn") {
		t.Errorf("lines of a phase that was not measured:\n%s", lines)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-n=0"}, {"-n=10,x"}, {"-rounds=0"}, {"-rate=0"}, {"-only=kooper"}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "flag") {
			t.Errorf("%v: error %v, want one that names the flag", args, err)
		}
	}
	var help bytes.Buffer
	if err := run(t.Context(), []string{"--help"}, io.Discard, &help); err == nil || !strings.Contains(help.String(), "real API server") {
		t.Errorf("--help: %v, %q", err, help.String())
	}
}

package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/evenkeel-go/evenkeel/dev/bench/internal/result"
	"github.com/evenkeel-go/evenkeel/dev/bench/internal/section"
)

// TestMain also plays the API server: the orchestrator starts its own binary for it.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == serveCommand {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// made returns results of two sizes with a figure of each metric: Even Keel's is share of
// the peers'.
func made(share float64) *Results {
	r := newResults(Options{Sizes: []int{1000, 100000}, ChartSizes: []int{1000000}, Rounds: 3, HotKeys: 100})
	for _, m := range metricsOf(r.Options) {
		for _, c := range contestants(nil) {
			value := 1000.0
			if c.name == evenKeel {
				value *= share
			}
			if m.reads && strings.HasPrefix(c.name, "kooper") {
				continue
			}
			r.add(m.key, c.name, value)
		}
	}
	r.add(sized("heap_per_pod", 1000000), evenKeel, 500)
	r.add(sized("peak_rss_pod", 1000000), evenKeel, 800e6)
	return r
}

func TestTargetsApplyToLargestSize(t *testing.T) {
	t.Parallel()
	for _, m := range metricsOf(Options{Sizes: []int{100000, 1000}}) {
		if strings.HasSuffix(m.key, "_1000") && strings.HasPrefix(m.key, "heap") && m.target != 0 {
			t.Errorf("%s has the target %v, want none", m.key, m.target)
		}
		if m.key == "heap_per_pod_100000" && m.target != 0.05 {
			t.Errorf("%s has the target %v, want 0.05", m.key, m.target)
		}
	}
}

func TestMissesAreFound(t *testing.T) {
	t.Parallel()
	if got := misses(made(0.01)); len(got) != 0 {
		t.Errorf("misses with a hundredth of the peers' figures: %v, want none", got)
	}
	missed := make(map[string]bool)
	for _, m := range misses(made(0.7)) {
		missed[m.metric.key+" "+m.peer] = true
	}
	for key, want := range map[string]bool{
		"heap_per_pod_100000 controller-runtime":      true,
		"heap_per_pod_1000 controller-runtime":        false, // the target is for the largest number
		"heap_per_pod_100000 controller-runtime-best": false, // the targets are against the defaults
		"latency_p99_pod controller-runtime":          true,
		"latency_p99_pod kooper":                      true, // a third below is asked for
		"latency_p99_cr kooper":                       false,
		"get_first_pod controller-runtime":            true,
		"get_first_cr controller-runtime":             false,
		"get_cr controller-runtime-best":              false,
	} {
		if missed[key] != want {
			t.Errorf("missed %s: %t, want %t", key, missed[key], want)
		}
	}
	if got := misses(made(1.2)); !missedBy(got, "sync_cpu_pod_1000", "kooper") {
		t.Errorf("misses with more than Kooper's: %v, want sync_cpu_pod_1000 among them", got)
	}
}

func missedBy(all []miss, key, peer string) bool {
	for _, m := range all {
		if m.metric.key == key && m.peer == peer {
			return true
		}
	}
	return false
}

func TestRatioLines(t *testing.T) {
	t.Parallel()
	r := newResults(Options{Sizes: []int{10}, Only: []string{evenKeel, "kooper"}})
	for _, value := range []float64{1, 2, 9} {
		r.add("heap_per_pod_10", evenKeel, value)
		r.add("heap_per_pod_10", "kooper", 2*value)
	}
	r.add("get_pod", evenKeel, 1)
	if diff := cmp.Diff("RATIO heap_per_pod_10 evenkeel/kooper 0.5000\n", ratioLines(r)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestUnitsAreReadable(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		unit  unit
		value float64
		want  string
	}{
		{bytesUnit, 512.4, "512 B"},
		{bytesUnit, 14_723, "14.7 kB"},
		{bytesUnit, 692e6, "692 MB"},
		{bytesUnit, 1.25e9, "1.25 GB"},
		{secondsUnit, 0.4321, "432 ms"},
		{secondsUnit, 12.345, "12.3 s"},
		{microsUnit, 9.996, "10.0 µs"},
		{microsUnit, 20300, "20.3 ms"},
		{countUnit, 48, "48"},
	} {
		if got := test.unit.format(test.value); got != test.want {
			t.Errorf("%v: %q, want %q", test.value, got, test.want)
		}
	}
	for n, want := range map[int]string{7: "7", 1000: "1,000", 1234567: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("thousands(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestDocumentHasEveryFigureAndEveryMiss(t *testing.T) {
	t.Parallel()
	r := made(0.7)
	r.Failures = []Failure{{Contestant: "kooper", Kind: "pods", Objects: 1000, Round: 2, Err: "it hung"}}
	dir, docs := t.TempDir(), t.TempDir()
	explanation := "# Title\n\n## heap_per_pod\n\nBecause.\n\n## latency_p99_pod kooper\n\nOnly here.\n"
	if err := os.WriteFile(filepath.Join(dir, "explanations.txt"), []byte(explanation), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeDocs(r, dir, docs); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(docs, docsFile))
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Join(strings.Fields(string(text)), " ") // lines are wrapped
	for _, want := range []string{
		"heap per Pod**: 0.70 of controller-runtime's; the target is 0.05 (0.035). Because.",
		"latency p99, Pod**: 0.70 of kooper's. Only here.",
		"latency p99, Pod**: 0.70 of controller-runtime's; the target is 0.6, and a third below Kooper's. Not explained yet.",
		"1,000,000 Pods with Even Keel: heap 500 MB, peak RSS 800 MB, in a process with GOMEMLIMIT=660MiB; the target is less than 700 MB: **missed**",
		"round 2: it hung",
		"## Where Even Keel is slower",
		"| |controller-runtime|controller-runtime on our cache|controller-runtime on our engine|",
		"|CPU per event, distinct keys, Pod|1.00 ms|1.00 ms (1.00)|1.00 ms (1.00)|",
	} {
		if !strings.Contains(words, want) {
			t.Errorf("the document lacks %q:\n%s", want, text)
		}
	}
	for _, m := range metricsOf(r.Options) {
		if strings.Contains(string(text), "|"+m.title+"|") == m.unlisted {
			t.Errorf("the document contains %q: %t, want %t", m.title, m.unlisted, !m.unlisted)
		}
	}
	for _, name := range []string{"heap", "rss", "cpu"} {
		if _, err := os.Stat(filepath.Join(docs, docsCharts, name+".svg")); err != nil {
			t.Error(err)
		}
	}
}

// TestDocumentMatchesResults checks that docs/reference/benchmarks.md is what the generator writes for results.json.
func TestDocumentMatchesResults(t *testing.T) {
	t.Parallel()
	results, err := result.Read[Results]("results.json")
	if err != nil {
		t.Fatal(err)
	}
	explanations, err := readExplanations("explanations.txt")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", docsFile))
	if err != nil {
		t.Fatal(err)
	}
	want := document(results, explanations)
	if got, _ := section.Cut(string(page)); got != want {
		t.Errorf("docs/reference/%s is not up to date: run make bench-docs (-want +got):\n%s", docsFile, cmp.Diff(want, got))
	}
}

func TestChartIsWellFormed(t *testing.T) {
	t.Parallel()
	for name, lines := range map[string][]line{
		"several points": {{name: "a", points: []point{{1000, 5e6}, {1e6, 5e9}}}, {name: "b", points: []point{{1000, 1e6}}}},
		"one point":      {{name: "a", points: []point{{1000, 1e6}}}},
	} {
		svg := chart{title: name, y: bytesUnit, lines: lines}.svg()
		decoder := xml.NewDecoder(strings.NewReader(svg))
		for {
			_, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, svg)
			}
		}
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("%s: a number is missing:\n%s", name, svg)
		}
	}
}

func TestHungProgramIsNamedAndEnded(t *testing.T) {
	t.Parallel()
	p, err := startProcess(t.Context(), "sleeper", "/bin/sh", nil, "-c", "echo oh dear >&2; echo '{}'; exec sleep 100 <&-")
	if err != nil {
		t.Fatal(err)
	}
	var answer any
	if err := p.read(t.Context(), &answer, time.Minute); err != nil {
		t.Fatal(err)
	}
	err = p.read(t.Context(), &answer, 50*time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "sleeper gave no answer in 50ms: oh dear") {
		t.Errorf("got %v, want an error that names the program, the time and what it said", err)
	}
	begin := time.Now()
	p.end()
	if took := time.Since(begin); took > quitTime+time.Minute { // it would sleep for longer
		t.Errorf("end took %v", took)
	}
}

// TestRunOfAllPrograms needs the programs' modules, and builds them: minutes the first time.
func TestRunOfAllPrograms(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds every program")
	}
	o := Options{Sizes: []int{200}, Rounds: 1, PacedSeconds: 0.2, Timeout: time.Minute}
	o.setDefaults(false)
	o.HotSeconds, o.ReadMillis = 0.1, 10
	r, err := compare(t.Context(), ".", o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Failures) > 0 {
		t.Errorf("failures: %v", r.Failures)
	}
	for _, m := range metricsOf(o) {
		for _, c := range contestants(nil) {
			ofBuild := slices.Contains([]string{"binary_bytes", "modules", "cold_build_seconds"}, m.key)
			optional := m.key == "cold_build_seconds" || c.best || ofBuild && c.compat || m.reads && c.name == "kooper"
			if value, ok := r.figure(m.key, c.name); !optional && (!ok || value <= 0) {
				t.Errorf("%s of %s: %v, %t, want a figure", m.key, c.name, value, ok)
			}
		}
	}
}

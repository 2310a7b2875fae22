package controllerruntime

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

//go:embed explanations.txt
var explanations string

// spec is a test in a report of Ginkgo.
type spec struct {
	ContainerHierarchyTexts []string
	LeafNodeText            string
	State                   string
	Failure                 struct{ Message string }
}

func (s spec) name() string {
	return strings.Join(append(slices.Clone(s.ContainerHierarchyTexts), s.LeafNodeText), " / ")
}

func (s spec) failed() bool {
	return !slices.Contains([]string{"passed", "pending", "skipped"}, s.State)
}

// results returns the specs in a report of Ginkgo, and the tests that failed besides them. output and err are those of
// the process.
func results(report []byte, output string, err error) (specs []spec, _ error) {
	var suites []struct{ SpecReports []spec }
	if err := json.Unmarshal(report, &suites); err != nil {
		return nil, fmt.Errorf("read the report: %w", err)
	}
	for _, suite := range suites {
		specs = append(specs, suite.SpecReports...)
	}
	failed := regexp.MustCompile(`(?m)^--- FAIL: (\S+)`).FindAllStringSubmatch(output, -1)
	// The one that runs the specs fails if a spec fails: then the specs have the explanations.
	if hasFailed := slices.ContainsFunc(specs, spec.failed); hasFailed && len(failed) == 1 {
		return specs, nil
	}
	for _, test := range failed {
		s := spec{LeafNodeText: test[1], State: "failed"}
		s.Failure.Message = output
		specs = append(specs, s)
	}
	if len(failed) == 0 && err != nil {
		specs = append(specs, spec{LeafNodeText: fmt.Sprintf("the process: %v", err), State: "failed"})
	}
	return specs, nil
}

// explanation is a reason for which specs of a suite fail.
type explanation struct {
	specs  *regexp.Regexp
	reason string // begins with "sometimes" if they may also pass
	failed int    // the number of these specs that failed
}

// explanationsOf returns the explanations of a suite. A line of the file is "suite: regexp: reason".
func explanationsOf(t *testing.T, suite string) (list []*explanation) {
	t.Helper()
	for line := range strings.Lines(explanations) {
		fields := strings.SplitN(strings.TrimSpace(line), ": ", 3)
		if len(fields) != 3 {
			t.Fatalf("explanations.txt: %q is not \"suite: regexp: reason\"", line)
		}
		if fields[0] == suite {
			list = append(list, &explanation{specs: regexp.MustCompile(fields[1]), reason: fields[2]})
		}
	}
	return list
}

// report logs the counts of a suite and the specs that failed. A spec that fails without an explanation fails the test,
// and so does an explanation without a spec that fails, unless they fail sometimes only.
func report(tb testing.TB, suite string, explained []*explanation, specs []spec) {
	tb.Helper()
	counts := map[string]int{}
	for _, s := range specs {
		if !s.failed() {
			counts[s.State]++
			continue
		}
		counts["failed"]++
		i := slices.IndexFunc(explained, func(e *explanation) bool { return e.specs.MatchString(s.name()) })
		if i < 0 {
			tb.Errorf("%s: %s\n%s", s.State, s.name(), s.Failure.Message)
			continue
		}
		explained[i].failed++
		tb.Logf("%s: %s\nexplained: %s", s.State, s.name(), explained[i].reason)
	}
	for _, e := range explained {
		if e.failed == 0 && !strings.HasPrefix(e.reason, "sometimes") {
			tb.Errorf("no spec failed that matches %s: remove its explanation", e.specs)
		}
	}
	tb.Logf("%s: %d passed, %d failed, %d skipped", suite, counts["passed"], counts["failed"],
		counts["pending"]+counts["skipped"])
}

// recorder counts the failures that report reports.
type recorder struct {
	testing.TB
	failures int
}

func (r *recorder) Errorf(string, ...any) { r.failures++ }
func (r *recorder) Logf(string, ...any)   {}
func (r *recorder) Helper()               {}

func TestUpstreamReportNeedsExplanations(t *testing.T) {
	t.Parallel()
	explained := explanationsOf(t, "compat/cache")
	if len(explained) != 1 || len(explanationsOf(t, "local/cache")) > 0 {
		t.Fatalf("%d explanations of compat/cache, want 1, and of local/cache %d, want 0", len(explained),
			len(explanationsOf(t, "local/cache")))
	}
	failed := spec{ContainerHierarchyTexts: []string{"UnsafeDisableDeepCopy"}, LeafNodeText: "a", State: "failed"}
	other := spec{LeafNodeText: "b", State: "panicked"}
	passed := spec{LeafNodeText: "c", State: "passed"}
	sometimes := &explanation{specs: regexp.MustCompile("^x$"), reason: "sometimes: the first list is done already"}
	explained = append(explained, sometimes)
	for _, tc := range []struct {
		specs []spec
		want  int // failures
	}{
		{[]spec{failed, {LeafNodeText: "x", State: "failed"}}, 0},
		{[]spec{passed}, 1}, // the explanation is not needed anymore
		{[]spec{passed, failed}, 0},
		{[]spec{passed, failed, other}, 1},
	} {
		r := &recorder{TB: t}
		explained[0].failed = 0
		if report(r, "compat/cache", explained, tc.specs); r.failures != tc.want {
			t.Errorf("%v: %d failures, want %d", tc.specs, r.failures, tc.want)
		}
	}
}

// A test of the suite that fails is reported, except for the one that runs the specs, which have their own failures.
func TestUpstreamResults(t *testing.T) {
	t.Parallel()
	const (
		passed = `[{"SpecReports": [{"LeafNodeText": "a", "State": "passed"}]}]`
		failed = `[{"SpecReports": [{"ContainerHierarchyTexts": ["b"], "LeafNodeText": "c", "State": "failed"}]}]`
	)
	ended := errors.New("exit status 1")
	for name, tc := range map[string]struct {
		report, output string
		err            error
		want           []string // the names of the failed specs
	}{
		"everything passed": {passed, "--- PASS: TestSource\n", nil, nil},
		"a spec failed":     {failed, "--- FAIL: TestSource (1s)\n", ended, []string{"b / c"}},
		"another test":      {failed, "--- FAIL: TestSource (1s)\n--- FAIL: TestD (1s)\n", ended, []string{"b / c", "TestSource", "TestD"}},
		"only a test":       {passed, "--- FAIL: TestD (1s)\n", ended, []string{"TestD"}},
		"the process":       {passed, "fatal error", ended, []string{"the process: exit status 1"}},
	} {
		specs, err := results([]byte(tc.report), tc.output, tc.err)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var got []string
		for _, s := range specs {
			if s.failed() {
				got = append(got, s.name())
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: failed %q, want %q", name, got, tc.want)
		}
	}
	if _, err := results([]byte("{"), "", nil); err == nil {
		t.Error("no error for a report that is not JSON")
	}
}

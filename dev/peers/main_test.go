package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestExplanationsHaveSuiteAndPattern(t *testing.T) {
	t.Parallel()
	for line := range strings.Lines(explanations) {
		fields := strings.SplitN(strings.TrimSpace(line), ": ", 3)
		if len(fields) != 3 || !slices.Contains(allSuites(), fields[0]) {
			t.Errorf("%q is not \"suite: regexp: reason\"", line)
			continue
		}
		if _, err := regexp.Compile(fields[1]); err != nil {
			t.Error(err)
		}
	}
}

func TestExplanationOfSuite(t *testing.T) {
	t.Parallel()
	const name = "Cache / with UnsafeDisableDeepCopy / should not copy"
	if reason, ok := explanation("cache", name); !ok || !strings.HasPrefix(reason, "each read decodes a copy") {
		t.Errorf("reason %q, %v", reason, ok)
	}
	for _, other := range [][2]string{{"client", name}, {"cache", "Cache / should copy"}} {
		if reason, ok := explanation(other[0], other[1]); ok {
			t.Errorf("%s, %s: reason %q", other[0], other[1], reason)
		}
	}
}

func TestReportCountsUnexplainedFailures(t *testing.T) {
	t.Parallel()
	specs := []spec{
		{LeafNodeText: "a", State: "passed"},
		{LeafNodeText: "b", State: "pending"},
		{LeafNodeText: "c", State: "skipped"},
		{ContainerHierarchyTexts: []string{"UnsafeDisableDeepCopy"}, LeafNodeText: "d", State: "failed"},
		{LeafNodeText: "e", State: "panicked"},
	}
	for suite, want := range map[string]int{"cache": 1, "client": 2} {
		if got := report(suite, "1", specs); got != want {
			t.Errorf("%s: %d failures are not explained, want %d", suite, got, want)
		}
	}
}

// A test of the suite that fails is reported, except for the one that runs the specs, which have their own failures.
func TestResultsOfSuite(t *testing.T) {
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

func TestReplaceNew(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "cache.go")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("package cache\n\nfunc New(cfg *rest.Config, opts Options) (Cache, error) {\n\treturn nil, nil\n}\n")
	if err := replaceNew(file); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), "return Replaced(cfg, opts)\n}\n\treturn nil, nil\n}") {
		t.Errorf("error %v, file:\n%s", err, text)
	}
	write("package cache\n\nfunc New(opts Options) Cache { return nil }\n")
	if err := replaceNew(file); err == nil || !strings.Contains(err.Error(), "has no function New as it was") {
		t.Errorf("another signature: error %v", err)
	}
}

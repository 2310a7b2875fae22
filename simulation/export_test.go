package simulation

import (
	"slices"
	"strings"
	"testing"
)

// Failures returns what Explore reports.
func Failures(t *testing.T, scenario func() Scenario) []string {
	t.Helper()
	return explore(t, scenario)
}

// ParseFaults parses and prints faults.
func ParseFaults(text string, programs ...string) (string, error) {
	faults, err := parseFaults(text, programs)
	return join(faults), err
}

// DifferentTraces runs a scenario twice without faults, and twice with each single fault after which nothing waits for
// a random time. It returns the number of plans, and for each of them whose runs differ the first difference.
func DifferentTraces(t *testing.T, scenario func() Scenario) (plans int, different []string) {
	t.Helper()
	compare := func(faults ...fault) *outcome {
		plans++
		a := runTrial(t, scenario(), t.Name()+"/a", faults, 0)
		b := runTrial(t, scenario(), t.Name()+"/b", faults, 0)
		if !slices.Equal(a.trace(), b.trace()) {
			different = append(different, join(faults)+": "+firstDifference(a.trace(), b.trace()))
		}
		return a
	}
	first := compare()
	for _, f := range singleFaults(first) {
		if f.kind != lost && f.kind != unavailable && f.kind != relist { // retries
			compare(f)
		}
	}
	return plans, different
}

// CompareObjects returns the differences of two states of a cluster.
func CompareObjects(want, got []map[string]any) string {
	var texts []string
	for _, d := range differences(newState(want), newState(got)) {
		texts = append(texts, d.String())
	}
	return strings.Join(texts, "\n")
}

package simulation

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// finding is a rule that runs broke.
type finding struct {
	violation
	outcome *outcome // of the first run
	others  []fault  // single faults that broke it too
	runs    int
	again   int // how many of repeatedRuns broke it again
}

const (
	// findingsShown is the number of findings of a test that are reported in full.
	findingsShown = 3
	// minImpossible is the number of impossible runs that are not reported, although there are few others.
	minImpossible = 10
	// repeatedRuns is how often the run of a finding is repeated.
	repeatedRuns = 2
	// differencesShown and othersShown limit a report.
	differencesShown = 10
	othersShown      = 5
)

// id identifies violations with probably the same cause.
func (v *violation) id() string { return string(v.rule) + " " + v.object }

// add adds a violation to the finding with its id.
func (e *exploration) add(v violation, o *outcome) {
	for _, f := range e.findings {
		if f.id() == v.id() {
			f.runs++
			if len(o.faults) == 1 {
				f.others = append(f.others, o.faults[0])
			}
			return
		}
	}
	e.findings = append(e.findings, &finding{violation: v, outcome: o, runs: 1})
}

// report returns a text for each finding, and logs the number of runs.
func (e *exploration) report(t *testing.T) (failures []string) {
	t.Helper()
	runs, elapsed := e.runs.Load(), time.Since(e.began)
	for n, f := range e.findings {
		if n >= findingsShown {
			failures = append(failures, f.sentence())
			continue
		}
		for _, r := range e.run(t, slices.Repeat([][]fault{f.outcome.faults}, repeatedRuns)) {
			if r.violation != nil && r.violation.id() == f.id() {
				f.again++
			}
		}
		failures = append(failures, f.text(e, runs))
	}
	if n := e.skipped.Load(); n > 0 {
		failures = append(failures, fmt.Sprintf("%d runs were left out, because the time of go test ends: use a "+
			"longer -timeout, or set Scenario.Runs", n))
	}
	if n := e.impossible.Load(); n > max(minImpossible, e.done.Load()/2) {
		failures = append(failures, fmt.Sprintf("%d of %d runs with faults show nothing, because a step was not "+
			"possible: steps must not depend on what the programs have done", n, e.done.Load()))
	}
	t.Logf("SIM %s runs=%d runs_per_core_minute=%.0f findings=%d unreached=%d impossible=%d", e.name, runs,
		float64(runs)/elapsed.Minutes()/float64(e.workers), len(e.findings), e.unreached.Load(), e.impossible.Load())
	return failures
}

// sentence says what a run broke, and the faults before it.
func (f *finding) sentence() string {
	var causes []string
	for _, h := range f.outcome.happened {
		causes = append(causes, h.describe())
	}
	if len(causes) == 0 {
		causes = append(causes, "before any fault: the scenario depends on chance")
	}
	return fmt.Sprintf("%s (%s)", f.violation.text, strings.Join(causes, "; "))
}

func (f *finding) text(e *exploration, runs int64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n%s", f.sentence(), timeline(f.outcome))
	if f.outcome.end != nil {
		if found := e.reference.compareEnd(f.outcome.end); len(found) > 0 {
			b.WriteString("\nThe end differs from that of the runs without faults:\n")
			for _, d := range found[:min(len(found), differencesShown)] {
				fmt.Fprintf(&b, "  %s\n", d)
			}
			if more := len(found) - differencesShown; more > 0 {
				fmt.Fprintf(&b, "  and %d more fields\n", more)
			}
		}
	}
	fmt.Fprintf(&b, "\nUsual repair: %s.\n", f.outcome.faults[0].kind.repair())
	fmt.Fprintf(&b, "The rule was broken in %d of %d runs", f.runs, runs)
	if len(f.others) > 0 {
		fmt.Fprintf(&b, ", also with %s", join(f.others[:min(len(f.others), othersShown)]))
		if more := len(f.others) - othersShown; more > 0 {
			fmt.Fprintf(&b, " and %d other faults", more)
		}
	}
	fmt.Fprintf(&b, ", and in %d of %d repetitions of this run.\n", f.again, repeatedRuns)
	fmt.Fprintf(&b, "Repeat: %s=%s go test -run '%s'", exploreVariable, join(f.outcome.faults), pattern(e.name))
	return b.String()
}

func join(faults []fault) string {
	texts := make([]string, len(faults))
	for i, f := range faults {
		texts[i] = f.String()
	}
	return strings.Join(texts, ",")
}

// pattern returns the argument of go test -run that selects a test.
func pattern(name string) string { return "^" + strings.ReplaceAll(name, "/", "$/^") + "$" }

// describe returns what has happened: "webapp-operator crashed just after it created deployments default/shop".
func (h happenedFault) describe() string {
	write, until := h.write.describe(), ""
	if h.outlastsStep {
		until = ", and started again after the user's next step"
	}
	switch h.kind {
	case crashBefore:
		return fmt.Sprintf("%s would have %s, and crashed before%s", h.program, write, until)
	case crashAfter:
		return fmt.Sprintf("%s %s, and crashed%s", h.program, write, until)
	case crashLate:
		return fmt.Sprintf("%s would have %s, and crashed; the request arrived %v later", h.program, write, lateTime)
	case lost:
		return fmt.Sprintf("%s %s, and the response was lost", h.program, write)
	case unavailable:
		return fmt.Sprintf("%s would have %s, and the server responded with 503", h.program, write)
	case stale, relist:
		text := fmt.Sprintf("%s %s, and then saw no changes of %s", h.program, write, h.resource)
		if h.outlastsStep {
			return text + " until after the user's next step"
		}
		text += fmt.Sprintf(" for %v", staleTime)
		if h.kind == relist {
			text += ", and then only their result"
		}
		return text
	case early:
		return fmt.Sprintf("the user did the next step just before %s %s", h.program, write)
	}
	return string(h.kind)
}

// describe returns a write in the past tense: "created deployments default/shop".
func (r Request) describe() string {
	verbs := map[string]string{
		"create": "created", "update": "updated", "patch": "patched", "apply": "applied", "delete": "deleted",
		"deletecollection": "deleted all", verbCall: "called",
	}
	text := verbs[r.Verb]
	if r.Resource.Resource != "" {
		text += " " + r.Resource.Resource
	}
	if r.Subresource != "" {
		text += "/" + r.Subresource
	}
	if r.Key.Name != "" {
		text += " " + r.Key.String()
	}
	return text
}

// repair returns the usual repair of what a fault has shown.
func (k faultKind) repair() string {
	switch k {
	case crashBefore, crashAfter:
		return "each run finds out from the cluster what is missing, and depends on nothing that an earlier run has " +
			"done or kept in memory"
	case lost:
		return "a write without a response may have succeeded: use names that follow from the owner, and after " +
			"AlreadyExists or Conflict read the object again"
	case crashLate:
		return "a write may arrive after its program has ended: send the resourceVersion, or the uid for a deletion, " +
			"so that it is rejected if the object has changed"
	case unavailable:
		return "return the error of a write, so that the key is retried, and count nothing as done before it is"
	case stale, relist:
		return "a cache may be late, and may never show a state: send the uid and resourceVersion of what was read " +
			"with a write that depends on it, and read from the API server before something is deleted for good"
	case early:
		return "the object may change between read and write: send its resourceVersion, or apply only the fields " +
			"that the program owns"
	}
	return ""
}

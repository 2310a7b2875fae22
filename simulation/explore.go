package simulation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// Scenario is what Explore explores: programs, and what users do.
type Scenario struct {
	// Cluster configures the cluster of each run.
	Cluster Config
	// Programs are the tested programs by their names: functions that run a program, with new memory, until ctx ends.
	// The name is the user agent of config. Explore calls the function again when a program has crashed or ended. At
	// least one is required.
	Programs map[string]func(ctx context.Context, config *rest.Config) error
	// Steps are what users do, one after the other, as in a test. Each step begins when the cluster is idle; faults can
	// let it begin earlier. Default: none.
	Steps []func(c *Cluster)
	// Always returns an error if the state of the cluster breaks a rule, such as two primaries. It is called after the
	// programs' writes, and must not write. ctx is for requests of c.Client: the context of the test is outside of the
	// virtual time. Default: none.
	Always func(ctx context.Context, c *Cluster) error
	// Finally checks the end of each run, as Always. Default: each run must end with the same objects as the runs
	// without faults.
	Finally func(ctx context.Context, c *Cluster) error
	// Runs limits the runs with faults. Default: one for each single fault, and 200 with two or three random ones. With
	// a lower number than there are single faults, these are evenly distributed.
	Runs int
}

// randomRuns is the default number of runs with several faults.
const randomRuns = 200

// exploreVariable is the environment variable with the faults of a run that is repeated.
const exploreVariable = "EVENKEEL_EXPLORE"

func (s *Scenario) check() error {
	var mistakes []error
	if len(s.Programs) == 0 {
		mistakes = append(mistakes, errors.New("no Programs: set the functions that run the tested programs"))
	}
	for name, program := range s.Programs {
		if program == nil {
			mistakes = append(mistakes, fmt.Errorf("the program %q of Programs is nil", name))
		}
		if name == "" || name == testUserAgent || strings.ContainsAny(name, ":, ") {
			mistakes = append(mistakes, fmt.Errorf(
				"a program of Programs has the name %q: it must not be empty or %q, or contain a colon, comma or space",
				name, testUserAgent))
		}
	}
	for i, step := range s.Steps {
		if step == nil {
			mistakes = append(mistakes, fmt.Errorf("element %d of Steps is nil", i))
		}
	}
	if s.Runs < 0 {
		mistakes = append(mistakes, fmt.Errorf("the number of Runs is %d, want 0 for the default, or more", s.Runs))
	}
	return errors.Join(mistakes...)
}

// exploration is a call of Explore.
type exploration struct {
	scenario  func() Scenario
	name      string // of the test
	reference *reference
	first     *outcome // of the first run without faults
	began     time.Time
	workers   int
	findings  []*finding
	// comparesEnds is true if the scenario has no Finally.
	comparesEnds bool

	runs, done, skipped, unreached, impossible atomic.Int64
	logged                                     atomic.Int64 // when progress was logged last
}

// Explore runs a scenario many times, in virtual time: without faults, with each single fault at each write of the
// programs, and with random ones. Faults are crashes before and after a write, lost responses, rejected writes, writes
// that arrive late, watches that are late or need a new list, and steps of users at other times. Explore fails the test
// with a report for each rule that a run broke:
//
//   - Scenario.Always and Scenario.Finally pass, and the steps are possible.
//   - Programs run until their contexts end.
//   - The cluster becomes idle, ends with the same objects as without faults, and then stays unchanged, also after a
//     restart of the programs. Uids, times, and what differs between runs without faults are not compared.
//   - Programs delete no object that is then created again, unless they do so without faults.
//
// scenario is called for each run: what its functions share is the state outside of the cluster, which survives crashes
// (see [Call]). Runs are concurrent; they share nothing else. The goroutines of programs, and all that they wait for,
// must belong to the call of the program, as in Test.
//
// A run with the same faults makes the same requests, unless a program depends on random numbers or on the order of its
// goroutines: then Explore logs the first request that differs. At the end it logs a line with the number of runs. Of
// these, unreached had a fault at a write that was not made, and impossible show nothing, because a step was not
// possible, or came before the end of a deletion.
func Explore(t *testing.T, scenario func() Scenario) {
	t.Helper()
	for _, failure := range explore(t, scenario) {
		t.Errorf("simulation: %s", failure)
	}
}

// explore returns the failures of a scenario.
func explore(t *testing.T, scenario func() Scenario) (failures []string) {
	t.Helper()
	s := scenario()
	if err := s.check(); err != nil {
		return []string{fmt.Sprintf("Explore: %v", err)}
	}
	e := &exploration{scenario: scenario, name: t.Name(), began: time.Now(), workers: runtime.GOMAXPROCS(0)}
	e.comparesEnds = s.Finally == nil
	if failure := e.runWithoutFaults(t); failure != "" {
		return []string{failure}
	}
	if text := os.Getenv(exploreVariable); text != "" {
		faults, err := parseFaults(text, slices.Sorted(maps.Keys(s.Programs)))
		if err != nil {
			return []string{fmt.Sprintf("%s: %v", exploreVariable, err)}
		}
		if r := e.find(t, [][]fault{faults})[0]; r.violation == nil && r.outcome != nil {
			result := "no rule was broken"
			if n := len(r.outcome.faults) - len(r.outcome.happened); n > 0 {
				result = fmt.Sprintf("%d faults did not happen, because there is no such write", n)
			}
			t.Logf("simulation: %s in this run:\n%s", cmp.Or(r.outcome.impossible, result), timeline(r.outcome))
		}
	} else {
		e.search(t, s)
	}
	return e.report(t)
}

// search runs the scenario with faults.
func (e *exploration) search(t *testing.T, s Scenario) {
	t.Helper()
	singles := singleFaults(e.first)
	var plans [][]fault
	for _, f := range singles {
		plans = append(plans, []fault{f})
	}
	random := randomRuns
	if s.Runs > 0 {
		random = max(0, s.Runs-len(plans))
		plans = evenly(plans, s.Runs)
	}
	e.find(t, plans)
	if len(e.findings) > 0 || len(singles) == 0 {
		return // more faults would only show the same again
	}
	e.find(t, randomPlans(singles, random))
	for _, f := range e.findings {
		e.shrink(t, f)
	}
}

// evenly returns n elements at equal distances, or all.
func evenly(plans [][]fault, n int) [][]fault {
	if n >= len(plans) {
		return plans
	}
	selected := make([][]fault, n)
	for i := range selected {
		selected[i] = plans[i*len(plans)/n]
	}
	return selected
}

// randomPlans returns at most n different plans with two or three faults.
func randomPlans(singles []fault, n int) (plans [][]fault) {
	random, known := rand.New(rand.NewPCG(1, 1)), map[string]bool{}
	for range 3 * n { // fewer are different if there are few single faults
		plan := []fault{singles[random.IntN(len(singles))]}
		for range 1 + random.IntN(2) {
			f := singles[random.IntN(len(singles))]
			f.write += random.IntN(3) // an earlier fault leads to more writes
			if !slices.ContainsFunc(plan, func(other fault) bool {
				return f.program == other.program && f.write == other.write && !f.kind.hasResource()
			}) {
				plan = append(plan, f)
			}
		}
		if len(plan) > 1 && !known[join(plan)] && len(plans) < n {
			known[join(plan)] = true
			plans = append(plans, plan)
		}
	}
	return plans
}

// runWithoutFaults makes the runs that the others are compared with, and returns why they failed.
func (e *exploration) runWithoutFaults(t *testing.T) (failure string) {
	t.Helper()
	var runs []*outcome
	for _, seed := range []uint64{0, 0, 1, 2} { // the first two are equal
		o := runTrial(t, e.scenario(), e.nextName(), nil, seed)
		if len(o.violations) > 0 {
			return fmt.Sprintf("the scenario fails without faults: %s\n%s", o.violations[0].text, timeline(o))
		}
		runs = append(runs, o)
	}
	e.first = runs[0]
	for _, name := range e.first.programs {
		if !slices.ContainsFunc(e.first.requests, func(r Request) bool {
			return r.instance != nil && r.instance.program == name
		}) {
			return fmt.Sprintf("the program %s made no request: does it use the config that it gets?", name)
		}
	}
	if len(e.first.writes) == 0 {
		return "no program made a write, so that there is nothing to explore: do the Steps give them work?"
	}
	if a, b := runs[0].trace(), runs[1].trace(); !slices.Equal(a, b) {
		t.Logf("simulation: two equal runs differ, so that a finding may not repeat: %s", firstDifference(a, b))
	}
	e.reference = newReference(runs)
	return ""
}

func (e *exploration) nextName() string { return fmt.Sprintf("%s/run-%d", e.name, e.runs.Add(1)) }

func firstDifference(a, b []string) string {
	for i := 0; ; i++ {
		at := func(lines []string) string {
			if i < len(lines) {
				return lines[i]
			}
			return "nothing"
		}
		if at(a) != at(b) {
			return fmt.Sprintf("request %d is %q and %q", i+1, at(a), at(b))
		}
	}
}

// result is a run with faults. outcome is nil if it was left out, or broke no rule and was one of many.
type result struct {
	outcome   *outcome
	violation *violation
}

// run runs the scenario with each of the plans.
func (e *exploration) run(t *testing.T, plans [][]fault) []result {
	t.Helper()
	results := make([]result, len(plans))
	var next atomic.Int64
	t.Run("runs", func(t *testing.T) {
		for worker := range min(e.workers, len(plans)) {
			t.Run(strconv.Itoa(worker), func(t *testing.T) {
				t.Parallel()
				for n := int(next.Add(1)) - 1; n < len(plans); n = int(next.Add(1)) - 1 {
					if e.isOutOfTime(t) {
						e.skipped.Add(1)
						continue
					}
					o := runTrial(t, e.scenario(), e.nextName(), plans[n], 0)
					if results[n].violation = e.judge(o); results[n].violation != nil || len(plans) == 1 {
						results[n].outcome = o
					}
					e.logProgress(t, len(plans))
				}
			})
		}
	})
	return results
}

// find is run, and adds what it finds.
func (e *exploration) find(t *testing.T, plans [][]fault) []result {
	t.Helper()
	results := e.run(t, plans)
	for _, r := range results {
		if r.violation != nil {
			e.add(*r.violation, r.outcome)
		}
	}
	return results
}

// isOutOfTime reports whether less than a tenth of the time of go test is left.
func (e *exploration) isOutOfTime(t *testing.T) bool {
	t.Helper()
	deadline, limited := t.Deadline()
	return limited && time.Until(deadline) < deadline.Sub(e.began)/10
}

// progressInterval is the time between lines about the progress, which go test -v shows.
const progressInterval = 5 * time.Second

func (e *exploration) logProgress(t *testing.T, plans int) {
	t.Helper()
	done, last, now := e.done.Add(1), e.logged.Load(), time.Now().UnixNano()
	if now-max(last, e.began.UnixNano()) > int64(progressInterval) && e.logged.CompareAndSwap(last, now) {
		t.Logf("%d runs with faults of %s are done; this part has %d", done, e.name, plans)
	}
}

// judge returns the rule that a run with faults broke, or nil.
func (e *exploration) judge(o *outcome) *violation {
	o.impossible = e.reference.whyImpossible(o)
	switch {
	case o.impossible != "":
		e.impossible.Add(1)
		return nil
	case len(o.happened) < len(o.faults):
		e.unreached.Add(1)
	}
	return e.reference.judge(o, e.comparesEnds)
}

// shrink leaves out faults that the first run of a finding does not need.
func (e *exploration) shrink(t *testing.T, f *finding) {
	t.Helper()
	for i := 0; i < len(f.outcome.faults) && len(f.outcome.faults) > 1; {
		r := e.run(t, [][]fault{slices.Delete(slices.Clone(f.outcome.faults), i, i+1)})[0]
		if r.violation != nil && r.violation.id() == f.id() {
			f.outcome, i = r.outcome, 0
		} else {
			i++
		}
	}
}

package simulation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/kube"
)

const (
	// startTime is the time until the first step. It is longer than the usual duration of a lease, for which a
	// candidate of package leader waits after it has created a missing one.
	startTime = 30 * time.Second
	// restTime is the time for which an idle cluster must stay unchanged. It has a resync of this library's
	// controllers.
	restTime = 4 * time.Minute
	// recoveryTime is the time in which a program that has crashed is at work again: the old one drains, the lease
	// expires, and backoffs of other libraries' controllers end, which Settle does not know.
	recoveryTime = 2 * time.Minute
	// seedTime is the time by which runs without faults begin later for each seed.
	seedTime = 17 * time.Second
	// trialWrites is the number of writes after which a cluster counts as never idle.
	trialWrites = 1500
	// afterStep is the time from a user's step until the end of faults that outlast it.
	afterStep = 2 * time.Second
)

// rule is what a run must keep.
type rule string

const (
	ruleAlways   rule = "always"   // Scenario.Always
	ruleEnded    rule = "ended"    // programs run until their contexts end
	ruleStep     rule = "step"     // the user's steps are possible
	ruleIdle     rule = "idle"     // the cluster becomes idle
	ruleFinally  rule = "finally"  // Scenario.Finally
	ruleDeletion rule = "deletion" // programs replace no objects that they replace in no run without faults
	ruleEnd      rule = "end"      // the end is that of a run without faults
	ruleRest     rule = "rest"     // an idle cluster stays unchanged
	ruleRestart  rule = "restart"  // also when the programs start again
)

// order returns the place of a rule: the violation of an earlier one may be the cause of that of a later one.
func (r rule) order() int {
	return slices.Index([]rule{
		ruleAlways, ruleEnded, ruleStep, ruleIdle, ruleFinally, ruleDeletion, ruleEnd, ruleRest, ruleRestart,
	}, r)
}

// violation is a rule that a run broke.
type violation struct {
	rule   rule
	object string // or program, if any
	text   string // a sentence without its end
}

// outcome is the result of a run.
type outcome struct {
	faults   []fault
	happened []happenedFault
	requests Requests // of all clients
	programs []string
	writes   map[string][]countedWrite         // by program
	watched  map[string][]schema.GroupResource // by program
	changes  []objectChange
	end      state
	// violations are what no run may do, also without a comparison; the first one is judged.
	violations []violation
	// impossible is why the run shows nothing: a fault made a step of the user impossible.
	impossible string
	steps      map[int]time.Time // when the steps were done, by their numbers from 1
	// unfinished are the deleted objects that existed when a step began.
	unfinished map[int]map[objectID]bool
}

// objectChange is a committed write.
type objectChange struct {
	objectID
	time             time.Time
	kind             string
	created, deleted bool
}

// objectID identifies an object until its deletion.
type objectID struct {
	resource schema.GroupResource
	key      kube.Key
}

// changedBetween reports whether an object of a resource changed.
func (o *outcome) changedBetween(resource schema.GroupResource, from, until time.Time) bool {
	return slices.ContainsFunc(o.changes, func(c objectChange) bool {
		return c.resource == resource && !c.time.Before(from) && !c.time.After(until)
	})
}

// trace returns the requests of the programs, except for leader election. Their times are left out, because retries and
// candidates choose them at random.
func (o *outcome) trace() (lines []string) {
	for _, r := range o.requests {
		if r.instance != nil && !r.isLease() {
			lines = append(lines, r.String())
		}
	}
	return lines
}

// trial is a run.
type trial struct {
	scenario   Scenario
	tb         *trialTB
	cluster    *Cluster
	gate       *gate
	plan       *plan
	ctx        context.Context //nolint:containedctx // ends with the run
	goroutines sync.WaitGroup

	user *user
	seed uint64
	// order is locked for an instant around each call of a function of the scenario, so that they may share values.
	order sync.Mutex

	mu        sync.Mutex
	outcome   *outcome             // guarded by mu
	instances map[string]*instance // guarded by mu; the latest ones
	version   string               // guarded by mu; that Scenario.Always has seen
}

// runTrial runs a scenario once.
func runTrial(t *testing.T, s Scenario, name string, faults []fault, seed uint64) *outcome {
	t.Helper()
	o := &outcome{
		faults: faults, programs: slices.Sorted(maps.Keys(s.Programs)),
		watched: map[string][]schema.GroupResource{}, steps: map[int]time.Time{},
		unfinished: map[int]map[objectID]bool{},
	}
	dog := newWatchdog(stallLimit, printStall)
	defer dog.end()
	synctest.Test(t, func(t *testing.T) {
		tb := &trialTB{TB: t, name: name, context: context.WithoutCancel(t.Context())}
		defer tb.cleanup()
		ctx, cancel := context.WithCancel(tb.Context())
		tr := &trial{
			scenario: s, tb: tb, ctx: ctx, outcome: o, instances: map[string]*instance{}, gate: newGate(seed),
			seed: seed,
		}
		tr.plan, tr.user = newPlan(faults, tr), newUser(tr)
		tr.guard("", func() { tr.cluster = newCluster(tb, s.Cluster, dog, tr.gate) })
		if tr.cluster == nil {
			cancel()
			return // its failure is a violation
		}
		tr.run(cancel)
	})
	return o
}

// run runs the programs and the steps, and judges the end.
func (t *trial) run(cancel context.CancelFunc) {
	o := t.outcome
	t.cluster.server.Observe(t.observe)
	t.cluster.log.record(&o.requests)
	t.gate.beforeTurn = t.checkAlways
	gateCtx, endGate := context.WithCancel(t.tb.Context())
	var gate sync.WaitGroup
	gate.Go(func() { t.gate.run(gateCtx) }) // waited for below
	t.goroutines.Go(func() { t.user.run(t.ctx) })
	defer func() {
		cancel()
		t.crashAll()
		endGate()
		gate.Wait()
		t.goroutines.Wait()
		t.plan.mu.Lock()
		defer t.plan.mu.Unlock()
		o.happened, o.writes = t.plan.done, t.plan.writes
	}()
	// What depends on the time differs between runs without faults, and is not compared.
	time.Sleep(time.Duration(t.seed) * seedTime) //nolint:gosec // it is at most 2
	for _, name := range o.programs {
		t.goroutines.Go(func() { t.runProgram(name) }) // waited for above
	}
	time.Sleep(startTime)
	time.Sleep(t.longestLease())
	if !t.settle() {
		return
	}
	for t.user.next(t.ctx) {
		t.plan.releaseWatches()
		if !t.settle() {
			return
		}
	}
	t.plan.heal()
	t.plan.releaseWatches()
	t.recover()
	if slices.ContainsFunc(o.faults, func(f fault) bool { return f.kind == relist }) {
		time.Sleep(restTime) // only a resync repairs an object that was created and deleted between two lists
	}
	if !t.settle() {
		return
	}
	o.end = stateOf(t.cluster.server)
	t.check(ruleFinally, t.scenario.Finally)
	t.checkRest()
}

// settle lets time pass until the cluster is idle, and the user is not acting. It returns false if it is never idle.
func (t *trial) settle() bool {
	for {
		if !t.guard(ruleIdle, func() { t.cluster.settle(trialWrites, t.plan.isStuck) }) {
			return false
		}
		if !t.user.wait() {
			return true
		}
	}
}

// recover lets the time pass after which programs that have crashed are at work again.
func (t *trial) recover() { time.Sleep(recoveryTime + 2*t.longestLease()) }

// checkRest checks that an idle cluster stays unchanged, also when the programs start again.
func (t *trial) checkRest() {
	check := func(broken rule, when string, do func()) {
		before := t.countChanges()
		do()
		if !t.settle() {
			return
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if n := len(t.outcome.changes) - before; n > 0 {
			change := t.outcome.changes[len(t.outcome.changes)-1]
			last := change.kind + " " + change.key.String()
			t.outcome.violations = append(t.outcome.violations, violation{
				broken, last, fmt.Sprintf("%s changed although the cluster was idle: %d changes %s", last, n, when),
			})
		}
	}
	check(ruleRest, fmt.Sprintf("within %v in which nobody did anything", restTime), func() { time.Sleep(restTime) })
	check(ruleRestart, "after a restart of the programs", func() {
		t.crashAll()
		t.recover()
	})
}

// observe records a committed write.
func (t *trial) observe(c apiserver.Change) {
	resource := schema.GroupResource{Group: c.Kind.Group, Resource: c.Kind.Resource}
	if isLeftOut(resource) {
		return
	}
	obj := c.Object
	if obj == nil {
		obj = c.Old
	}
	id := objectID{resource, kube.Key{Namespace: obj.GetNamespace(), Name: obj.GetName()}}
	change := objectChange{id, time.Now(), c.Kind.Kind, c.Old == nil, c.Object == nil}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.outcome.changes = append(t.outcome.changes, change)
}

func (t *trial) countChanges() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.outcome.changes)
}

// checkAlways calls Scenario.Always if objects have changed.
func (t *trial) checkAlways() {
	if t.scenario.Always == nil {
		return
	}
	version := t.cluster.server.Version()
	t.mu.Lock()
	known := version == t.version
	t.version = version
	t.mu.Unlock()
	if known {
		return
	}
	t.check(ruleAlways, t.scenario.Always)
}

// check calls a function of the scenario, if there is one. Its error is a violation.
func (t *trial) check(r rule, f func(ctx context.Context, c *Cluster) error) {
	if f == nil {
		return
	}
	var err error
	if t.guard(r, func() { t.ordered(func() { err = f(t.cluster.ctx(), t.cluster) }) }) && err != nil {
		t.violate(violation{rule: r, text: err.Error()})
	}
}

// ordered calls f after, and before, all other functions of the scenario, for the race detector: the gate lets one
// goroutine act at a time.
func (t *trial) ordered(f func()) {
	t.order.Lock()
	t.order.Unlock() //nolint:staticcheck // what other functions did happened before
	f()
	t.order.Lock()
	t.order.Unlock() //nolint:staticcheck // this happened before what other functions do
}

// setImpossible records why the run shows nothing.
func (t *trial) setImpossible(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.outcome.impossible = fmt.Sprintf(format, args...)
}

func (t *trial) hasViolated(r rule) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.outcome.violations, func(v violation) bool { return v.rule == r })
}

// violate records a violation, unless one of its rule is known.
func (t *trial) violate(v violation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !slices.ContainsFunc(t.outcome.violations, func(known violation) bool { return known.rule == v.rule }) {
		t.outcome.violations = append(t.outcome.violations, v)
	}
}

// guard calls f in a goroutine, which f may end as a test does, and waits for its end. Failures are violations of a
// rule. It returns false if f has ended the goroutine.
func (t *trial) guard(r rule, f func()) (returned bool) {
	ended := make(chan struct{})
	go func() { // waited for below
		defer close(ended)
		f()
		returned = true
	}()
	<-ended
	for _, failure := range t.tb.takeFailures() {
		t.violate(violation{rule: r, text: failure})
	}
	return returned
}

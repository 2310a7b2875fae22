package simulation

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// faultKind is a kind of faults.
type faultKind string

// The kinds of faults, which all can happen to a correct program in a cluster. A write here is also a call of Call.
const (
	// crashBefore and crashAfter end the program before or after a write. It starts again after restartTime.
	crashBefore faultKind = "crash-before"
	crashAfter  faultKind = "crash-after"
	// crashLate ends the program after it has sent a write, which the server executes lateTime later. It is like a
	// leader that was paused just before the write.
	crashLate faultKind = "crash-late"
	// lost executes a write, and breaks the connection before the response.
	lost faultKind = "lost"
	// unavailable rejects a write with 503, without an effect.
	unavailable faultKind = "unavailable"
	// stale sends nothing to the program's watches of a resource for staleTime after a write.
	stale faultKind = "stale"
	// relist does the same, then breaks the watches. The program needs a new list: it never sees the changes.
	relist faultKind = "relist"
	// early does the next step of the user just before a write.
	early faultKind = "step-before"
)

const (
	// restartTime is the time until a program that has crashed is started again.
	restartTime = time.Second
	// lateTime is longer than the time in which a program that was started again acts.
	lateTime = 2500 * time.Millisecond
	// staleTime is longer than the default of Config.IdleAfter: the user's next step comes before its end, if nothing
	// else happens.
	staleTime = 5 * time.Second
)

// hasResource reports whether faults of this kind are in the watches of a resource.
func (k faultKind) hasResource() bool { return k == stale || k == relist }

// canOutlastStep reports whether there are faults of this kind that last until after the user's next step.
func (k faultKind) canOutlastStep() bool { return k == stale || k == crashBefore || k == crashAfter }

// fault is a fault at a write of a program.
type fault struct {
	kind    faultKind
	program string
	// write is the number of the program's write, from 1. Writes of Leases and Events are not counted.
	write    int
	resource schema.GroupResource // of the watches, if the kind has one
	// outlastsStep makes the fault last until the user has done the next step.
	outlastsStep bool
}

// String returns the fault in the form that parseFaults reads.
func (f fault) String() string {
	kind := string(f.kind)
	if f.outlastsStep {
		kind += "+step"
	}
	text := fmt.Sprintf("%s:%s:%d", kind, f.program, f.write)
	if f.resource != (schema.GroupResource{}) {
		text += ":" + f.resource.String()
	}
	return text
}

// parseFaults parses faults that are separated by commas.
func parseFaults(text string, programs []string) (all []fault, err error) {
	kinds := []faultKind{crashBefore, crashAfter, crashLate, lost, unavailable, stale, relist, early}
	for part := range strings.SplitSeq(text, ",") {
		fields := strings.Split(strings.TrimSpace(part), ":")
		if len(fields) < 3 || len(fields) > 4 {
			return nil, fmt.Errorf("fault %q: want kind:program:write or kind:program:write:resource", part)
		}
		var f fault
		kind, outlasts := strings.CutSuffix(fields[0], "+step")
		f.kind, f.outlastsStep, f.program = faultKind(kind), outlasts, fields[1]
		if len(fields) == 4 {
			f.resource = schema.ParseGroupResource(fields[3])
		}
		f.write, err = strconv.Atoi(fields[2])
		switch {
		case !slices.Contains(kinds, f.kind):
			return nil, fmt.Errorf("fault %q: the kind %q is unknown, want one of %v", part, kind, kinds)
		case outlasts && !f.kind.canOutlastStep():
			return nil, fmt.Errorf("fault %q: %s cannot have +step", part, kind)
		case !slices.Contains(programs, f.program):
			return nil, fmt.Errorf("fault %q: the program %q is unknown, want one of %q", part, f.program, programs)
		case err != nil || f.write < 1:
			return nil, fmt.Errorf("fault %q: %q is not the number of a write, which begins with 1", part, fields[2])
		case f.kind.hasResource() != (f.resource.Resource != ""):
			return nil, fmt.Errorf("fault %q: only %s and %s have a resource, and need one", part, stale, relist)
		}
		all = append(all, f)
	}
	return all, nil
}

// happenedFault is a fault that has happened.
type happenedFault struct {
	fault
	time  time.Time
	write Request
}

// plan makes the faults of a run happen.
type plan struct {
	faults []fault
	trial  *trial
	healed chan struct{} // closed when nothing happens anymore

	mu     sync.Mutex
	writes map[string][]countedWrite // guarded by mu; by program
	done   []happenedFault           // guarded by mu
	holds  time.Time                 // guarded by mu; since when watches wait for the next step; 0: they do not
	// down are the programs that start again after the next step, with the number of steps before it.
	down map[string]int // guarded by mu
}

func newPlan(faults []fault, t *trial) *plan {
	return &plan{
		faults: faults, trial: t, healed: make(chan struct{}), writes: map[string][]countedWrite{},
		down: map[string]int{},
	}
}

// countedWrite is a write that faults can select.
type countedWrite struct {
	time      time.Time
	step      int  // the number of steps that the user had done
	canBeLate bool // see plan.canBeLate
}

// isCounted reports whether a request is a write that faults can select.
func isCounted(r Request) bool {
	return r.IsWrite() && !r.isLease() && !r.DryRun && r.Resource.Resource != "events"
}

// decide makes the faults of a write happen that are not in the write itself, and returns the kind of the other one, or
// "".
func (p *plan) decide(i *instance, r Request) (kind faultKind) {
	for _, f := range p.take(i.program, r) {
		switch f.kind {
		case stale, relist:
			duration := staleTime
			if f.outlastsStep {
				duration = 24 * time.Hour // releaseWatches ends it
				p.mu.Lock()
				p.holds = time.Now()
				p.mu.Unlock()
			}
			p.trial.gate.hold(held{f.program, f.resource}, duration)
			if f.kind == relist {
				i.expire(f.resource)
			}
		case early:
			p.trial.user.bringForward(i.ctx)
		default:
			kind = f.kind
		}
	}
	return kind
}

// take counts a write, and returns its faults.
func (p *plan) take(program string, r Request) (faults []fault) {
	steps, _ := p.trial.user.progress()
	p.mu.Lock()
	defer p.mu.Unlock()
	canBeLate := p.canBeLate(r)
	p.writes[program] = append(p.writes[program], countedWrite{time.Now(), steps, canBeLate})
	if p.isHealed() {
		return nil
	}
	for _, f := range p.faults {
		if f.program != program || f.write != len(p.writes[program]) ||
			f.outlastsStep && steps == len(p.trial.scenario.Steps) || f.kind == crashLate && !canBeLate {
			continue
		}
		faults = append(faults, f)
		p.done = append(p.done, happenedFault{f, time.Now(), r})
		if f.outlastsStep && !f.kind.hasResource() {
			p.down[program] = steps
		}
	}
	return faults
}

// isStuck reports whether watches have waited for the user's next step for some time. A program may then try the same
// again and again, and never be idle.
func (p *plan) isStuck() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.holds.IsZero() && time.Since(p.holds) > staleTime
}

// isAwaited reports whether a fault lasts until the end of a step.
func (p *plan) isAwaited() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.done, func(f happenedFault) bool { return f.kind == early || f.outlastsStep })
}

// releaseWatches ends what outlasted the user's last step, afterStep later, and all of it after the last step.
func (p *plan) releaseWatches() {
	p.mu.Lock()
	holds := !p.holds.IsZero()
	p.holds = time.Time{}
	p.mu.Unlock()
	if holds && !p.isHealed() {
		time.Sleep(afterStep)
	}
	if holds || p.isHealed() {
		p.trial.gate.releaseWatches()
	}
}

// canBeLate reports whether a correct program survives that a write arrives after its end. A creation after the
// deletion of the owner is undone only by the garbage collector, and a call outside of the cluster by nothing.
func (p *plan) canBeLate(r Request) bool {
	switch r.Verb {
	case verbCall:
		return false
	case "create", "apply":
		return !p.trial.scenario.Cluster.WithoutControllers && len(contentOf(r.Body).OwnerReferences) > 0
	}
	return true
}

// heal ends all faults.
func (p *plan) heal() { close(p.healed) }

func (p *plan) isHealed() bool {
	select {
	case <-p.healed:
		return true
	default:
		return false
	}
}

// isDown reports whether a program starts again only after the user's next step.
func (p *plan) isDown(program string) bool {
	steps, _ := p.trial.user.progress()
	p.mu.Lock()
	defer p.mu.Unlock()
	before, found := p.down[program]
	return found && before == steps && !p.isHealed()
}

// singleFaults returns all faults that can have an effect on a run without faults, in the order of the writes.
func singleFaults(o *outcome) (all []fault) {
	for _, program := range o.programs {
		for n, write := range o.writes[program] {
			add := func(kind faultKind, outlastsStep bool, resource schema.GroupResource) {
				all = append(all, fault{kind, program, n + 1, resource, outlastsStep})
			}
			var none schema.GroupResource
			next, hasNext := o.steps[write.step+1]
			for _, kind := range []faultKind{crashAfter, crashBefore, crashLate, lost, unavailable} {
				if kind == crashLate && !write.canBeLate {
					continue
				}
				add(kind, false, none)
				if kind.canOutlastStep() && hasNext {
					add(kind, true, none)
				}
			}
			if hasNext {
				add(early, false, none)
			}
			for _, resource := range o.watched[program] {
				// Without a change in that time, watches have nothing that could be late.
				if o.changedBetween(resource, write.time, write.time.Add(staleTime)) {
					add(stale, false, resource)
					add(relist, false, resource)
				}
				if hasNext && o.changedBetween(resource, write.time, next.Add(afterStep)) {
					add(stale, true, resource)
				}
			}
		}
	}
	return all
}

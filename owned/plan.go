package owned

import (
	"context"
	"fmt"
	"strings"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Plan is what an Apply, or a Delete, would do.
type Plan struct {
	// Owner names the owner: "WebApp shop/web".
	Owner string
	// Results are those of the Report: with the outcomes that Apply or Delete would have, or, where
	// Waits is set, that it would have when what Waits says is over.
	Results []Result
	// OwnerTerminating is true when nothing would be applied because the owner is being deleted.
	OwnerTerminating bool
}

// Plan says what Apply would do with the same arguments, and writes nothing. The API server is
// asked, by a dry run, what it would make of each child that is not as it should be: defaults,
// admission and refusals are in the plan. What changes between a plan and an apply is not.
//
// Children of waves that would have to wait are planned too, from the state that there is now. A
// child whose namespace or kind is only planned cannot be tried, and its Note says so.
//
// The error is that of Apply, and the plan has what could be found out.
func (s *Set) Plan(ctx context.Context, owner kube.Object, children ...Child) (Plan, error) {
	p, err := s.begin(s.dry, owner)
	if err != nil {
		return Plan{}, fmt.Errorf("plan children: %w", err)
	}
	p.plan = true
	plan := Plan{Owner: p.String()}
	report, err := p.run(ctx, children)
	plan.Results, plan.OwnerTerminating = report.Results, report.OwnerTerminating
	for n := range plan.Results {
		if r := &plan.Results[n]; r.Outcome == Created {
			r.Changed = client.Diff(nil, p.items[n].Child.Object)
		}
	}
	if err != nil {
		return plan, fmt.Errorf("plan children of %s: %w", p, err)
	}
	return plan, nil
}

// PlanDelete says what Delete would do, and writes nothing. The API server is asked, by a dry run,
// whether it would delete each child. Children of waves that would have to wait are planned too.
//
// The error is that of Delete, and the plan has what could be found out.
func (s *Set) PlanDelete(ctx context.Context, owner kube.Object) (Plan, error) {
	p, err := s.begin(s.dry, owner)
	if err != nil {
		return Plan{}, fmt.Errorf("plan the deletion of children: %w", err)
	}
	p.plan = true
	plan := Plan{Owner: p.String()}
	err = p.takeInventory(ctx, true)
	if err == nil {
		var report Report
		report, err = p.deleteAll(ctx)
		plan.Results = report.Results
	}
	if err != nil {
		return plan, fmt.Errorf("plan the deletion of children of %s: %w", p, err)
	}
	return plan, nil
}

// String returns the plan for people: a line for each child that is not as it should be, and
// below it a line for each of its fields that would change.
//
//	WebApp shop/web: 1 to create, 1 to update, 1 to delete, 3 unchanged
//	+ ConfigMap shop/web-colours
//	    data.primary: none -> "blue"
//	~ Deployment shop/web (wave 1)
//	    spec.replicas: 1 -> 3
//	- Service shop/web-old
//
// "-/+" stands for what is deleted and created anew, and "!" for what cannot be done, or not
// yet. The values of Secrets are not shown.
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", p.Owner, p.summary())
	for _, r := range p.Results {
		if r.Outcome == Unchanged {
			continue
		}
		b.WriteString(r.planned())
	}
	return b.String()
}

func (p Plan) summary() string {
	if p.OwnerTerminating {
		return "nothing, because it is being deleted"
	}
	counts := map[ChildOutcome]int{}
	for _, r := range p.Results {
		counts[r.Outcome]++
	}
	var parts []string
	part := func(text string, outcomes ...ChildOutcome) {
		n := 0
		for _, outcome := range outcomes {
			n += counts[outcome]
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, text))
		}
	}
	part("to create", Created)
	part("to update", Updated)
	part("to create anew", Recreating)
	part("to delete", Pruned, Deleted)
	part("unchanged", Unchanged)
	part("not possible, or not yet", Waiting, Terminating, Foreign, Failed)
	if len(parts) == 0 {
		return "no children"
	}
	return strings.Join(parts, ", ")
}

// planned returns the lines for one child.
func (r Result) planned() string {
	sign := "!"
	switch r.Outcome {
	case Created:
		sign = "+"
	case Updated:
		sign = "~"
	case Pruned, Deleted:
		sign = "-"
	case Recreating:
		sign = "-/+"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", sign, r)
	if r.Wave != 0 {
		fmt.Fprintf(&b, " (wave %d)", r.Wave)
	}
	b.WriteString("\n")
	line := func(text string) {
		if text != "" {
			fmt.Fprintf(&b, "    %s\n", text)
		}
	}
	if r.Terminating != nil {
		line(r.Terminating.text())
	}
	if r.Err != nil {
		line(r.Err.Error())
	}
	line(r.Note)
	if r.Waits != "" {
		line("waits: " + r.Waits)
	}
	for _, change := range r.Changed {
		line(change.String())
	}
	return b.String()
}

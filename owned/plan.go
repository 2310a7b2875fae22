package owned

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Plan is what Apply or Delete would do.
type Plan struct {
	// Owner names the owner: "WebApp shop/web".
	Owner string
	// Results are those of the Report, with the outcomes that Apply or Delete would have. If Waits is set, the outcome
	// follows when the wait is over.
	Results []Result
	// OwnerTerminating is true if Apply would do nothing because the owner is being deleted.
	OwnerTerminating bool
}

// Plan returns what Apply would do with the same arguments. It writes nothing: it sends dry runs of the changes, so
// the plan contains defaults, results of admission and rejections. It does not contain changes between the plan and the
// apply.
//
// Children of waves that would have to wait are planned too, from the current state. A dry run of a child is not
// possible if its namespace or kind is only planned; its Note reports that.
//
// The error is that of Apply. The plan contains the results so far.
func (s *Set) Plan(ctx context.Context, owner kube.Object, children ...Child) (Plan, error) {
	return s.planned("plan children", owner, func(p *pass) (Report, error) {
		report, err := p.apply(ctx, children)
		for n := range report.Results {
			if r := &report.Results[n]; r.Outcome == Created {
				r.Changed = client.Diff(p.client, nil, p.items[n].Child.Object)
			}
		}
		return report, err
	})
}

// planned calls do for the owner with dry runs.
func (s *Set) planned(what string, owner kube.Object, do func(p *pass) (Report, error)) (Plan, error) {
	p, err := s.begin(s.dry, owner)
	if err != nil {
		return Plan{}, fmt.Errorf("%s: %w", what, err)
	}
	p.plan = true
	report, err := do(p)
	plan := Plan{Owner: p.String(), Results: report.Results, OwnerTerminating: report.OwnerTerminating}
	if err != nil {
		return plan, fmt.Errorf("%s of %s: %w", what, p, err)
	}
	return plan, nil
}

// PlanDelete returns what Delete would do. It writes nothing: it sends dry runs of the deletions. Children of waves
// that would have to wait are planned too.
//
// The error is that of Delete. The plan contains the results so far.
func (s *Set) PlanDelete(ctx context.Context, owner kube.Object) (Plan, error) {
	return s.planned("plan the deletion of children", owner, func(p *pass) (Report, error) { return p.deleteAll(ctx) })
}

// String formats the plan for people: a line for each child that is not in its desired state, and below it a line for
// each field that would change.
//
//	WebApp shop/web: 1 to create, 1 to update, 1 to delete, 3 unchanged
//	+ ConfigMap shop/web-colours
//	    data.primary: none -> "blue"
//	~ Deployment shop/web (wave 1)
//	    spec.replicas: 1 -> 3
//	- Service shop/web-old
//
// "-/+" means deleted and created again, "!" means not possible, or not yet. The values of Secrets are not shown.
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", p.Owner, p.summary())
	for _, r := range p.Results {
		if r.Outcome == Unchanged {
			continue
		}
		b.WriteString(r.planLines())
	}
	return b.String()
}

func (p Plan) summary() string {
	if p.OwnerTerminating {
		return "nothing to do, because it is being deleted"
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
	part("to recreate", Recreating)
	part("to delete", Pruned, Deleted)
	part("unchanged", Unchanged)
	part("not possible, or not yet", Waiting, Terminating, Foreign, Failed)
	if len(parts) == 0 {
		return "no children"
	}
	return strings.Join(parts, ", ")
}

// planLines returns the lines for one child.
func (r Result) planLines() string {
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

// ignoreIfPlanned returns nil in a plan if the error only means that the child cannot be tried: it needs a namespace
// or the definition of its kind, which the plan creates earlier.
func (p *pass) ignoreIfPlanned(i *item, err error) error {
	missing := errors.Is(err, kube.ErrNotServed) || errors.Is(err, client.ErrNoNamespace)
	if !p.plan || !missing || !p.createsBefore(i) {
		return err
	}
	i.result.Outcome = Created
	i.result.Note = "not checked by the API server: its namespace or the definition of its kind is only planned"
	return nil
}

// createsBefore reports whether a plan creates a namespace or the definition of a kind before this child.
func (p *pass) createsBefore(i *item) bool {
	for _, other := range p.items {
		if other == i {
			return false
		}
		if other.result.Outcome == Created &&
			(other.kind.Kind == "Namespace" || other.kind.Kind == "CustomResourceDefinition") {
			return true
		}
	}
	return false
}

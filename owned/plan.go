package owned

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Plan returns what Apply would do with the same arguments: the report has the outcomes that Apply would have. It
// writes nothing: it sends dry runs of the changes, so the plan contains defaults, results of admission and rejections.
// It does not contain changes between the plan and the apply. Without children, it shows what would be deleted.
//
// Children of waves that would have to wait are planned too, from the current state; their Waits is set. A dry run of a
// child is not possible if its namespace or kind is only planned; its Note reports that.
//
// The error is that of Apply. The plan contains the results so far.
func (s *Set) Plan(ctx context.Context, owner kube.Object, children ...Child) (Report, error) {
	return s.run("plan children", owner, func(p *pass) (Report, error) {
		p.client, p.plan = s.dry, true
		report, err := p.apply(ctx, children)
		for n := range report.Results {
			if r := &report.Results[n]; r.Outcome == Created {
				r.Changed = client.Diff(p.client, nil, p.items[n].Child.Object)
			}
		}
		return report, err
	})
}

// String formats the report of a plan, or of a run, for people: a line for each child that is not in its desired state,
// and below it a line for each field that changes.
//
//	WebApp shop/web: create 1, update 1, delete 1, unchanged 3
//	+ ConfigMap shop/web-colours
//	    data.primary: none -> "blue"
//	~ Deployment shop/web (wave 1)
//	    spec.replicas: 1 -> 3
//	- Service shop/web-old
//
// "-/+" means deleted and created again, "!" means not possible, or not yet. The values of Secrets are not shown.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", r.owner, r.summary())
	for _, result := range r.Results {
		if result.Outcome != Unchanged {
			b.WriteString(result.planLines())
		}
	}
	return b.String()
}

func (r Report) summary() string {
	if r.OwnerTerminating {
		return "nothing to do, because it is being deleted"
	}
	counts := map[ChildOutcome]int{}
	for _, result := range r.Results {
		counts[result.Outcome]++
	}
	var parts []string
	part := func(text string, outcomes ...ChildOutcome) {
		n := 0
		for _, outcome := range outcomes {
			n += counts[outcome]
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", text, n))
		}
	}
	part("create", Created)
	part("update", Updated)
	part("recreate", outcomeRecreating)
	part("delete", Deleted)
	part("unchanged", Unchanged)
	part("not possible or not yet", outcomeWaiting, outcomeTerminating, outcomeForeign, outcomeFailed)
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
	case Deleted:
		sign = "-"
	case outcomeRecreating:
		sign = "-/+"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", sign, r)
	if r.wave != 0 {
		fmt.Fprintf(&b, " (wave %d)", r.wave)
	}
	b.WriteString("\n")
	line := func(text string) {
		if text != "" {
			fmt.Fprintf(&b, "    %s\n", text)
		}
	}
	if r.terminating != nil {
		line(r.terminating.text())
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

package owned

import (
	"context"
	"fmt"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Apply brings the children of owner to their desired state: it creates and updates the desired children, and deletes
// all others. A handler calls it in each run with all children. An empty list deletes all children.
//
// Steps:
//
//  1. Apply validates all children. An error in one of them ends the run before the first request. If owner is being
//     deleted, Apply does nothing: see Delete.
//  2. It finds the existing children of all of Config.Kinds by their labels.
//  3. It applies the children wave by wave. A wave with a child that is not ready is the last one of this run. Apply
//     does not wait: a source of the controller (OwnerKeys) enqueues the owner when a child changes, and the next run
//     continues.
//  4. When all children of all waves are applied, it deletes the children that are not desired, the highest wave first
//     (noted in an annotation): each wave when all children of higher waves are gone.
//
// The error joins the errors of the children, which the report contains too: *ForeignError, client.ErrTerminating if
// owner is being deleted and the argument does not show that yet, and errors of requests (apierrors.IsInvalid for
// immutable fields). A child that is not ready, or waits, is not an error. The report of an error is never Ready, so a
// handler can summarize its States in the owner's status before it returns the error.
func (s *Set) Apply(ctx context.Context, owner kube.Object, children ...Child) (Report, error) {
	return s.run("apply children", owner, func(p *pass) (Report, error) { return p.apply(ctx, children) })
}

// run calls do for the owner.
func (s *Set) run(what string, owner kube.Object, do func(p *pass) (Report, error)) (Report, error) {
	p, err := s.begin(owner)
	if err != nil {
		return Report{failure: err}, fmt.Errorf("%s: %w", what, err)
	}
	report, err := do(p)
	report.owner = p.String()
	if err != nil {
		return report, fmt.Errorf("%s of %s: %w", what, p, err)
	}
	return report, nil
}

func (p *pass) apply(ctx context.Context, children []Child) (Report, error) {
	if err := p.addChildren(ctx, children); err != nil {
		return Report{failure: err}, err
	}
	if p.owner.GetDeletionTimestamp() != nil {
		return Report{OwnerTerminating: true}, nil
	}
	if err := p.findChildren(ctx, false); err != nil {
		return Report{failure: err}, err
	}
	if err := p.findFormerChildren(ctx); err != nil {
		return Report{failure: err}, err
	}
	if p.set.config.Prune == PruneFirst {
		p.prune(ctx, "")
	}
	p.applyWaves(ctx)
	switch p.set.config.Prune {
	case PruneNever:
		p.prune(ctx, "Config.Prune is PruneNever")
	case PruneLast:
		p.prune(ctx, p.unapplied())
	case PruneFirst: // done before
	}
	report := p.report()
	err := report.err()
	if err == nil {
		err = p.lastLoop()
		report.failure = err
	}
	if err == nil && !p.plan && len(report.remaining()) == 0 {
		p.noteSearched()
	}
	return report, err
}

func (p *pass) report() Report {
	report := Report{RunAgain: p.runAgain}
	for _, i := range p.items {
		report.Results = append(report.Results, i.result)
	}
	report.Results = append(report.Results, p.undesired...)
	return report
}

// applyWaves applies the children while all children of lower waves are ready. A plan contains all waves, and notes
// which children would wait.
func (p *pass) applyWaves(ctx context.Context) {
	waits := ""
	for n, i := range p.items {
		if waits == "" && n > 0 && i.Wave != p.items[n-1].Wave {
			waits = p.unready(i.Wave)
		}
		i.result.Waits = waits
		if waits != "" && !p.plan {
			i.result.Outcome = outcomeWaiting
			continue
		}
		if err := p.applyChild(ctx, i); err != nil {
			i.result.Outcome, i.result.Err = outcomeFailed, err
		}
	}
}

// unready describes the children below a wave that are not ready; "" if all are.
func (p *pass) unready(wave int) string {
	var pending []Result
	for _, i := range p.items {
		if i.Wave < wave && !i.result.isReady() {
			pending = append(pending, i.result)
		}
	}
	return waitText(pending, "ready")
}

// waitText returns a message with the pending children of a wave that is not in this state: "wave 1 is not ready: ...".
// It returns "" for no children.
func waitText(pending []Result, state string) string {
	if len(pending) == 0 {
		return ""
	}
	text := fmt.Sprintf("wave %d is not %s: %s", pending[0].wave, state, pending[0].pending())
	if more := len(pending) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}

// unapplied returns the reason why pruning must wait; "" if all children are applied.
func (p *pass) unapplied() string {
	for _, i := range p.items {
		// In a plan, a waiting child is not applied either.
		if !i.result.applied() || i.result.Waits != "" {
			return fmt.Sprintf("desired children are applied first: %s is %s", i.result, i.result.Outcome)
		}
	}
	return ""
}

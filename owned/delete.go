package owned

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Delete deletes all children of owner. Handlers call it in every run while owner is being
// deleted, and remove their finalizer from it when Report.AllDeleted is true.
// Children with an owner reference the garbage collector would find too, after the owner is
// gone; the others only Delete does.
//
// Flow:
//
//  1. The children of all of Config.Kinds are listed, by the API server: what a cache does not
//     show yet would be left behind for ever. That is one list of metadata for each kind, and
//     namespace of Config.Namespaces, in each run.
//  2. They are deleted, each with its uid as precondition, in the reverse order: the last wave
//     first (AnnotationWave tells), and in a wave, in the reverse order of Config.Kinds. What is
//     terminating already is reported, and not deleted again.
//  3. Of the kinds of which something was deleted, the children are listed once more. When all of
//     a wave are gone, it is the turn of the one before it.
//
// The report tells what is gone (Deleted), what is not (Terminating), with what holds it, and what
// waits for that (Waiting). Nothing is waited for: the owner is handled again when a child is
// gone, if its controller has a source for that, and goes on from there.
//
// Guarantees: those of Apply about which objects are its children. owner is not read again, and
// need not be terminating. How it is deleted is not asked: if kubectl delete --cascade=orphan is to
// leave the children, do not call Delete for an owner that has the finalizer
// metav1.FinalizerOrphanDependents.
func (s *Set) Delete(ctx context.Context, owner kube.Object) (Report, error) {
	p, err := s.begin(s.config.Client, owner)
	if err != nil {
		return Report{failure: err}, fmt.Errorf("delete children: %w", err)
	}
	if err := p.takeInventory(ctx, true); err != nil {
		return Report{failure: err}, fmt.Errorf("delete children of %s: %w", p, err)
	}
	report, err := p.deleteAll(ctx)
	if err != nil {
		return report, fmt.Errorf("delete children of %s: %w", p, err)
	}
	return report, nil
}

// deleteAll deletes what was found, wave after wave from the last one, as long as those above are
// gone. A plan goes on, and notes what would have to wait.
func (p *pass) deleteAll(ctx context.Context) (Report, error) {
	extras := p.extras()
	slices.Reverse(extras)
	wait := ""
	for _, wave := range fromTheTop(extras) {
		from := len(p.leftover)
		for _, extra := range wave {
			r := Result{Kind: extra.kind, Key: kube.KeyOf(extra.obj), Wave: extra.wave, Waits: wait}
			if err := p.deleteOne(ctx, &r, extra.obj); err != nil {
				r.Outcome, r.Err = Failed, fmt.Errorf("%s: %w", r, err)
			}
			p.leftover = append(p.leftover, r)
		}
		results := p.leftover[from:]
		if err := p.lookAgain(ctx, wave, results); err != nil {
			for n := range results {
				if r := &results[n]; r.Outcome == Deleted {
					r.Outcome, r.Err = Failed, fmt.Errorf("%s was deleted, and may be there still: %w", r, err)
				}
			}
		}
		wait = cmp.Or(wait, p.unfinished(results))
	}
	report := p.report()
	return report, report.err()
}

func (p *pass) deleteOne(ctx context.Context, r *Result, obj *metav1.PartialObjectMetadata) error {
	if settled, err := p.settled(ctx, r, obj); settled || err != nil {
		return err
	}
	if r.Waits != "" && !p.plan {
		r.Outcome = Waiting
		return nil
	}
	err := client.Delete(ctx, p.client, metadataOnly(r.Kind, obj), client.Propagation(p.set.config.Propagation))
	if err != nil && !errors.Is(err, client.ErrGone) {
		return err
	}
	r.Outcome = Deleted
	if held := obj.GetFinalizers(); p.plan && len(held) > 0 {
		r.Note = "it goes when its finalizers have done their work: " + strings.Join(held, ", ")
	}
	return nil
}

// lookAgain finds out which of a wave, whose deletion was accepted, are not gone.
func (p *pass) lookAgain(ctx context.Context, wave []extra, results []Result) error {
	if p.plan {
		return nil // nothing was deleted
	}
	p.found = map[identity]*metav1.PartialObjectMetadata{}
	for _, kind := range p.set.config.Kinds {
		deleted := func(r Result) bool { return r.Outcome == Deleted && r.Kind.GroupKind() == kind.GroupKind() }
		if !slices.ContainsFunc(results, deleted) {
			continue
		}
		if err := p.takeInventoryOf(ctx, kind, true); err != nil {
			return fmt.Errorf("look what is left: %w", err)
		}
	}
	for n := range results {
		r := &results[n]
		obj, still := p.found[identity{r.Kind.GroupKind(), r.Key}]
		if r.Outcome == Deleted && still && obj.UID == wave[n].obj.UID {
			r.Outcome, r.Terminating = Terminating, deletionOf(obj)
		}
	}
	return nil
}

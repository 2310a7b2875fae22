package owned

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Delete deletes all children of owner. Handlers call it in every run while owner is being
// deleted, and remove their finalizer from it when Report.Gone says that no child is left.
// Children with an owner reference the garbage collector would find too, after the owner is
// gone; the others only Delete does.
//
// Flow:
//
//  1. The children of all of Config.Kinds are listed, by the API server: what a cache does not
//     show yet would be left behind for ever. That is one list of metadata for each kind, and
//     namespace of Config.Namespaces, in each run.
//  2. They are deleted, each with its uid as precondition, in the reverse order of Config.Kinds.
//     What is terminating already is reported, and not deleted again.
//  3. Of the kinds of which something was deleted, the children are listed once more.
//
// The report tells what is gone (Deleted) and what is not (Terminating), and what holds it. Nothing
// is waited for: the owner is handled again when a child is gone, if its controller has a
// source for that.
//
// Guarantees: those of Apply about which objects are its children. owner is not read again, and
// need not be terminating.
func (s *Set) Delete(ctx context.Context, owner kube.Object) (Report, error) {
	p, err := s.begin(s.config.Client, owner)
	if err != nil {
		return Report{}, fmt.Errorf("delete children: %w", err)
	}
	if err := p.takeInventory(ctx, client.FromAPI()); err != nil {
		return Report{}, fmt.Errorf("delete children of %s: %w", p, err)
	}
	extras := p.extras()
	slices.Reverse(extras)
	deleted := map[identity]int{} // where their results are
	for _, extra := range extras {
		r := Result{Kind: extra.kind, Key: kube.KeyOf(extra.obj)}
		if err := p.deleteOne(ctx, &r, extra); err != nil {
			r.Outcome, r.Err = Failed, fmt.Errorf("%s: %w", r, err)
		}
		if r.Outcome == Deleted {
			deleted[identity{extra.kind.GroupKind(), r.Key}] = len(p.leftover)
		}
		p.leftover = append(p.leftover, r)
	}
	err = p.lookAgain(ctx, deleted)
	report := p.report()
	if err := errors.Join(report.err(), err); err != nil {
		return report, fmt.Errorf("delete children of %s: %w", p, err)
	}
	return report, nil
}

func (p *pass) deleteOne(ctx context.Context, r *Result, extra extra) error {
	certain, why, err := p.isChild(ctx, extra.kind, extra.obj)
	switch {
	case err != nil:
		return err
	case !certain:
		r.Outcome, r.Note = Foreign, why
		return nil
	case extra.obj.GetDeletionTimestamp() != nil:
		return p.terminating(ctx, r, extra.obj)
	}
	err = client.Delete(ctx, p.client, metadataOnly(extra.kind, extra.obj), client.Propagation(p.set.config.Propagation))
	if err != nil && !errors.Is(err, client.ErrGone) {
		return err
	}
	r.Outcome = Deleted
	return nil
}

// lookAgain finds out which of the objects whose deletion was accepted are not gone.
func (p *pass) lookAgain(ctx context.Context, deleted map[identity]int) error {
	before := p.found
	p.found = map[identity]*metav1.PartialObjectMetadata{}
	for _, kind := range p.set.config.Kinds {
		for id := range deleted {
			if id.kind == kind.GroupKind() {
				if err := p.takeInventoryOf(ctx, kind, []client.Option{client.FromAPI()}); err != nil {
					return fmt.Errorf("look what is left: %w", err)
				}
				break
			}
		}
	}
	for id, at := range deleted {
		obj, still := p.found[id]
		if !still || obj.UID != before[id].UID {
			continue
		}
		r := &p.leftover[at]
		r.Outcome, r.Terminating = Terminating, deletionOf(obj)
	}
	return nil
}

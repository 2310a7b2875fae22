package owned

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Delete deletes all children of owner. A handler calls it in each run while owner is being deleted, and removes its
// finalizer when Report.Remaining is "". After the owner is gone, the garbage collector deletes children with an
// owner reference too; children without one are deleted only by Delete.
//
// Steps:
//
//  1. Delete lists the children of all of Config.Kinds from the API server, because children that a cache does not have
//     yet would never be deleted. That is one list of metadata in each run for each kind and each of the namespaces.
//  2. It deletes them in reverse order: the highest wave first (noted in an annotation), and within a wave in the
//     reverse order of Config.Kinds. It reports children that are terminating, and does not delete them again.
//  3. It lists the kinds of the deleted children again. When all children of a wave are gone, it continues with the
//     next lower wave.
//
// The report contains the children that are gone (Deleted), those that still exist, and those that wait for them.
// Delete does not wait: a source of the controller enqueues the owner when a child is gone, and the next run continues.
//
// Guarantees: those of Apply about which objects are children, with the same preconditions. Delete does not read owner,
// which need not be terminating. If owner is being deleted with kubectl delete --cascade=orphan, children with an owner
// reference stay; the others are deleted.
func (s *Set) Delete(ctx context.Context, owner kube.Object) (Report, error) {
	return s.run("delete children", owner, func(p *pass) (Report, error) { return p.deleteAll(ctx) })
}

// deleteAll deletes the children wave by wave, the highest first, while all children of higher waves are gone.
func (p *pass) deleteAll(ctx context.Context) (Report, error) {
	if err := p.findChildren(ctx, true); err != nil {
		return Report{failure: err}, err
	}
	objects := p.undesiredObjects()
	slices.Reverse(objects)
	waits := ""
	for _, wave := range byWaveDescending(objects) {
		from := len(p.undesired)
		for _, u := range wave {
			r := Result{Kind: u.kind, Key: kube.KeyOf(u.obj), wave: u.wave, Waits: waits}
			if err := p.deleteOne(ctx, &r, u.obj); err != nil {
				r.Outcome, r.Err = outcomeFailed, fmt.Errorf("%s: %w", r, err)
			}
			p.undesired = append(p.undesired, r)
		}
		results := p.undesired[from:]
		if err := p.checkDeleted(ctx, wave, results); err != nil {
			for n := range results {
				if r := &results[n]; r.Outcome == Deleted {
					r.Outcome, r.Err = outcomeFailed, fmt.Errorf("%s was deleted, but may still exist: %w", r, err)
				}
			}
		}
		waits = cmp.Or(waits, undeleted(results, true))
	}
	report := p.report()
	return report, report.err()
}

func (p *pass) deleteOne(ctx context.Context, r *Result, obj *metav1.PartialObjectMetadata) error {
	if done, err := p.skipDeletion(ctx, r, obj); done || err != nil {
		return err
	}
	if r.Waits != "" {
		r.Outcome = outcomeWaiting
		return nil
	}
	switch err := p.deleteKnown(ctx, r, obj); {
	case errors.Is(err, client.ErrGone):
		r.Outcome = Deleted
	case err != nil:
		return err
	}
	return nil
}

// checkDeleted changes the results of a wave from Deleted to terminating for objects that still exist.
func (p *pass) checkDeleted(ctx context.Context, wave []undesiredObject, results []Result) error {
	p.found = map[identity]*metav1.PartialObjectMetadata{}
	for _, kind := range p.set.config.Kinds {
		deleted := func(r Result) bool { return r.Outcome == Deleted && r.Kind.GroupKind() == kind.GroupKind() }
		if !slices.ContainsFunc(results, deleted) {
			continue
		}
		if err := p.findChildrenOfKind(ctx, kind, true); err != nil {
			return fmt.Errorf("find remaining children: %w", err)
		}
	}
	for n := range results {
		r := &results[n]
		obj, exists := p.found[identity{r.Kind.GroupKind(), r.Key}]
		if r.Outcome == Deleted && exists && obj.UID == wave[n].obj.UID {
			r.Outcome, r.terminating = outcomeTerminating, deletionOf(obj)
		}
	}
	return nil
}

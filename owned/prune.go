package owned

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/ownerref"
)

// prune deletes what was found and is not desired, the last wave first. wait says why it is too
// early; what is terminating is looked at all the same. A plan goes on.
//
// Whether what is deleted is gone the next run sees, for which its deletion is the reason: there
// is no second look.
func (p *pass) prune(ctx context.Context, wait string) {
	checkOwner := sync.OnceValue(func() error { return p.checkOwner(ctx) })
	for _, wave := range fromTheTop(p.extras()) {
		from := len(p.leftover)
		for _, extra := range wave {
			r := Result{Kind: extra.kind, Key: kube.KeyOf(extra.obj), Wave: extra.wave, Waits: wait}
			if err := p.pruneOne(ctx, &r, extra.obj, checkOwner); err != nil {
				r.Outcome, r.Err = Failed, fmt.Errorf("prune %s: %w", r, err)
			}
			if r.Outcome != "" { // otherwise it is gone, and the cache behind
				p.leftover = append(p.leftover, r)
			}
		}
		wait = cmp.Or(wait, p.unfinished(p.leftover[from:]))
	}
}

// unfinished says what keeps waves below from being deleted, of the results of a wave; "" for
// nothing. What a plan would delete is one thing after the other.
func (p *pass) unfinished(wave []Result) string {
	return waitFor(slices.DeleteFunc(slices.Clone(wave), func(r Result) bool {
		return r.Outcome == Foreign || r.Outcome == Deleted && !p.plan
	}), "gone")
}

// ownerHasMoved is what a deletion waits for that an old state of the owner asks for.
const ownerHasMoved = "the owner has changed since the desired children were made; the run for that decides"

func (p *pass) pruneOne(ctx context.Context, r *Result, obj *metav1.PartialObjectMetadata, checkOwner func() error) error {
	if settled, err := p.settled(ctx, r, obj); settled || err != nil {
		return err
	}
	if r.Waits != "" && (!p.plan || p.set.config.Prune == PruneNever) {
		r.Outcome = Waiting
		return nil
	}
	if err := checkOwner(); err != nil {
		return err
	}
	if p.ownerMoved() {
		r.Outcome, r.Waits = Waiting, ownerHasMoved
		return nil
	}
	// The preconditions are that of the state that was found: most are still in it, and need no read.
	err := p.deleteInState(ctx, r, obj)
	if !apierrors.IsConflict(err) {
		return err
	}
	// Another client may have taken it out of the set, so that it stays.
	live, err := client.Live(ctx, p.client, metadataOnly(r.Kind, obj))
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	if settled, err := p.settled(ctx, r, live); settled || err != nil {
		return err
	}
	return p.deleteInState(ctx, r, live)
}

// deleteInState deletes an object if it is still in the state that was seen.
func (p *pass) deleteInState(ctx context.Context, r *Result, seen *metav1.PartialObjectMetadata) error {
	object := metadataOnly(r.Kind, seen)
	err := client.Delete(ctx, p.client, object, client.IfUnchanged(), client.Propagation(p.set.config.Propagation))
	if err == nil {
		r.Outcome = Pruned
	}
	return client.IgnoreNotFound(err)
}

// settled reports whether there is nothing to delete: what was found is no child, or is being
// deleted.
func (p *pass) settled(ctx context.Context, r *Result, obj *metav1.PartialObjectMetadata) (bool, error) {
	certain, why, err := p.isChild(ctx, r.Kind, obj)
	switch {
	case err != nil:
		return false, err
	case !certain:
		r.Outcome, r.Note, r.Waits = Foreign, why, ""
		return true, nil
	case obj.GetDeletionTimestamp() != nil:
		r.Waits = ""
		return true, p.terminating(ctx, r, obj)
	}
	return false, nil
}

// isChild reports whether what carries the labels of a child is certainly one.
func (p *pass) isChild(ctx context.Context, kind schema.GroupVersionKind, obj *metav1.PartialObjectMetadata) (certain bool, why string, err error) {
	// On a copy: it answers whether a reference would be possible, and where from.
	probe := metadataOnly(kind, obj)
	err = ownerref.Set(ctx, p.client, p.owner, probe)
	if err != nil && !errors.Is(err, ownerref.ErrScope) {
		return false, "", err
	}
	certain, why = p.set.mayDelete(p.owner, obj, err == nil)
	return certain, why, nil
}

// extra is an object that was found and is not desired.
type extra struct {
	kind schema.GroupVersionKind // in the version that is served
	obj  *metav1.PartialObjectMetadata
	wave int
}

// fromTheTop returns the waves of what is to be deleted, the last one first, each in the order in
// which it was given.
func fromTheTop(extras []extra) [][]extra {
	var waves [][]extra
	slices.SortStableFunc(extras, func(a, b extra) int { return cmp.Compare(b.wave, a.wave) })
	for from, next := range extras {
		if from == 0 || next.wave != extras[from-1].wave {
			waves = append(waves, nil)
		}
		waves[len(waves)-1] = append(waves[len(waves)-1], next)
	}
	return waves
}

// extras returns what was found and is not desired, by kind, as in Config.Kinds, and key.
func (p *pass) extras() []extra {
	desired := map[identity]bool{}
	for _, i := range p.items {
		desired[i.identity()] = true
	}
	var extras []extra
	for _, kind := range p.set.config.Kinds {
		from := len(extras)
		for id, obj := range p.found {
			if id.kind == kind.GroupKind() && !desired[id] {
				extras = append(extras, extra{obj.GroupVersionKind(), obj, waveOf(obj)})
			}
		}
		slices.SortFunc(extras[from:], func(a, b extra) int {
			return cmp.Or(cmp.Compare(a.obj.Namespace, b.obj.Namespace), cmp.Compare(a.obj.Name, b.obj.Name))
		})
	}
	return extras
}

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
	"github.com/evenkeel-go/evenkeel/owned/ownerref"
)

// prune deletes the existing children that are not desired, the highest wave first. If waits is not empty, it is the
// reason why deletion must wait; children that are terminating are handled anyway. A plan contains all waves.
//
// prune does not check that a deleted child is gone: its deletion triggers the next run.
func (p *pass) prune(ctx context.Context, waits string) {
	checkOwner := sync.OnceValue(func() error { return p.checkOwner(ctx) })
	for _, wave := range byWaveDescending(p.undesiredObjects()) {
		from := len(p.undesired)
		for _, u := range wave {
			r := Result{Kind: u.kind, Key: kube.KeyOf(u.obj), wave: u.wave, Waits: waits}
			if err := p.pruneOne(ctx, &r, u.obj, checkOwner); err != nil {
				r.Outcome, r.Err = outcomeFailed, fmt.Errorf("prune %s: %w", r, err)
			}
			if r.Outcome != "" { // otherwise it is gone, and the cache is outdated
				p.undesired = append(p.undesired, r)
			}
		}
		waits = cmp.Or(waits, undeleted(p.undesired[from:], false))
	}
}

// undeleted describes the results of a wave that keep lower waves from being deleted; "" for none. With gone, those
// that are Deleted are gone.
func undeleted(wave []Result, gone bool) string {
	return waitText(slices.DeleteFunc(slices.Clone(wave), func(r Result) bool {
		return r.Outcome == outcomeForeign || r.Outcome == Deleted && gone
	}), "gone")
}

// waitsForOwner is the Result.Waits of a deletion that was derived from an outdated state of the owner.
const waitsForOwner = "the owner has changed since the desired children were computed; its next run decides"

func (p *pass) pruneOne(
	ctx context.Context, r *Result, obj *metav1.PartialObjectMetadata, checkOwner func() error,
) error {
	if done, err := p.skipDeletion(ctx, r, obj); done || err != nil {
		return err
	}
	if r.Waits != "" && (!p.plan || p.set.config.Prune == PruneNever) {
		r.Outcome = outcomeWaiting
		return nil
	}
	if err := checkOwner(); err != nil {
		return err
	}
	if p.ownerChanged() {
		r.Outcome, r.Waits = outcomeWaiting, waitsForOwner
		return nil
	}
	return client.IgnoreNotFound(p.deleteKnown(ctx, r, obj))
}

// deleteKnown deletes a child in its known state, and sets the result. Most children have not changed since, so they
// are not read before. A changed one, which another client may have removed from the set, is read from the API server.
func (p *pass) deleteKnown(ctx context.Context, r *Result, obj *metav1.PartialObjectMetadata) error {
	for attempt := 1; ; attempt++ {
		known, id := metadataOnly(r.Kind, obj), identity{r.Kind.GroupKind(), r.Key}
		deletes, loop := p.checkLoop(id, obj.UID)
		if !deletes {
			return loop
		}
		err := client.Delete(ctx, p.client, known, client.IfUnchanged(), client.Propagation(p.set.config.Propagation))
		if err == nil {
			p.noteDeletion(id, obj.UID)
			r.Outcome, err = Deleted, loop
		}
		if !apierrors.IsConflict(err) || attempt == maxAttempts {
			return err
		}
		if obj, err = client.GetLive(ctx, p.client, known); err != nil {
			return err
		}
		if done, err := p.skipDeletion(ctx, r, obj); done || err != nil {
			return err
		}
	}
}

// skipDeletion sets the result and returns true if obj must not be deleted: it is not a child, or it is terminating.
func (p *pass) skipDeletion(ctx context.Context, r *Result, obj *metav1.PartialObjectMetadata) (bool, error) {
	certain, reason, err := p.isChild(ctx, r.Kind, obj)
	switch {
	case err != nil:
		return false, err
	case !certain:
		r.Outcome, r.Note, r.Waits = outcomeForeign, reason, ""
		return true, nil
	case obj.GetDeletionTimestamp() != nil:
		r.Waits = ""
		return true, p.terminating(ctx, r, obj)
	}
	return false, nil
}

// isChild reports whether an object with the labels of a child is certainly one; if not, why.
func (p *pass) isChild(
	ctx context.Context, kind schema.GroupVersionKind, obj *metav1.PartialObjectMetadata,
) (certain bool, reason string, err error) {
	// Set on a copy returns ErrScope if an owner reference is not possible.
	err = ownerref.Set(ctx, p.client, p.owner, metadataOnly(kind, obj))
	if err != nil && !errors.Is(err, ownerref.ErrScope) {
		return false, "", err
	}
	certain, reason = p.set.mayDelete(p.owner, obj, err == nil)
	return certain, reason, nil
}

// undesiredObject is an existing object that is not desired.
type undesiredObject struct {
	kind schema.GroupVersionKind // in a version that the cluster serves
	obj  *metav1.PartialObjectMetadata
	wave int
}

// byWaveDescending groups objects by wave, the highest first, and keeps their order within a wave.
func byWaveDescending(objects []undesiredObject) [][]undesiredObject {
	var waves [][]undesiredObject
	slices.SortStableFunc(objects, func(a, b undesiredObject) int { return cmp.Compare(b.wave, a.wave) })
	for n, next := range objects {
		if n == 0 || next.wave != objects[n-1].wave {
			waves = append(waves, nil)
		}
		waves[len(waves)-1] = append(waves[len(waves)-1], next)
	}
	return waves
}

// undesiredObjects returns the found objects that are not desired, by kind, as in Config.Kinds, and key.
func (p *pass) undesiredObjects() []undesiredObject {
	desired := map[identity]bool{}
	for _, i := range p.items {
		desired[i.identity()] = true
	}
	var objects []undesiredObject
	for _, kind := range p.set.config.Kinds {
		from := len(objects)
		for id, obj := range p.found {
			if id.kind == kind.GroupKind() && !desired[id] {
				objects = append(objects, undesiredObject{obj.GroupVersionKind(), obj, waveOf(obj)})
			}
		}
		slices.SortFunc(objects[from:], func(a, b undesiredObject) int {
			return cmp.Or(cmp.Compare(a.obj.Namespace, b.obj.Namespace), cmp.Compare(a.obj.Name, b.obj.Name))
		})
	}
	return objects
}

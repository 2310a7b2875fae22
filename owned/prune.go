package owned

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/ownerref"
)

// prune deletes what was found and is not desired. wait says why it is too early; what is
// terminating is looked at all the same. A plan goes on.
func (p *pass) prune(ctx context.Context, wait string) {
	for _, extra := range p.extras() {
		r := Result{Kind: extra.kind, Key: kube.KeyOf(extra.obj), Waits: wait}
		if err := p.pruneOne(ctx, &r, extra.obj); err != nil {
			r.Outcome, r.Err = Failed, fmt.Errorf("prune %s: %w", r, err)
		}
		p.leftover = append(p.leftover, r)
	}
}

// ownerHasMoved is what a deletion waits for that an old state of the owner asks for.
const ownerHasMoved = "the owner has changed since the desired children were made; the run for that decides"

func (p *pass) pruneOne(ctx context.Context, r *Result, obj *metav1.PartialObjectMetadata) error {
	certain, why, err := p.isChild(ctx, r.Kind, obj)
	switch {
	case err != nil:
		return err
	case !certain:
		r.Outcome, r.Note, r.Waits = Foreign, why, ""
		return nil
	case obj.GetDeletionTimestamp() != nil:
		r.Waits = ""
		return p.terminating(ctx, r, obj)
	case r.Waits != "" && (!p.plan || p.set.config.Prune == PruneNever):
		r.Outcome = Waiting
		return nil
	}
	if err := p.checkOwner(ctx); err != nil {
		return err
	}
	if p.ownerMoved() {
		r.Outcome, r.Waits = Waiting, ownerHasMoved
		return nil
	}
	err = client.Delete(ctx, p.client, metadataOnly(r.Kind, obj), client.Propagation(p.set.config.Propagation))
	if err != nil && !errors.Is(err, client.ErrGone) {
		return err
	}
	r.Outcome = Pruned
	return nil
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
	kind schema.GroupVersionKind
	obj  *metav1.PartialObjectMetadata
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
				extras = append(extras, extra{kind, obj})
			}
		}
		slices.SortFunc(extras[from:], func(a, b extra) int {
			return cmp.Or(cmp.Compare(a.obj.Namespace, b.obj.Namespace), cmp.Compare(a.obj.Name, b.obj.Name))
		})
	}
	return extras
}

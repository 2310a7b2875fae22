package owned

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// formerOwner returns the controller of obj if it is a former owner: it has the kind and name of the owner and another
// uid. That object is gone, unless the owner of this pass is the outdated one.
func (p *pass) formerOwner(obj metav1.Object) (former metav1.OwnerReference, ok bool) {
	ref := metav1.GetControllerOfNoCopy(obj)
	if ref == nil {
		return former, false
	}
	return *ref, ref.UID != p.owner.GetUID() && ref.Name == p.owner.GetName() &&
		schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind() == p.ownerKind.GroupKind()
}

// replaceFormer handles an object with the name of a child that belongs to a former owner. The garbage collector should
// delete it. The collector misses the deletion of the former owner if it is restarted, or its watch breaks, while the
// owner is deleted and created again. So the child is deleted here if it still exists after Former.OwnerGrace.
func (p *pass) replaceFormer(
	ctx context.Context, i *item, live *metav1.PartialObjectMetadata, former metav1.OwnerReference,
) error {
	// Names are unique: if the owner exists with its uid, the former owner is gone.
	if err := p.checkOwner(ctx); err != nil {
		return fmt.Errorf("%s belongs to %s: %w", i.result, describeOwner(former), err)
	}
	reason := &ForeignError{kind: i.kind, key: kube.KeyOf(live), Holder: describeOwner(former), Former: true}
	i.result.Outcome, i.result.Err = outcomeForeign, reason
	if live.GetDeletionTimestamp() != nil {
		i.result.terminating = deletionOf(live)
		reason.terminating = i.result.terminating
		return nil
	}
	if !p.set.isChildOfFormer(live, former) {
		return nil
	}
	reason.deletedAt = p.set.formerOwnerDeadline(p.owner, live)
	if wait := time.Until(reason.deletedAt); wait > 0 {
		p.runAgainIn(wait)
		return nil
	}
	err := client.DeleteLive(ctx, p.client, metadataOnly(i.kind, live), func(live *metav1.PartialObjectMetadata) error {
		if ref, ok := p.formerOwner(live); !ok || ref.UID != former.UID || !p.set.isChildOfFormer(live, former) {
			return errors.New("it does not belong only to the former owner anymore")
		}
		return nil
	}, client.Propagation(p.set.config.Propagation))
	if err != nil && !errors.Is(err, client.ErrGone) {
		return fmt.Errorf("delete %s, which belongs to %s: %w", i.result, reason.Holder, err)
	}
	i.result.Outcome, i.result.Err = outcomeRecreating, nil
	i.result.Note = fmt.Sprintf("it belonged to %s, which is gone, and the garbage collector has not deleted it",
		reason.Holder)
	p.recordRecreating(i)
	return nil
}

// isChildOfFormer reports whether obj was a child of the former owner in this set and has no other owner. Objects that
// another program created for the former owner, and objects with another owner, are left to the garbage collector.
func (s *Set) isChildOfFormer(obj metav1.Object, former metav1.OwnerReference) bool {
	labels := obj.GetLabels()
	return len(obj.GetOwnerReferences()) == 1 && labels[LabelSet] == s.config.Name &&
		labels[labelOwnerUID] == string(former.UID) && obj.GetAnnotations()[annotationChild] == kube.KeyOf(obj).String()
}

// formerOwnerDeadline returns the time until which the garbage collector may delete a child of a former owner. The
// former owner was gone when the owner was created. The child may be younger, if it was restored from a backup.
func (s *Set) formerOwnerDeadline(owner, child metav1.Object) time.Time {
	since := owner.GetCreationTimestamp().Time
	if created := child.GetCreationTimestamp().Time; created.After(since) {
		since = created
	}
	return since.Add(s.config.Former.OwnerGrace)
}

// runAgainIn sets Report.RunAgain to d, unless an earlier time is already set.
func (p *pass) runAgainIn(d time.Duration) {
	if p.runAgain == 0 || d < p.runAgain {
		p.runAgain = d
	}
}

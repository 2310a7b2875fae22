package owned

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/ownerref"
)

// formerOwner returns the controller of obj, if that has the owner's kind and name and another uid:
// an object of that name which is gone, unless the owner in hand is the old one.
func (p *pass) formerOwner(obj metav1.Object) (former metav1.OwnerReference, ok bool) {
	ref, ok := ownerref.ControllerOf(obj)
	return ref, ok && ref.UID != p.owner.GetUID() && ref.Name == p.owner.GetName() &&
		schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind() == p.ownerKind.GroupKind()
}

// replaceFormer deals with a child of a former owner that is in the place of a child. The garbage
// collector deletes it, but not always: when it was restarted, or its watch broke, while the owner
// was deleted and created again, it may have missed the deletion. So the child is deleted here when
// it is still there after Config.FormerOwnerGrace.
func (p *pass) replaceFormer(ctx context.Context, i *item, live *metav1.PartialObjectMetadata, former metav1.OwnerReference) error {
	// The owner has its name alone: if it is there with its uid, the former owner is gone.
	if err := p.checkOwner(ctx); err != nil {
		return fmt.Errorf("%s belongs to %s: %w", i.result, describeOwner(former), err)
	}
	reason := &ForeignError{Kind: i.kind, Key: kube.KeyOf(live), Holder: describeOwner(former), Former: true}
	i.result.Outcome, i.result.Err = Foreign, reason
	if live.GetDeletionTimestamp() != nil {
		i.result.Terminating = deletionOf(live)
		reason.terminating = i.result.Terminating
		return nil
	}
	if !p.set.leftBy(live, former) {
		return nil
	}
	reason.deletedAt = p.set.formerUntil(p.owner, live)
	if left := time.Until(reason.deletedAt); left > 0 {
		p.runAgainIn(left)
		return nil
	}
	err := client.DeleteLive(ctx, p.client, metadataOnly(i.kind, live), func(now *metav1.PartialObjectMetadata) error {
		if ref, ok := p.formerOwner(now); !ok || ref.UID != former.UID || !p.set.leftBy(now, former) {
			return errors.New("it does not belong to the former owner alone any more")
		}
		return nil
	}, client.Propagation(p.set.config.Propagation))
	if err != nil && !errors.Is(err, client.ErrGone) {
		return fmt.Errorf("delete %s, which belongs to %s: %w", i.result, reason.Holder, err)
	}
	i.result.Outcome, i.result.Err = Recreating, nil
	i.result.Note = fmt.Sprintf("it belonged to %s, which is gone, and the garbage collector had left it", reason.Holder)
	p.announce(corev1.EventTypeNormal, "ChildRecreating", "Delete",
		fmt.Sprintf("%s is deleted and created anew: %s", i.result, i.result.Note))
	return nil
}

// leftBy reports whether obj was a child of the former owner in this set, and has no other owner. What
// another program made for the former owner, and what has a living owner too, is left to the garbage
// collector.
func (s *Set) leftBy(obj metav1.Object, former metav1.OwnerReference) bool {
	labels := obj.GetLabels()
	return len(obj.GetOwnerReferences()) == 1 && labels[LabelSet] == s.config.Name &&
		labels[labelOwnerUID] == string(former.UID) && obj.GetAnnotations()[annotationChild] == kube.KeyOf(obj).String()
}

// formerUntil returns until when the garbage collector has time to delete a child of a former
// owner, which was gone when the owner was created. A child may be younger: restored from a backup.
func (s *Set) formerUntil(owner, child metav1.Object) time.Time {
	since := owner.GetCreationTimestamp().Time
	if created := child.GetCreationTimestamp().Time; created.After(since) {
		since = created
	}
	return since.Add(s.config.FormerOwnerGrace)
}

// runAgainIn notes when the owner should be handled again, if not earlier.
func (p *pass) runAgainIn(d time.Duration) {
	if p.runAgain == 0 || d < p.runAgain {
		p.runAgain = d
	}
}

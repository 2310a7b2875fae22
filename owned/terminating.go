package owned

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// terminating reports an object that is being deleted, and releases it from finalizers, as far as
// Config.ForceRemoveFinalizers says so.
func (p *pass) terminating(ctx context.Context, r *Result, obj *metav1.PartialObjectMetadata) error {
	r.Outcome, r.Terminating = Terminating, deletionOf(obj)
	named := func(held metav1.Object) bool {
		return slices.ContainsFunc(held.GetFinalizers(), p.forceRemoves)
	}
	if !named(obj) {
		return nil
	}
	if left := p.set.config.ForceRemoveAfter - time.Since(r.Terminating.Since); left > 0 {
		p.runAgainIn(left)
		return nil
	}
	live, err := client.Live(ctx, p.client, metadataOnly(r.Kind, obj))
	if errors.Is(err, client.ErrGone) || errors.Is(err, client.ErrReplaced) {
		return nil // it has gone by itself
	}
	if err != nil || !named(live) {
		return err
	}
	return p.forceRemove(ctx, r, live)
}

// deletionOf tells of the deletion of an object whose deletion was accepted.
func deletionOf(obj metav1.Object) *Deletion {
	deletion := &Deletion{Finalizers: slices.Clone(obj.GetFinalizers())}
	if at := obj.GetDeletionTimestamp(); at != nil {
		deletion.Since = at.Time
	}
	return deletion
}

func (p *pass) forceRemoves(finalizer string) bool {
	return slices.Contains(p.set.config.ForceRemoveFinalizers, finalizer)
}

// forceRemove removes the named finalizers, each if it is still where it was seen.
func (p *pass) forceRemove(ctx context.Context, r *Result, live *metav1.PartialObjectMetadata) error {
	operations := []client.Operation{{Op: "test", Path: "/metadata/uid", Value: live.GetUID()}}
	var removed []string
	for at, name := range slices.Backward(live.GetFinalizers()) {
		if p.forceRemoves(name) {
			path := "/metadata/finalizers/" + strconv.Itoa(at)
			operations = append(operations,
				client.Operation{Op: "test", Path: path, Value: name}, client.Operation{Op: "remove", Path: path})
			removed = append(removed, name)
		}
	}
	_, err := client.Patch(ctx, p.client, live, client.JSONPatch(operations...))
	switch {
	case errors.Is(err, client.ErrGone):
		return nil
	case client.IsPatchTestFailed(err):
		err = client.ChangedError(ctx, p.client, live, errors.New("its finalizers are not those that were seen"))
	}
	if err != nil {
		return fmt.Errorf("release it from finalizers %s: %w", strings.Join(removed, ", "), err)
	}
	slices.Reverse(removed)
	r.Terminating.ForceRemoved = removed
	if p.plan {
		return nil
	}
	p.set.config.Logger.WarnContext(ctx, "a child is released from finalizers of other controllers; what they stand for may not have been done",
		"owner", p.String(), "child", r.String(), "finalizers", removed, "terminating_since", r.Terminating.Since)
	p.announce(corev1.EventTypeWarning, "FinalizersForceRemoved", "RemoveFinalizers", fmt.Sprintf(
		"%s has been terminating since %s: removed finalizers %s, whatever they stand for",
		r, r.Terminating.Since.UTC().Format(time.RFC3339), strings.Join(removed, ", ")))
	return nil
}

// announce writes an Event about the owner.
func (p *pass) announce(eventType, reason, action, note string) {
	if p.set.config.Events == nil || p.plan {
		return
	}
	key := kube.KeyOf(p.owner)
	p.set.config.Events.Event(corev1.ObjectReference{
		APIVersion: p.ownerKind.GroupVersion().String(), Kind: p.ownerKind.Kind,
		Namespace: key.Namespace, Name: key.Name, UID: p.owner.GetUID(),
	}, eventType, reason, action, note)
}

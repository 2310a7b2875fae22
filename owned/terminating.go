package owned

import (
	"cmp"
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
	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/patchtest"
	"github.com/evenkeel-go/evenkeel/kube"
)

// terminating reports an object that is being deleted, and removes the finalizers of Config.ForceRemoveFinalizers when
// it has been terminating long enough.
func (p *pass) terminating(ctx context.Context, r *Result, obj *metav1.PartialObjectMetadata) error {
	r.Outcome, r.terminating = outcomeTerminating, deletionOf(obj)
	due := false
	for _, name := range obj.GetFinalizers() {
		if wait, listed := p.forceRemovalOf(name, obj); listed && wait > 0 {
			p.runAgainIn(wait)
		} else if listed {
			due = true
		}
	}
	if !due {
		return nil
	}
	live, err := client.GetLive(ctx, p.client, metadataOnly(r.Kind, obj))
	if errors.Is(err, client.ErrGone) || errors.Is(err, client.ErrReplaced) {
		return nil // its finalizers were removed by their controllers
	}
	if err != nil {
		return err
	}
	if ownership, _ := p.ownershipOf(live); ownership != own {
		return nil // another client has removed it from the set
	}
	return p.forceRemoveFinalizers(ctx, r, live)
}

// deletionOf returns the termination of an object after the API server has accepted its deletion.
func deletionOf(obj metav1.Object) *termination {
	deletion := &termination{finalizers: slices.Clone(obj.GetFinalizers())}
	if deleted := obj.GetDeletionTimestamp(); deleted != nil {
		deletion.since = deleted.Time
	}
	return deletion
}

// forceRemovalOf returns how long a finalizer of a terminating object stays, and whether it is removed at all: whether
// Config.ForceRemoveFinalizers names it.
func (p *pass) forceRemovalOf(finalizer string, obj metav1.Object) (wait time.Duration, listed bool) {
	after, listed := p.set.config.ForceRemoveFinalizers[finalizer]
	deleted := obj.GetDeletionTimestamp()
	if !listed || deleted == nil {
		return 0, false
	}
	return cmp.Or(after, defaultForceRemoveAfter) - time.Since(deleted.Time), true
}

// forceRemoveFinalizers removes the finalizers of Config.ForceRemoveFinalizers whose time has come, each only if it is
// still at the index where it was read.
func (p *pass) forceRemoveFinalizers(ctx context.Context, r *Result, live *metav1.PartialObjectMetadata) error {
	operations := []client.Operation{{Op: "test", Path: "/metadata/uid", Value: live.GetUID()}}
	var removed []string
	for index, name := range slices.Backward(live.GetFinalizers()) {
		if wait, listed := p.forceRemovalOf(name, live); listed && wait <= 0 {
			path := "/metadata/finalizers/" + strconv.Itoa(index)
			operations = append(operations,
				client.Operation{Op: "test", Path: path, Value: name}, client.Operation{Op: "remove", Path: path})
			removed = append(removed, name)
		}
	}
	if len(removed) == 0 {
		return nil // their controllers have removed them
	}
	_, err := client.Patch(ctx, p.client, live, client.JSONPatch(operations...))
	switch {
	case errors.Is(err, client.ErrGone):
		return nil
	case patchtest.Failed(err):
		err = patchtest.Changed(ctx, p.client, live, errors.New("its finalizers have changed"))
	}
	if err != nil {
		return fmt.Errorf("force-remove finalizers %s: %w", strings.Join(removed, ", "), err)
	}
	slices.Reverse(removed)
	r.terminating.forceRemoved = removed
	if p.plan {
		return nil
	}
	logger := p.client.Cluster().Logger()
	logger.WarnContext(ctx, "force-removed finalizers of a child; the cleanup by their controllers "+
		"may be missing",
		"owner", p.String(), "child", r.String(), "finalizers", removed, "terminating_since", r.terminating.since)
	p.record(corev1.EventTypeWarning, "FinalizersForceRemoved", "RemoveFinalizers", fmt.Sprintf(
		"%s has been terminating since %s: removed finalizers %s; the cleanup by their controllers may be missing",
		r, r.terminating.since.UTC().Format(time.RFC3339), strings.Join(removed, ", ")))
	return nil
}

// record writes an Event about the owner.
func (p *pass) record(eventType, reason, action, note string) {
	events := apiobject.Events(p.set.config.Events, apiobject.ObserversOf(p.client.Cluster()))
	if events == nil || p.plan {
		return
	}
	key := kube.KeyOf(p.owner)
	events.Event(corev1.ObjectReference{
		APIVersion: p.ownerKind.GroupVersion().String(), Kind: p.ownerKind.Kind,
		Namespace: key.Namespace, Name: key.Name, UID: p.owner.GetUID(),
	}, eventType, reason, action, note)
}

package client

import (
	"context"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/kube"
)

// DeleteLive deletes obj, if what the API server has is still that object and check approves
// of its state.
//
// Flow:
//
//  1. The object is read from the API server, as by Live.
//  2. check is called with what was read. Nil approves of everything. An error ends the
//     matter, and is wrapped.
//  3. The object is deleted with its uid and the resourceVersion that was read as
//     preconditions. It is not tried twice: a conflict is the caller's to think about, and
//     a Retry-After the workqueue's (retry.RetryAfter).
//
// Guarantees: no object is deleted but the one that obj was read from, and not in a state that
// check has not seen. It returns when the API server has accepted the deletion; finalizers and
// the grace period go on after that.
//
// Options: IfUnchanged, DryRun, Propagation, GracePeriod.
//
// Errors: those of Live and of check; ErrGone and ErrChanged also for what happened after the
// read. For a caller that only wants the object away, ErrGone is a success. An answer that was
// lost on the way (a timeout) says nothing: the object may have been deleted.
func DeleteLive[T kube.Object](ctx context.Context, c *Client, obj T, check func(live T) error, options ...DeleteOption) error {
	s, err := newSettings(options)
	if err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	t, live, err := prepare(ctx, c, obj, check, s)
	if err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	s.uid, s.version = live.GetUID(), live.GetResourceVersion()
	if err := t.delete(ctx, s); err != nil {
		return fmt.Errorf("delete %s: %w", t, err)
	}
	return nil
}

// ScaleLive sets the number of replicas of obj, if what the API server has is still that object
// and check approves of its state. The kind needs a scale subresource, as Deployments,
// StatefulSets and ReplicaSets have it, and custom resources whose definition says so.
//
// Flow and guarantees are those of DeleteLive, with an update of the scale subresource that
// carries the resourceVersion which was read. Whoever else sets replicas, an autoscaler for
// one, will do so again; and after a scale to zero the API server (1.36) counts nobody as the
// manager of spec.replicas, so that others who apply it meet no conflict.
//
// Options: IfUnchanged, DryRun.
//
// Errors: those of Live and of check; ErrGone and ErrChanged also for what happened after the
// read; a negative number; a kind without a scale subresource. A lost answer says nothing: the
// object may have been scaled.
func ScaleLive[T kube.Object](ctx context.Context, c *Client, obj T, replicas int32, check func(live T) error, options ...interface {
	ApplyOption
	DeleteOption
}) error {
	if replicas < 0 {
		return fmt.Errorf("scale to %d replicas: there cannot be fewer than none", replicas)
	}
	s, err := newSettings(options)
	if err != nil {
		return fmt.Errorf("scale to %d replicas: %w", replicas, err)
	}
	t, live, err := prepare(ctx, c, obj, check, s)
	if err != nil {
		return fmt.Errorf("scale to %d replicas: %w", replicas, err)
	}
	if err := t.scale(ctx, live, replicas, s); err != nil {
		return fmt.Errorf("scale %s to %d replicas: %w", t, replicas, err)
	}
	return nil
}

// prepare reads the object and has it checked.
func prepare[T kube.Object](ctx context.Context, c *Client, obj T, check func(T) error, s settings) (target, T, error) {
	var none T
	t, err := c.sameTarget(ctx, obj)
	if err != nil {
		return t, none, err
	}
	live, err := readLive(ctx, t, obj, s)
	if err != nil {
		return t, none, fmt.Errorf("%s: read it again: %w", t, err)
	}
	version := live.GetResourceVersion()
	if check != nil {
		if err := check(live); err != nil {
			return t, none, fmt.Errorf("%s: not done: %w", t, err)
		}
	}
	// A check may change its object; the preconditions are of what was read.
	live.SetUID(obj.GetUID())
	live.SetResourceVersion(version)
	return t, live, nil
}

// scale sets the replicas of the object in exactly that state.
func (t target) scale(ctx context.Context, live metav1.Object, replicas int32, s settings) error {
	s.subresource = "scale"
	r := t.request(VerbUpdate, s)
	r.Object = &autoscalingv1.Scale{
		TypeMeta: metav1.TypeMeta{APIVersion: "autoscaling/v1", Kind: "Scale"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: t.key.Namespace, Name: t.key.Name, UID: live.GetUID(), ResourceVersion: live.GetResourceVersion(),
		},
		Spec: autoscalingv1.ScaleSpec{Replicas: replicas},
	}
	return asChanged(t.client.send(ctx, r))
}

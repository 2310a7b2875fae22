package client

import (
	"context"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/kube"
)

// DeleteLive deletes obj if the API server still has the same object and check accepts its state.
//
// Flow:
//
//  1. Read the object from the API server, as GetLive does.
//  2. Call check with the live object. A nil check accepts every state. An error of check ends the call, and is
//     wrapped.
//  3. Delete the object, with its uid and the live resourceVersion as preconditions. The request is not repeated: a
//     conflict is returned to the caller, and a Retry-After to the workqueue (retry.RetryAfter).
//
// Guarantees: DeleteLive only deletes the object that obj was read from, and only in a state that check has
// accepted. It returns when the API server has accepted the deletion; finalizers and the grace period follow.
//
// Options: IfUnchanged, DryRun, Propagation, GracePeriod.
//
// Errors: those of GetLive and of check; ErrGone and ErrChanged also for changes after the read. ErrGone is a
// success for a caller that only wants the object deleted. If the response is lost (a timeout), the object may
// have been deleted.
func DeleteLive[T kube.Object](
	ctx context.Context, c *Client, obj T, check func(live T) error, options ...DeleteOption,
) error {
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

// ScaleLive sets the number of replicas of obj if the API server still has the same object and check accepts
// its state. The kind needs a scale subresource: Deployments, StatefulSets and ReplicaSets have one, and custom
// resources may define one.
//
// Flow and guarantees are those of DeleteLive, with an update of the scale subresource that carries the live
// resourceVersion. Another client that sets replicas, such as an autoscaler, will set them again; and after a
// scale to zero the API server (1.36) has no manager of spec.replicas, so other clients that apply it get no
// conflict.
//
// Options: IfUnchanged, DryRun.
//
// Errors: those of GetLive and of check; ErrGone and ErrChanged also for changes after the read; a negative
// number; a kind without a scale subresource. If the response is lost, the object may have been scaled.
func ScaleLive[T kube.Object](ctx context.Context, c *Client, obj T, replicas int32, check func(live T) error,
	options ...interface {
		ApplyOption
		DeleteOption
	},
) error {
	if replicas < 0 {
		return fmt.Errorf("scale to %d replicas: the number must be at least 0", replicas)
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

// prepare reads the object and calls check.
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
	// check may have changed the object; the preconditions must be those of the live one.
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
			Namespace: t.key.Namespace, Name: t.key.Name, UID: live.GetUID(),
			ResourceVersion: live.GetResourceVersion(),
		},
		Spec: autoscalingv1.ScaleSpec{Replicas: replicas},
	}
	return asChanged(t.client.send(ctx, r))
}

package client

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/kube"
)

// DeleteLive deletes obj if the API server still has the same object and check accepts its state. A handler decides on
// the state of an informer, which can be minutes old after a restart of the API server; check decides again. Facts that
// decide must be in the object: the preconditions do not cover other inputs of check.
//
// Flow:
//
//  1. Read the object from the API server, as GetLive does.
//  2. Call check with the live object. A nil check accepts every state. An error of check ends the call, and is
//     wrapped.
//  3. Delete the object, with its uid and the live resourceVersion as preconditions. The request is not repeated: a
//     conflict is returned to the caller, and a Retry-After to the workqueue.
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
	t, version, err := prepare(ctx, c, "delete", obj, check, options, optionsOfDelete)
	if err != nil {
		return err
	}
	t.uid, t.version = obj.GetUID(), version
	return t.failed(t.delete(ctx))
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
		WriteOption
		DeleteOption
	},
) error {
	if replicas < 0 {
		return fmt.Errorf("scale to %d replicas: the number must be at least 0", replicas)
	}
	t, version, err := prepare(ctx, c, fmt.Sprintf("scale to %d replicas", replicas), obj, check, options,
		"DryRun, IfUnchanged")
	if err != nil {
		return err
	}
	t.subresource = "scale"
	r := t.request(VerbUpdate)
	scale := &unstructured.Unstructured{Object: map[string]any{ // programs need not link the types of the group
		"spec": map[string]any{"replicas": int64(replicas)},
	}}
	scale.SetAPIVersion("autoscaling/v1")
	scale.SetKind("Scale")
	scale.SetNamespace(t.key.Namespace)
	scale.SetName(t.key.Name)
	scale.SetUID(obj.GetUID())
	scale.SetResourceVersion(version)
	r.Object = scale
	if err := asChanged(t.client.send(ctx, r)); err != nil {
		t.subresource = ""
		return fmt.Errorf("scale %s to %d replicas: %w", t, replicas, err)
	}
	return nil
}

// prepare reads the object and calls check. It returns the resourceVersion that check has accepted.
func prepare[T kube.Object, O option](
	ctx context.Context, c *Client, action string, obj T, check func(T) error, options []O,
	accepted string,
) (t target, version string, err error) {
	if t, err = begin(ctx, c, action, obj, options, accepted); err != nil {
		return t, "", err
	}
	live, err := readLive(ctx, t, obj)
	if err != nil {
		return t, "", fmt.Errorf("%s: %s: read it again: %w", action, t, err)
	}
	version = live.GetResourceVersion() // check may change the object
	if check != nil {
		if err := check(live); err != nil {
			return t, "", fmt.Errorf("%s: %s: not done: %w", action, t, err)
		}
	}
	return t, version, nil
}

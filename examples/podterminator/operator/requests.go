package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/examples/podterminator/api/v1alpha1"
	"github.com/evenkeel-go/evenkeel/kube"
)

// read reads a PodTerminator from the API server.
func (o *Operator) read(ctx context.Context, key kube.Key) (*v1alpha1.PodTerminator, error) {
	pt := &v1alpha1.PodTerminator{}
	err := o.terminators.Get().Namespace(key.Namespace).Resource(v1alpha1.Resource).Name(key.Name).Do(ctx).Into(pt)
	if err != nil {
		return nil, fmt.Errorf("get PodTerminator %s: %w", key, err)
	}
	return pt, nil
}

// writeStatus replaces the status of pt, unless pt has changed since it was read: the resourceVersion in the patch then
// causes a conflict. It returns the new object.
func (o *Operator) writeStatus(
	ctx context.Context, pt *v1alpha1.PodTerminator, status *v1alpha1.PodTerminatorStatus,
) (*v1alpha1.PodTerminator, error) {
	patch := map[string]any{
		"metadata": map[string]any{"uid": pt.UID, "resourceVersion": pt.ResourceVersion},
		"status":   status,
	}
	out, err := o.patch(ctx, pt, types.MergePatchType, patch, "status")
	if err != nil {
		return nil, fmt.Errorf("patch the status of PodTerminator %s: %w", kube.KeyOf(pt), err)
	}
	return out, nil
}

// setReady sets the condition Ready.
func setReady(
	pt *v1alpha1.PodTerminator, status *v1alpha1.PodTerminatorStatus, conditionStatus metav1.ConditionStatus,
	reason, message string,
) {
	status.ObservedGeneration = pt.Generation
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type:               v1alpha1.ConditionReady,
		Status:             conditionStatus,
		Reason:             reason,
		Message:            message,
		ObservedGeneration: pt.Generation,
	})
}

// ensureFinalizer adds the operator's finalizer if it is missing.
func (o *Operator) ensureFinalizer(ctx context.Context, pt *v1alpha1.PodTerminator) (*v1alpha1.PodTerminator, error) {
	if slices.Contains(pt.Finalizers, v1alpha1.Finalizer) {
		return pt, nil
	}
	patch := []operation{
		// The list of finalizers is replaced, so it must be the one that was read.
		{Op: "test", Path: "/metadata/resourceVersion", Value: pt.ResourceVersion},
		{Op: "add", Path: "/metadata/finalizers", Value: append(slices.Clone(pt.Finalizers), v1alpha1.Finalizer)},
	}
	out, err := o.patch(ctx, pt, types.JSONPatchType, patch)
	if err != nil {
		return nil, fmt.Errorf("add finalizer %s to PodTerminator %s: %w", v1alpha1.Finalizer, kube.KeyOf(pt), err)
	}
	return out, nil
}

// finalize removes the marks from the Pods, and then the finalizer from the PodTerminator.
//
// A finalizer is necessary because the Pods do not belong to the PodTerminator: an owner reference could not clean them
// up, and after its deletion the marked Pods would be unknown. All possible marks are in status.marked. A current round
// is dropped: this operator ends no more Pods for it. (A second operator that works at the same time might, which
// leader election prevents.)
func (o *Operator) finalize(ctx context.Context, pt *v1alpha1.PodTerminator) error {
	i := slices.Index(pt.Finalizers, v1alpha1.Finalizer)
	if i < 0 {
		return nil // finalizers of other owners must not be changed
	}
	if err := o.unmark(ctx, pt, pt.Status.Marked); err != nil {
		return err
	}
	path := fmt.Sprintf("/metadata/finalizers/%d", i)
	_, err := o.patch(ctx, pt, types.JSONPatchType, []operation{
		// Other clients may add and remove finalizers concurrently, which changes the index.
		{Op: "test", Path: path, Value: v1alpha1.Finalizer},
		{Op: "remove", Path: path},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove finalizer %s from PodTerminator %s: %w", v1alpha1.Finalizer, kube.KeyOf(pt), err)
	}
	return nil
}

// operation is an operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

func (o *Operator) patch(
	ctx context.Context, pt *v1alpha1.PodTerminator, kind types.PatchType, patch any, subresource ...string,
) (*v1alpha1.PodTerminator, error) {
	body, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	out := &v1alpha1.PodTerminator{}
	err = o.terminators.Patch(kind).Namespace(pt.Namespace).Resource(v1alpha1.Resource).Name(pt.Name).
		SubResource(subresource...).Body(body).Do(ctx).Into(out)
	return out, err
}

// mark adds pt's mark to the Pods.
func (o *Operator) mark(ctx context.Context, pt *v1alpha1.PodTerminator, pods []v1alpha1.PodReference) error {
	for _, pod := range pods {
		// A merge patch with the UID is rejected if another Pod has the name, because a UID cannot be changed.
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid":         pod.UID,
			"annotations": map[string]string{v1alpha1.VictimAnnotation: pt.Name},
		}})
		if err != nil {
			return err
		}
		_, err = o.podClient.Pods(pt.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil && !isGone(err) {
			return fmt.Errorf("mark Pod %s/%s: %w", pt.Namespace, pod.Name, err)
		}
	}
	return nil
}

// unmark removes pt's mark from the Pods. It ignores Pods without a mark, and marks of other PodTerminators.
func (o *Operator) unmark(ctx context.Context, pt *v1alpha1.PodTerminator, pods []v1alpha1.PodReference) error {
	path := "/metadata/annotations/" + strings.ReplaceAll(v1alpha1.VictimAnnotation, "/", "~1")
	for _, pod := range pods {
		current, err := o.find(ctx, pt.Namespace, pod)
		if err != nil {
			return err
		}
		if current == nil || current.Annotations[v1alpha1.VictimAnnotation] != pt.Name {
			continue
		}
		// The tests detect changes since the read. The API server responds with "Invalid" to a failed test, to an
		// invalid patch, and for some rejections by webhooks. In all cases the retry reads the Pod again.
		patch, err := json.Marshal([]operation{
			{Op: "test", Path: "/metadata/uid", Value: pod.UID},
			{Op: "test", Path: path, Value: pt.Name},
			{Op: "remove", Path: path},
		})
		if err != nil {
			return err
		}
		_, err = o.podClient.Pods(pt.Namespace).Patch(ctx, pod.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove the mark from Pod %s/%s: %w", pt.Namespace, pod.Name, err)
		}
	}
	return nil
}

// find returns a Pod, or nil if it does not exist.
func (o *Operator) find(ctx context.Context, namespace string, ref v1alpha1.PodReference) (*corev1.Pod, error) {
	pod, err := o.podClient.Pods(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && pod.UID != ref.UID:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get Pod %s/%s: %w", namespace, ref.Name, err)
	}
	return pod, nil
}

// deletePods deletes the Pods, unless other Pods have their names now, and returns the deleted ones.
func (o *Operator) deletePods(
	ctx context.Context, pt *v1alpha1.PodTerminator, pods []v1alpha1.PodReference,
) (ended []v1alpha1.PodReference, err error) {
	for _, pod := range pods {
		err := o.podClient.Pods(pt.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
		})
		switch {
		case err == nil:
			ended = append(ended, pod)
			controller.LoggerFrom(ctx).InfoContext(ctx, "ended a Pod", "pod", pod.Name)
		case !isGone(err):
			return ended, fmt.Errorf("delete Pod %s/%s: %w", pt.Namespace, pod.Name, err)
		}
	}
	return ended, nil
}

// isGone reports whether the error means that the Pod with the request's UID does not exist: either no Pod has the
// name, or another one has it, which causes a conflict for a precondition and a rejection for a patch of its UID.
func isGone(err error) bool {
	cause, invalid := apierrors.StatusCause(err, metav1.CauseTypeFieldValueInvalid)
	return apierrors.IsNotFound(err) || apierrors.IsConflict(err) || invalid && cause.Field == "metadata.uid"
}

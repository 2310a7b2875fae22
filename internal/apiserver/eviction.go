package apiserver

import (
	"errors"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const evictionSubresource = "eviction"

// evict deletes a Pod, and says so in a condition of it before. It ignores PodDisruptionBudgets.
func (r *request) evict() (*response, error) {
	decoded, options, err := r.created(Builtin[policyv1.Eviction](policyv1.SchemeGroupVersion.WithKind("Eviction"), "evictions", policyv1.AddToScheme))
	if err != nil {
		return nil, err
	}
	eviction := decoded.(*policyv1.Eviction)
	if err := r.setNamespace(eviction); err != nil {
		return nil, err
	}
	if eviction.Name != r.name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	deletion := eviction.DeleteOptions
	if deletion == nil {
		deletion = &metav1.DeleteOptions{}
	}
	if options.dryRun {
		deletion.DryRun = []string{metav1.DryRunAll}
	}
	if len(deletion.DryRun) == 0 {
		if err := r.markEvicted(deletion); err != nil {
			return nil, err
		}
	}
	if _, _, err := r.deleteNamed(r.namespace, r.name, deletion); err != nil {
		return nil, err
	}
	return r.status(http.StatusCreated, nil)
}

// markEvicted sets the condition of an evicted Pod. A version that the deletion demands becomes the new one.
func (r *request) markEvicted(deletion *metav1.DeleteOptions) error {
	status := *r
	status.subresource = "status"
	for {
		stored := r.find(r.namespace, r.name)
		if stored == nil {
			return apierrors.NewNotFound(r.kind.groupResource(), r.name)
		}
		if err := r.checkPreconditions(stored, deletion.Preconditions); err != nil {
			return err
		}
		pod := stored.obj.DeepCopyObject().(*corev1.Pod)
		setPodCondition(pod, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting",
		})
		if err := status.prepareUpdate(pod, stored.obj); err != nil {
			return err
		}
		marked, err := status.commit(pod, stored, false)
		if errors.Is(err, errChanged) {
			continue
		}
		if err != nil {
			return err
		}
		if p := deletion.Preconditions; p != nil && p.ResourceVersion != nil {
			p.ResourceVersion = new(marked.obj.GetResourceVersion())
		}
		return nil
	}
}

// setPodCondition adds or replaces a condition. Its time changes only with its status.
func setPodCondition(pod *corev1.Pod, condition corev1.PodCondition) {
	condition.LastTransitionTime = now()
	for i, existing := range pod.Status.Conditions {
		if existing.Type != condition.Type {
			continue
		}
		if existing.Status == condition.Status {
			condition.LastTransitionTime = existing.LastTransitionTime
		}
		pod.Status.Conditions[i] = condition
		return
	}
	pod.Status.Conditions = append(pod.Status.Conditions, condition)
}

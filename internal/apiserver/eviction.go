package apiserver

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const evictionSubresource = "eviction"

// maxDisruptedPods is the number of evictions that the disruption controller may leave unconfirmed.
const maxDisruptedPods = 2000

const (
	budgetViolated  = "Cannot evict pod as it would violate the pod's disruption budget."
	severalBudgets  = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
	retryAfter      = 10 // seconds
	unsafeUnallowed = "can not be set for pod eviction, try after removing the option"
)

// addEvictions registers the bodies of evictions. Both versions have the same fields.
func addEvictions(scheme *runtime.Scheme) error {
	if err := policyv1.AddToScheme(scheme); err != nil {
		return err
	}
	scheme.AddKnownTypeWithName(policyv1beta1.SchemeGroupVersion.WithKind("Eviction"), &policyv1.Eviction{})
	return nil
}

// evicts reports whether the request is an eviction, whose body may have the version.
func (r *request) evicts(version schema.GroupVersion) bool {
	return r.subresource == evictionSubresource && version == policyv1beta1.SchemeGroupVersion
}

// evict deletes a Pod if its PodDisruptionBudget allows it, and says so in a condition of the Pod before.
func (r *request) evict() (*response, error) {
	decoded, part, options, err := r.created()
	if err != nil {
		return nil, err
	}
	eviction := decoded.(*policyv1.Eviction)
	if eviction.Name != r.name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	deletion, err := deletionOptions(eviction, options.dryRun)
	if err != nil {
		return nil, err
	}
	if err := part.admit(eviction, nil, options); err != nil {
		return nil, err
	}
	pod, err := r.evictedPod()
	if err != nil {
		return nil, err
	}
	if ignoresBudgets(pod) {
		return r.evictWithoutBudget(pod, deletion)
	}
	return r.evictWithBudget(pod, deletion)
}

// deletionOptions returns the options of the deletion. The real server reports different dry runs as an internal error.
func deletionOptions(eviction *policyv1.Eviction, dryRun bool) (*metav1.DeleteOptions, error) {
	options := eviction.DeleteOptions
	if options == nil {
		options = &metav1.DeleteOptions{}
	}
	if unsafe := options.IgnoreStoreReadErrorWithClusterBreakingPotential; unsafe != nil && *unsafe {
		path := field.NewPath("deleteOptions", "ignoreStoreReadErrorWithClusterBreakingPotential")
		return nil, apierrors.NewInvalid(policyv1.SchemeGroupVersion.WithKind("Eviction").GroupKind(), eviction.Name,
			field.ErrorList{field.Invalid(path, true, unsafeUnallowed)})
	}
	all := []string{metav1.DryRunAll}
	switch {
	case dryRun && len(options.DryRun) == 0:
		options.DryRun = all
	case dryRun && !slices.Equal(options.DryRun, all):
		//nolint:staticcheck // the real server's text
		return nil, fmt.Errorf("Non-matching dry-run options in request and content: %v and %v", all, options.DryRun)
	}
	return options, nil
}

func (r *request) evictedPod() (*corev1.Pod, error) {
	stored := r.find(r.namespace, r.name)
	if stored == nil {
		return nil, apierrors.NewNotFound(r.kind.groupResource(), r.name)
	}
	return stored.obj.(*corev1.Pod), nil
}

// ignoresBudgets reports whether the eviction of a Pod disrupts nothing: it does not run, or is being deleted.
func ignoresBudgets(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodPending || ended(pod)
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed ||
		pod.DeletionTimestamp != nil
}

// evictWithoutBudget evicts a Pod that does not run. A Pod that may run now is not deleted, but read again.
func (r *request) evictWithoutBudget(pod *corev1.Pod, options *metav1.DeleteOptions) (*response, error) {
	for {
		attempt := options
		pinned := !ended(pod) && !demandsVersion(options)
		if pinned {
			attempt = withVersion(options, pod)
		}
		err := r.deleteEvicted(attempt)
		if !pinned || !apierrors.IsConflict(err) {
			return r.evicted(err)
		}
		current, missing := r.evictedPod()
		switch {
		case missing != nil:
			return nil, missing
		case current.ResourceVersion == pod.ResourceVersion: // another precondition does not hold
			return nil, err
		case !ignoresBudgets(current):
			return r.evictWithBudget(current, options)
		}
		pod = current
	}
}

// evictWithBudget evicts a running Pod.
func (r *request) evictWithBudget(pod *corev1.Pod, options *metav1.DeleteOptions) (*response, error) {
	budgets := r.budgetsOf(pod)
	if len(budgets) > 1 {
		return nil, errors.New(severalBudgets) //nolint:staticcheck // the real server's text
	}
	if len(budgets) == 0 {
		return r.evicted(r.deleteEvicted(options))
	}
	budget := budgets[0]
	if !podReady(pod) && allowsUnhealthy(budget) {
		err := r.deleteEvicted(withVersion(options, pod))
		if apierrors.IsConflict(err) && !demandsVersion(options) {
			err = budgetNotReady(budget.Name)
		}
		return r.evicted(err)
	}
	if err := r.disrupt(budget, pod.Name, len(options.DryRun) > 0); err != nil {
		return nil, err
	}
	return r.evicted(r.deleteEvicted(options))
}

// evicted returns the response to an eviction that ended with err.
func (r *request) evicted(err error) (*response, error) {
	if err != nil {
		return nil, err
	}
	return r.status(http.StatusCreated, nil)
}

func demandsVersion(options *metav1.DeleteOptions) bool {
	return options.Preconditions != nil && options.Preconditions.ResourceVersion != nil
}

// withVersion returns options that demand the version of a Pod.
func withVersion(options *metav1.DeleteOptions, pod *corev1.Pod) *metav1.DeleteOptions {
	options = options.DeepCopy()
	if options.Preconditions == nil {
		options.Preconditions = &metav1.Preconditions{}
	}
	options.Preconditions.ResourceVersion = new(pod.ResourceVersion)
	return options
}

func podReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// allowsUnhealthy reports whether a budget ignores the eviction of a Pod that is not ready.
func allowsUnhealthy(budget *policyv1.PodDisruptionBudget) bool {
	if policy := budget.Spec.UnhealthyPodEvictionPolicy; policy != nil && *policy == policyv1.AlwaysAllow {
		return true
	}
	return budget.Status.CurrentHealthy >= budget.Status.DesiredHealthy && budget.Status.DesiredHealthy > 0
}

func budgetResource() schema.GroupVersionResource {
	return policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")
}

// budgetsOf returns the budgets that select a Pod.
func (r *request) budgetsOf(pod *corev1.Pod) []*policyv1.PodDisruptionBudget {
	var budgets []*policyv1.PodDisruptionBudget
	for _, obj := range r.server.Objects(budgetResource().GroupResource()) {
		budget, ok := obj.(*policyv1.PodDisruptionBudget)
		if !ok || budget.Namespace != pod.Namespace {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err == nil && selector.Matches(labels.Set(pod.Labels)) {
			budgets = append(budgets, budget)
		}
	}
	return budgets
}

// disrupt notes a disruption in the status of a budget, if the budget allows it.
func (r *request) disrupt(budget *policyv1.PodDisruptionBudget, pod string, dryRun bool) error {
	if dryRun {
		return decrement(budget.DeepCopy(), pod)
	}
	update := &request{
		Request: r.Clone(r.Context()), server: r.server, warnings: new([]string), resource: budgetResource(),
		namespace: budget.Namespace, name: budget.Name, subresource: "status", out: output{media: mediaJSON},
	}
	update.Method, update.Header = http.MethodPut, http.Header{"User-Agent": {"kube-apiserver"}}
	path := resourcePath{update.resource.Group, update.resource.Version, update.resource.Resource}
	if r.server.lookup(path, update); update.kind == nil {
		return apierrors.NewNotFound(update.resource.GroupResource(), budget.Name)
	}
	_, err := update.replace("", writeOptions{}, func(current Object) (Object, error) {
		changed := current.DeepCopyObject().(*policyv1.PodDisruptionBudget)
		if err := decrement(changed, pod); err != nil {
			return nil, err
		}
		obj := update.manage(current, changed, writeOptions{})
		return obj, update.mutate(obj, current, writeOptions{})
	})
	return err
}

// decrement changes the status of a budget for the disruption of a Pod, or returns why the budget does not allow it.
func decrement(budget *policyv1.PodDisruptionBudget, pod string) error {
	status := &budget.Status
	forbidden := func(reason string) error {
		return apierrors.NewForbidden(schema.GroupResource{Group: policyv1.GroupName, Resource: "poddisruptionbudget"},
			budget.Name, errors.New(reason))
	}
	switch {
	case status.ObservedGeneration < budget.Generation:
		return budgetNotReady(budget.Name)
	case status.DisruptionsAllowed < 0:
		return forbidden("pdb disruptions allowed is negative")
	case len(status.DisruptedPods) > maxDisruptedPods:
		return forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller")
	case status.DisruptionsAllowed == 0:
		return tooManyDisruptions(0, budgetExhausted(budget))
	}
	status.DisruptionsAllowed--
	if status.DisruptionsAllowed == 0 {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse,
			Reason:             policyv1.InsufficientPodsReason,
			ObservedGeneration: status.ObservedGeneration, LastTransitionTime: now(),
		})
	}
	if status.DisruptedPods == nil {
		status.DisruptedPods = map[string]metav1.Time{}
	}
	status.DisruptedPods[pod] = now()
	return nil
}

// budgetExhausted describes why a budget allows no disruption.
func budgetExhausted(budget *policyv1.PodDisruptionBudget) string {
	status := &budget.Status
	text := fmt.Sprintf("The disruption budget %s does not allow evicting pods currently", budget.Name)
	condition := meta.FindStatusCondition(status.Conditions, policyv1.DisruptionAllowedCondition)
	explained := condition != nil && condition.Status == metav1.ConditionFalse && condition.Message != ""
	switch {
	case explained && condition.Reason == policyv1.SyncFailedReason:
		return text + " because it failed sync: " + condition.Message
	case status.CurrentHealthy <= status.DesiredHealthy:
		return fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", budget.Name,
			status.DesiredHealthy, status.CurrentHealthy)
	case explained:
		return fmt.Sprintf("%s (%s): %s", text, condition.Reason, condition.Message)
	}
	return text
}

// budgetNotReady is the error while the disruption controller has not seen the latest budget or Pod.
func budgetNotReady(budget string) error {
	return tooManyDisruptions(retryAfter,
		fmt.Sprintf("The disruption budget %s is still being processed by the server.", budget))
}

func tooManyDisruptions(retryAfter int, cause string) error {
	err := apierrors.NewTooManyRequests(budgetViolated, retryAfter)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes,
		metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: cause})
	return err
}

// deleteEvicted sets the condition of an evicted Pod, and deletes it.
func (r *request) deleteEvicted(options *metav1.DeleteOptions) error {
	options = options.DeepCopy()
	if len(options.DryRun) == 0 {
		if err := r.markEvicted(options); err != nil {
			return err
		}
	}
	if err := invalidOptions("DeleteOptions", metavalidation.ValidateDeleteOptions(options)); err != nil {
		return err
	}
	_, _, err := r.deleteNamed(r.namespace, r.name, options)
	return err
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
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI",
			Message: "Eviction API: evicting",
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

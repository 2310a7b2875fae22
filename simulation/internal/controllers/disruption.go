package controllers

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// disruptionTimeout is the time after which an evicted Pod that is not being deleted counts again.
const disruptionTimeout = 2 * time.Minute

func budgetResource() schema.GroupResource {
	return schema.GroupResource{Group: policyv1.GroupName, Resource: "poddisruptionbudgets"}
}

// budgets models the disruption controller, which writes the status of PodDisruptionBudgets.
type budgets struct {
	*Manager
	requests *requester
}

func (b *budgets) String() string { return "disruption-controller" }

// observe adds the budgets that select a changed Pod. Like the real controller it does not add those that selected the
// Pod before its labels changed.
func (b *budgets) observe(add func(key string, due time.Time), now time.Time, c apiserver.Change) {
	obj := c.Object
	if obj == nil {
		obj = c.Old
	}
	switch obj := obj.(type) {
	case *policyv1.PodDisruptionBudget:
		add(objectKey(obj).String(), now)
	case *corev1.Pod:
		for key, budget := range b.state.objects[budgetResource()] {
			if key.Namespace == obj.Namespace && budgetSelector(budget).Matches(labels.Set(obj.Labels)) {
				add(key.String(), now)
			}
		}
	}
}

// budgetSelector returns the selector of a budget. A valid budget has a valid one.
func budgetSelector(budget apiserver.Object) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(budget.(*policyv1.PodDisruptionBudget).Spec.Selector)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

func (b *budgets) sync(ctx context.Context, key string) (time.Time, error) {
	namespace, name, _ := strings.Cut(key, "/")
	budget, k := get[*policyv1.PodDisruptionBudget](b.Manager, budgetResource(), namespace, name)
	if budget == nil {
		return time.Time{}, nil
	}
	changed := budget.DeepCopy()
	nextSync, problem := b.calculate(ctx, changed)
	switch {
	case ctx.Err() != nil:
		return time.Time{}, ctx.Err()
	case problem != nil:
		changed = budget.DeepCopy()
		changed.Status.DisruptionsAllowed = 0
		setBudgetCondition(changed, policyv1.SyncFailedReason, problem.Error())
	}
	if equality.Semantic.DeepEqual(changed.Status, budget.Status) {
		return nextSync, nil
	}
	return nextSync, ignoreNotFound(b.requests.update(ctx, k, changed, "status"))
}

// calculate sets the status of a budget. It returns when an eviction times out, and an error that the status has to
// contain.
func (b *budgets) calculate(ctx context.Context, budget *policyv1.PodDisruptionBudget) (nextSync time.Time, err error) {
	selector := budgetSelector(budget)
	var pods []*corev1.Pod
	for _, obj := range b.list(podResource(), budget.Namespace) {
		if selector.Matches(labels.Set(obj.GetLabels())) {
			pods = append(pods, obj.(*corev1.Pod))
		}
	}
	expected, desired, err := b.counts(ctx, budget, pods)
	if err != nil {
		return time.Time{}, err
	}
	status := &budget.Status
	disrupted, nextSync := stillDisrupted(status.DisruptedPods, pods, time.Now())
	healthy := int32(0)
	for _, pod := range pods {
		if _, evicted := disrupted[pod.Name]; !evicted && pod.DeletionTimestamp == nil && ready(pod) {
			healthy++
		}
	}
	status.CurrentHealthy, status.DesiredHealthy, status.ExpectedPods = healthy, desired, expected
	status.DisruptedPods, status.ObservedGeneration = disrupted, budget.Generation
	if status.DisruptionsAllowed = max(0, healthy-desired); expected == 0 {
		status.DisruptionsAllowed = 0
	}
	reason := policyv1.InsufficientPodsReason
	if status.DisruptionsAllowed > 0 {
		reason = policyv1.SufficientPodsReason
	}
	setBudgetCondition(budget, reason, "")
	return nextSync, nil
}

func setBudgetCondition(budget *policyv1.PodDisruptionBudget, reason, message string) {
	status := metav1.ConditionFalse
	if reason == policyv1.SufficientPodsReason {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&budget.Status.Conditions, metav1.Condition{
		Type: policyv1.DisruptionAllowedCondition, Status: status, Reason: reason, Message: message,
		ObservedGeneration: budget.Status.ObservedGeneration,
		LastTransitionTime: metav1.NewTime(time.Now().Truncate(time.Second)),
	})
}

// stillDisrupted returns the evicted Pods that are not being deleted yet, and when the first of them times out.
func stillDisrupted(
	evicted map[string]metav1.Time, pods []*corev1.Pod, now time.Time,
) (remaining map[string]metav1.Time, nextSync time.Time) {
	for _, pod := range pods {
		at, found := evicted[pod.Name]
		end := at.Add(disruptionTimeout)
		if !found || pod.DeletionTimestamp != nil || end.Before(now) {
			continue
		}
		if remaining == nil {
			remaining = map[string]metav1.Time{}
		}
		if remaining[pod.Name] = at; nextSync.IsZero() || end.Before(nextSync) {
			nextSync = end
		}
	}
	if !nextSync.IsZero() {
		nextSync = nextSync.Add(time.Nanosecond) // when it has timed out
	}
	return remaining, nextSync
}

// counts returns how many Pods there should be, and how many of them have to be healthy.
func (b *budgets) counts(
	ctx context.Context, budget *policyv1.PodDisruptionBudget, pods []*corev1.Pod,
) (expected, desired int32, err error) {
	limit := cmp.Or(budget.Spec.MaxUnavailable, budget.Spec.MinAvailable)
	switch {
	case limit == nil:
		return 0, 0, nil
	case budget.Spec.MaxUnavailable == nil && limit.Type == intstr.Int:
		return int32(len(pods)), limit.IntVal, nil
	}
	if expected, err = b.scaleOf(ctx, pods); err != nil {
		return 0, 0, err
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(limit, int(expected), true)
	if err != nil {
		return 0, 0, err
	}
	if budget.Spec.MaxUnavailable != nil {
		return expected, max(0, expected-int32(n)), nil
	}
	return expected, int32(n), nil
}

// scaleOf returns the sum of the replicas of all controllers of the Pods. Pods without a controller do not count.
func (b *budgets) scaleOf(ctx context.Context, pods []*corev1.Pod) (int32, error) {
	scales := map[types.UID]int32{}
	for _, pod := range pods {
		owner := metav1.GetControllerOf(pod)
		if owner == nil {
			continue
		}
		if _, known := scales[owner.UID]; known {
			continue
		}
		uid, scale, err := b.controllerScale(ctx, pod.Namespace, owner)
		if err != nil {
			return 0, err
		}
		if uid == "" {
			return 0, fmt.Errorf("found no controllers for pod %q", pod.Name)
		}
		scales[uid] = scale
	}
	sum := int32(0)
	for _, scale := range scales {
		sum += scale
	}
	return sum, nil
}

// controllerScale returns the uid and the replicas of a Pod's controller. For a ReplicaSet of a Deployment they are
// those of the Deployment. The uid is empty if the controller does not exist.
func (b *budgets) controllerScale(
	ctx context.Context, namespace string, owner *metav1.OwnerReference,
) (types.UID, int32, error) {
	b.mu.Lock()
	e, k := b.state.byUID[owner.UID], b.state.referenced(*owner)
	b.mu.Unlock()
	if k == nil {
		gv, err := schema.ParseGroupVersion(owner.APIVersion)
		if err != nil {
			return "", 0, err
		}
		return "", 0, &meta.NoKindMatchError{
			GroupKind:        gv.WithKind(owner.Kind).GroupKind(),
			SearchedVersions: []string{gv.Version},
		}
	}
	if e == nil || e.obj.GetName() != owner.Name || e.obj.GetNamespace() != namespace ||
		resourceOf(e.kind) != resourceOf(k) {
		e = nil
	}
	// which has no Scale here
	if e == nil && resourceOf(k) == (schema.GroupResource{Resource: "replicationcontrollers"}) {
		return "", 0, nil
	}
	if e != nil {
		switch obj := e.obj.(type) {
		case *appsv1.ReplicaSet:
			owner := metav1.GetControllerOf(obj)
			if owner == nil || owner.Kind != "Deployment" {
				return obj.UID, *obj.Spec.Replicas, nil
			}
			if d, _ := get[*appsv1.Deployment](b.Manager, deploymentResource(), namespace, owner.Name); d != nil &&
				d.UID == owner.UID {
				return d.UID, *d.Spec.Replicas, nil
			}
			// The scale subresource of the ReplicaSet is what the real controller tries last.
		case *appsv1.StatefulSet:
			return obj.UID, *obj.Spec.Replicas, nil
		case *corev1.ReplicationController:
			if obj.Spec.Replicas == nil {
				return obj.UID, 1, nil // the default, which this kind does not have here
			}
			return obj.UID, *obj.Spec.Replicas, nil
		}
	}
	if k.Scale == nil {
		return "", 0, fmt.Errorf("%s does not implement the scale subresource", resourceOf(k))
	}
	var scale autoscalingv1.Scale
	err := b.requests.send(ctx, http.MethodGet, path(k, namespace, owner.Name, "scale"), jsonType, nil, &scale)
	switch {
	case apierrors.IsNotFound(err) || err == nil && scale.UID != owner.UID:
		return "", 0, nil
	case err != nil:
		return "", 0, err
	}
	return scale.UID, scale.Spec.Replicas, nil
}

// staleDisruptions models the part of the disruption controller that undoes the condition of Pods that were evicted,
// and are not being deleted.
type staleDisruptions struct {
	*Manager
	requests *requester
}

func (s *staleDisruptions) String() string { return "disruption-controller" }

func (s *staleDisruptions) observe(add func(key string, due time.Time), _ time.Time, c apiserver.Change) {
	if pod, ok := c.Object.(*corev1.Pod); ok {
		if at := staleAt(pod); !at.IsZero() {
			add(objectKey(pod).String(), at)
		}
	}
}

// staleAt returns when the disruption of a Pod is stale; zero if it never is.
func staleAt(pod *corev1.Pod) time.Time {
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget
	})
	if i < 0 || pod.DeletionTimestamp != nil || terminal(pod) {
		return time.Time{}
	}
	if c := pod.Status.Conditions[i]; c.Status == corev1.ConditionTrue &&
		c.Reason != corev1.PodReasonTerminationByKubelet {
		return c.LastTransitionTime.Add(disruptionTimeout)
	}
	return time.Time{}
}

func (s *staleDisruptions) sync(ctx context.Context, key string) (time.Time, error) {
	namespace, name, _ := strings.Cut(key, "/")
	pod, k := get[*corev1.Pod](s.Manager, podResource(), namespace, name)
	if pod == nil {
		return time.Time{}, nil
	}
	if at := staleAt(pod); at.IsZero() || at.After(time.Now()) {
		return at, nil
	}
	pod = pod.DeepCopy()
	setPodCondition(pod, &pod.Status, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse})
	return time.Time{}, ignoreNotFound(s.requests.update(ctx, k, pod, "status"))
}

package controllers

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

func podResource() schema.GroupResource { return schema.GroupResource{Resource: "pods"} }

func replicaSetResource() schema.GroupResource {
	return schema.GroupResource{Group: "apps", Resource: "replicasets"}
}

func deploymentResource() schema.GroupResource {
	return schema.GroupResource{Group: "apps", Resource: "deployments"}
}

// burst is the most Pods that a ReplicaSet or a Job creates or deletes at once.
const burst = 500

// replicaSets models the ReplicaSet controller.
type replicaSets struct {
	*Manager
	requests *requester
}

func (r *replicaSets) String() string { return "replicaset-controller" }

func (r *replicaSets) observe(add func(key string, due time.Time), now time.Time, c apiserver.Change) {
	if set, ok := c.Object.(*appsv1.ReplicaSet); ok {
		add(objectKey(set).String(), now)
	}
	r.owners(c, appsv1.SchemeGroupVersion.WithKind("ReplicaSet").GroupKind(), replicaSetResource(), podResource(),
		func(key string) { add(key, now) })
}

// selectorOf returns the label selector of a controller's object. An empty selector selects nothing.
func selectorOf(obj apiserver.Object) labels.Selector {
	var selector *metav1.LabelSelector
	switch obj := obj.(type) {
	case *appsv1.ReplicaSet:
		selector = obj.Spec.Selector
	case *batchv1.Job:
		selector = obj.Spec.Selector
	case *appsv1.Deployment:
		selector = obj.Spec.Selector
	case *appsv1.StatefulSet:
		selector = obj.Spec.Selector
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil || parsed.Empty() {
		return labels.Nothing()
	}
	return parsed
}

func (r *replicaSets) sync(ctx context.Context, key string) (time.Time, error) {
	namespace, name, _ := strings.Cut(key, "/")
	set, k := get[*appsv1.ReplicaSet](r.Manager, replicaSetResource(), namespace, name)
	if set == nil {
		return time.Time{}, nil
	}
	selector := selectorOf(set)
	var candidates []*corev1.Pod
	var terminating int32
	for _, obj := range r.list(podResource(), namespace) {
		pod := obj.(*corev1.Pod)
		switch {
		case active(pod):
			candidates = append(candidates, pod)
		case pod.DeletionTimestamp != nil && !terminal(pod) && metav1.IsControlledBy(pod, set) &&
			selector.Matches(labels.Set(pod.Labels)):
			terminating++
		}
	}
	pods, err := claim(ctx, r.requests, r.kind(podResource()), set, k, selector, candidates)
	if err != nil {
		return time.Time{}, err
	}
	var failure error
	if set.DeletionTimestamp == nil {
		failure = r.scale(ctx, set, k, pods)
	}
	status, next := replicaSetStatus(set, pods, terminating, failure, time.Now())
	if !equality.Semantic.DeepEqual(*status, set.Status) {
		updated := set.DeepCopy()
		updated.Status = *status
		if err := r.requests.update(ctx, k, updated, "status"); err != nil {
			return time.Time{}, ignoreNotFound(err)
		}
	}
	return next, failure
}

// active reports whether a Pod counts as a replica.
func active(pod *corev1.Pod) bool { return !terminal(pod) && pod.DeletionTimestamp == nil }

// scale creates or deletes Pods.
func (r *replicaSets) scale(ctx context.Context, set *appsv1.ReplicaSet, k *apiserver.Kind, pods []*corev1.Pod) error {
	missing := int(*set.Spec.Replicas) - len(pods)
	if missing >= 0 {
		_, err := r.requests.createPods(ctx, r.kind(podResource()), min(missing, burst), func() *corev1.Pod {
			return podFromTemplate(&set.Spec.Template, set, k)
		})
		return err
	}
	if len(pods) > -missing {
		sortForDeletion(pods, r.related(set))
	}
	var failure error
	for _, pod := range pods[:min(-missing, burst)] {
		if err := r.requests.delete(ctx, r.kind(podResource()), pod, metav1.DeleteOptions{}); err != nil &&
			failure == nil {
			failure = ignoreNotFound(err)
		}
	}
	return failure
}

// podFromTemplate returns a new Pod of owner.
func podFromTemplate(template *corev1.PodTemplateSpec, owner apiserver.Object, k *apiserver.Kind) *corev1.Pod {
	template = template.DeepCopy()
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: owner.GetNamespace(), GenerateName: owner.GetName() + "-",
			Labels: template.Labels, Annotations: template.Annotations, Finalizers: template.Finalizers,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, k.GroupVersionKind)},
		},
		Spec: template.Spec,
	}
}

// createPods creates n Pods in batches, of which each has twice the size of the previous one, and stops after a batch
// with a failure. It returns the number of created Pods and the first error.
func (r *requester) createPods(
	ctx context.Context, k *apiserver.Kind, n int, newPod func() *corev1.Pod,
) (created int, err error) {
	var failure error
	for batch := 1; n > 0 && failure == nil; batch *= 2 {
		for range min(batch, n) {
			n--
			switch err := r.create(ctx, k, newPod()); {
			case err == nil:
				created++
			case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			case failure == nil:
				failure = err
			}
		}
	}
	return created, failure
}

// related returns the Pods of all ReplicaSets with the same controller.
func (r *replicaSets) related(set *appsv1.ReplicaSet) []*corev1.Pod {
	owners := map[types.UID]bool{set.UID: true}
	if controller := metav1.GetControllerOf(set); controller != nil {
		for _, other := range r.list(replicaSetResource(), set.Namespace) {
			if c := metav1.GetControllerOf(other); c != nil && c.UID == controller.UID {
				owners[other.GetUID()] = true
			}
		}
	}
	var pods []*corev1.Pod
	for _, obj := range r.list(podResource(), set.Namespace) {
		if c := metav1.GetControllerOf(obj); c != nil && owners[c.UID] {
			pods = append(pods, obj.(*corev1.Pod))
		}
	}
	return pods
}

// sortForDeletion sorts Pods in the order in which they are deleted.
func sortForDeletion(pods, related []*corev1.Pod) {
	now := time.Now()
	onNode := map[string]int{}
	for _, pod := range related {
		if active(pod) {
			onNode[pod.Spec.NodeName]++
		}
	}
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		readySince := func(p *corev1.Pod) time.Time {
			if c := readyCondition(p); c != nil {
				return c.LastTransitionTime.Time
			}
			return time.Time{}
		}
		order := cmp.Or(
			compareBool(a.Spec.NodeName != "", b.Spec.NodeName != ""),
			cmp.Compare(phaseOrder(a.Status.Phase), phaseOrder(b.Status.Phase)),
			compareBool(ready(a), ready(b)),
			cmp.Compare(deletionCost(a), deletionCost(b)),
			cmp.Compare(onNode[b.Spec.NodeName], onNode[a.Spec.NodeName]),
		)
		if order == 0 && ready(a) && !readySince(a).Equal(readySince(b)) {
			return cmp.Or(cmp.Compare(ageRank(now, readySince(a)), ageRank(now, readySince(b))),
				cmp.Compare(a.UID, b.UID))
		}
		if order == 0 {
			order = cmp.Compare(restarts(b), restarts(a))
		}
		if order == 0 && !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
			order = cmp.Or(cmp.Compare(ageRank(now, a.CreationTimestamp.Time), ageRank(now, b.CreationTimestamp.Time)),
				cmp.Compare(a.UID, b.UID))
		}
		return order
	})
}

// ageRank makes the difference between ages smaller, the older they are.
func ageRank(now, since time.Time) int {
	if age := now.Sub(since); age > 0 {
		return int(math.Log2(float64(age)))
	}
	return -1
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func phaseOrder(phase corev1.PodPhase) int {
	return slices.Index([]corev1.PodPhase{corev1.PodPending, corev1.PodUnknown, corev1.PodRunning}, phase)
}

func deletionCost(pod *corev1.Pod) int64 {
	n, _ := strconv.ParseInt(pod.Annotations[corev1.PodDeletionCost], 10, 32) // a Pod with an invalid cost is rejected
	return n
}

func restarts(pod *corev1.Pod) (most int32) {
	for _, c := range pod.Status.ContainerStatuses {
		most = max(most, c.RestartCount)
	}
	return most
}

func readyCondition(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == corev1.PodReady {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

func ready(pod *corev1.Pod) bool {
	c := readyCondition(pod)
	return c != nil && c.Status == corev1.ConditionTrue
}

// replicaSetStatus returns the status of a ReplicaSet, and when a Pod becomes available next.
func replicaSetStatus(
	set *appsv1.ReplicaSet, pods []*corev1.Pod, terminating int32, failure error, now time.Time,
) (*appsv1.ReplicaSetStatus, time.Time) {
	status := set.Status.DeepCopy()
	status.ObservedGeneration = set.Generation
	status.Replicas = int32(len(pods))
	status.FullyLabeledReplicas, status.ReadyReplicas, status.AvailableReplicas = 0, 0, 0
	status.TerminatingReplicas = &terminating
	var next time.Time
	template := labels.SelectorFromSet(set.Spec.Template.Labels)
	for _, pod := range pods {
		if template.Matches(labels.Set(pod.Labels)) {
			status.FullyLabeledReplicas++
		}
		if !ready(pod) {
			continue
		}
		status.ReadyReplicas++
		available := readyCondition(pod).LastTransitionTime.Add(time.Duration(set.Spec.MinReadySeconds) * time.Second)
		if set.Spec.MinReadySeconds == 0 || !available.After(now) {
			status.AvailableReplicas++
		} else if next.IsZero() || available.Before(next) {
			next = available
		}
	}
	i := slices.IndexFunc(status.Conditions, func(c appsv1.ReplicaSetCondition) bool {
		return c.Type == appsv1.ReplicaSetReplicaFailure
	})
	switch {
	case failure != nil && i < 0:
		reason := "FailedCreate"
		if len(pods) > int(*set.Spec.Replicas) {
			reason = "FailedDelete"
		}
		status.Conditions = append(status.Conditions, appsv1.ReplicaSetCondition{
			Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: reason,
			Message: failure.Error(), LastTransitionTime: seconds(now),
		})
	case failure == nil && i >= 0:
		status.Conditions = slices.Delete(status.Conditions, i, i+1)
	}
	return status, next
}

// owners calls add for the objects of a resource that control an object of another resource before or after a change,
// and if it has no controller, for those that select it.
func (m *Manager) owners(
	c apiserver.Change, owner schema.GroupKind, resource, owned schema.GroupResource, add func(key string),
) {
	if resourceOf(c.Kind) != owned {
		return
	}
	selects := false
	for _, obj := range []apiserver.Object{c.Old, c.Object} {
		if obj == nil {
			continue
		}
		controller := metav1.GetControllerOf(obj)
		if controller == nil {
			selects = selects || obj == c.Object
			continue
		}
		version, err := schema.ParseGroupVersion(controller.APIVersion)
		if err == nil && version.Group == owner.Group && controller.Kind == owner.Kind {
			add(obj.GetNamespace() + "/" + controller.Name)
		}
	}
	if !selects {
		return
	}
	for key, obj := range m.state.objects[resource] {
		if key.Namespace == c.Object.GetNamespace() && selectorOf(obj).Matches(labels.Set(c.Object.GetLabels())) {
			add(key.String())
		}
	}
}

// claim returns the candidates that owner controls. It adopts those that match the selector and have no controller, and
// releases those that do not match any more.
func claim[T apiserver.Object](ctx context.Context, r *requester, k *apiserver.Kind, owner apiserver.Object,
	ownerKind *apiserver.Kind,
	selector labels.Selector, candidates []T,
) (claimed []T, err error) {
	for _, obj := range candidates {
		controller, matches := metav1.GetControllerOf(obj), selector.Matches(labels.Set(obj.GetLabels()))
		var reference any
		switch {
		case controller != nil && controller.UID != owner.GetUID():
			continue
		case controller != nil && matches:
			claimed = append(claimed, obj)
			continue
		case owner.GetDeletionTimestamp() != nil:
			continue
		case controller != nil:
			reference = map[string]any{"$patch": "delete", "uid": owner.GetUID()}
		case !matches || obj.GetDeletionTimestamp() != nil:
			continue
		default:
			reference = metav1.NewControllerRef(owner, ownerKind.GroupVersionKind)
		}
		patch := map[string]any{"metadata": map[string]any{"uid": obj.GetUID(), "ownerReferences": []any{reference}}}
		err := r.patch(ctx, k, obj, types.StrategicMergePatchType, patch)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("claim %s: %w", objectKey(obj), err)
		case controller == nil:
			claimed = append(claimed, obj)
		}
	}
	return claimed, nil
}

package controllers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

const (
	// namespaceDelay is the time from a change of a namespace that is being deleted until the controller works on it.
	namespaceDelay = 5 * time.Second
	// finalizerEstimate is the time that the controller expects finalizers to take.
	finalizerEstimate = 15 * time.Second
)

// namespaces models the namespace controller: it deletes the content of namespaces that are being deleted, then their
// finalizer. Pods are deleted before all other objects. It reports the same conditions, at the same times.
type namespaces struct {
	*Manager
	requests *requester
}

func (n *namespaces) String() string { return "namespace-controller" }

func (n *namespaces) observe(add func(key string, due time.Time), now time.Time, c apiserver.Change) {
	if namespace, ok := c.Object.(*corev1.Namespace); ok && namespace.DeletionTimestamp != nil {
		add(namespace.Name, now.Add(namespaceDelay))
	}
}

func (n *namespaces) sync(ctx context.Context, key string) (time.Time, error) {
	namespace, k := get[*corev1.Namespace](n.Manager, schema.GroupResource{Resource: "namespaces"}, "", key)
	if namespace == nil || namespace.DeletionTimestamp == nil ||
		!slices.Contains(namespace.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return time.Time{}, nil
	}
	namespace = namespace.DeepCopy()
	content := n.deleteContent(ctx, namespace)
	if setNamespaceConditions(&namespace.Status, content.conditions()) {
		if err := n.requests.updateAndRead(ctx, k, namespace, "status"); err != nil {
			return time.Time{}, err
		}
	}
	switch {
	case content.failure != nil:
		return time.Time{}, content.failure
	case content.estimate > 0:
		return time.Now().Add((content.estimate / 2).Truncate(time.Second) + time.Second), nil
	}
	namespace.Spec.Finalizers = slices.DeleteFunc(namespace.Spec.Finalizers, func(f corev1.FinalizerName) bool {
		return f == corev1.FinalizerKubernetes
	})
	err := n.requests.update(ctx, k, namespace, "finalize")
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return time.Time{}, err
}

// content is what remains in a namespace.
type content struct {
	remaining  map[string]int // number of objects by resource, with its group
	finalizers map[string]int // number of objects by finalizer
	estimate   time.Duration  // how long the objects are expected to remain
	failure    error
	messages   []string
	podsRemain bool
}

// deleteContent deletes all objects in a namespace. It deletes other objects than Pods if there is no Pod any more.
func (n *namespaces) deleteContent(ctx context.Context, namespace *corev1.Namespace) *content {
	c := &content{remaining: map[string]int{}, finalizers: map[string]int{}}
	n.mu.Lock()
	kinds := preferred(n.state.kinds)
	n.mu.Unlock()
	slices.SortFunc(kinds, func(a, b *apiserver.Kind) int {
		name := func(k *apiserver.Kind) string {
			if resourceOf(k) == podResource() {
				return ""
			}
			return resourceOf(k).String()
		}
		return strings.Compare(name(a), name(b))
	})
	for _, k := range kinds {
		if k.ClusterScoped {
			continue
		}
		if err := n.deleteAll(ctx, k, namespace, c); err != nil {
			if c.failure == nil {
				c.failure = err
			}
			c.messages = append(c.messages, err.Error())
		}
		if resourceOf(k) == podResource() && len(c.remaining) > 0 {
			c.podsRemain = true
			break
		}
	}
	return c
}

// deleteAll deletes the objects of a kind in a namespace, and counts those that remain.
func (n *namespaces) deleteAll(ctx context.Context, k *apiserver.Kind, namespace *corev1.Namespace, c *content) error {
	objects := n.list(resourceOf(k), namespace.Name)
	if len(objects) == 0 && resourceOf(k).Resource != "events" {
		return nil
	}
	estimate := graceEstimate(objects)
	if time.Since(namespace.DeletionTimestamp.Time) >= estimate {
		estimate = 0
	}
	policy := metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{
		TypeMeta:          metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		PropagationPolicy: &policy,
	}
	if err := n.requests.send(ctx, "DELETE", path(k, namespace.Name), jsonType, options, nil); err != nil {
		c.estimate = max(c.estimate, estimate)
		return err
	}
	objects = n.list(resourceOf(k), namespace.Name)
	if len(objects) == 0 {
		return nil
	}
	c.remaining[k.Resource+"."+k.Group] = len(objects)
	finalizers := 0
	for _, obj := range objects {
		for _, finalizer := range obj.GetFinalizers() {
			c.finalizers[finalizer]++
			finalizers++
		}
	}
	if estimate == 0 && finalizers > 0 {
		estimate = finalizerEstimate
	}
	c.estimate = max(c.estimate, estimate)
	if estimate == 0 {
		return fmt.Errorf("unexpected items still remain in namespace: %s for gvr: %v", namespace.Name,
			k.GroupVersion().WithResource(k.Resource))
	}
	return nil
}

// graceEstimate returns the longest grace period of the Pods that have not ended.
func graceEstimate(objects []apiserver.Object) time.Duration {
	var longest int64
	for _, obj := range objects {
		if pod, ok := obj.(*corev1.Pod); ok && !terminal(pod) && pod.Spec.TerminationGracePeriodSeconds != nil {
			longest = max(longest, *pod.Spec.TerminationGracePeriodSeconds)
		}
	}
	return time.Duration(longest) * time.Second
}

// terminal reports whether all containers of a Pod have ended for good.
func terminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// conditions returns the conditions of a namespace with this content.
func (c *content) conditions() []corev1.NamespaceCondition {
	all := []corev1.NamespaceCondition{
		{
			Type: corev1.NamespaceDeletionDiscoveryFailure, Reason: "ResourcesDiscovered",
			Message: "All resources successfully discovered",
		},
		{
			Type: corev1.NamespaceDeletionGVParsingFailure, Reason: "ParsedGroupVersions",
			Message: "All legacy kube types successfully parsed",
		},
		{Type: corev1.NamespaceDeletionContentFailure, Reason: "ContentDeleted", Message: "All content successfully " +
			"deleted, may be waiting on finalization"},
		{Type: corev1.NamespaceContentRemaining, Reason: "ContentRemoved", Message: "All content successfully removed"},
		{
			Type: corev1.NamespaceFinalizersRemaining, Reason: "ContentHasNoFinalizers",
			Message: "All content-preserving finalizers finished",
		},
	}
	for i := range all {
		all[i].Status = corev1.ConditionFalse
	}
	set := func(condition *corev1.NamespaceCondition, reason, message string) {
		condition.Status, condition.Reason, condition.Message = corev1.ConditionTrue, reason, message
	}
	if len(c.messages) > 0 {
		slices.Sort(c.messages)
		set(&all[2], "ContentDeletionFailed", fmt.Sprintf("Failed to delete all resource types, %d remaining: %s",
			len(c.messages), strings.Join(c.messages, ", ")))
	}
	if c.podsRemain { // the real controller does not report them
		return all
	}
	count := func(counts map[string]int, format string) string {
		var texts []string
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			texts = append(texts, fmt.Sprintf(format, name, counts[name]))
		}
		return strings.Join(texts, ", ")
	}
	if len(c.remaining) > 0 {
		set(&all[3], "SomeResourcesRemain", "Some resources are remaining: "+
			count(c.remaining, "%s has %d resource instances"))
	}
	if len(c.finalizers) > 0 {
		set(&all[4], "SomeFinalizersRemain", "Some content in the namespace has finalizers remaining: "+
			count(c.finalizers, "%s in %d resource instances"))
	}
	return all
}

// setNamespaceConditions reports whether it changed a condition.
func setNamespaceConditions(status *corev1.NamespaceStatus, conditions []corev1.NamespaceCondition) (changed bool) {
	for _, condition := range conditions {
		condition.LastTransitionTime = metav1.Now()
		i := slices.IndexFunc(status.Conditions, func(c corev1.NamespaceCondition) bool {
			return c.Type == condition.Type
		})
		if i < 0 {
			status.Conditions = append(status.Conditions, condition)
			changed = true
			continue
		}
		old := &status.Conditions[i]
		if old.Status == condition.Status {
			condition.LastTransitionTime = old.LastTransitionTime
		}
		if *old != condition {
			*old, changed = condition, true
		}
	}
	return changed
}

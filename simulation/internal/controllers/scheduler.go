package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// scheduler models the scheduler: it assigns each Pod to the node with the fewest Pods. It ignores the resources that
// Pods request, node selectors, affinities and taints.
type scheduler struct {
	*Manager
	requests *requester
}

func (s *scheduler) String() string { return "default-scheduler" }

func (s *scheduler) observe(add func(key string, due time.Time), now time.Time, c apiserver.Change) {
	if pod, ok := c.Object.(*corev1.Pod); ok && s.waits(pod) {
		add(objectKey(pod).String(), now)
	}
}

// waits reports whether a Pod waits for a node.
func (s *scheduler) waits(pod *corev1.Pod) bool {
	return pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0 &&
		!terminal(pod) &&
		(pod.Spec.SchedulerName == "" || pod.Spec.SchedulerName == corev1.DefaultSchedulerName)
}

func (s *scheduler) sync(ctx context.Context, key string) (time.Time, error) {
	namespace, name, _ := strings.Cut(key, "/")
	pod, k := get[*corev1.Pod](s.Manager, podResource(), namespace, name)
	if pod == nil || !s.waits(pod) {
		return time.Time{}, nil
	}
	if s.behavior(pod).Unschedulable {
		return time.Time{}, s.reportUnschedulable(ctx, k, pod)
	}
	binding := &corev1.Binding{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Binding"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: s.node()},
	}
	err := s.requests.send(ctx, "POST", path(k, namespace, name, "binding"), jsonType, binding, nil)
	return time.Time{}, ignoreNotFound(err)
}

// node returns the node with the fewest Pods.
func (s *scheduler) node() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	pods := map[string]int{}
	for _, obj := range s.state.objects[podResource()] {
		if pod := obj.(*corev1.Pod); !terminal(pod) {
			pods[pod.Spec.NodeName]++
		}
	}
	return slices.MinFunc(s.nodes, func(a, b string) int { return pods[a] - pods[b] })
}

func (s *scheduler) reportUnschedulable(ctx context.Context, k *apiserver.Kind, pod *corev1.Pod) error {
	pod = pod.DeepCopy()
	if !setPodCondition(pod, &pod.Status, corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: fmt.Sprintf("0/%d nodes are available: %d Insufficient cpu.", len(s.nodes), len(s.nodes)),
	}) {
		return nil
	}
	return ignoreNotFound(s.requests.update(ctx, k, pod, "status"))
}

package controllers

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// podCollectorPeriod is the time between two passes of the real controller over all Pods.
const podCollectorPeriod = 20 * time.Second

// podCollector models the Pod garbage collector, as far as Pods without a node are concerned: no kubelet ends them when
// they are deleted.
type podCollector struct {
	*Manager
	requests *requester
}

func (g *podCollector) String() string { return "pod-garbage-collector" }

func (g *podCollector) observe(add func(key string, due time.Time), now time.Time, c apiserver.Change) {
	if pod, ok := c.Object.(*corev1.Pod); ok && endsWithoutNode(pod) {
		add(objectKey(pod).String(), now.Add(podCollectorPeriod))
	}
}

// endsWithoutNode reports whether a Pod is being deleted and never had a node.
func endsWithoutNode(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && pod.Spec.NodeName == "" && !terminal(pod)
}

func (g *podCollector) sync(ctx context.Context, key string) (time.Time, error) {
	namespace, name, _ := strings.Cut(key, "/")
	pod, k := get[*corev1.Pod](g.Manager, podResource(), namespace, name)
	if pod == nil || !endsWithoutNode(pod) {
		return time.Time{}, nil
	}
	pod = pod.DeepCopy()
	pod.Status.Phase = corev1.PodFailed
	if err := g.requests.update(ctx, k, pod, "status"); err != nil {
		return time.Time{}, ignoreNotFound(err)
	}
	uid, zero := pod.UID, int64(0)
	options := metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &uid}}
	return time.Time{}, ignoreNotFound(g.requests.delete(ctx, k, pod, options))
}

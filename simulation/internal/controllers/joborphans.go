package controllers

import (
	"context"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// orphanPrefix is the prefix of the keys of Pods that have the finalizer of a Job and do not belong to one any more.
const orphanPrefix = "pod "

// orphaned reports whether a Pod has the finalizer of a Job, and no Job that counts it. Manager.mu is held.
func (j *jobs) orphaned(pod *corev1.Pod) bool {
	if !tracked(pod) {
		return false
	}
	controller := metav1.GetControllerOf(pod)
	if controller == nil {
		return true
	}
	if controller.Kind != "Job" || controller.APIVersion != batchv1.SchemeGroupVersion.String() {
		return false
	}
	job, _ := j.state.objects[jobResource()][types.NamespacedName{
		Namespace: pod.Namespace,
		Name:      controller.Name,
	}].(*batchv1.Job)
	return job == nil || job.UID != controller.UID || finishedCondition(job) != nil && !managedElsewhere(job)
}

// syncOrphan removes the finalizer from a Pod that no Job counts.
func (j *jobs) syncOrphan(ctx context.Context, key string) error {
	namespace, name, _ := strings.Cut(key, "/")
	pod, k := get[*corev1.Pod](j.Manager, podResource(), namespace, name)
	if pod == nil {
		return nil
	}
	j.mu.Lock()
	orphaned := j.orphaned(pod)
	j.mu.Unlock()
	if !orphaned {
		return nil
	}
	return ignoreNotFound(j.requests.removeTrackingFinalizer(ctx, k, pod))
}

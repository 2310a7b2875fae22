package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// parentAndOrdinal splits the name of a Pod. The ordinal is -1 if the name has none.
func parentAndOrdinal(pod string) (parent string, ordinal int) {
	i := strings.LastIndexByte(pod, '-')
	n, err := strconv.ParseUint(pod[i+1:], 10, 31)
	if i < 0 || err != nil {
		return "", -1
	}
	return pod[:i], int(n)
}

func ordinal(pod *corev1.Pod) int {
	_, n := parentAndOrdinal(pod.Name)
	return n
}

// availableAt returns when a Pod that is ready becomes available; zero if it is not ready.
func availableAt(pod *corev1.Pod, minReadySeconds int32) time.Time {
	if !ready(pod) {
		return time.Time{}
	}
	return readyCondition(pod).LastTransitionTime.Add(time.Duration(minReadySeconds) * time.Second)
}

func (r *statefulSync) available(pod *corev1.Pod) bool {
	at := availableAt(pod, r.set.Spec.MinReadySeconds)
	return ready(pod) && (r.set.Spec.MinReadySeconds == 0 || !at.After(r.now))
}

func runningAndReady(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && ready(pod)
}

func startOrdinal(set *appsv1.StatefulSet) int {
	if set.Spec.Ordinals == nil {
		return 0
	}
	return int(set.Spec.Ordinals.Start)
}

func inRange(set *appsv1.StatefulSet, pod *corev1.Pod) bool {
	i := ordinal(pod) - startOrdinal(set)
	return i >= 0 && i < int(*set.Spec.Replicas)
}

// newPod returns a Pod that is to be created, of the current revision if the update has not reached its ordinal.
func (r *statefulSync) newPod(ordinal int) (*corev1.Pod, error) {
	revision, template := r.update, &r.set.Spec.Template
	if strategy := r.set.Spec.UpdateStrategy; strategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
		notUpdated := r.set.Status.CurrentReplicas
		if strategy.RollingUpdate != nil {
			notUpdated = *strategy.RollingUpdate.Partition
		}
		if ordinal < startOrdinal(r.set)+int(notUpdated) {
			revision = r.current
			var data struct {
				Spec struct{ Template corev1.PodTemplateSpec }
			}
			if err := json.Unmarshal(revision.Data.Raw, &data); err != nil {
				return nil, fmt.Errorf("decode ControllerRevision %s: %w", objectKey(revision), err)
			}
			template = &data.Spec.Template
		}
	}
	pod := podFromTemplate(template, r.set, r.kind)
	pod.Name = fmt.Sprintf("%s-%d", r.set.Name, ordinal)
	r.setIdentity(pod)
	r.setVolumes(pod)
	pod.Spec.Hostname, pod.Spec.Subdomain = pod.Name, r.set.Spec.ServiceName
	pod.Labels[appsv1.StatefulSetRevisionLabel] = revision.Name
	return pod, nil
}

func (r *statefulSync) setIdentity(pod *corev1.Pod) {
	metav1.SetMetaDataLabel(&pod.ObjectMeta, appsv1.StatefulSetPodNameLabel, pod.Name)
	metav1.SetMetaDataLabel(&pod.ObjectMeta, appsv1.PodIndexLabel, strconv.Itoa(ordinal(pod)))
}

// setVolumes makes a Pod use its claims.
func (r *statefulSync) setVolumes(pod *corev1.Pod) {
	var volumes []corev1.Volume
	for i, claim := range r.set.Spec.VolumeClaimTemplates {
		volumes = append(volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: r.claimName(i, pod)},
		}})
	}
	for _, volume := range pod.Spec.Volumes {
		if !slices.ContainsFunc(volumes, func(v corev1.Volume) bool { return v.Name == volume.Name }) {
			volumes = append(volumes, volume)
		}
	}
	pod.Spec.Volumes = volumes
}

// usesClaims reports whether the volumes of a Pod are those of setVolumes.
func (r *statefulSync) usesClaims(pod *corev1.Pod) bool {
	for i, claim := range r.set.Spec.VolumeClaimTemplates {
		if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			return v.Name == claim.Name && v.PersistentVolumeClaim != nil &&
				v.PersistentVolumeClaim.ClaimName == r.claimName(i, pod)
		}) {
			return false
		}
	}
	return true
}

// unavailable reports whether a Pod is not available or is being deleted.
func (r *statefulSync) unavailable(pod *corev1.Pod) bool {
	return !r.available(pod) || pod.DeletionTimestamp != nil
}

func (r *statefulSync) deletePod(ctx context.Context, pod *corev1.Pod) error {
	return ignoreNotFound(r.requests.delete(ctx, r.Manager.kind(podResource()), pod, metav1.DeleteOptions{}))
}

func (r *statefulSync) create(ctx context.Context, pod *corev1.Pod) error {
	if err := r.createClaims(ctx, pod); err != nil {
		return err
	}
	err := r.requests.create(ctx, r.Manager.kind(podResource()), pod)
	if apierrors.IsAlreadyExists(err) {
		return err
	}
	if err := r.ownClaims(ctx, pod); err != nil {
		return err
	}
	return err
}

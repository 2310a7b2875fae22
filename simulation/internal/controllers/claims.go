package controllers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

func claimResource() schema.GroupResource {
	return schema.GroupResource{Resource: "persistentvolumeclaims"}
}

// volumeBinder models the binding of claims: each claim is bound at once. There are no PersistentVolumes.
type volumeBinder struct {
	*Manager
	requests *requester
}

func (b *volumeBinder) String() string { return "persistentvolume-binder" }

func (b *volumeBinder) observe(add func(key string, due time.Time), now time.Time, c apiserver.Change) {
	if volume, ok := c.Object.(*corev1.PersistentVolumeClaim); ok && volume.Status.Phase != corev1.ClaimBound {
		add(objectKey(volume).String(), now)
	}
}

func (b *volumeBinder) sync(ctx context.Context, key string) (time.Time, error) {
	namespace, name, _ := strings.Cut(key, "/")
	volume, k := get[*corev1.PersistentVolumeClaim](b.Manager, claimResource(), namespace, name)
	if volume == nil || volume.Status.Phase == corev1.ClaimBound || volume.DeletionTimestamp != nil {
		return time.Time{}, nil
	}
	volume = volume.DeepCopy()
	volume.Status.Phase, volume.Status.AccessModes, volume.Status.Capacity = corev1.ClaimBound, volume.Spec.AccessModes,
		volume.Spec.Resources.Requests
	return time.Time{}, ignoreNotFound(b.requests.update(ctx, k, volume, "status"))
}

// claimName returns the name of a Pod's claim of the template with an index.
func (r *statefulSync) claimName(template int, pod *corev1.Pod) string {
	return fmt.Sprintf("%s-%s-%d", r.set.Spec.VolumeClaimTemplates[template].Name, r.set.Name, ordinal(pod))
}

// claimsOf returns the existing claims of a Pod.
func (r *statefulSync) claimsOf(pod *corev1.Pod) (volumes []*corev1.PersistentVolumeClaim) {
	for i := range r.set.Spec.VolumeClaimTemplates {
		if volume, _ := get[*corev1.PersistentVolumeClaim](r.Manager, claimResource(), r.set.Namespace,
			r.claimName(i, pod)); volume != nil {
			volumes = append(volumes, volume)
		}
	}
	return volumes
}

// createClaims creates the claims of a Pod that do not exist.
func (r *statefulSync) createClaims(ctx context.Context, pod *corev1.Pod) error {
	var failure error
	for i := range r.set.Spec.VolumeClaimTemplates {
		name := r.claimName(i, pod)
		existing, k := get[*corev1.PersistentVolumeClaim](r.Manager, claimResource(), r.set.Namespace, name)
		var err error
		switch {
		case existing == nil:
			volume := r.set.Spec.VolumeClaimTemplates[i].DeepCopy()
			volume.Name, volume.Namespace = name, r.set.Namespace
			if volume.Labels == nil {
				volume.Labels = map[string]string{}
			}
			maps.Copy(volume.Labels, r.set.Spec.Selector.MatchLabels)
			err = r.requests.create(ctx, k, volume)
		case existing.DeletionTimestamp != nil:
			err = fmt.Errorf("claim %s/%s is being deleted", r.set.Namespace, name)
		}
		if failure == nil {
			failure = err
		}
	}
	return failure
}

func (r *statefulSync) retention() (whenDeleted, whenScaled bool) {
	policy := r.set.Spec.PersistentVolumeClaimRetentionPolicy
	return policy.WhenDeleted == appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
		policy.WhenScaled == appsv1.DeletePersistentVolumeClaimRetentionPolicyType
}

// claimIsStale reports whether a claim of a Pod that is to be created belongs to an earlier Pod, with which it is
// deleted.
func (r *statefulSync) claimIsStale(pod *corev1.Pod) bool {
	_, whenScaled := r.retention()
	return whenScaled && slices.ContainsFunc(r.claimsOf(pod), func(volume *corev1.PersistentVolumeClaim) bool {
		return slices.ContainsFunc(volume.OwnerReferences, func(ref metav1.OwnerReference) bool {
			return isOwner(ref, podKind(), pod)
		})
	})
}

func podKind() schema.GroupVersionKind { return corev1.SchemeGroupVersion.WithKind("Pod") }

// isOwner reports whether an owner reference has the kind and name of obj.
func isOwner(ref metav1.OwnerReference, kind schema.GroupVersionKind, obj metav1.Object) bool {
	return ref.APIVersion == kind.GroupVersion().String() && ref.Kind == kind.Kind && ref.Name == obj.GetName()
}

// ours reports whether an owner reference refers to the set or to a Pod, or to an earlier object of the same name.
func (r *statefulSync) ours(ref metav1.OwnerReference, pod *corev1.Pod) bool {
	return isOwner(ref, r.kind.GroupVersionKind, r.set) || isOwner(ref, podKind(), pod)
}

// hasStaleOwner reports whether a claim belongs to an earlier object with the name of the set or of a Pod.
func (r *statefulSync) hasStaleOwner(volume *corev1.PersistentVolumeClaim, pod *corev1.Pod) bool {
	return slices.ContainsFunc(volume.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return r.ours(ref, pod) && ref.UID != r.set.UID && ref.UID != pod.UID
	})
}

// ownClaims sets the owner of a Pod's claims, with which they are deleted.
func (r *statefulSync) ownClaims(ctx context.Context, pod *corev1.Pod) error {
	whenDeleted, whenScaled := r.retention()
	var want []metav1.OwnerReference
	switch scaledDown := !inRange(r.set, pod); {
	case whenScaled && scaledDown:
		want = append(want, *metav1.NewControllerRef(pod, podKind()))
	case whenDeleted:
		want = append(want, *metav1.NewControllerRef(r.set, r.kind.GroupVersionKind))
	}
	for _, volume := range r.claimsOf(pod) {
		if r.hasStaleOwner(volume, pod) {
			continue // the garbage collector deletes it
		}
		var foreign, own []metav1.OwnerReference
		otherController := false
		for _, ref := range volume.OwnerReferences {
			if r.ours(ref, pod) {
				own = append(own, ref)
				continue
			}
			foreign = append(foreign, ref)
			otherController = otherController || isTrue(ref.Controller)
		}
		owners := want
		if otherController && (whenDeleted || whenScaled) {
			owners = nil
		}
		if slices.EqualFunc(own, owners, func(a, b metav1.OwnerReference) bool {
			return a.UID == b.UID && isTrue(a.Controller)
		}) {
			continue
		}
		volume = volume.DeepCopy()
		volume.OwnerReferences = append(foreign, owners...)
		if err := r.requests.update(ctx, r.Manager.kind(claimResource()), volume); err != nil {
			return fmt.Errorf("set the owners of claim %s: %w", objectKey(volume), err)
		}
	}
	return nil
}

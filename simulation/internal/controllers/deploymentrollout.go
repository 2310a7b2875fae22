package controllers

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// newSize returns the size of the current ReplicaSet: as large as the limit of all Pods permits.
func (r *rollout) newSize(all []*appsv1.ReplicaSet, current *appsv1.ReplicaSet) int32 {
	replicas := *r.deployment.Spec.Replicas
	if r.deployment.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		return replicas
	}
	surge, _ := limits(r.deployment)
	room := replicas + surge - sum(all, desired)
	if room <= 0 {
		return desired(current)
	}
	return desired(current) + min(room, replicas-desired(current))
}

// resized reports whether spec.replicas has changed since the ReplicaSets were scaled.
func (r *rollout) resized() bool {
	return slices.ContainsFunc(activeSets(r.all()), func(set *appsv1.ReplicaSet) bool {
		n, err := strconv.ParseUint(set.Annotations[desiredAnnotation], 10, 31)
		return err == nil && int32(n) != *r.deployment.Spec.Replicas
	})
}

// resize scales the ReplicaSets to a changed size of the Deployment: in proportion, if several of them have Pods.
func (r *rollout) resize(ctx context.Context) error {
	d := r.deployment
	replicas := *d.Spec.Replicas
	sets := activeSets(r.all())
	var only *appsv1.ReplicaSet
	switch {
	case len(sets) == 1:
		only = sets[0]
	case len(sets) == 0 && r.current != nil:
		only = r.current
	case len(sets) == 0 && len(r.old) > 0:
		only = r.old[len(r.old)-1]
	}
	if only != nil {
		_, err := r.scale(ctx, only, replicas)
		return err
	}
	if r.saturated() {
		for _, set := range activeSets(r.old) {
			if _, err := r.scale(ctx, set, 0); err != nil {
				return err
			}
		}
		return nil
	}
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType || len(sets) == 0 {
		return nil
	}
	surge, _ := limits(d)
	allowed := int32(0)
	if replicas > 0 {
		allowed = replicas + surge
	}
	missing := allowed - sum(sets, desired)
	slices.SortStableFunc(sets, func(a, b *appsv1.ReplicaSet) int {
		if missing >= 0 {
			return cmp.Or(cmp.Compare(desired(b), desired(a)), byCreation(b, a))
		}
		return cmp.Or(cmp.Compare(desired(b), desired(a)), byCreation(a, b))
	})
	sizes := make([]int32, len(sets))
	added := int32(0)
	for i, set := range sets {
		share := r.share(set, missing, added)
		sizes[i] = desired(set) + share
		added += share
	}
	if missing != 0 {
		sizes[0] = max(0, sizes[0]+missing-added)
	}
	for i, set := range sets {
		if _, err := r.forceScale(ctx, set, sizes[i]); err != nil {
			return err
		}
	}
	return nil
}

// saturated reports whether the current ReplicaSet has all Pods of the Deployment, and they are available.
func (r *rollout) saturated() bool {
	replicas := *r.deployment.Spec.Replicas
	return r.current != nil && desired(r.current) == replicas && available(r.current) == replicas &&
		r.current.Annotations[desiredAnnotation] == strconv.Itoa(int(replicas))
}

// share returns the part of the missing Pods that a ReplicaSet gets; added were given to others.
func (r *rollout) share(set *appsv1.ReplicaSet, missing, added int32) int32 {
	d := r.deployment
	if missing == 0 || added == missing || desired(set) == 0 {
		return 0
	}
	fraction := -desired(set)
	if *d.Spec.Replicas > 0 {
		surge, _ := limits(d)
		before, err := strconv.ParseUint(set.Annotations[maxReplicasAnnotation], 10, 31)
		if err != nil || before == 0 {
			before = uint64(d.Status.Replicas)
		}
		if before == 0 {
			return 0
		}
		fraction = int32(math.Round(float64(desired(set)*(*d.Spec.Replicas+surge))/float64(before))) - desired(set)
	}
	if missing > 0 {
		return min(fraction, missing-added)
	}
	return max(fraction, missing-added)
}

// scale changes the size of a ReplicaSet. It reports whether it did.
func (r *rollout) scale(ctx context.Context, set *appsv1.ReplicaSet, size int32) (scaled bool, err error) {
	if desired(set) == size {
		return false, nil
	}
	return r.forceScale(ctx, set, size)
}

// forceScale is scale, but also updates the annotations of a ReplicaSet with the right size.
func (r *rollout) forceScale(ctx context.Context, set *appsv1.ReplicaSet, size int32) (scaled bool, err error) {
	updated := set.DeepCopy()
	changed := setSizes(r.deployment, updated)
	scaled = desired(set) != size
	if !scaled && !changed {
		return false, nil
	}
	*updated.Spec.Replicas = size
	if err := r.requests.updateAndRead(ctx, r.Manager.kind(replicaSetResource()), updated); err != nil {
		return false, err
	}
	if r.current == set {
		r.current = updated
	}
	if i := slices.Index(r.old, set); i >= 0 {
		r.old[i] = updated
	}
	return scaled, nil
}

// roll replaces old Pods by new ones, within the limits of the Deployment.
func (r *rollout) roll(ctx context.Context) error {
	if err := r.adoptRevision(ctx, true); err != nil {
		return err
	}
	replicas := *r.deployment.Spec.Replicas
	size := replicas
	if desired(r.current) < replicas {
		size = r.newSize(r.all(), r.current)
	}
	scaled, err := r.scale(ctx, r.current, size)
	if err == nil && !scaled {
		scaled, err = r.scaleDownOld(ctx)
	}
	if err != nil {
		return err
	}
	if !scaled && complete(r.deployment, &r.deployment.Status) {
		if err := r.deleteOld(ctx); err != nil {
			return err
		}
	}
	return r.writeProgress(ctx)
}

// scaleDownOld scales old ReplicaSets down: first by their Pods that are not available, then as far as enough Pods stay
// available.
func (r *rollout) scaleDownOld(ctx context.Context) (scaled bool, err error) {
	_, unavailable := limits(r.deployment)
	minAvailable := *r.deployment.Spec.Replicas - unavailable
	if sum(r.old, desired) == 0 {
		return false, nil
	}
	removable := sum(r.all(), desired) - minAvailable - (desired(r.current) - available(r.current))
	if removable <= 0 {
		return false, nil
	}
	for _, set := range activeSets(r.old) {
		n := min(removable, desired(set)-available(set))
		switch {
		case n < 0: // its status is outdated
			return false, nil
		case n == 0:
			continue
		}
		if _, err := r.scale(ctx, set, desired(set)-n); err != nil {
			return false, err
		}
		scaled, removable = true, removable-n
	}
	removable = sum(append(activeSets(r.old), r.current), available) - minAvailable
	for _, set := range activeSets(r.old) {
		n := min(removable, desired(set))
		if n <= 0 {
			continue
		}
		if _, err := r.scale(ctx, set, desired(set)-n); err != nil {
			return false, err
		}
		scaled, removable = true, removable-n
	}
	return scaled, nil
}

// recreate removes all old Pods before it creates new ones.
func (r *rollout) recreate(ctx context.Context) error {
	scaled := false
	for _, set := range activeSets(r.old) {
		if _, err := r.scale(ctx, set, 0); err != nil {
			return err
		}
		scaled = true
	}
	if scaled || r.oldPods() {
		return r.writeProgress(ctx)
	}
	if err := r.adoptRevision(ctx, true); err != nil {
		return err
	}
	if _, err := r.scale(ctx, r.current, *r.deployment.Spec.Replicas); err != nil {
		return err
	}
	if complete(r.deployment, &r.deployment.Status) {
		if err := r.deleteOld(ctx); err != nil {
			return err
		}
	}
	return r.writeProgress(ctx)
}

// oldPods reports whether Pods of old ReplicaSets have not ended.
func (r *rollout) oldPods() bool {
	if sum(r.old, actual) > 0 {
		return true
	}
	for _, obj := range r.list(podResource(), r.deployment.Namespace) {
		owned := slices.ContainsFunc(r.old, func(set *appsv1.ReplicaSet) bool {
			return metav1.IsControlledBy(obj, set)
		})
		if owned && !terminal(obj.(*corev1.Pod)) {
			return true
		}
	}
	return false
}

// deleteOld deletes the oldest ReplicaSets without Pods beyond spec.revisionHistoryLimit.
func (r *rollout) deleteOld(ctx context.Context) error {
	limit := r.deployment.Spec.RevisionHistoryLimit
	if limit == nil || *limit == math.MaxInt32 {
		return nil
	}
	sets := slices.DeleteFunc(slices.Clone(r.old), func(set *appsv1.ReplicaSet) bool {
		return set.DeletionTimestamp != nil
	})
	slices.SortStableFunc(sets, func(a, b *appsv1.ReplicaSet) int {
		return cmp.Or(cmp.Compare(revision(a), revision(b)), byCreation(a, b))
	})
	for _, set := range sets[:max(0, len(sets)-int(*limit))] {
		if actual(set) != 0 || desired(set) != 0 || set.Generation > set.Status.ObservedGeneration {
			continue
		}
		if err := r.requests.delete(ctx, r.Manager.kind(replicaSetResource()), set,
			metav1.DeleteOptions{}); ignoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

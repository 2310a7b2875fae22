package controllers

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/dump"
)

func revision(obj metav1.Object) int64 {
	n, _ := strconv.ParseInt(obj.GetAnnotations()[revisionAnnotation], 10, 64) // another value counts as 0
	return n
}

// adoptRevision makes the ReplicaSet with the Deployment's template the latest revision. If there is none, it is
// created if create is true.
func (r *rollout) adoptRevision(ctx context.Context, create bool) error {
	newest := int64(0)
	for _, set := range r.old {
		newest = max(newest, revision(set))
	}
	switch {
	case r.current != nil:
		return r.updateCurrent(ctx, newest+1)
	case create:
		return r.createCurrent(ctx, newest+1)
	}
	return nil
}

func (r *rollout) updateCurrent(ctx context.Context, newRevision int64) error {
	d, set := r.deployment, r.current.DeepCopy()
	changed := annotate(d, set, newRevision)
	if changed || set.Spec.MinReadySeconds != d.Spec.MinReadySeconds {
		set.Spec.MinReadySeconds = d.Spec.MinReadySeconds
		r.current = set
		return r.requests.updateAndRead(ctx, r.Manager.kind(replicaSetResource()), set)
	}
	status := d.Status.DeepCopy()
	if hasDeadline(d) && deploymentCondition(status, appsv1.DeploymentProgressing) == nil {
		setCondition(status,
			progressing(corev1.ConditionTrue, "FoundNewReplicaSet", fmt.Sprintf("Found new replica set %q", set.Name)))
	}
	return r.writeRevision(ctx, set.Annotations[revisionAnnotation], status)
}

// writeRevision writes the revision and the status of the Deployment if they have changed.
func (r *rollout) writeRevision(ctx context.Context, revision string, status *appsv1.DeploymentStatus) error {
	d := r.deployment
	if d.Annotations[revisionAnnotation] == revision {
		return r.writeStatus(ctx, status)
	}
	metav1.SetMetaDataAnnotation(&d.ObjectMeta, revisionAnnotation, revision)
	d.Status = *status
	return r.requests.updateAndRead(ctx, r.kind, d, "status")
}

// annotate copies the Deployment's annotations to a ReplicaSet, and makes it a revision unless it is a later one.
func annotate(d *appsv1.Deployment, set *appsv1.ReplicaSet, newRevision int64) (changed bool) {
	if set.Annotations == nil {
		set.Annotations = map[string]string{}
	}
	for key, value := range d.Annotations {
		switch key {
		case corev1.LastAppliedConfigAnnotation, revisionAnnotation, revisionHistoryAnnotation, desiredAnnotation,
			maxReplicasAnnotation,
			appsv1.DeprecatedRollbackTo:
			continue
		}
		if old, exists := set.Annotations[key]; !exists || old != value {
			set.Annotations[key], changed = value, true
		}
	}
	old, exists := set.Annotations[revisionAnnotation]
	if revision(set) >= newRevision {
		return changed
	}
	set.Annotations[revisionAnnotation] = strconv.FormatInt(newRevision, 10)
	if exists {
		history := append(strings.FieldsFunc(set.Annotations[revisionHistoryAnnotation], func(c rune) bool {
			return c == ','
		}), old)
		for len(strings.Join(history, ",")) > maxRevisionHistory {
			history = history[1:]
		}
		set.Annotations[revisionHistoryAnnotation] = strings.Join(history, ",")
	}
	return true
}

// setSizes sets the annotations with which a later change of the Deployment's size is detected.
func setSizes(d *appsv1.Deployment, set *appsv1.ReplicaSet) (changed bool) {
	surge, _ := limits(d)
	for key, value := range map[string]int32{
		desiredAnnotation:     *d.Spec.Replicas,
		maxReplicasAnnotation: *d.Spec.Replicas + surge,
	} {
		if text := strconv.Itoa(int(value)); set.Annotations[key] != text {
			metav1.SetMetaDataAnnotation(&set.ObjectMeta, key, text)
			changed = true
		}
	}
	return changed
}

// templateHash returns the value of the label pod-template-hash in Kubernetes 1.36. The hash is that of all fields, so
// a field that later versions have does not count unless it is set.
func templateHash(template *corev1.PodTemplateSpec, collisions *int32) string {
	const laterField = " EvictionResponders:([]v1.EvictionResponder)<nil>"
	hash := fnv.New32a()
	hash.Write([]byte(strings.Replace(dump.ForHash(*template), laterField, "", 1)))
	if collisions != nil {
		bytes := make([]byte, 8)
		binary.LittleEndian.PutUint32(bytes, uint32(*collisions))
		hash.Write(bytes)
	}
	return rand.SafeEncodeString(strconv.FormatUint(uint64(hash.Sum32()), 10))
}

func (r *rollout) createCurrent(ctx context.Context, newRevision int64) error {
	d := r.deployment
	hash := templateHash(&d.Spec.Template, d.Status.CollisionCount)
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name:            d.Name[:min(len(d.Name), validation.DNS1123SubdomainMaxLength-len(hash)-1)] + "-" + hash,
			Namespace:       d.Namespace,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, r.kind.GroupVersionKind)},
		},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: new(int32), MinReadySeconds: d.Spec.MinReadySeconds, Selector: d.Spec.Selector.DeepCopy(),
			Template: *d.Spec.Template.DeepCopy(),
		},
	}
	withHash := func(m map[string]string) map[string]string {
		m = maps.Clone(m)
		if m == nil {
			m = map[string]string{}
		}
		m[appsv1.DefaultDeploymentUniqueLabelKey] = hash
		return m
	}
	set.Spec.Template.Labels = withHash(d.Spec.Template.Labels)
	set.Labels = set.Spec.Template.Labels
	set.Spec.Selector.MatchLabels = withHash(set.Spec.Selector.MatchLabels)
	*set.Spec.Replicas = r.newSize(append(slices.Clip(r.old), set), set)
	annotate(d, set, newRevision)
	setSizes(d, set)
	status := d.Status.DeepCopy()
	err := r.requests.createAndRead(ctx, r.Manager.kind(replicaSetResource()), set)
	switch {
	case apierrors.IsAlreadyExists(err):
		other, _ := get[*appsv1.ReplicaSet](r.Manager, replicaSetResource(), d.Namespace, set.Name)
		if other != nil && metav1.IsControlledBy(other, d) && sameTemplate(&other.Spec.Template, &d.Spec.Template) {
			set = other
			break
		}
		if status.CollisionCount == nil {
			status.CollisionCount = new(int32)
		}
		*status.CollisionCount++
		return errors.Join(err, r.writeStatus(ctx, status))
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return err
	case err != nil:
		if hasDeadline(d) {
			setCondition(status, progressing(corev1.ConditionFalse, "ReplicaSetCreateError",
				fmt.Sprintf("Failed to create new replica set %q: %v", set.Name, err)))
			return errors.Join(err, r.writeStatus(ctx, status))
		}
		return err
	case hasDeadline(d):
		setCondition(status, progressing(corev1.ConditionTrue, "NewReplicaSetCreated",
			fmt.Sprintf("Created new replica set %q", set.Name)))
	}
	r.current = set
	return r.writeRevision(ctx, strconv.FormatInt(newRevision, 10), status)
}

package controllers

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// Annotations of Deployments and their ReplicaSets.
const (
	revisionAnnotation        = "deployment.kubernetes.io/revision"
	revisionHistoryAnnotation = "deployment.kubernetes.io/revision-history"
	desiredAnnotation         = "deployment.kubernetes.io/desired-replicas"
	maxReplicasAnnotation     = "deployment.kubernetes.io/max-replicas"
	// maxRevisionHistory is the longest value of revisionHistoryAnnotation.
	maxRevisionHistory = 2000
)

// Reasons of the condition Progressing.
const (
	reasonAvailable = "NewReplicaSetAvailable"
	reasonTimedOut  = "ProgressDeadlineExceeded"
	reasonPaused    = "DeploymentPaused"
)

// deployments models the Deployment controller.
type deployments struct {
	*Manager
	requests *requester
}

func (d *deployments) String() string { return "deployment-controller" }

func (d *deployments) observe(add func(key string, due time.Time), now time.Time, c apiserver.Change) {
	if deployment, ok := c.Object.(*appsv1.Deployment); ok {
		add(objectKey(deployment).String(), now)
	}
	kind := appsv1.SchemeGroupVersion.WithKind("Deployment").GroupKind()
	d.owners(c, kind, deploymentResource(), replicaSetResource(), func(key string) { add(key, now) })
	if pod, ok := c.Old.(*corev1.Pod); ok && c.Object == nil { // Recreate waits until no Pod is left
		if controller := metav1.GetControllerOf(pod); controller != nil {
			if set := d.state.byUID[controller.UID]; set != nil {
				d.owners(apiserver.Change{Kind: set.kind, Object: set.obj}, kind, deploymentResource(),
					replicaSetResource(),
					func(key string) { add(key, now) })
			}
		}
	}
}

// rollout is one pass of the controller over a Deployment.
type rollout struct {
	*deployments
	kind       *apiserver.Kind
	deployment *appsv1.Deployment // a copy, which changes
	// current is the ReplicaSet with the Deployment's template, or nil. old are the others, by their creation.
	current  *appsv1.ReplicaSet
	old      []*appsv1.ReplicaSet
	nextSync time.Time
}

func (d *deployments) sync(ctx context.Context, key string) (time.Time, error) {
	namespace, name, _ := strings.Cut(key, "/")
	deployment, k := get[*appsv1.Deployment](d.Manager, deploymentResource(), namespace, name)
	if deployment == nil {
		return time.Time{}, nil
	}
	selector := selectorOf(deployment)
	if selector.String() == "" {
		return time.Time{}, nil
	}
	var candidates []*appsv1.ReplicaSet
	for _, obj := range d.list(replicaSetResource(), namespace) {
		candidates = append(candidates, obj.(*appsv1.ReplicaSet))
	}
	sets, err := claim(ctx, d.requests, d.Manager.kind(replicaSetResource()), deployment, k, selector, candidates)
	if err != nil {
		return time.Time{}, err
	}
	slices.SortStableFunc(sets, byCreation)
	r := &rollout{deployments: d, kind: k, deployment: deployment.DeepCopy()}
	for _, set := range sets {
		if r.current == nil && sameTemplate(&set.Spec.Template, &deployment.Spec.Template) {
			r.current = set
		} else {
			r.old = append(r.old, set)
		}
	}
	err = r.run(ctx)
	return r.nextSync, ignoreNotFound(err)
}

func byCreation(a, b *appsv1.ReplicaSet) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
}

// sameTemplate reports whether two templates are equal but for the label with their hash.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	delete(a.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	delete(b.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return equality.Semantic.DeepEqual(a, b)
}

func (r *rollout) run(ctx context.Context) error {
	d := r.deployment
	if d.DeletionTimestamp != nil {
		if err := r.adoptRevision(ctx, false); err != nil {
			return err
		}
		return r.writeStatus(ctx, r.status())
	}
	if err := r.reportPaused(ctx); err != nil {
		return err
	}
	if err := r.adoptRevision(ctx, false); err != nil {
		return err
	}
	switch {
	case d.Spec.Paused || r.resized():
		if err := r.resize(ctx); err != nil {
			return err
		}
		if d.Spec.Paused {
			if err := r.deleteOld(ctx); err != nil {
				return err
			}
		}
		return r.writeStatus(ctx, r.status())
	case d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType:
		return r.recreate(ctx)
	}
	return r.roll(ctx)
}

// all returns all ReplicaSets.
func (r *rollout) all() []*appsv1.ReplicaSet {
	if r.current == nil {
		return r.old
	}
	return append(slices.Clip(r.old), r.current)
}

// sum adds up a number of ReplicaSets.
func sum(sets []*appsv1.ReplicaSet, number func(*appsv1.ReplicaSet) int32) (total int32) {
	for _, set := range sets {
		total += number(set)
	}
	return total
}

func desired(set *appsv1.ReplicaSet) int32   { return *set.Spec.Replicas }
func actual(set *appsv1.ReplicaSet) int32    { return set.Status.Replicas }
func available(set *appsv1.ReplicaSet) int32 { return set.Status.AvailableReplicas }

// activeSets returns the ReplicaSets that are to have Pods.
func activeSets(sets []*appsv1.ReplicaSet) []*appsv1.ReplicaSet {
	return slices.DeleteFunc(slices.Clone(sets), func(set *appsv1.ReplicaSet) bool { return desired(set) == 0 })
}

// limits returns how many Pods there may be besides spec.replicas, and how many may be unavailable.
func limits(d *appsv1.Deployment) (surge, unavailable int32) {
	rolling := d.Spec.Strategy.RollingUpdate
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType || rolling == nil {
		return 0, 0
	}
	zero := intstr.FromInt32(0)
	scaled := func(value *intstr.IntOrString, roundUp bool) int32 {
		n, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(value, zero), int(*d.Spec.Replicas),
			roundUp)
		if err != nil {
			return 0 // an invalid value is rejected by the server
		}
		return int32(n)
	}
	surge, unavailable = scaled(rolling.MaxSurge, true), scaled(rolling.MaxUnavailable, false)
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	if *d.Spec.Replicas == 0 {
		unavailable = 0
	}
	return surge, min(unavailable, *d.Spec.Replicas)
}

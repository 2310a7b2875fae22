package controllers

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

func statefulSetResource() schema.GroupResource {
	return schema.GroupResource{Group: "apps", Resource: "statefulsets"}
}

// statefulSets models the StatefulSet controller.
type statefulSets struct {
	*Manager
	requests *requester
}

func (s *statefulSets) String() string { return "statefulset-controller" }

func (s *statefulSets) observe(add func(key string, due time.Time), now time.Time, c apiserver.Change) {
	if set, ok := c.Object.(*appsv1.StatefulSet); ok {
		add(objectKey(set).String(), now)
	}
	s.owners(c, appsv1.SchemeGroupVersion.WithKind("StatefulSet").GroupKind(), statefulSetResource(), podResource(),
		func(key string) { add(key, now) })
}

// statefulSync is one pass of the controller over a StatefulSet.
type statefulSync struct {
	*statefulSets
	kind            *apiserver.Kind
	set             *appsv1.StatefulSet // must not be changed
	current, update *appsv1.ControllerRevision
	collisions      int32
	// replicas are the Pods in the order of their ordinals. A Pod that does not exist yet has no phase.
	replicas []*corev1.Pod
	// condemned are the other Pods, highest ordinal first.
	condemned []*corev1.Pod
	now       time.Time
}

func (s *statefulSets) sync(ctx context.Context, key string) (time.Time, error) {
	namespace, name, _ := strings.Cut(key, "/")
	set, k := get[*appsv1.StatefulSet](s.Manager, statefulSetResource(), namespace, name)
	if set == nil {
		return time.Time{}, nil
	}
	selector := selectorOf(set)
	var candidates []*appsv1.ControllerRevision
	for _, obj := range s.list(revisionResource(), namespace) {
		if selector.Matches(labels.Set(obj.GetLabels())) {
			candidates = append(candidates, obj.(*appsv1.ControllerRevision))
		}
	}
	revisions, err := claim(ctx, s.requests, s.Manager.kind(revisionResource()), set, k, selector, candidates)
	if err != nil {
		return time.Time{}, err
	}
	var members []*corev1.Pod
	for _, obj := range s.list(podResource(), namespace) {
		if parent, ordinal := parentAndOrdinal(obj.GetName()); ordinal >= 0 && parent == set.Name {
			members = append(members, obj.(*corev1.Pod))
		}
	}
	pods, err := claim(ctx, s.requests, s.Manager.kind(podResource()), set, k, selector, members)
	if err != nil {
		return time.Time{}, err
	}
	r := &statefulSync{statefulSets: s, kind: k, set: set, now: time.Now()}
	slices.SortStableFunc(revisions, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
	})
	if err := r.findRevisions(ctx, revisions); err != nil {
		return time.Time{}, err
	}
	failure := r.run(ctx, pods)
	if err := r.truncateHistory(ctx, revisions, pods); failure == nil {
		failure = err
	}
	var next time.Time
	for _, pod := range pods {
		if at := availableAt(pod, set.Spec.MinReadySeconds); at.After(r.now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next, ignoreNotFound(failure)
}

// run creates and deletes Pods, and writes the status.
func (r *statefulSync) run(ctx context.Context, pods []*corev1.Pod) error {
	r.replicas = make([]*corev1.Pod, *r.set.Spec.Replicas)
	for _, pod := range pods {
		if inRange(r.set, pod) {
			r.replicas[ordinal(pod)-startOrdinal(r.set)] = pod
		} else {
			r.condemned = append(r.condemned, pod)
		}
	}
	slices.SortFunc(r.condemned, func(a, b *corev1.Pod) int { return ordinal(b) - ordinal(a) })
	for i, pod := range r.replicas {
		if pod != nil {
			continue
		}
		created, err := r.newPod(startOrdinal(r.set) + i)
		if err != nil {
			return err
		}
		r.replicas[i] = created
	}
	var replaced bool
	var failure error
	if r.set.DeletionTimestamp == nil {
		replaced, failure = r.act(ctx)
	}
	status := r.status(replaced)
	if old := r.set.Status; status.ObservedGeneration <= old.ObservedGeneration && status.Replicas == old.Replicas &&
		status.CurrentReplicas == old.CurrentReplicas && status.ReadyReplicas == old.ReadyReplicas &&
		status.UpdatedReplicas == old.UpdatedReplicas &&
		status.AvailableReplicas == old.AvailableReplicas && status.CurrentRevision == old.CurrentRevision &&
		status.UpdateRevision == old.UpdateRevision {
		return failure
	}
	updated := r.set.DeepCopy()
	updated.Status = status
	if err := r.requests.update(ctx, r.kind, updated, "status"); failure == nil {
		failure = err
	}
	return failure
}

// act creates and deletes Pods. It reports whether it has deleted a Pod that is to be replaced by one of the update
// revision.
func (r *statefulSync) act(ctx context.Context) (replaced bool, err error) {
	ordered := r.set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement
	var firstUnavailable *corev1.Pod
	for _, pod := range slices.Backward(r.condemned) {
		if r.unavailable(pod) && firstUnavailable == nil {
			firstUnavailable = pod
		}
	}
	for _, pod := range slices.Backward(r.replicas) {
		if r.unavailable(pod) {
			firstUnavailable = pod
		}
	}
	for _, pod := range r.replicas {
		if wait, err := r.ensure(ctx, pod, ordered); err != nil || wait && ordered {
			return false, err
		}
	}
	for _, pod := range r.condemned {
		if err := r.ownClaims(ctx, pod); err != nil {
			return false, err
		}
	}
	for _, pod := range r.condemned {
		blocked := pod.DeletionTimestamp != nil || ordered && !r.available(pod) && pod != firstUnavailable
		if !blocked {
			err = r.deletePod(ctx, pod)
		}
		if err != nil || ordered {
			return false, err
		}
	}
	return r.replaceOutdated(ctx)
}

// ensure makes a replica exist. It reports whether the later replicas have to wait for it, if they are ordered.
func (r *statefulSync) ensure(ctx context.Context, pod *corev1.Pod, ordered bool) (wait bool, err error) {
	switch {
	case terminal(pod):
		if pod.DeletionTimestamp == nil {
			err = r.deletePod(ctx, pod)
		}
		return true, err
	case pod.Status.Phase == "": // it does not exist
		if r.claimIsStale(pod) {
			return true, nil
		}
		return true, r.create(ctx, pod)
	case pod.Status.Phase == corev1.PodPending:
		if err := r.createClaims(ctx, pod); err != nil {
			return true, err
		}
		if err := r.ownClaims(ctx, pod); err != nil {
			return true, err
		}
	}
	if ordered && (pod.DeletionTimestamp != nil || !runningAndReady(pod) || !r.available(pod)) {
		return true, nil
	}
	identified := pod.Labels[appsv1.StatefulSetPodNameLabel] == pod.Name
	if !identified || !r.usesClaims(pod) {
		updated := pod.DeepCopy()
		if !identified {
			r.setIdentity(updated)
		}
		if !r.usesClaims(pod) {
			r.setVolumes(updated)
			if err := r.createClaims(ctx, pod); err != nil {
				return true, err
			}
		}
		if err := r.requests.update(ctx, r.Manager.kind(podResource()), updated); err != nil {
			return true, err
		}
	}
	return false, r.ownClaims(ctx, pod)
}

// replaceOutdated deletes the Pod with the highest ordinal that is not of the update revision, if the later ones are
// available.
func (r *statefulSync) replaceOutdated(ctx context.Context) (replaced bool, err error) {
	strategy := r.set.Spec.UpdateStrategy
	if strategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
		return false, nil
	}
	first := 0
	if strategy.RollingUpdate != nil {
		first = min(int(*strategy.RollingUpdate.Partition), len(r.replicas))
	}
	for _, pod := range slices.Backward(r.replicas[first:]) {
		switch {
		case podRevision(pod) != r.update.Name && pod.DeletionTimestamp == nil:
			err := r.deletePod(ctx, pod)
			return err == nil, err
		case r.unavailable(pod):
			return false, nil
		}
	}
	return false, nil
}

// status returns the status. replaced is true if a Pod of the current revision was deleted.
func (r *statefulSync) status(replaced bool) appsv1.StatefulSetStatus {
	status := appsv1.StatefulSetStatus{
		ObservedGeneration: r.set.Generation, CurrentRevision: r.current.Name, UpdateRevision: r.update.Name,
		CollisionCount: &r.collisions,
	}
	for _, pod := range slices.Concat(r.replicas, r.condemned) {
		if pod.Status.Phase == "" {
			continue
		}
		status.Replicas++
		if runningAndReady(pod) {
			status.ReadyReplicas++
			if r.available(pod) {
				status.AvailableReplicas++
			}
		}
		if pod.DeletionTimestamp != nil {
			continue
		}
		if podRevision(pod) == r.current.Name {
			status.CurrentReplicas++
		}
		if podRevision(pod) == r.update.Name {
			status.UpdatedReplicas++
		}
	}
	if replaced {
		status.CurrentReplicas--
	}
	if n := *r.set.Spec.Replicas; r.set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType &&
		status.UpdatedReplicas == n && status.ReadyReplicas == n && status.Replicas == n {
		status.CurrentReplicas, status.CurrentRevision = n, status.UpdateRevision
	}
	return status
}

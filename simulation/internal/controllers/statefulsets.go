package controllers

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

func statefulSetResource() schema.GroupResource {
	return schema.GroupResource{Group: "apps", Resource: "statefulsets"}
}

func revisionResource() schema.GroupResource {
	return schema.GroupResource{Group: "apps", Resource: "controllerrevisions"}
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
	s.owners(c, appsv1.SchemeGroupVersion.WithKind("StatefulSet").GroupKind(), statefulSetResource(), podResource(), func(key string) { add(key, now) })
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

// revisionData returns the data of the ControllerRevision with a template.
func revisionData(set *appsv1.StatefulSet) ([]byte, error) {
	text, err := json.Marshal(&set.Spec.Template)
	if err != nil {
		return nil, err
	}
	var template map[string]any // the keys are sorted, as those of the real controller
	if err := json.Unmarshal(text, &template); err != nil {
		return nil, err
	}
	template["$patch"] = "replace"
	return json.Marshal(map[string]any{"spec": map[string]any{"template": template}})
}

// findRevisions sets the current and the update revision. It creates the revision of the set's template if none of the
// revisions has it, and makes it the latest one otherwise.
func (r *statefulSync) findRevisions(ctx context.Context, revisions []*appsv1.ControllerRevision) error {
	data, err := revisionData(r.set)
	if err != nil {
		return fmt.Errorf("encode the template of %s: %w", objectKey(r.set), err)
	}
	if r.set.Status.CollisionCount != nil {
		r.collisions = *r.set.Status.CollisionCount
	}
	next := int64(1)
	for _, revision := range revisions {
		next = revision.Revision + 1
		if bytes.Equal(revision.Data.Raw, data) {
			r.update = revision
		}
		if revision.Name == r.set.Status.CurrentRevision {
			r.current = revision
		}
	}
	switch {
	case r.update == nil:
		if err := r.createRevision(ctx, data, next); err != nil {
			return err
		}
	case r.update != revisions[len(revisions)-1]:
		r.update = r.update.DeepCopy()
		r.update.Revision = next
		if err := r.requests.update(ctx, r.Manager.kind(revisionResource()), r.update); err != nil {
			return err
		}
	}
	if r.current == nil {
		r.current = r.update
	}
	return nil
}

func (r *statefulSync) createRevision(ctx context.Context, data []byte, number int64) error {
	const maxPrefix = 223
	set := r.set
	for ; ; r.collisions++ {
		hash := fnv.New32()
		hash.Write(append(data, strconv.Itoa(int(r.collisions))...))
		suffix := rand.SafeEncodeString(strconv.FormatUint(uint64(hash.Sum32()), 10))
		revision := &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{
				Name: set.Name[:min(len(set.Name), maxPrefix)] + "-" + suffix, Namespace: set.Namespace,
				Labels: maps.Clone(set.Spec.Template.Labels), Annotations: set.Annotations,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, r.kind.GroupVersionKind)},
			},
			Data: runtime.RawExtension{Raw: data}, Revision: number,
		}
		metav1.SetMetaDataLabel(&revision.ObjectMeta, "controller.kubernetes.io/hash", suffix)
		err := r.requests.create(ctx, r.Manager.kind(revisionResource()), revision)
		if !apierrors.IsAlreadyExists(err) {
			r.update = revision
			return err
		}
		if existing, _ := get[*appsv1.ControllerRevision](r.Manager, revisionResource(), set.Namespace, revision.Name); existing == nil || bytes.Equal(existing.Data.Raw, data) {
			r.update = revision
			return nil
		}
	}
}

// truncateHistory deletes the oldest revisions that no Pod has.
func (r *statefulSync) truncateHistory(ctx context.Context, revisions []*appsv1.ControllerRevision, pods []*corev1.Pod) error {
	unused := slices.DeleteFunc(slices.Clone(revisions), func(revision *appsv1.ControllerRevision) bool {
		return revision.Name == r.current.Name || revision.Name == r.update.Name ||
			slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return podRevision(pod) == revision.Name })
	})
	limit := int(*r.set.Spec.RevisionHistoryLimit)
	if limit < 0 || len(unused) <= limit {
		return nil
	}
	for _, revision := range unused[:len(unused)-limit] {
		if err := r.requests.delete(ctx, r.Manager.kind(revisionResource()), revision, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func podRevision(pod *corev1.Pod) string { return pod.Labels[appsv1.StatefulSetRevisionLabel] }

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
		status.CurrentReplicas == old.CurrentReplicas && status.ReadyReplicas == old.ReadyReplicas && status.UpdatedReplicas == old.UpdatedReplicas &&
		status.AvailableReplicas == old.AvailableReplicas && status.CurrentRevision == old.CurrentRevision && status.UpdateRevision == old.UpdateRevision {
		return failure
	}
	updated := r.set.DeepCopy()
	updated.Status = status
	if err := r.requests.update(ctx, r.kind, updated, "status"); failure == nil {
		failure = err
	}
	return failure
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
			return v.Name == claim.Name && v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == r.claimName(i, pod)
		}) {
			return false
		}
	}
	return true
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

// unavailable reports whether a Pod is not available or is being deleted.
func (r *statefulSync) unavailable(pod *corev1.Pod) bool {
	return !r.available(pod) || pod.DeletionTimestamp != nil
}

func (r *statefulSync) deletePod(ctx context.Context, pod *corev1.Pod) error {
	return ignoreNotFound(r.requests.delete(ctx, r.Manager.kind(podResource()), pod, metav1.DeleteOptions{}))
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
		ObservedGeneration: r.set.Generation, CurrentRevision: r.current.Name, UpdateRevision: r.update.Name, CollisionCount: &r.collisions,
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

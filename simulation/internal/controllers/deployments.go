package controllers

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/dump"

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
				d.owners(apiserver.Change{Kind: set.kind, Object: set.obj}, kind, deploymentResource(), replicaSetResource(),
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
	current *appsv1.ReplicaSet
	old     []*appsv1.ReplicaSet
	again   time.Time
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
	return r.again, ignoreNotFound(err)
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
		n, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(value, zero), int(*d.Spec.Replicas), roundUp)
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

func hasDeadline(d *appsv1.Deployment) bool {
	return d.Spec.ProgressDeadlineSeconds != nil && *d.Spec.ProgressDeadlineSeconds != math.MaxInt32
}

func deploymentCondition(status *appsv1.DeploymentStatus, t appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for i := range status.Conditions {
		if status.Conditions[i].Type == t {
			return &status.Conditions[i]
		}
	}
	return nil
}

// setCondition replaces a condition if its status or reason is another one.
func setCondition(status *appsv1.DeploymentStatus, condition appsv1.DeploymentCondition) {
	old := deploymentCondition(status, condition.Type)
	if old != nil && old.Status == condition.Status && old.Reason == condition.Reason {
		return
	}
	if condition.LastUpdateTime.IsZero() {
		condition.LastUpdateTime = seconds(time.Now())
	}
	if condition.LastTransitionTime.IsZero() {
		condition.LastTransitionTime = condition.LastUpdateTime
	}
	if old != nil && old.Status == condition.Status {
		condition.LastTransitionTime = old.LastTransitionTime
	}
	removeCondition(status, condition.Type)
	status.Conditions = append(status.Conditions, condition)
}

func removeCondition(status *appsv1.DeploymentStatus, t appsv1.DeploymentConditionType) {
	status.Conditions = slices.DeleteFunc(status.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == t })
}

func progressing(status corev1.ConditionStatus, reason, message string) appsv1.DeploymentCondition {
	return appsv1.DeploymentCondition{Type: appsv1.DeploymentProgressing, Status: status, Reason: reason, Message: message}
}

// writeStatus updates the status, and annotations of the Deployment.
func (r *rollout) writeStatus(ctx context.Context, status *appsv1.DeploymentStatus) error {
	if equality.Semantic.DeepEqual(*status, r.deployment.Status) {
		return nil
	}
	r.deployment.Status = *status
	return r.requests.updateAndRead(ctx, r.kind, r.deployment, "status")
}

// reportPaused reports in the condition Progressing that the Deployment is paused or resumed.
func (r *rollout) reportPaused(ctx context.Context) error {
	d := r.deployment
	condition := deploymentCondition(&d.Status, appsv1.DeploymentProgressing)
	if !hasDeadline(d) || condition != nil && condition.Reason == reasonTimedOut {
		return nil
	}
	status := d.Status.DeepCopy()
	paused := condition != nil && condition.Reason == reasonPaused
	switch {
	case d.Spec.Paused && !paused:
		setCondition(status, progressing(corev1.ConditionUnknown, reasonPaused, "Deployment is paused"))
	case !d.Spec.Paused && paused:
		setCondition(status, progressing(corev1.ConditionUnknown, "DeploymentResumed", "Deployment is resumed"))
	}
	return r.writeStatus(ctx, status)
}

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
		setCondition(status, progressing(corev1.ConditionTrue, "FoundNewReplicaSet", fmt.Sprintf("Found new replica set %q", set.Name)))
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
		case corev1.LastAppliedConfigAnnotation, revisionAnnotation, revisionHistoryAnnotation, desiredAnnotation, maxReplicasAnnotation,
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
		history := append(strings.FieldsFunc(set.Annotations[revisionHistoryAnnotation], func(c rune) bool { return c == ',' }), old)
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
	for key, value := range map[string]int32{desiredAnnotation: *d.Spec.Replicas, maxReplicasAnnotation: *d.Spec.Replicas + surge} {
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
			Name: d.Name[:min(len(d.Name), validation.DNS1123SubdomainMaxLength-len(hash)-1)] + "-" + hash, Namespace: d.Namespace,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, r.kind.GroupVersionKind)},
		},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: new(int32), MinReadySeconds: d.Spec.MinReadySeconds, Selector: d.Spec.Selector.DeepCopy(), Template: *d.Spec.Template.DeepCopy(),
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
			setCondition(status, progressing(corev1.ConditionFalse, "ReplicaSetCreateError", fmt.Sprintf("Failed to create new replica set %q: %v", set.Name, err)))
			return errors.Join(err, r.writeStatus(ctx, status))
		}
		return err
	case hasDeadline(d):
		setCondition(status, progressing(corev1.ConditionTrue, "NewReplicaSetCreated", fmt.Sprintf("Created new replica set %q", set.Name)))
	}
	r.current = set
	return r.writeRevision(ctx, strconv.FormatInt(newRevision, 10), status)
}

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
		owned := slices.ContainsFunc(r.old, func(set *appsv1.ReplicaSet) bool { return metav1.IsControlledBy(obj, set) })
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
	sets := slices.DeleteFunc(slices.Clone(r.old), func(set *appsv1.ReplicaSet) bool { return set.DeletionTimestamp != nil })
	slices.SortStableFunc(sets, func(a, b *appsv1.ReplicaSet) int {
		return cmp.Or(cmp.Compare(revision(a), revision(b)), byCreation(a, b))
	})
	for _, set := range sets[:max(0, len(sets)-int(*limit))] {
		if actual(set) != 0 || desired(set) != 0 || set.Generation > set.Status.ObservedGeneration {
			continue
		}
		if err := r.requests.delete(ctx, r.Manager.kind(replicaSetResource()), set, metav1.DeleteOptions{}); ignoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// status returns the counts and the condition Available.
func (r *rollout) status() *appsv1.DeploymentStatus {
	d, all := r.deployment, r.all()
	status := d.Status.DeepCopy()
	status.ObservedGeneration = d.Generation
	status.Replicas = sum(all, actual)
	status.UpdatedReplicas = 0
	if r.current != nil {
		status.UpdatedReplicas = actual(r.current)
	}
	status.ReadyReplicas = sum(all, func(set *appsv1.ReplicaSet) int32 { return set.Status.ReadyReplicas })
	status.AvailableReplicas = sum(all, available)
	status.UnavailableReplicas = max(0, sum(all, desired)-status.AvailableReplicas)
	terminating := int32(0)
	status.TerminatingReplicas = &terminating
	for _, set := range all {
		switch {
		case set.Status.TerminatingReplicas != nil:
			terminating += *set.Status.TerminatingReplicas
		case set.Status.ObservedGeneration != 0:
			status.TerminatingReplicas = nil
		}
	}
	_, unavailable := limits(d)
	condition := appsv1.DeploymentCondition{
		Type: appsv1.DeploymentAvailable, Status: corev1.ConditionFalse,
		Reason: "MinimumReplicasUnavailable", Message: "Deployment does not have minimum availability.",
	}
	if status.AvailableReplicas >= *d.Spec.Replicas-unavailable {
		condition.Status, condition.Reason, condition.Message = corev1.ConditionTrue, "MinimumReplicasAvailable", "Deployment has minimum availability."
	}
	setCondition(status, condition)
	return status
}

// complete reports whether all Pods of a Deployment are new and available.
func complete(d *appsv1.Deployment, status *appsv1.DeploymentStatus) bool {
	n := *d.Spec.Replicas
	return status.UpdatedReplicas == n && status.Replicas == n && status.AvailableReplicas == n && status.ObservedGeneration >= d.Generation
}

// writeProgress writes the status with the conditions Progressing and ReplicaFailure.
func (r *rollout) writeProgress(ctx context.Context) error {
	d := r.deployment
	status, now := r.status(), time.Now()
	if !hasDeadline(d) {
		removeCondition(status, appsv1.DeploymentProgressing)
	}
	condition := deploymentCondition(&d.Status, appsv1.DeploymentProgressing)
	done := status.Replicas == status.UpdatedReplicas && condition != nil && condition.Reason == reasonAvailable
	subject := fmt.Sprintf("Deployment %q", d.Name)
	if r.current != nil {
		subject = fmt.Sprintf("ReplicaSet %q", r.current.Name)
	}
	deadline := func() time.Time {
		return condition.LastUpdateTime.Add(time.Duration(*d.Spec.ProgressDeadlineSeconds) * time.Second)
	}
	if hasDeadline(d) && !done {
		oldReplicas := func(s *appsv1.DeploymentStatus) int32 { return s.Replicas - s.UpdatedReplicas }
		switch before := &d.Status; {
		case complete(d, status):
			setCondition(status, progressing(corev1.ConditionTrue, reasonAvailable, subject+" has successfully progressed."))
		case status.UpdatedReplicas > before.UpdatedReplicas || oldReplicas(status) < oldReplicas(before) ||
			status.ReadyReplicas > before.ReadyReplicas || status.AvailableReplicas > before.AvailableReplicas:
			updated := progressing(corev1.ConditionTrue, "ReplicaSetUpdated", subject+" is progressing.")
			if condition != nil && condition.Status == corev1.ConditionTrue {
				updated.LastTransitionTime = condition.LastTransitionTime
			}
			removeCondition(status, appsv1.DeploymentProgressing)
			setCondition(status, updated)
		case condition != nil && (condition.Reason == reasonTimedOut || condition.Reason != reasonAvailable && deadline().Before(now)):
			setCondition(status, progressing(corev1.ConditionFalse, reasonTimedOut, subject+" has timed out progressing."))
		}
	}
	removeCondition(status, appsv1.DeploymentReplicaFailure)
	if failure := r.failure(); failure != nil {
		if old := deploymentCondition(&d.Status, appsv1.DeploymentReplicaFailure); old != nil && old.Reason == failure.Reason {
			failure = old
		}
		setCondition(status, *failure)
	}
	// After an update, unavailable Pods do not time out: the time of the next pass would be in the past.
	waits := condition != nil && condition.Reason != reasonTimedOut && condition.Reason != reasonAvailable
	if equality.Semantic.DeepEqual(*status, d.Status) && hasDeadline(d) && waits && !complete(d, status) {
		r.again = deadline().Add(time.Second)
	}
	return r.writeStatus(ctx, status)
}

// failure returns the first failure of a ReplicaSet to create or delete Pods: that of the current one, if it has one.
func (r *rollout) failure() *appsv1.DeploymentCondition {
	all := slices.Clone(r.old)
	if r.current != nil {
		all = append([]*appsv1.ReplicaSet{r.current}, all...)
	}
	for _, set := range all {
		for _, c := range set.Status.Conditions {
			if c.Type == appsv1.ReplicaSetReplicaFailure {
				return &appsv1.DeploymentCondition{
					Type: appsv1.DeploymentReplicaFailure, Status: c.Status, Reason: c.Reason, Message: c.Message,
					LastTransitionTime: c.LastTransitionTime, LastUpdateTime: c.LastTransitionTime,
				}
			}
		}
	}
	return nil
}

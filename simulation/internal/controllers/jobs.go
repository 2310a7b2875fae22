package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

const (
	// jobDelay is the time from a change of a Pod until the controller works on its Job.
	jobDelay = time.Second
	// The delay of the Pod that replaces a failed one doubles with each failure.
	firstPodBackoff = 10 * time.Second
	maxPodBackoff   = 10 * time.Minute
)

// orphanPrefix is the prefix of the keys of Pods that have the finalizer of a Job and do not belong to one any more.
const orphanPrefix = "pod "

// jobs models the Job controller, and the controller that deletes finished Jobs.
type jobs struct {
	*Manager
	requests, deleter *requester
	backoffs          map[types.UID]podBackoff
}

// podBackoff counts the failures of a Job's Pods since the last one that succeeded.
type podBackoff struct {
	failures int
	last     time.Time
}

func jobResource() schema.GroupResource {
	return schema.GroupResource{Group: "batch", Resource: "jobs"}
}

func (j *jobs) String() string { return "job-controller" }

func (j *jobs) observe(add func(key string, due time.Time), now time.Time, c apiserver.Change) {
	if job, ok := c.Object.(*batchv1.Job); ok {
		add(objectKey(job).String(), now)
	} else if job, ok := c.Old.(*batchv1.Job); ok {
		delete(j.backoffs, job.UID)
		for uid := range j.state.dependents[job.UID] {
			if pod, ok := j.state.byUID[uid].obj.(*corev1.Pod); ok && j.orphaned(pod) {
				add(orphanPrefix+objectKey(pod).String(), now)
			}
		}
	}
	if pod, ok := c.Object.(*corev1.Pod); ok && j.orphaned(pod) {
		add(orphanPrefix+objectKey(pod).String(), now)
	}
	due := now.Add(jobDelay)
	if c.Old == nil || c.Object == nil {
		due = now
	}
	kind := batchv1.SchemeGroupVersion.WithKind("Job").GroupKind()
	j.owners(c, kind, jobResource(), podResource(), func(key string) { add(key, due) })
}

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
	job, _ := j.state.objects[jobResource()][types.NamespacedName{Namespace: pod.Namespace, Name: controller.Name}].(*batchv1.Job)
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

// managedElsewhere reports whether another controller manages a Job.
func managedElsewhere(job *batchv1.Job) bool {
	return job.Spec.ManagedBy != nil && *job.Spec.ManagedBy != batchv1.JobControllerName
}

// jobPass is one pass of the controller over a Job.
type jobPass struct {
	*jobs
	kind    *apiserver.Kind
	job     *batchv1.Job // a copy, which changes
	stored  batchv1.JobStatus
	pods    []*corev1.Pod
	indexes []int // with a Pod that succeeded; sorted
	// failedIndexes are the indexes with more failures than backoffLimitPerIndex; sorted. awaited are the failed Pods that
	// keep their finalizer until the next Pod of their index has their number of failures.
	failedIndexes []int
	awaited       map[int]*corev1.Pod
	// succeeded and failed include Pods that are not in the status.
	succeeded, failed          int32
	active, ready, terminating int32
	backoff                    podBackoff
	finished                   *batchv1.JobCondition
	again                      time.Time
}

func (j *jobs) sync(ctx context.Context, key string) (time.Time, error) {
	if pod, isOrphan := strings.CutPrefix(key, orphanPrefix); isOrphan {
		return time.Time{}, j.syncOrphan(ctx, pod)
	}
	namespace, name, _ := strings.Cut(key, "/")
	job, k := get[*batchv1.Job](j.Manager, jobResource(), namespace, name)
	if job == nil || managedElsewhere(job) {
		return time.Time{}, nil
	}
	if c := finishedCondition(job); c != nil {
		return j.expire(ctx, k, job, c)
	}
	var candidates []*corev1.Pod
	for _, obj := range j.list(podResource(), namespace) {
		candidates = append(candidates, obj.(*corev1.Pod))
	}
	pods, err := claim(ctx, j.requests, j.Manager.kind(podResource()), job, k, selectorOf(job), candidates)
	if err != nil {
		return time.Time{}, err
	}
	p := &jobPass{jobs: j, kind: k, job: job.DeepCopy(), stored: job.Status, pods: pods}
	err = p.run(ctx)
	return p.again, ignoreNotFound(err)
}

// finishedCondition returns the condition Complete or Failed if it is true.
func finishedCondition(job *batchv1.Job) *batchv1.JobCondition {
	if c := jobCondition(&job.Status, batchv1.JobComplete); c != nil {
		return c
	}
	return jobCondition(&job.Status, batchv1.JobFailed)
}

// jobCondition returns a condition that is true, or nil.
func jobCondition(status *batchv1.JobStatus, t batchv1.JobConditionType) *batchv1.JobCondition {
	for i, c := range status.Conditions {
		if c.Type == t && c.Status == corev1.ConditionTrue {
			return &status.Conditions[i]
		}
	}
	return nil
}

func newJobCondition(t batchv1.JobConditionType, status corev1.ConditionStatus, reason, message string) *batchv1.JobCondition {
	now := seconds(time.Now())
	return &batchv1.JobCondition{Type: t, Status: status, Reason: reason, Message: message, LastProbeTime: now, LastTransitionTime: now}
}

// expire deletes a finished Job ttlSecondsAfterFinished after its end.
func (j *jobs) expire(ctx context.Context, k *apiserver.Kind, job *batchv1.Job, finished *batchv1.JobCondition) (time.Time, error) {
	ttl := job.Spec.TTLSecondsAfterFinished
	if ttl == nil || job.DeletionTimestamp != nil {
		return time.Time{}, nil
	}
	if due := finished.LastTransitionTime.Add(time.Duration(*ttl) * time.Second); due.After(time.Now()) {
		return due, nil
	}
	policy, uid, resourceVersion := metav1.DeletePropagationForeground, job.UID, job.ResourceVersion
	return time.Time{}, ignoreNotFound(j.deleter.delete(ctx, k, job, metav1.DeleteOptions{
		PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &resourceVersion},
	}))
}

func (p *jobPass) run(ctx context.Context) error {
	status := &p.job.Status
	if status.UncountedTerminatedPods == nil {
		status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	var activePods []*corev1.Pod
	for _, pod := range p.pods {
		switch {
		case active(pod):
			activePods = append(activePods, pod)
			if ready(pod) {
				p.ready++
			}
		case !terminal(pod):
			p.terminating++
		}
	}
	p.active = int32(len(activePods))
	p.count()
	if status.StartTime == nil && !p.suspended() {
		now := seconds(time.Now())
		status.StartTime = &now
	}
	p.finished = p.outcome()
	var failure error
	if p.finished != nil {
		for _, pod := range activePods {
			if err := ignoreNotFound(p.requests.delete(ctx, p.podKind(), pod, metav1.DeleteOptions{})); err != nil {
				failure, p.finished = err, nil
				continue
			}
			p.deleted(pod)
		}
	} else {
		failure = p.manage(ctx, activePods)
	}
	status.Active, status.Ready, status.Terminating = p.active, &p.ready, &p.terminating
	if err := p.track(ctx); err != nil {
		return err
	}
	return failure
}

func (p *jobPass) podKind() *apiserver.Kind { return p.Manager.kind(podResource()) }

func (p *jobPass) suspended() bool { return isTrue(p.job.Spec.Suspend) }

func (p *jobPass) indexed() bool {
	return p.job.Spec.CompletionMode != nil && *p.job.Spec.CompletionMode == batchv1.IndexedCompletion
}

// deleted counts a Pod that was deleted.
func (p *jobPass) deleted(pod *corev1.Pod) {
	p.active--
	p.terminating++
	if ready(pod) {
		p.ready--
	}
}

func tracked(pod *corev1.Pod) bool {
	return slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer)
}

// podFailed reports whether a Pod counts as failed. A Pod that is being deleted does, unless only failed Pods are
// replaced.
func (p *jobPass) podFailed(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed ||
		!p.replacesOnlyFailed() && pod.DeletionTimestamp != nil && pod.Status.Phase != corev1.PodSucceeded
}

func (p *jobPass) replacesOnlyFailed() bool {
	policy := p.job.Spec.PodReplacementPolicy
	return policy != nil && *policy == batchv1.Failed
}

// count counts the Pods that ended.
func (p *jobPass) count() {
	uncounted := p.job.Status.UncountedTerminatedPods
	p.succeeded = p.job.Status.Succeeded + int32(len(uncounted.Succeeded))
	p.failed = p.job.Status.Failed + int32(len(uncounted.Failed))
	p.backoff = p.backoffs[p.job.UID]
	var succeeded, failed []time.Time
	for _, pod := range p.pods {
		if !tracked(pod) || p.indexed() && !p.validIndex(completionIndex(pod)) {
			continue
		}
		switch {
		case pod.Status.Phase == corev1.PodSucceeded && !slices.Contains(uncounted.Succeeded, pod.UID):
			succeeded = append(succeeded, endOf(pod))
		case p.podFailed(pod) && !slices.Contains(uncounted.Failed, pod.UID):
			failed = append(failed, endOf(pod))
			if counts, _ := p.matchFailure(pod); counts {
				p.failed++
			}
		}
	}
	p.succeeded += int32(len(succeeded))
	if len(succeeded) > 0 {
		latest := slices.MaxFunc(succeeded, time.Time.Compare)
		p.backoff = podBackoff{}
		failed = slices.DeleteFunc(failed, func(t time.Time) bool { return !t.After(latest) })
	}
	if len(failed) > 0 {
		p.backoff.failures += len(failed)
		p.backoff.last = slices.MaxFunc(failed, time.Time.Compare)
	}
	if p.indexed() {
		p.countIndexes()
	}
}

// endOf returns when a Pod ended.
func endOf(pod *corev1.Pod) time.Time {
	var latest time.Time
	ended := len(pod.Status.ContainerStatuses) > 0
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Terminated == nil || c.State.Terminated.FinishedAt.IsZero() {
			ended = false
		} else if c.State.Terminated.FinishedAt.After(latest) {
			latest = c.State.Terminated.FinishedAt.Time
		}
	}
	switch c := readyCondition(pod); {
	case ended:
		return latest
	case c != nil && c.Status == corev1.ConditionFalse && !c.LastTransitionTime.IsZero():
		return c.LastTransitionTime.Time
	case pod.DeletionTimestamp != nil:
		var grace int64
		if pod.DeletionGracePeriodSeconds != nil {
			grace = *pod.DeletionGracePeriodSeconds
		}
		return pod.DeletionTimestamp.Add(-time.Duration(grace) * time.Second)
	}
	return pod.CreationTimestamp.Time
}

// outcome returns the condition with which the Job is about to end, or nil.
func (p *jobPass) outcome() *batchv1.JobCondition {
	job := p.job
	if c := jobCondition(&job.Status, batchv1.JobSuccessCriteriaMet); c != nil {
		return c
	}
	if c := jobCondition(&job.Status, batchv1.JobFailureTarget); c != nil {
		return newJobCondition(batchv1.JobFailed, corev1.ConditionTrue, c.Reason, c.Message)
	}
	for _, pod := range p.pods {
		if _, rule := p.matchFailure(pod); p.podFailed(pod) && rule.action == batchv1.PodFailurePolicyActionFailJob {
			return newJobCondition(batchv1.JobFailureTarget, corev1.ConditionTrue, batchv1.JobReasonPodFailurePolicy, rule.message)
		}
	}
	if p.failed > *job.Spec.BackoffLimit || p.tooManyRestarts() {
		return newJobCondition(batchv1.JobFailureTarget, corev1.ConditionTrue, batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit")
	}
	if job.Spec.ActiveDeadlineSeconds != nil && job.Status.StartTime != nil && !p.suspended() {
		deadline := job.Status.StartTime.Add(time.Duration(*job.Spec.ActiveDeadlineSeconds) * time.Second)
		if !deadline.After(time.Now()) {
			return newJobCondition(batchv1.JobFailureTarget, corev1.ConditionTrue, batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline")
		}
		p.again = deadline
	}
	if p.indexed() {
		return p.indexedOutcome()
	}
	return nil
}

// tooManyRestarts reports whether the containers of a Job whose Pods restart them have failed too often.
func (p *jobPass) tooManyRestarts() bool {
	if p.job.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		return false
	}
	restarts := int32(0)
	for _, pod := range p.pods {
		if pod.Status.Phase == corev1.PodRunning || pod.Status.Phase == corev1.PodPending {
			for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
				restarts += c.RestartCount
			}
		}
	}
	return restarts >= max(1, *p.job.Spec.BackoffLimit)
}

// manage creates and deletes Pods, and completes the Job if it needs no more.
func (p *jobPass) manage(ctx context.Context, activePods []*corev1.Pod) error {
	var failure error
	managed := p.job.DeletionTimestamp == nil
	if managed {
		failure = p.scale(ctx, activePods)
	}
	completions := p.job.Spec.Completions
	switch {
	case p.active == 0 && (completions == nil && p.succeeded > 0 || completions != nil && p.succeeded >= *completions):
		p.finished = newJobCondition(batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue, batchv1.JobReasonCompletionsReached, "Reached expected number of succeeded pods")
	case managed && p.suspended():
		if p.setCondition(newJobCondition(batchv1.JobSuspended, corev1.ConditionTrue, "JobSuspended", "Job suspended")) {
			p.job.Status.StartTime = nil
		}
	case managed:
		if p.setCondition(newJobCondition(batchv1.JobSuspended, corev1.ConditionFalse, "JobResumed", "Job resumed")) {
			now := seconds(time.Now())
			p.job.Status.StartTime = &now
		}
	}
	return failure
}

// setCondition adds or replaces a condition, and reports whether it changed. It adds no condition that is false.
func (p *jobPass) setCondition(condition *batchv1.JobCondition) bool {
	conditions := p.job.Status.Conditions
	i := slices.IndexFunc(conditions, func(c batchv1.JobCondition) bool { return c.Type == condition.Type })
	switch {
	case i < 0 && condition.Status == corev1.ConditionFalse:
		return false
	case i < 0:
		p.job.Status.Conditions = append(conditions, *condition)
		return true
	case conditions[i].Status == condition.Status && conditions[i].Reason == condition.Reason && conditions[i].Message == condition.Message:
		return false
	}
	conditions[i] = *condition
	return true
}

// scale creates missing Pods and deletes superfluous ones.
func (p *jobPass) scale(ctx context.Context, activePods []*corev1.Pod) error {
	wanted := *p.job.Spec.Parallelism
	switch completions := p.job.Spec.Completions; {
	case p.suspended():
		wanted = 0
	case completions != nil:
		wanted = max(0, min(wanted, *completions-p.succeeded))
	case p.succeeded > 0:
		wanted = p.active
	}
	if superfluous := p.superfluous(activePods, int(p.active-wanted)); len(superfluous) > 0 {
		var failure error
		for _, pod := range superfluous[:min(len(superfluous), burst)] {
			err := p.requests.removeTrackingFinalizer(ctx, p.podKind(), pod)
			if err == nil {
				err = p.requests.delete(ctx, p.podKind(), pod, metav1.DeleteOptions{})
			}
			if err = ignoreNotFound(err); err == nil {
				p.deleted(pod)
			} else {
				failure = err
			}
		}
		return failure
	}
	missing := wanted - p.active
	if p.replacesOnlyFailed() {
		missing -= p.terminating
	}
	if missing <= 0 {
		return nil
	}
	if p.backoff.failures > 0 && !p.limitsIndexes() {
		if due := p.backoff.last.Add(podDelay(p.backoff.failures)); due.After(time.Now()) {
			p.again = earliest(p.again, due)
			return nil
		}
	}
	indexes := p.missingIndexes(activePods, int(missing))
	if p.indexed() {
		missing = int32(len(indexes))
	}
	created, err := p.requests.createPods(ctx, p.podKind(), int(min(missing, burst)), func() *corev1.Pod {
		pod := podFromTemplate(&p.job.Spec.Template, p.job, p.kind)
		pod.Finalizers = append(pod.Finalizers, batchv1.JobTrackingFinalizer)
		if p.indexed() {
			setIndex(pod, p.job.Name, indexes[0])
			p.setFailures(pod, indexes[0])
			indexes = indexes[1:]
		}
		return pod
	})
	p.active += int32(created)
	return err
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

func (r *requester) removeTrackingFinalizer(ctx context.Context, k *apiserver.Kind, pod *corev1.Pod) error {
	if !tracked(pod) {
		return nil
	}
	patch := map[string]any{"metadata": map[string]any{"$deleteFromPrimitiveList/finalizers": []string{batchv1.JobTrackingFinalizer}}}
	return r.patch(ctx, k, pod, types.StrategicMergePatchType, patch)
}

// track counts each Pod that ended exactly once: it writes the Pod's uid into the status, removes its finalizer, and
// then adds it to the numbers in the status.
func (p *jobPass) track(ctx context.Context) error {
	status := &p.job.Status
	uncounted := status.UncountedTerminatedPods
	p.countUntracked(p.pods)
	var ended []*corev1.Pod
	for _, pod := range p.pods {
		failed := p.podFailed(pod)
		if !tracked(pod) || p.job.DeletionTimestamp == nil && p.finished == nil && pod.Status.Phase != corev1.PodSucceeded && !failed {
			continue
		}
		index := completionIndex(pod)
		if p.job.DeletionTimestamp == nil && p.finished == nil && pod.Status.Phase != corev1.PodSucceeded && p.awaited[index] == pod {
			continue
		}
		ended = append(ended, pod)
		failedTarget := p.finished != nil && (p.finished.Type == batchv1.JobFailureTarget || p.finished.Type == batchv1.JobFailed)
		switch {
		case pod.Status.Phase == corev1.PodSucceeded && !slices.Contains(uncounted.Failed, pod.UID):
			if !p.indexed() && !slices.Contains(uncounted.Succeeded, pod.UID) {
				uncounted.Succeeded = append(uncounted.Succeeded, pod.UID)
			}
		case (failed || failedTarget) && !slices.Contains(uncounted.Failed, pod.UID) && (!p.indexed() || p.validIndex(index)):
			if counts, _ := p.matchFailure(pod); !counts {
				continue
			}
			uncounted.Failed = append(uncounted.Failed, pod.UID)
		}
	}
	if p.indexed() {
		status.Succeeded, status.CompletedIndexes = int32(len(p.indexes)), formatIndexes(p.indexes)
		status.FailedIndexes = nil
		if p.limitsIndexes() {
			failed := formatIndexes(p.failedIndexes)
			status.FailedIndexes = &failed
		}
	}
	if c := p.finished; c != nil && c.Type == batchv1.JobFailureTarget {
		status.Conditions = append(status.Conditions, *c)
		p.finished = newJobCondition(batchv1.JobFailed, corev1.ConditionTrue, c.Reason, c.Message)
	}
	if c := p.finished; c != nil && c.Type == batchv1.JobSuccessCriteriaMet {
		if jobCondition(status, batchv1.JobSuccessCriteriaMet) == nil {
			status.Conditions = append(status.Conditions, *c)
		}
		p.finished = newJobCondition(batchv1.JobComplete, corev1.ConditionTrue, c.Reason, c.Message)
	}
	if err := p.writeStatus(ctx); err != nil {
		return err
	}
	status = &p.job.Status // of the response
	if status.UncountedTerminatedPods == nil {
		status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	p.mu.Lock()
	p.backoffs[p.job.UID] = p.backoff
	p.mu.Unlock()
	for _, pod := range ended {
		if err := ignoreNotFound(p.requests.removeTrackingFinalizer(ctx, p.podKind(), pod)); err != nil {
			return fmt.Errorf("remove the finalizer of Pod %s: %w", pod.Name, err)
		}
	}
	remaining := slices.DeleteFunc(slices.Clone(p.pods), func(pod *corev1.Pod) bool { return slices.Contains(ended, pod) })
	p.countUntracked(remaining)
	uncounted = status.UncountedTerminatedPods
	if c := p.finished; c != nil && len(uncounted.Succeeded)+len(uncounted.Failed) == 0 && p.terminating == 0 {
		p.setCondition(c)
		if c.Type == batchv1.JobComplete {
			status.CompletionTime = &c.LastTransitionTime
		}
	}
	return p.writeStatus(ctx)
}

// countUntracked counts Pods whose uids are in the status, and which have no finalizer any more.
func (p *jobPass) countUntracked(pods []*corev1.Pod) {
	counted := func(uids []types.UID, total *int32) []types.UID {
		var remaining []types.UID
		for _, uid := range uids {
			if slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return pod.UID == uid && tracked(pod) }) {
				remaining = append(remaining, uid)
			} else {
				*total++
			}
		}
		return remaining
	}
	status := &p.job.Status
	status.UncountedTerminatedPods.Succeeded = counted(status.UncountedTerminatedPods.Succeeded, &status.Succeeded)
	status.UncountedTerminatedPods.Failed = counted(status.UncountedTerminatedPods.Failed, &status.Failed)
}

// writeStatus writes the status if it has changed.
func (p *jobPass) writeStatus(ctx context.Context) error {
	if equality.Semantic.DeepEqual(p.job.Status, p.stored) {
		return nil
	}
	if err := p.requests.updateAndRead(ctx, p.kind, p.job, "status"); err != nil {
		return err
	}
	p.stored = *p.job.Status.DeepCopy()
	return nil
}
